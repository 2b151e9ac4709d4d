/*
 * Losses besides clt_cross_entropy and clt_mse of ops/nn.h, and a similarity. See ops.h for the
 * conventions.
 *
 * A loss gives two values of one f32 each, for clt_loss. *sum is PyTorch's reduction='sum' and has
 * a gradient. *weight is the number of elements of the (broadcast) operands, unless the loss says
 * otherwise, and has no gradient. clt_loss trains their quotient over all devices and
 * micro-batches, which is PyTorch's reduction='mean'. On failure both are NULL, and the graph keeps
 * the failure.
 */
#ifndef CLTRAIN_OPS_LOSS_H
#define CLTRAIN_OPS_LOSS_H

#include <cltrain/graph.h>

CLT_BEGIN_DECLS

/*
 * Computes the binary cross entropy of sigmoid(logits) and targets of the same shape in [0, 1]: the
 * sum of (1 - t) x + (1 + (w - 1) t) log(1 + exp(-x)), in a form that neither overflows nor
 * cancels. w is pos_weight, the weight of positive examples, which broadcasts to the shape of the
 * logits. NULL stands for 1. Logits and target have gradients, pos_weight has none.
 */
CLT_API clt_status clt_bce_with_logits(clt_value *logits, clt_value *target, clt_value *pos_weight,
                                       clt_value **sum, clt_value **weight);

/* Computes, with d = x - target of one shape, the sum of d^2 / 2 where |d| < delta, and of delta
 * (|d| - delta / 2) elsewhere. delta is above 0. Both operands have gradients. */
CLT_API clt_status clt_huber(clt_value *x, clt_value *target, double delta, clt_value **sum,
                             clt_value **weight);

/* Computes the same divided by beta: d^2 / (2 beta) where |d| < beta, |d| - beta / 2 elsewhere.
 * With beta 0 this is |d|, whose gradient at 0 is 0. */
CLT_API clt_status clt_smooth_l1(clt_value *x, clt_value *target, double beta, clt_value **sum,
                                 clt_value **weight);

typedef struct clt_kl_div_options {
    size_t struct_size;
    int log_target; /* 0; not 0: the target consists of logarithms too */
    int batchmean;  /* 0; not 0: *weight is the size of dimension 0 (reduction='batchmean', the
                       divergence of an example) instead of the number of elements */
} clt_kl_div_options;

/* Sets struct_size and the defaults. */
CLT_API void clt_kl_div_options_init(clt_kl_div_options *options);

/* Computes the Kullback-Leibler divergence of a target distribution from the distribution with the
 * logarithms `x`: the sum of t (log(t) - x), where terms with t = 0 are 0. Both have one shape, and
 * gradients. The target's gradient at 0 is 0; PyTorch's is NaN. */
CLT_API clt_status clt_kl_div(clt_value *x, clt_value *target, const clt_kl_div_options *options,
                              clt_value **sum, clt_value **weight);

/* Computes the cosine of the angle between the vectors of a and b along an axis: sum(a b) /
 * (max(|a|, eps) max(|b|, eps)). The result lacks the axis. A negative axis counts from the end.
 * The operands broadcast, except on the axis, which has one size in both and does not depend on the
 * batch. eps is in 1e-15 .. 1e15; PyTorch's default is 1e-8. It consists of several nodes, which
 * need memory for a b, a^2 and b^2. */
CLT_API clt_value *clt_cosine_similarity(clt_value *a, clt_value *b, int axis, double eps);

CLT_END_DECLS

#endif
