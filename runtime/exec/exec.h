/*
 * One plan on one device. Kernels are made once. Arguments are set at each enqueue, so batch
 * counts, inputs and gradient buffers may change from run to run.
 *
 * Only the thread that enqueues on the device may use its exec.
 */
#ifndef CLT_EXEC_EXEC_H
#define CLT_EXEC_EXEC_H

#include "exec/arena.h"
#include "exec/commands.h"
#include "exec/replica.h"

typedef struct clt_exec clt_exec;

struct clt_merged;
struct clt_update;

/* The end of the step, which may become a part of the run's last launch. */
typedef struct clt_run_end {
    struct clt_update *update; /* clt_update_run_end sets all members */
    double lr;
    int64_t step;
    bool done; /* it became a part; set by clt_exec_enqueue */
    bool wants_event;
    cl_event event; /* of that launch, if wanted; belongs to the caller */
    /* Makes the merged launch of nodes [first, all) and of the end of the step, and sets the end's
     * arguments. *merged is NULL if the end cannot be merged, and else valid until the next call.
     */
    clt_status (*join)(struct clt_run_end *end, const clt_plan *plan, int first,
                       struct clt_merged **merged);
} clt_run_end;

/* Values that differ between runs. */
typedef struct clt_run {
    int64_t count; /* images; 0 to the plan's max_batch */
    uint64_t seed;
    uint32_t step;
    int64_t sample;          /* position of the first image in the global batch */
    const clt_view *inputs;  /* by plan input; unused inputs may be {NULL} */
    const cl_mem *gradients; /* by bucket, in the plan's precision */
    /* `gradients` has the sum of the micro-batches before. Nodes with CLT_ADDS add to it, and other
     * gradients go to the arena. Needs the plan option `accumulates`. */
    bool further;
    clt_view results; /* plan->results_bytes */
    int slot;         /* of the micro-batches in flight, see clt_plan_options.in_flight; else 0 */
    clt_run_end *end; /* what follows the run directly; NULL: something else */
} clt_run;

/* Builds the plan's kernels. plan, replica and arena are borrowed and must outlive the exec. */
clt_status clt_exec_create(clt_device *device, const clt_plan *plan, clt_replica *replica,
                           clt_arena *arena, clt_exec **exec);

/* The device's queue must be finished. Takes NULL. */
void clt_exec_destroy(clt_exec *exec);

const clt_plan *clt_exec_plan(const clt_exec *exec);

/* Enqueues nodes [first, end) on the compute queue, without a flush. The first launch waits for the
 * given events. Error: STATE if `first` is not 0 and another plan used the arena since the run
 * before, because its intermediates are then lost. */
clt_status clt_exec_enqueue(clt_exec *exec, const clt_run *run, int first, int end, cl_uint n_wait,
                            const cl_event *wait);

/* Finds the place of a value in this run, for example of an output that the caller reads. */
clt_status clt_exec_locate(const clt_exec *exec, const clt_run *run, const clt_value *value,
                           clt_view *view);

#endif
