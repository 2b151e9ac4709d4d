/*
 * The end of a step on one device: the step status, and the optimizer over all buckets. The kernels
 * are in clkernels/train/portable/update.cl, for GPUs in train/gpu/update.cl.
 */
#ifndef CLT_EXEC_UPDATE_UPDATE_H
#define CLT_EXEC_UPDATE_UPDATE_H

#include "exec/exec.h"
#include "exec/update/loss_scale.h"
#include "exec/update/optimizer.h"
#include "exec/update/stretches.h"

typedef struct clt_update clt_update;

typedef struct clt_update_options {
    clt_optimizer_rule rule;
    double clip_norm;
    bool guard;
    bool merges; /* gradients are sums over virtual shards: clt_update_merge is called, and the
                    device has whole sums, also if it updates a shard */
    const bool *matrices; /* by slot: muon updates it; NULL: none. Must outlive the update */
    clt_dtype precision;  /* of gradients: F32, F16 or BF16. With F16, losses are scaled */
    clt_merging merge;    /* whether the launches of a small end of a step become one, on CPUs */
    clt_dtype wire; /* not F32: with error feedback devices exchange gradients of this type, and the
                       optimizer reads their sum */
} clt_update_options;

/* Floats of the step status. The kernels read and write them. */
enum {
    CLT_STEP_STATUS_OK,      /* 1: the step is committed */
    CLT_STEP_STATUS_FACTOR,  /* multiplies the gradient */
    CLT_STEP_STATUS_NORM,    /* norm of the gradient without the loss scale, before clipping */
    CLT_STEP_STATUS_STOPPED, /* by the guard: no step is committed any more */
    CLT_STEP_STATUS_SCALE,   /* scale of losses in the next step; 1 without loss scaling */
    CLT_STEP_STATUS_GOOD,    /* steps since the scale changed */
    CLT_STEP_STATUS_SKIPPED, /* skipped steps of the whole run */
    CLT_STEP_STATUS_USED,    /* scale of losses in this step */
    CLT_STEP_STATUS          /* number of floats */
};

/* Adds the kernels of clt_update_status and clt_update_apply to those that the device's next exec
 * has compiled by helper processes. The replica must be ready for training. Does nothing without
 * helper processes, for muon, and for ends of steps that may become one launch. */
void clt_update_compile_later(clt_replica *replica, const clt_update_options *options);

/* Makes the kernels, the step status and its scratch. The replica must be ready for training. */
clt_status clt_update_create(clt_replica *replica, const clt_update_options *options,
                             clt_update **update);

/* Counts the bytes of the buffers that clt_update_create makes for the replica's shard. The replica
 * need not be ready for training. */
clt_status clt_update_bytes(const clt_replica *replica, bool merges, const bool *matrices,
                            int64_t *bytes);

void clt_update_destroy(clt_update *update);

/* Sets upstream[index] = coefficient / weight, times the loss scale, on the device. */
clt_status clt_update_upstream(clt_update *update, clt_view weight, cl_mem upstream, int index,
                               double coefficient);

/* Sets upstream[index] = value, times the loss scale. */
clt_status clt_update_scale_upstream(clt_update *update, cl_mem upstream, int index, double value);

/* Adds `bytes` of floats to gradients in f32: sum = sum + addend. */
clt_status clt_update_add(clt_update *update, clt_view sum, clt_view addend, int64_t bytes);

/* Adds zeros to a set of f32 gradients, by bucket: -0 becomes +0. */
clt_status clt_update_add_zeros(clt_update *update, const cl_mem *set);

/* For gradients in 16 bits: sum_half copies the gradients of the `first` micro-batch to the
 * replica's gradient_sums, which are in f32, or adds later ones. round_sum rounds the complete sum
 * into the gradients. */
clt_status clt_update_sum_half(clt_update *update, bool first);
clt_status clt_update_round_sum(clt_update *update);

/* Error feedback, if the replica has residuals. send rounds a bucket's f32 gradients, or the sum of
 * micro-batches, with its residual into the 16-bit gradients. keep replaces the residual by what
 * that rounded away, if the step is committed; the f32 gradients must still be there. */
clt_status clt_update_send(clt_update *update, int bucket);
clt_status clt_update_keep(clt_update *update, int bucket);

