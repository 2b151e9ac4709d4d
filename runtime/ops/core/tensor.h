/* Functions that gradient rules of the tensor operators share. The public builders are in
 * <cltrain/ops/tensor.h>. */
#ifndef CLT_OPS_CORE_TENSOR_H
#define CLT_OPS_CORE_TENSOR_H

#include "graph/graph.h"

/* Returns x broadcast to `to`. */
clt_value *clt_expand_to(clt_value *x, const clt_type *to);

/* The reverse of clt_expand_to: sums x over the axes along which a value of type `to` broadcasts to
 * x. */
clt_value *clt_sum_to(clt_value *x, const clt_type *to);

/* Returns dy broadcast to `to` and divided by fixed + per_image * batch. */
clt_value *clt_mean_grad(clt_value *dy, const clt_type *to, double fixed, double per_image);

/* The attribute of clt_slice and of its gradient. The builder has checked its ranges. */
typedef struct clt_slice_attr {
    int64_t start[CLT_MAX_RANK], step[CLT_MAX_RANK];
    clt_type type; /* slice: of the result; slice_grad: of the operand that was sliced */
} clt_slice_attr;

/* Elements start[k], start[k] + step[k], .. (size[k] of them) of each axis. */
clt_value *clt_slice_of(clt_value *x, const int64_t *start, const int64_t *step,
                        const int64_t *size);

#endif
