/* Scratch memory of a device, shared by all plans that run on it one after the other. */
#ifndef CLT_EXEC_ARENA_H
#define CLT_EXEC_ARENA_H

#include "device/core/device.h"
#include "plan/plan.h"

typedef struct clt_arena {
    clt_device *device;
    cl_mem *slabs;
    int64_t *bytes;
    int n_slabs;
    const void *owner; /* the exec whose intermediates the arena holds */
} clt_arena;

void clt_arena_init(clt_arena *arena, clt_device *device);

/* Makes every slab at least as large as the plan needs. A slab that grows loses its content. On
 * failure the message says how much the plan needs at its batch and how much the device has. */
clt_status clt_arena_fit(clt_arena *arena, const clt_plan *plan);

/* Fills the slabs of a slot (see clt_plan_slab) with signalling NaNs, for tests that nothing reads
 * values that it did not write. */
clt_status clt_arena_poison(clt_arena *arena, const clt_plan *plan, int slot);

void clt_arena_destroy(clt_arena *arena);

#endif
