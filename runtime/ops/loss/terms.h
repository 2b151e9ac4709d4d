/*
 * Losses that sum a function of the elements at the same index: rows of a table in terms.c, with
 * expressions as in elementwise.h. Operands 0 and 1 have one shape, to which a third operand
 * broadcasts. Their gradients are elementwise operators, which take the upstream gradient of the
 * sum as an operand.
 */
#ifndef CLT_OPS_LOSS_TERMS_H
#define CLT_OPS_LOSS_TERMS_H

#include "ops/elementwise/elementwise.h"
#include "ops/loss/loss.h"

/* It begins like every attribute of elementwise operators. */
typedef struct clt_terms_attr {
    clt_elementwise_attr numbers;
    bool per_row; /* the weight is the size of dimension 0 instead of the number of elements */
    char unused[3];
} clt_terms_attr;

clt_status clt_terms_infer(const clt_node *node, clt_type *out);
double clt_terms_flops(const clt_node *node, int64_t n);
double clt_terms_weight(const clt_node *node);

extern const clt_variant clt_terms_variants[];

/* For clt_op.dims. With per_row, the weight depends on dimension 0 only. */
void clt_terms_dims(const clt_node *node, struct clt_node_dims *dims);

/* Adds the node and writes its two values; see clt_cross_entropy. `third` may be NULL. */
clt_status clt_terms_emit(const clt_op *op, const clt_terms_attr *attr, clt_value *a, clt_value *b,
                          clt_value *third, clt_value **sum, clt_value **weight);

#define CLT_TERMS_OP(NAME, DOC, OPERANDS, GRADIENT, DESCRIBE, ...)                                 \
    const clt_op clt_op_##NAME = {.name = #NAME,                                                   \
                                  .doc = DOC,                                                      \
                                  .operands = OPERANDS,                                            \
                                  .results = "sum 1, weight 1",                                    \
                                  .attr_bytes = sizeof(clt_terms_attr),                            \
                                  .infer = clt_terms_infer,                                        \
                                  .gradient = GRADIENT,                                            \
                                  .describe = DESCRIBE,                                            \
                                  .flops = clt_terms_flops,                                        \
                                  .weight = clt_terms_weight,                                      \
                                  .variants = clt_terms_variants,                                  \
                                  __VA_ARGS__}

#endif
