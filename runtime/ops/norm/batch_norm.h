/*
 * Batch norm consists of several nodes, so that a collective can be put between them.
 *
 *     batch_norm_moments(x) -> moments [3, C]
 *     batch_norm(x, moments, weight, bias, addend, running_mean, running_var) -> y
 *     batch_norm_running(moments, running_mean, running_var) -> their new values
 *     batch_norm_tracked(num_batches_tracked) -> one more
 *     batch_norm_recall(running_mean, running_var) -> moments, for evaluation
 *     batch_norm_grad_sums(x, dy, moments, weight, bias) -> dbias [C], dweight [C]
 *     batch_norm_grad(x, dy, moments, weight, bias, dbias, dweight) -> dx
 *
 * For each channel, `moments` has the mean, the sum of the squared distances from the mean, and the
 * number of values. Moments of parts can be combined without cancellation for any mean (Chan et
 * al., 1979); sums of x and x^2 cannot. batch_norm and the gradients read nothing else of the whole
 * batch.
 *
 * If batch norm is synchronised over devices and ranks (batch_norm_sync.c):
 *   - forward: batch_norm, batch_norm_running and the gradients read the combined moments of all
 * devices;
 *   - backward: batch_norm_grad reads dbias and dweight summed over all devices. The parameters'
 * gradients stay those of the device; the buckets' all-reduce sums them.
 *
 * The gradient of batch_norm does not include a gradient of `moments`, because batch_norm_grad
 * already has it in dx. batch_norm absorbs a following addition and ReLU. The backward of a
 * directly following ReLU computes the sign of the result from x again, so it neither reads y nor
 * writes a masked dy.
 */
#ifndef CLT_OPS_NORM_BATCH_NORM_H
#define CLT_OPS_NORM_BATCH_NORM_H

#include "graph/graph.h"
#include "ops/core/launch.h"

typedef struct clt_batch_norm_attr {
    double eps, momentum;
    int relu;         /* applied last */
    int synchronised; /* batch_norm: its gradient adds the sums of all devices */
    int axes;         /* bit clt_axis: the sums are added over this axis too, besides dp */
    int unused;
} clt_batch_norm_attr;

/* Operands of batch_norm, and of its gradients. */
enum {
    CLT_BN_X = 0,
    CLT_BN_MOMENTS = 1,
    CLT_BN_WEIGHT = 2,
    CLT_BN_BIAS = 3,
    CLT_BN_ADDEND = 4,
    CLT_BN_MEAN = 5,
    CLT_BN_VAR = 6,
    CLT_BN_IN = 7
};
enum {
    CLT_BNG_X = 0,
    CLT_BNG_DY = 1,
    CLT_BNG_MOMENTS = 2,
    CLT_BNG_WEIGHT = 3,
    CLT_BNG_BIAS = 4,
    CLT_BNG_DBIAS = 5,
    CLT_BNG_DWEIGHT = 6,
    CLT_BNG_IN = 7
};

/* Returns whether the node has that operand. */
static inline bool clt_bn_has(const clt_node *node, int operand)
{
    return operand < node->n_in && node->in[operand];
}

extern const clt_variant clt_batch_norm_variants[], clt_batch_norm_channel_variants[],
    clt_batch_norm_tracked_variants[];

/* Combine over all devices of all ranks: moments [3, C], and two sums [C]. The first returns NULL
 * on failure; the second returns the graph's status. */
clt_value *clt_batch_norm_join_all(clt_value *moments);
clt_status clt_batch_norm_sum_all(clt_value *const own[2], int axes, clt_value *all[2]);

#endif
