/*
 * Operators that compute every element of the result from the elements of the operands at the same
 * index, after broadcasting by PyTorch's rules. Each is a row of a table in elementwise.c: an
 * expression in OpenCL C over the operands a, b, c, d, the attribute's numbers p0 .. p3 and the
 * batch size n. An expression has no spaces and is valid for T = float and T = float16. All share
 * clkernels/elementwise/portable/elementwise.cl. Operands and results are f32 or u8 masks; kernels
 * compute with a mask's values 0 and 1.
 */
#ifndef CLT_OPS_ELEMENTWISE_ELEMENTWISE_H
#define CLT_OPS_ELEMENTWISE_ELEMENTWISE_H

#include "ops/core/activation.h"
#include "ops/core/strided.h"

/* CLT_ELEMENTWISE_DIMS: the most dimensions that a kernel iterates over. */
enum { CLT_ELEMENTWISE_IN = 4, CLT_ELEMENTWISE_NUMBERS = 4, CLT_ELEMENTWISE_DIMS = 6 };

typedef struct clt_elementwise_attr {
    float p[CLT_ELEMENTWISE_NUMBERS];
} clt_elementwise_attr;

/* A row of the table. The operator's attribute begins with clt_elementwise_attr; other fields
 * follow. */
typedef struct clt_elementwise_row {
    const clt_op *op;
    int numbers; /* how many of p0 .. p3 the operator uses */
    const char *expression;
} clt_elementwise_row;

/* Returns the operator's row, or NULL. */
const clt_elementwise_row *clt_elementwise_find(const clt_op *op);

/* For clt_op.infer: requires f32 operands and broadcasts their shapes. */
clt_status clt_elementwise_infer(const clt_node *node, clt_type *out);

/* Infers the shape by broadcasting. The caller has checked the operands' types; the result is of
 * type `dtype`. */
clt_status clt_elementwise_broadcast(const clt_node *node, clt_dtype dtype, clt_type *out);

/* Writes build options that tell kernels which of the operands and results are u8. */
enum { CLT_ELEMENTWISE_KINDS = 96 };
const char *clt_elementwise_kinds(const clt_node *node, char *text);

/* For clt_op.batch_blocked. Returns FOLLOW if every operand with a batch has the rank of the result
 * and the kernels can iterate over one more dimension, the lane. */
int clt_elementwise_batch_blocked(const clt_node *node);

/* Returns the merged iteration over the result's stored elements and the operands. Along its last
 * dimension, every operand is either contiguous or broadcast. */
clt_strided clt_elementwise_strided(const clt_node *node, int lanes);

/* The variants of all elementwise operators. */
extern const clt_variant clt_elementwise_variants[];

/* Adds the launch for statements LET(t0,..)LET(t1,..)OUT(..) over the node's operands. */
void clt_elementwise_emit(const clt_node *node, const clt_target *target, clt_program *program,
                          const char *body);

/* Fuses `next` into the node, which becomes a `fused_elementwise`. Returns false if it cannot. */
bool clt_elementwise_absorb(clt_node *node, const clt_node *next);

/* Writes the epilogue that replaces an activation's node. Returns false if the node is no
 * activation. */
bool clt_activation_of(const clt_node *node, clt_epilogue *epilogue);

/* Defines an operator of the table with the attribute clt_elementwise_attr; further fields
 * follow. */
#define CLT_ELEMENTWISE_OP(NAME, DOC, OPERANDS, ...)                                               \
    CLT_ELEMENTWISE_OP_TO(NAME, DOC, OPERANDS, "y *", __VA_ARGS__)

/* The same for results of another type than f32. */
#define CLT_ELEMENTWISE_OP_TO(NAME, DOC, OPERANDS, RESULTS, ...)                                   \
    const clt_op clt_op_##NAME = {.name = #NAME,                                                   \
                                  .doc = DOC,                                                      \
                                  .operands = OPERANDS,                                            \
                                  .results = RESULTS,                                              \
                                  .attr_bytes = sizeof(clt_elementwise_attr),                      \
                                  .batch_blocked = clt_elementwise_batch_blocked,                  \
                                  .in_place = 15,                                                  \
                                  .half = clt_half_all,                                            \
                                  .absorb = clt_elementwise_absorb,                                \
                                  .variants = clt_elementwise_variants,                            \
                                  __VA_ARGS__}

/* Define the function clt_NAME, which adds an operator of the table without numbers to a graph. */
#define CLT_ELEMENTWISE_UNARY(NAME)                                                                \
    clt_value *clt_##NAME(clt_value *x)                                                            \
    {                                                                                              \
        static const clt_elementwise_attr none;                                                    \
        return clt_emit1(&clt_op_##NAME, &none, 1, x);                                             \
    }
#define CLT_ELEMENTWISE_BINARY(NAME)                                                               \
    clt_value *clt_##NAME(clt_value *a, clt_value *b)                                              \
    {                                                                                              \
        static const clt_elementwise_attr none;                                                    \
        return clt_emit1(&clt_op_##NAME, &none, 2, a, b);                                          \
    }

#endif
