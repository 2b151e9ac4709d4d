/*
 * The metric `correct` for classes that are divided over the places of an axis:
 *
 *     target = correct_target(logits, labels)                      (all-reduce: sum)
 *     before = correct_before(logits, labels, target)              (all-reduce: sum)
 *     sum, weight = correct_of_parts(before, labels)
 *
 * `target` has the logit of each label, and `before` the number of classes that are ranked before
 * the label.
 */
#ifndef CLT_OPS_LOSS_CORRECT_PARTS_H
#define CLT_OPS_LOSS_CORRECT_PARTS_H

#include "ops/core/dims.h"
#include "ops/core/nn.h"

typedef struct clt_correct_parts_attr {
    clt_correct_attr correct;
    int first, classes; /* this place's first class; all classes */
} clt_correct_parts_attr;

extern const clt_op clt_op_correct_target, clt_op_correct_before, clt_op_correct_of_parts;

/* For clt_op.divide of correct. */
clt_status clt_correct_divide(const clt_node *node, const clt_node_part *part, clt_value *const *in,
                              clt_value **stash, clt_value **out);

#endif
