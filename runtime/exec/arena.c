#include "exec/arena.h"

#include <stdio.h>

#include "base/alloc.h"

void clt_arena_init(clt_arena *arena, clt_device *device)
{
    *arena = (clt_arena){.device = device};
}

static clt_status add_slabs(clt_arena *arena, int count)
{
    if (count <= arena->n_slabs)
        return CLT_OK;
    cl_mem *slabs = clt_realloc(arena->slabs, (size_t)count * sizeof *slabs);
    CLT_TRY_MEMORY(slabs);
    arena->slabs = slabs;
    int64_t *bytes = clt_realloc(arena->bytes, (size_t)count * sizeof *bytes);
    CLT_TRY_MEMORY(bytes);
    arena->bytes = bytes;
    for (; arena->n_slabs < count; arena->n_slabs++) {
        arena->slabs[arena->n_slabs] = NULL;
        arena->bytes[arena->n_slabs] = 0;
    }
    return CLT_OK;
}

static clt_status fit_slab(clt_arena *arena, const clt_plan *plan, int slab, int slot)
{
    const int i = clt_plan_slab(plan, slab, slot);
    char name[96];
    if (arena->bytes[i] >= plan->slabs[slab])
        return CLT_OK;
    snprintf(name, sizeof name, "intermediates of a batch of %lld, slab %d",
             (long long)plan->options.max_batch, i);
    clt_release_buffer(arena->slabs[i]);
    arena->slabs[i] = NULL;
    arena->bytes[i] = 0;
    arena->owner = NULL;
    CLT_TRY(clt_device_buffer_create(arena->device, plan->slabs[slab], CL_MEM_READ_WRITE, name,
                                     &arena->slabs[i]));
    arena->bytes[i] = plan->slabs[slab];
    return CLT_OK;
}

clt_status clt_arena_fit(clt_arena *arena, const clt_plan *plan)
{
    CLT_TRY(add_slabs(arena, clt_plan_all_slabs(plan)));
    for (int i = 0; i < plan->n_slabs; i++)
        for (int slot = 0;
             slot == 0 || (i < plan->n_flight_slabs && slot < plan->options.in_flight); slot++)
            CLT_TRY(fit_slab(arena, plan, i, slot));
    return CLT_OK;
}

clt_status clt_arena_poison(clt_arena *arena, const clt_plan *plan, int slot)
{
    const cl_uint signalling_nan = 0x7fa00000u;
    for (int s = 0; s < plan->n_slabs; s++) {
        const int i = clt_plan_slab(plan, s, slot);
        CLT_CL(clEnqueueFillBuffer(arena->device->queue, arena->slabs[i], &signalling_nan,
                                   sizeof signalling_nan, 0, (size_t)arena->bytes[i] / 4 * 4, 0,
                                   NULL, NULL),
               "clEnqueueFillBuffer", arena->device);
    }
    return CLT_OK;
}

void clt_arena_destroy(clt_arena *arena)
{
    for (int i = 0; i < arena->n_slabs; i++)
        clt_release_buffer(arena->slabs[i]);
    CLT_FREE(arena->slabs, arena->bytes);
    *arena = (clt_arena){0};
}
