/* How each dimension of a node behaves, from the operator's schema: for passes that partition. */
#ifndef CLT_OPS_CORE_DIMS_H
#define CLT_OPS_CORE_DIMS_H

#include "graph/graph.h"

/* Labels: 0 to 25 are the letters of the schema; CLT_DIM_STAR + i is the dimension of `*` that is
 * i before its last, and what functions of operators use as they like. */
enum { CLT_DIM_STAR = 26, CLT_DIM_LABELS = 64, CLT_DIM_OPERANDS = 16 };

typedef struct clt_node_dims {
    clt_dim_behaviour behaviour[CLT_DIM_LABELS];
    /* The label of each dimension; -1: none, it repeats or has one element. */
    signed char in[CLT_DIM_OPERANDS][CLT_MAX_RANK], out[CLT_MAX_OUTPUTS][CLT_MAX_RANK];
} clt_node_dims;

/* Of a node that has been inferred. */
void clt_node_dims_of(const clt_node *node, clt_node_dims *dims);

/* Forgets the labels of all operands and results. */
void clt_dims_clear(clt_node_dims *dims);

/* --- for clt_op.dims ------------------------------------------------------------------------- */

/* Dimensions correspond by their place. Those of one size in all operands and results are parallel,
 * the others whole: what moves parts of tensors. */
void clt_dims_by_place(const clt_node *node, clt_node_dims *dims);

/* All operands and results have one shape, and the attribute begins with an int: the whole axis. */
void clt_dims_axis(const clt_node *node, clt_node_dims *dims);

/* What an activation follows is not a sum of parts: summed dimensions are whole. */
void clt_dims_not_summed(clt_node_dims *dims);

#endif
