/*
 * Attributes and launches of the operators of <cltrain/ops/index.h>. An array has the shape
 * [outer, size, inner], where `size` is the axis that the indices refer to.
 *
 * embedding(indices [..], weight [V, D]) -> [.., D]; index_select(indices [..], x) -> x with the
 * indices' dimensions in place of the axis.
 * index_add(indices, source, base or NULL) -> base (or zeros) plus the source's slices.
 * index_copy(indices, source or NULL, base) -> base, with slices replaced by source (or zeros).
 * gather(index, x) -> elements of x, in the shape of index.
 * scatter_add(index, source, base or NULL) -> base (or zeros) plus the source's elements.
 */
#ifndef CLT_OPS_INDEX_INDEX_H
#define CLT_OPS_INDEX_INDEX_H

#include "graph/graph.h"
#include "ops/core/launch.h"

typedef struct clt_index_attr {
    int axis; /* axis of the array that is read or added to; in 0 .. rank - 1 */
    int unused;
    int64_t padding; /* embedding, index_add: the index that is left out of sums; -1: none */
    clt_type type;   /* index_add, index_copy, scatter_add: type of the result */
    /* embedding, index_select, index_add: if the array is a part of a longer one, the index of its
     * first element, and the longer one's size; 0: it is no part. */
    int64_t lowest, whole;
} clt_index_attr;

/* Sizes of a node. The array has outer x size x inner elements; outer x picks x inner elements are
 * read from it or added to it. */
typedef struct clt_index_shape {
    int64_t outer, picks; /* as dimensions: a negative number is a multiple of the batch size */
    int64_t size, inner;
    int64_t padding;
    int64_t lowest, whole;
} clt_index_shape;

/* Returns the sizes of a node of any of these operators. */
clt_index_shape clt_index_shape_of(const clt_node *node);

/* The arguments `picks, size, inner` of a kernel, for CLT_ARGS. */
#define CLT_INDEX_SHAPE(s)                                                                         \
    CLT_INT(clt_extent_dim((s)->picks)), CLT_FIXED((s)->size), CLT_FIXED((s)->inner)

/* The arguments `lowest, whole` of kernels with index/place.clh. */
#define CLT_INDEX_PART(s) CLT_FIXED((s)->lowest), CLT_FIXED((s)->whole)

/* Return the number of elements read or added, as an extent and at the largest batch. */
clt_extent clt_index_picked(const clt_index_shape *s);
int64_t clt_index_most(const clt_index_shape *s, const clt_target *target);

/* Converts a builder's axis to the attribute's. Fails unless the axis exists and is constant. */
clt_status clt_index_axis(const char *op, const clt_value *x, int axis, int *out);

/* Fills the attribute for the axis and an index of one dimension. On failure it fails the graph and
 * returns false. */
bool clt_index_attr_of(const char *op, clt_value *x, int axis, const clt_value *index,
                       clt_index_attr *attr);

/* Attributes of the callable operators. */
typedef struct clt_index_call {
    int axis;
} clt_index_call;
extern const clt_attribute clt_index_call_attributes[];

/* Defines callable operator NAME, which calls clt_NAME(x, axis, operands..). The last arguments are
 * the operands after the axis. */
#define CLT_INDEX_CALL(NAME, DOC, OPERANDS, WHOLE, ...)                                            \
    CLT_CALLABLE(NAME, clt_index_call, c->out[0] = clt_##NAME(c->in[0], a->axis, __VA_ARGS__),     \
                 .doc = DOC, .operands = OPERANDS, .results = "y *",                               \
                 .attributes = clt_index_call_attributes, .whole = WHOLE,                          \
                 .attr_bytes = sizeof(clt_index_call))

/* The attributes of all operators, and functions for clt_op.dims and clt_op.localise. */
extern const clt_attribute clt_index_attributes[];
struct clt_node_dims;
struct clt_node_part;
void clt_index_dims(const clt_node *node, struct clt_node_dims *dims);
clt_status clt_index_localise(const clt_node *node, const struct clt_node_part *part, void *copy);

/* Fails unless operand 0 is i32 and operand `x` f32 with a constant axis. */
clt_status clt_index_check(const clt_node *node, int x);

/* Fails if more than one of the indices and the other axes depends on the batch. */
clt_status clt_index_check_batch(const clt_node *node, const clt_type *result);

/* Returns the type of the elements that `indices` pick from `x` along the axis. */
clt_status clt_index_picked_type(const clt_node *node, const clt_type *x, clt_type *picked);

void clt_index_describe(const clt_node *node, clt_str *text);
double clt_index_sum_flops(const clt_node *node, int64_t n);

/* Members that all operators have in common, and those of sums added to an optional operand 2. */
#define CLT_INDEX_MEMBERS                                                                          \
    .dims = clt_index_dims, .localise = clt_index_localise, .attributes = clt_index_attributes,    \
    .attr_bytes = sizeof(clt_index_attr), .describe = clt_index_describe
#define CLT_INDEX_SUM_MEMBERS                                                                      \
    CLT_INDEX_MEMBERS, .results = "y *", .by_node = "*i", .flops = clt_index_sum_flops,            \
                       .in_place = 1u << 2, .base = 2

/* Writes the base or zeros to output 0. It writes nothing if the output is in place of the base. */
void clt_index_begin_cpu(const clt_node *node, const clt_target *target, clt_program *p);
void clt_index_begin_gpu(const clt_node *node, const clt_target *target, clt_program *p);

/* Returns the floats in a piece of a slice. There are enough pieces to keep all compute units busy,
 * but no small ones. */
int64_t clt_index_piece(const clt_index_shape *s, const clt_target *target, int64_t slices);

/* Returns the contiguous floats of a work-item: 4 or 1. */
int clt_index_vector(const clt_node *node, const clt_index_shape *s);

extern const clt_op clt_op_embedding, clt_op_index_select, clt_op_index_add, clt_op_index_copy,
    clt_op_gather, clt_op_scatter_add;

#endif
