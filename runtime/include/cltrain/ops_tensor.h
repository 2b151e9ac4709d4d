/* Operators on tensors: element by element, reductions, shapes. See ops.h for the conventions. */
#ifndef CLTRAIN_OPS_TENSOR_H
#define CLTRAIN_OPS_TENSOR_H

#include <cltrain/graph.h>

CLT_BEGIN_DECLS

/* a + b, with PyTorch's broadcasting. */
CLT_API clt_value *clt_add(clt_value *a, clt_value *b);

/* The same numbers in memory of their own. */
CLT_API clt_value *clt_copy(clt_value *x);

/* max(x, 0), element by element; the gradient at 0 is 0. */
CLT_API clt_value *clt_relu(clt_value *x);

/* The same elements in row-major order under another shape. At most one dimension may depend on the
 * batch, and does if one of x does. */
CLT_API clt_value *clt_reshape(clt_value *x, int rank, const int64_t *dims);

/* All dimensions but the first become one. */
CLT_API clt_value *clt_flatten(clt_value *x);

CLT_END_DECLS

#endif
