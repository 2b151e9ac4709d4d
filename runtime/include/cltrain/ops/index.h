/* Operators that pick elements by i32 indices, and the reverse: sums into picked places. See ops.h
 * for the conventions.
 *
 * Indices are data. Kernels check them and never read or write outside of an array. An index
 * outside of 0 .. size - 1, such as a negative one, picks NaN. If values are added, it adds NaN to
 * element 0 of the axis. The trainer's guard then stops the step and names the node. Sums have the
 * order of the positions on every device. */
#ifndef CLTRAIN_OPS_INDEX_H
#define CLTRAIN_OPS_INDEX_H

#include <cltrain/graph.h>

CLT_BEGIN_DECLS

/* A padding_idx of clt_embedding: no row is padding. */
#define CLT_NO_PADDING INT64_MIN

/*
 * Picks rows of weight [V, D] by i32 indices [..]: [.., D] (torch.nn.functional.embedding). The row
 * `padding_idx` gets no gradient; a negative number counts from the end. The gradient of `weight`
 * is dense. If other nodes use the weight too, such as the tied output layer of a language model,
 * it gets the sum of all gradients. Errors: SHAPE (weight is not [V, D] of constant size),
 * INVALID_ARGUMENT (element types; padding_idx names no row).
 */
CLT_API clt_value *clt_embedding(clt_value *indices, clt_value *weight, int64_t padding_idx);

/* Picks the elements index[0], index[1], .. of x along `axis` (torch.index_select). A negative axis
 * counts from the end; it may not be the batch. index is i32 of one dimension. The result has the
 * size of index on this axis. Either index or another axis of x may depend on the batch, not
 * both. */
CLT_API clt_value *clt_index_select(clt_value *x, int axis, clt_value *index);

/* Adds element m of source to element index[m] of x, along `axis` (torch.index_add with alpha 1).
 * The shape of source is that of x, with the size of index on this axis. */
CLT_API clt_value *clt_index_add(clt_value *x, int axis, clt_value *index, clt_value *source);

/* Replaces element index[m] of x by element m of source, along `axis` (torch.index_copy). source is
 * as for clt_index_add. If an index occurs twice, the last one counts. An index outside of the axis
 * puts NaN at element 0. Use it for a cache that gets new rows: in a state of clt_carried only the
 * new rows are written. */
CLT_API clt_value *clt_index_copy(clt_value *x, int axis, clt_value *index, clt_value *source);

/* Picks an element of x for each index (torch.gather). The result has the shape of index. For axis
 * 0 its element [i, j, k] is x[index[i, j, k], j, k]; other axes likewise. index is i32 and has the
 * rank of x. On the other axes it is not longer than x, and equally long if x depends on the
 * batch. */
CLT_API clt_value *clt_gather(clt_value *x, int axis, clt_value *index);

/* Adds elements of source to x (torch.scatter_add). For axis 0 element [i, j, k] of source is added
 * at [index[i, j, k], j, k]; other axes likewise. index is i32, has the rank of x, and on the other
 * axes its size. source is not shorter than index on any axis. */
CLT_API clt_value *clt_scatter_add(clt_value *x, int axis, clt_value *index, clt_value *source);

CLT_END_DECLS

#endif
