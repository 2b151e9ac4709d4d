/*
 * Cross entropy of classes that are divided over the places of an axis. All places have the labels,
 * and each has its classes' logits. Numbers of all classes are reduced over the places:
 *
 *     largest = max of the logits                                  (all-reduce: maximum)
 *     parts   = cross_entropy_parts(logits, labels, largest)       (all-reduce: sum)
 *     sum, weight = cross_entropy_of_parts(parts, labels)
 *     dlogits = cross_entropy_parts_grad(logits, labels, largest, parts, upstream)
 *
 * `parts` has for each label the sum of exp(logit - largest), the label's logit - largest, and with
 * label smoothing also the sum of logit - largest. The gradient needs no exchange.
 */
#ifndef CLT_OPS_LOSS_CROSS_ENTROPY_PARTS_H
#define CLT_OPS_LOSS_CROSS_ENTROPY_PARTS_H

#include "ops/core/dims.h"
#include "ops/core/nn.h"

typedef struct clt_cross_entropy_parts_attr {
    clt_cross_entropy_attr loss;
    int first, classes; /* this place's first class; all classes */
} clt_cross_entropy_parts_attr;

extern const clt_op clt_op_cross_entropy_parts, clt_op_cross_entropy_of_parts,
    clt_op_cross_entropy_parts_grad;

/* For clt_op.divide of cross_entropy and cross_entropy_grad. */
clt_status clt_cross_entropy_divide(const clt_node *node, const clt_node_part *part,
                                    clt_value *const *in, clt_value **stash, clt_value **out);
clt_status clt_cross_entropy_grad_divide(const clt_node *node, const clt_node_part *part,
                                         clt_value *const *in, clt_value **stash, clt_value **out);

#endif
