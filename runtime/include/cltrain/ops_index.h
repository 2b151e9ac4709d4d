/* Operators that pick elements by i32 indices and their reverse, sums into picked places. See ops.h
 * for the conventions.
 *
 * Indices are data, so they are checked where they are used: nothing outside of an array is read or
 * written. An index outside of 0 .. size - 1 picks NaN; where values are added, it adds NaN to the
 * axis' element 0. The trainer's guard then stops the step and names the node. Negative indices are
 * outside too. Sums have a fixed order (that of the positions) on every device. */
#ifndef CLTRAIN_OPS_INDEX_H
#define CLTRAIN_OPS_INDEX_H

#include <cltrain/graph.h>

CLT_BEGIN_DECLS

/* A padding_idx of clt_embedding: no row is one of padding. */
#define CLT_NO_PADDING INT64_MIN

/*
 * Rows of weight [V, D] by i32 indices [..]: [.., D] (torch.nn.functional.embedding). The row
 * `padding_idx` (negative: counted from the end), whatever is in it, gets no gradient. The gradient
 * of `weight` is dense. A weight that other nodes use too, as the linear layer of a language model
 * with tied output does, gets the sum of all gradients: that of the rows is added into the others'
 * memory. Errors: SHAPE (weight is not [V, D] of constant size), INVALID_ARGUMENT (element types;
 * padding_idx names no row).
 */
CLT_API clt_value *clt_embedding(clt_value *indices, clt_value *weight, int64_t padding_idx);

/* x's elements index[0], index[1], .. along `axis` (negative: from the end; not the batch's): as x,
 * with index's size on that axis. index: i32 of one dimension (torch.index_select). Only one of the
 * index and x's other axes may depend on the batch. */
CLT_API clt_value *clt_index_select(clt_value *x, int axis, clt_value *index);

/* x with source's elements m added at index[m] along `axis`: source is as x, with index's size on
 * that axis (torch.index_add with alpha 1). */
CLT_API clt_value *clt_index_add(clt_value *x, int axis, clt_value *index, clt_value *source);

/* x with source's elements m in place of those at index[m] along `axis`: source as for
 * clt_index_add (torch.index_copy). Where an index comes twice, the last one's elements stay; an
 * index outside of the axis puts NaN at its element 0. A cache that gets new rows is one: as a
 * state that is carried (clt_carried), only the rows that are new are written. */
CLT_API clt_value *clt_index_copy(clt_value *x, int axis, clt_value *index, clt_value *source);

/* An element of x for each index: the result is as index, and its element [i, j, k] is
 * x[index[i, j, k], j, k] for axis 0, and so on (torch.gather). index: i32, of x's rank; on the
 * other axes it is not longer than x, and as long where x depends on the batch. */
CLT_API clt_value *clt_gather(clt_value *x, int axis, clt_value *index);

/* x with each element [i, j, k] of source added at [index[i, j, k], j, k] for axis 0, and so on
 * (torch.scatter_add). index: i32, of x's rank and on the other axes x's size; source is not
 * shorter than index on any axis. */
CLT_API clt_value *clt_scatter_add(clt_value *x, int axis, clt_value *index, clt_value *source);

CLT_END_DECLS

#endif
