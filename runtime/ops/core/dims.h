/* Behaviour of each dimension of a node, from the operator's schema. Passes that partition a graph
 * read it. */
#ifndef CLT_OPS_CORE_DIMS_H
#define CLT_OPS_CORE_DIMS_H

#include "graph/sharding.h"

/* Labels 0 to 25 are the letters of the schema. CLT_DIM_STAR + i is the dimension of `*` that is i
 * before its last. Functions for clt_op.dims may assign labels from CLT_DIM_STAR on as they like.
 */
enum { CLT_DIM_STAR = 26, CLT_DIM_LABELS = 64 };

typedef struct clt_node_dims {
    clt_dim_behaviour behaviour[CLT_DIM_LABELS];
    /* The label of each dimension; -1: no label, because the dimension is broadcast or has one
     * element. */
    signed char in[CLT_MAX_OPERANDS][CLT_MAX_RANK], out[CLT_MAX_OUTPUTS][CLT_MAX_RANK];
    /* The result adds up over the parallel dimensions that it lacks, as a weight's gradient beside
     * that of x. Other results that lack one are whole in every part. */
    bool adds[CLT_MAX_OUTPUTS];
    /* The dimension consists of so many equal blocks, and the label stands for each of them: packed
     * queries, keys and values have 3 blocks where the result of attention has 1. */
    unsigned char in_blocks[CLT_MAX_OPERANDS][CLT_MAX_RANK],
        out_blocks[CLT_MAX_OUTPUTS][CLT_MAX_RANK];
    /* The label's dimension consists of so many units, which cannot be cut: all parts have as many
     * of them. 0: the dimension may be cut anywhere. */
    int64_t units[CLT_DIM_LABELS];
} clt_node_dims;

/* One place's part of a node that is divided along a label. The node has whole types. */
typedef struct clt_node_part {
    clt_axis axis;
    int label;
    int blocks; /* of the label's dimension; see clt_sharding */
    clt_coordinate at;
} clt_node_part;

/* What clt_op.reach finds. Positions count in whole dimensions. */
typedef struct clt_window {
    int dim;            /* of operand 0 and result 0 */
    int64_t begin, end; /* the part of the result */
    int64_t from, to; /* the part of the operand that it needs; may go beyond the operand's ends */
    double fill;      /* the value of elements beyond the ends */
} clt_window;

/* Writes the dimensions of a node whose types have been inferred. */
void clt_node_dims_of(const clt_node *node, clt_node_dims *dims);

/* Returns whether the units of a label can be divided so. If not, the label is like a whole one. */
bool clt_dims_divide(const clt_node_dims *dims, int label, int blocks, int places);

/* Removes the labels of all operands and results. */
void clt_dims_clear(clt_node_dims *dims);

/* --- for clt_op.dims ------------------------------------------------------------------------- */

/* For operators that move parts of tensors. Dimensions correspond by their position. A dimension of
 * one size in all operands and results is parallel; the others are whole. */
void clt_dims_by_place(const clt_node *node, clt_node_dims *dims);

/* Returns how many parts of that size the axis of a tensor consists of, if one of them begins at
 * `start`; else 0. A part of such a part is a part of each of the axis' blocks. */
int clt_dims_equal_parts(int64_t axis, int64_t size, int64_t start);

/* For operators whose operands and results all have one shape. The attribute begins with an int,
 * the axis; its dimension is whole. */
void clt_dims_axis(const clt_node *node, clt_node_dims *dims);

/* Makes summed dimensions whole. An activation of a sum is not the sum of its parts'
 * activations. */
void clt_dims_not_summed(clt_node_dims *dims);

/* --- for clt_op.localise --------------------------------------------------------------------- */

/* Writes the type of the place's part of result 0. Errors: SHAPE (it cannot be divided so). */
clt_status clt_part_of_result(const clt_node *node, const clt_node_part *part, clt_type *type);

/* Sets the attributes of kind TYPE to that type. */
clt_status clt_localise_type(const clt_node *node, const clt_node_part *part, void *attr);

/* --- for clt_op.within ----------------------------------------------------------------------- */

/* Returns elements [from, to) of a dimension of x; x itself, if they are all. */
clt_value *clt_window_cut(clt_value *x, int dim, int64_t from, int64_t to);

#endif