/* Whether the step status that clt_update_set_status set last commits the step. */
bool clt_update_commits(const clt_update *update);

/* Sets the gradients of all buckets to zero. */
clt_status clt_update_zero(clt_update *update);

/* The same for buffers like them, by bucket. */
clt_status clt_update_zero_set(clt_update *update, const cl_mem *set);

/* Sets sum = a + b: `count` elements, a multiple of 64, of gradients or of floats. 16 bits are
 * rounded to the nearest. `sum` may be a or b. */
clt_status clt_update_merge(clt_update *update, bool floats, cl_mem sum, cl_mem a, cl_mem b,
                            int64_t count);

/* Computes the step status on the device from its gradients. For a single device, or for devices
 * with equal gradients and virtual shards. */
clt_status clt_update_status(clt_update *update);

/* Sums of squares of a device's gradients, and whether they are finite. */
typedef struct clt_squares {
    double whole, parts; /* of whole tensors, and of parts of split ones */
    bool finite;
} clt_squares;

/* Measures the device's gradients, with several shards those in its shard. On CPUs with the bits of
 * clt_update_status. Waits for the device. */
clt_status clt_update_measure(clt_update *update, clt_squares *squares);

/* Sets the step status from the reducers' results, without waiting for the device. For several
 * devices. */
clt_status clt_update_set_status(clt_update *update, double sum_squares, bool finite);

/* From now on the kernel that computes a step status also writes it to entry `entry` of `reports`,
 * CLT_STEP_STATUS floats each, on CPUs. NULL: it does not. */
void clt_update_report_to(clt_update *update, cl_mem reports, int entry);

/* Whether the last step status was written so. */
bool clt_update_reported(const clt_update *update);

/* Runs step number `step` (0, 1, ...) of the optimizer with learning rate `lr`, on the replica's
 * shard of each bucket. */
clt_status clt_update_apply(clt_update *update, double lr, int64_t step);

/* Whether clt_update_end can make one launch of clt_update_status and clt_update_apply. */
bool clt_update_ends(const clt_update *update);

/* Does what clt_update_status and then clt_update_apply do, with the same bits, as one launch if
 * its kernels are small. */
clt_status clt_update_end(clt_update *update, double lr, int64_t step);

/* Describes the same for clt_run.end, which makes it a part of the run's last launch. */
clt_run_end clt_update_run_end(clt_update *update, double lr, int64_t step);

/* Says which plan writes the gradients, which is borrowed. Parameters without a gradient in the
 * plan are excluded from updates. They and their optimizer tensors stay as they are, like
 * parameters with grad None in PyTorch. */
void clt_update_follow(clt_update *update, const clt_plan *plan);

/* Notes that the caller has set the gradient of a slot: updates include it. -1: forgets all. */
void clt_update_give(clt_update *update, int slot);

/* Whether updates include the slot: the plan writes its gradient, or the caller has set it. */
bool clt_update_includes(const clt_update *update, int slot);

/* Like clt_update_apply, for one bucket of parameters. */
clt_status clt_update_bucket(clt_update *update, int bucket, double lr, int64_t step);

/* Sets mean = weight * value (`first`), or adds weight * value to the mean; f32. With weight 0 the
 * value is not read, so it may be anything. */
clt_status clt_update_mean(clt_update *update, clt_view value, clt_view mean, int64_t count,
                           double weight, bool first);

/* Copies `value`'s bytes to `state` if the step is committed. */
clt_status clt_update_assign(clt_update *update, clt_view value, clt_view state, int64_t bytes);

/* Lifts the guard's stop and keeps the loss scale. Waits for the device after clt_update_status. */
clt_status clt_update_reset(clt_update *update);

/* Reads the state of loss scaling; clt_scaling_begin() without loss scaling. Waits for the device
 * after clt_update_status, but not after clt_update_set_status. */
clt_status clt_update_scaling(clt_update *update, clt_scaling *scaling);

/* Sets the state of loss scaling if losses are scaled, and lifts the guard's stop. */
clt_status clt_update_set_scaling(clt_update *update, const clt_scaling *scaling);

/* Returns the buffer of the step status: CLT_STEP_STATUS floats. */
cl_mem clt_update_status_buffer(const clt_update *update);

#endif
