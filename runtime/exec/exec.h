/*
 * One plan on one device: kernels made once, arguments set at each enqueue (so that batch counts,
 * inputs and gradient buffers may change from run to run).
 *
 * An exec is used by the thread that enqueues on its device.
 */
#ifndef CLT_EXEC_EXEC_H
#define CLT_EXEC_EXEC_H

#include "exec/arena.h"
#include "exec/commands.h"
#include "exec/replica.h"

typedef struct clt_exec clt_exec;

/* What differs between runs. */
typedef struct clt_run {
    int64_t count; /* images; 0 to the plan's max_batch */
    uint64_t seed;
    uint32_t step;
    int64_t sample;          /* position of the first image in the global batch */
    const clt_view *inputs;  /* by plan input; unused inputs may be {NULL} */
    const cl_mem *gradients; /* by bucket, in the plan's precision */
    clt_view results;        /* plan->results_bytes */
} clt_run;

/* Builds the plan's kernels. plan, replica and arena are borrowed and must outlive the exec. */
clt_status clt_exec_create(clt_device *device, const clt_plan *plan, clt_replica *replica,
                           clt_arena *arena, clt_exec **exec);

/* The device's queue must be finished. Takes NULL. */
void clt_exec_destroy(clt_exec *exec);

const clt_plan *clt_exec_plan(const clt_exec *exec);

/* Enqueues nodes [first, end) on the compute queue; the first waits for the events given. Does not
 * flush. A run that starts behind node 0 needs the intermediates of the one before: STATE if
 * another plan used the arena in between. */
clt_status clt_exec_enqueue(clt_exec *exec, const clt_run *run, int first, int end, cl_uint n_wait,
                            const cl_event *wait);

/* Where a value is in this run: an output's buffer, to read or to lend. */
clt_status clt_exec_locate(const clt_exec *exec, const clt_run *run, const clt_value *value,
                           clt_view *view);

#endif
