/*
 * Operators that compute every element of the result from the elements of the operands at the same
 * index (after broadcasting, by PyTorch's rules). Each is a row: an expression in OpenCL C over the
 * operands a, b, c, d and the numbers p0, p1, valid for the type T = float and T = float16. All
 * share clkernels/portable/elementwise.cl.
 */
#ifndef CLT_OPS_ELEMENTWISE_H
#define CLT_OPS_ELEMENTWISE_H

#include "ops/launch.h"

typedef struct clt_elementwise_attr {
    float p[2];
} clt_elementwise_attr;

/* Shape rules: operands broadcast against each other; dtype of operand 0. */
clt_status clt_elementwise_infer(const clt_node *node, clt_type *out);

/* FOLLOW where every operand with a batch has the shape of the result, or has no batch at all. */
int clt_elementwise_lanes(const clt_node *node);

/* Emits the launch for an expression. */
void clt_elementwise_emit(const clt_node *node, const clt_target *target, clt_program *program,
                          const char *expression);

#endif
