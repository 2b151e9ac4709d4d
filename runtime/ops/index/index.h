/*
 * Attributes and launches of the operators of <cltrain/ops_index.h>. An array is seen as
 * [outer, size, inner], where `size` is the axis that indices count on.
 *
 * embedding(indices [..], weight [V, D]) -> [.., D]; index_select(indices [..], x) -> x with the
 * indices' dimensions in the axis' place.
 * index_add(indices, source, base or NULL) -> base, or zeros, plus the source's slices.
 * index_copy(indices, source or NULL, base) -> base with the source's slices, or zeros, in it.
 * gather(index, x) -> as index. scatter_add(index, source, base or NULL) -> base, or zeros, plus.
 */
#ifndef CLT_OPS_INDEX_INDEX_H
#define CLT_OPS_INDEX_INDEX_H

#include "graph/graph.h"
#include "ops/core/launch.h"

typedef struct clt_index_attr {
    int axis;        /* of the array that is picked from or added to; in 0 .. rank - 1 */
    int64_t padding; /* embedding, index_add: the index left out of sums; -1: none */
    clt_type type;   /* index_add, index_copy, scatter_add: of the result */
} clt_index_attr;

/* Sizes of a node: outer x size x inner elements are picked from or added to, outer x picks x inner
 * picked or added. */
typedef struct clt_index_shape {
    int64_t outer, picks; /* as dimensions: negative: times the batch */
    int64_t size, inner;
    int64_t padding;
} clt_index_shape;

/* Of a node of any of the operators. */
clt_index_shape clt_index_shape_of(const clt_node *node);

/* Elements picked or added, as an extent, and their number at most. */
clt_extent clt_index_picked(const clt_index_shape *s);
int64_t clt_index_most(const clt_index_shape *s, const clt_target *target);

/* The attribute's axis from a builder's; fails unless the axis exists and is constant. */
clt_status clt_index_axis(const char *op, const clt_value *x, int axis, int *out);

/* An attribute for the axis and an index of one dimension; fails the graph, and returns false, if
 * that cannot be. */
bool clt_index_attr_of(const char *op, clt_value *x, int axis, const clt_value *index,
                       clt_index_attr *attr);

/* Fails unless operand 0 is i32 and operand `x` f32 with a constant axis. */
/* What the callable operators take beside operands. */
typedef struct clt_index_call {
    int axis;
} clt_index_call;
extern const clt_attribute clt_index_call_attributes[];

/* Of all operators; and how the dimensions of each of them behave. */
extern const clt_attribute clt_index_attributes[];
struct clt_node_dims;
void clt_index_dims(const clt_node *node, struct clt_node_dims *dims);

clt_status clt_index_check(const clt_node *node, int x);

/* Fails unless at most one of the indices and the other axes depends on the batch. */
clt_status clt_index_check_batch(const clt_node *node, const clt_type *result);

/* The type of what is picked from `x` along the axis by `indices`. */
clt_status clt_index_picked_type(const clt_node *node, const clt_type *x, clt_type *picked);

void clt_index_describe(const clt_node *node, clt_str *text);
double clt_index_no_flops(const clt_node *node, int64_t n);
double clt_index_sum_flops(const clt_node *node, int64_t n);

bool clt_index_accepts_gpu(const clt_node *node, const clt_target *target, char *why);

/* Writes the base, or zeros, to output 0; not where the base is already there. */
void clt_index_begin_cpu(const clt_node *node, const clt_target *target, clt_program *p);
void clt_index_begin_gpu(const clt_node *node, const clt_target *target, clt_program *p);

extern const clt_op clt_op_embedding, clt_op_index_select, clt_op_index_add, clt_op_index_copy,
    clt_op_gather, clt_op_scatter_add;

#endif
