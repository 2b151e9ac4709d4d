/* Scratch memory of a device, shared by all plans that run there one after the other. */
#ifndef CLT_EXEC_ARENA_H
#define CLT_EXEC_ARENA_H

#include "device/core/device.h"
#include "plan/plan.h"

typedef struct clt_arena {
    clt_device *device;
    cl_mem *slabs;
    int64_t *bytes;
    int n_slabs;
    const void *owner; /* the exec whose intermediates are in it */
} clt_arena;

void clt_arena_init(clt_arena *arena, clt_device *device);

/* Makes every slab at least as large as the plan needs. A grown slab loses its content. On failure
 * the message says what the plan needs at its batch and what there is. */
clt_status clt_arena_fit(clt_arena *arena, const clt_plan *plan);

/* Fills all slabs with signalling NaNs (tests: nothing may read what it did not write). */
clt_status clt_arena_poison(clt_arena *arena);

void clt_arena_destroy(clt_arena *arena);

#endif
