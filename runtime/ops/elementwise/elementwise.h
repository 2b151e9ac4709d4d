/*
 * Operators that compute every element of the result from the elements of the operands at the same
 * index (after broadcasting, by PyTorch's rules). Each is a row of a table in elementwise.c: an
 * expression in OpenCL C over the operands a, b, c, d, the attribute's numbers p0 .. p3 and the
 * batch count n, without spaces, valid for T = float and T = float16. All share
 * clkernels/elementwise/portable/elementwise.cl. Operands and results are f32, or masks, of u8:
 * they are computed with as the numbers that they hold.
 */
#ifndef CLT_OPS_ELEMENTWISE_ELEMENTWISE_H
#define CLT_OPS_ELEMENTWISE_ELEMENTWISE_H

#include "ops/core/activation.h"
#include "ops/core/strided.h"

/* DIMS: of the kernels' iterations. */
enum { CLT_ELEMENTWISE_IN = 4, CLT_ELEMENTWISE_NUMBERS = 4, CLT_ELEMENTWISE_DIMS = 6 };

typedef struct clt_elementwise_attr {
    float p[CLT_ELEMENTWISE_NUMBERS];
} clt_elementwise_attr;

/* Begins the attribute of every operator in the table: what it has beyond the numbers follows. */
typedef struct clt_elementwise_row {
    const clt_op *op;
    int numbers; /* how many of p0 .. p3 it uses */
    const char *expression;
} clt_elementwise_row;

/* The operator's row, or NULL. */
const clt_elementwise_row *clt_elementwise_find(const clt_op *op);

/* Shape rules: operands broadcast against each other. All of them are f32. */
clt_status clt_elementwise_infer(const clt_node *node, clt_type *out);

/* The shape alone; operands have element types that the caller checked, the result is `dtype`. */
clt_status clt_elementwise_broadcast(const clt_node *node, clt_dtype dtype, clt_type *out);

/* Build options that tell kernels which operands, and whether the result, are u8. */
enum { CLT_ELEMENTWISE_KINDS = 96 };
const char *clt_elementwise_kinds(const clt_node *node, char *text);

/* FOLLOW where every operand with a batch has the rank of the result, and the iteration has room
 * for the lane. */
int clt_elementwise_batch_blocked(const clt_node *node);

/* The merged iteration over the result's stored elements and the operands. Along its last
 * dimension, every operand goes on one by one or repeats. */
clt_strided clt_elementwise_strided(const clt_node *node, int lanes);

/* The variants of all of them. */
extern const clt_variant clt_elementwise_variants[];

/* Emits the launch for statements LET(t0,..)LET(t1,..)OUT(..) over the node's operands. */
void clt_elementwise_emit(const clt_node *node, const clt_target *target, clt_program *program,
                          const char *body);

/* Fusion: the node becomes a `map` that also computes `next` (see map.c). */
bool clt_elementwise_absorb(clt_node *node, const clt_node *next);

/* The epilogue that does what an activation's node does; false: the node is none. */
bool clt_activation_of(const clt_node *node, clt_epilogue *epilogue);

/* An operator of the table with the attribute clt_elementwise_attr; further fields follow. */
#define CLT_ELEMENTWISE_OP(NAME, DOC, OPERANDS, ...)                                               \
    CLT_ELEMENTWISE_OP_TO(NAME, DOC, OPERANDS, "y *", __VA_ARGS__)

/* With results of another type than f32. */
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

#endif
