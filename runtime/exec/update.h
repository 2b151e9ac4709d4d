/*
 * The end of a step on one device: the step's word, and the optimizer over all buckets. The kernels
 * are clkernels/train/portable/update.cl, on GPUs train/gpu/update.cl.
 */
#ifndef CLT_EXEC_UPDATE_H
#define CLT_EXEC_UPDATE_H

#include "exec/exec.h"
#include "exec/loss_scale.h"
#include "exec/optimizer.h"

typedef struct clt_update clt_update;

typedef struct clt_update_options {
    clt_optimizer optimizer;
    double momentum, beta1, beta2, epsilon, weight_decay;
    bool decoupled; /* decay acts on the weight itself, not on the gradient */
    double clip_norm;
    bool guard;
    clt_dtype precision; /* of gradients: F32, F16 or BF16; with F16 losses are scaled */
} clt_update_options;

/* The step's word: floats, of which the kernels say what they are. */
enum {
    CLT_WORD_OK,      /* 1: the step is committed */
    CLT_WORD_FACTOR,  /* on the gradient */
    CLT_WORD_NORM,    /* of the gradient without the loss scale, before clipping */
    CLT_WORD_STOPPED, /* loss scaling: no step is committed any more */
    CLT_WORD_SCALE,   /* of losses, in the next step; 1 without loss scaling */
    CLT_WORD_GOOD,    /* steps since the scale changed */
    CLT_WORD_SKIPPED, /* steps, in all */
    CLT_WORD_USED,    /* the scale in this step */
    CLT_WORD          /* floats */
};

/* Makes kernels, the word and its scratch. The replica must be ready for training. */
clt_status clt_update_create(clt_replica *replica, const clt_update_options *options,
                             clt_update **update);

void clt_update_destroy(clt_update *update);

/* upstream[index] = coefficient / weight, times the loss scale, on the device. */
clt_status clt_update_upstream(clt_update *update, clt_view weight, cl_mem upstream, int index,
                               double coefficient);

/* upstream[index] = value, times the loss scale. */
clt_status clt_update_scale_upstream(clt_update *update, cl_mem upstream, int index, double value);

/* gradients += micro_gradients, all buckets; in f32. */
clt_status clt_update_add_micro(clt_update *update);

/* Gradients in 16 bits: micro_gradients, in f32, take those of the `first` micro-batch, or add
 * them; and, once all are there, are rounded into the gradients. */
clt_status clt_update_sum_half(clt_update *update, bool first);
clt_status clt_update_round_sum(clt_update *update);

/* gradients = 0, all buckets. */
clt_status clt_update_zero(clt_update *update);

/* The word, computed on the device from its gradients (a single device). */
clt_status clt_update_word(clt_update *update);

/* The word from what the reducers learned (several devices): without waiting for the device. */
clt_status clt_update_set_word(clt_update *update, double sum_squares, bool finite);

/* The optimizer's step number `step` (0, 1, ...) with learning rate `lr`, on the buckets for which
 * owners[bucket] is `self`; `owners` NULL: on all. */
clt_status clt_update_apply(clt_update *update, double lr, int64_t step, const int *owners,
                            int self);

/* Parameters for which gradients[slot of the layout] is NULL stay as they are, and what the
 * optimizer keeps of them, as those with grad None do in PyTorch. The array is kept. */
void clt_update_only(clt_update *update, const clt_value *const *gradients);

/* The same for one bucket of parameters. */
clt_status clt_update_bucket(clt_update *update, int bucket, double lr, int64_t step);

/* mean = weight * value (`first`), or mean += weight * value; f32. With weight 0 nothing of the
 * value is taken, whatever it is. */
clt_status clt_update_mean(clt_update *update, clt_view value, clt_view mean, int64_t count,
                           double weight, bool first);

/* `state` takes `value`'s bytes if the step is committed. */
clt_status clt_update_assign(clt_update *update, clt_view value, clt_view state, int64_t bytes);

/* Lifts the guard's stop; the loss scale stays. With clt_update_word, waits for the device. */
clt_status clt_update_reset(clt_update *update);

/* Where loss scaling stands; clt_scaling_begin() without it. After clt_update_word it waits for the
 * device, after clt_update_set_word it does not. */
clt_status clt_update_scaling(clt_update *update, clt_scaling *scaling);

/* Sets it, where losses are scaled, and lifts the guard's stop. */
clt_status clt_update_set_scaling(clt_update *update, const clt_scaling *scaling);

/* The word's buffer: CLT_WORD floats. */
cl_mem clt_update_word_buffer(const clt_update *update);

#endif
