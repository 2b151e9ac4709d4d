/*
 * Batch norm is several nodes, so that a collective can be put between them.
 *
 *     batch_norm_moments(x) -> moments [3, C]
 *     batch_norm(x, moments, weight, bias, addend, running_mean, running_var) -> y
 *     batch_norm_running(moments, running_mean, running_var) -> their new values
 *     batch_norm_tracked(num_batches_tracked) -> one more
 *     batch_norm_recall(running_mean, running_var) -> moments, for evaluation
 *     batch_norm_grad_sums(x, dy, moments, weight, bias) -> dbias [C], dweight [C]
 *     batch_norm_grad(x, dy, moments, weight, bias, dbias, dweight) -> dx
 *
 * `moments` has, by channel, the mean, the sum of the squared distances from it, and the number of
 * values: what can be joined without loss, whatever the mean (Chan et al., 1979), which sums of x
 * and x^2 cannot. batch_norm and the gradients read nothing else of the batch as a whole.
 *
 * Synchronised over devices and ranks (batch_norm_sync.c):
 *   - forward: the moments of all, joined, are what batch_norm, batch_norm_running and the
 * gradients take;
 *   - backward: dbias and dweight of all are added up for batch_norm_grad. The parameters'
 * gradients stay the device's own, which the buckets' all-reduce adds up.
 *
 * batch_norm's gradient leaves that of `moments` out: batch_norm_grad has it in dx already.
 *
 * A following addition and ReLU are absorbed. The backward of a ReLU that follows directly finds
 * the sign of the result by computing it once more from x: y is not read, and no masked dy is
 * written.
 */
#ifndef CLT_OPS_NORM_BATCH_NORM_H
#define CLT_OPS_NORM_BATCH_NORM_H

#include "graph/graph.h"
#include "ops/core/launch.h"

typedef struct clt_batch_norm_attr {
    double eps, momentum;
    int relu;         /* after everything else */
    int synchronised; /* batch_norm: its gradient adds sums of all devices up */
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

/* Whether there is such an operand. */
static inline bool clt_bn_has(const clt_node *node, int operand)
{
    return operand < node->n_in && node->in[operand];
}

extern const clt_variant clt_batch_norm_variants[], clt_batch_norm_channel_variants[],
    clt_batch_norm_tracked_variants[];

/* Of all devices of all ranks: the joined moments [3, C], and two sums [C]. NULL on failure, or the
 * graph's status. */
clt_value *clt_batch_norm_join_all(clt_value *moments);
clt_status clt_batch_norm_sum_all(clt_value *const own[2], clt_value *all[2]);

#endif
