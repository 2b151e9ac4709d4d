/* Batch-blocked values on CPUs, for operators that keep the layout of their operands. */
#ifndef TESTS_OPS_IN_BATCH_BLOCKED_H
#define TESTS_OPS_IN_BATCH_BLOCKED_H

#include "ops/harness/harness.h"

/* Brings x of [B, K] and its gradient into batch-blocked layout. A convolution with the identity
 * does this: it prefers this layout, and its results are exact. */
static inline clt_value *op_in_batch_blocked(clt_value *x)
{
    const int64_t k = x->type.dims[1];
    const int64_t image[] = {CLT_BATCH, k, 1, 1}, kernel[] = {k, k, 1, 1};
    const int64_t matrix[] = {CLT_BATCH, k};
    float *identity = calloc((size_t)(k * k), sizeof *identity);
    assert_non_null(identity);
    for (int64_t i = 0; i < k; i++)
        identity[i * k + i] = 1;
    clt_value *one = clt_constant(x->graph, CLT_F32, 4, kernel, identity);
    free(identity);
    return clt_reshape(clt_conv2d(clt_reshape(x, 4, image), one, NULL, NULL), 2, matrix);
}

#endif
