/*
 * Collectives as operators of a graph, along one axis of the mesh. They have no kernels: the host
 * exchanges the operands between two segments of the plan. The public all_reduce is that of axis
 * dp. Passes add the others.
 */
#ifndef CLT_OPS_COLLECTIVE_COLLECTIVE_H
#define CLT_OPS_COLLECTIVE_COLLECTIVE_H

#include "graph/graph.h"

typedef enum clt_axis_reduction { CLT_AXIS_SUM, CLT_AXIS_MAX } clt_axis_reduction;

typedef struct clt_axis_attr {
    int axis;      /* clt_axis */
    int reduction; /* clt_axis_reduction */
    int places;    /* of the axis; all_gather and reduce_scatter need it */
} clt_axis_attr;

typedef struct clt_shift_attr {
    clt_axis_attr common; /* must be first */
    int step;             /* 1: from the place before; -1: from the place behind */
    double fill;          /* elements at the place that has no such neighbour */
} clt_shift_attr;

extern const clt_op clt_op_all_reduce, clt_op_all_gather, clt_op_reduce_scatter, clt_op_shift,
    clt_op_hand_on;

/* Adds up x, or finds its maximum, over the places. On axis dp, x must not depend on the batch,
 * because its places have different samples. */
clt_value *clt_axis_all_reduce(clt_value *x, clt_axis axis, clt_axis_reduction reduction);

/* Joins x of all places, which has one shape: the result is [places, x...]. */
clt_value *clt_axis_all_gather(clt_value *x, clt_axis axis, int places);

/* Adds up x [places, y...] over the places, and gives each place its y. */
clt_value *clt_axis_reduce_scatter(clt_value *x, clt_axis axis, int places);

/* Gives each place the x of the place before it (step 1) or behind it (step -1). All have one
 * shape. The first or last place gets elements of `fill`. */
clt_value *clt_axis_shift(clt_value *x, clt_axis axis, int step, double fill);

/* The same with zeros, for values whose results some places do not read: the node and its gradient
 * stay in the graphs of all places, at the same place among the collectives. */
clt_value *clt_axis_hand_on(clt_value *x, clt_axis axis, int step);

/* --- for the operators ----------------------------------------------------------------------- */

extern const clt_attribute clt_axis_attributes[];

clt_status clt_axis_check(const clt_node *node);
void clt_axis_describe(const clt_node *node, clt_str *text);

/* The members that these operators share. */
#define CLT_AXIS_OP                                                                                \
    .attributes = clt_axis_attributes, .attr_bytes = sizeof(clt_axis_attr),                        \
    .describe = clt_axis_describe, .flops = clt_no_flops

#endif
