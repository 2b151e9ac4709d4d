/* Synchronised batch norm: moments and sums of gradients over all devices of all ranks. */
#include <math.h>

#include "ops/collective/collective.h"
#include "ops/norm/batch_norm.h"
#include "ops/core/ops.h"
#include <cltrain/ops/collective.h>
#include <cltrain/ops/tensor.h>

/* Row `row` of [rows, C], as [1, C]. */
static clt_value *row_of(clt_value *x, int64_t row)
{
    const int64_t start[] = {row, 0}, stop[] = {row + 1, CLT_TO_END};
    return clt_slice(x, start, stop, NULL);
}

/* Chan et al.'s formula over all parts. It averages the means, weighted by their counts, and then
 * combines the squared distances from the common mean. The second reduction needs the result of the
 * first. */
clt_value *clt_batch_norm_join_all(clt_value *moments)
{
    if (!moments)
        return NULL;
    clt_value *mean = row_of(moments, 0), *squares = row_of(moments, 1),
              *count = row_of(moments, 2);
    clt_value *parts[] = {clt_mul(mean, count), count};
    clt_value *sums = clt_all_reduce(clt_concat(parts, 2, 0));
    clt_value *all = sums ? row_of(sums, 1) : NULL;
    clt_value *common = clt_div(sums ? row_of(sums, 0) : NULL, clt_clamp(all, 1, INFINITY));
    clt_value *far = clt_sub(mean, common);
    clt_value *about = clt_add(squares, clt_mul(count, clt_mul(far, far)));
    clt_value *joined[] = {common, clt_all_reduce(about), all};
    return clt_concat(joined, 3, 0);
}

clt_status clt_batch_norm_sum_all(clt_value *const own[2], int axes, clt_value *all[2])
{
    if (!own[0] || !own[1])
        return CLT_INVALID_ARGUMENT;
    const int64_t channels = clt_value_dim(own[0], 0), dims[] = {1, channels}, flat[] = {channels};
    clt_value *rows[2];
    for (int i = 0; i < 2; i++)
        rows[i] = clt_reshape(own[i], 2, dims);
    clt_value *sums = clt_concat(rows, 2, 0);
    for (int axis = 0; axis < CLT_AXES; axis++)
        if (axes >> axis & 1)
            sums = clt_axis_all_reduce(sums, (clt_axis)axis, CLT_AXIS_SUM);
    sums = clt_all_reduce(sums);
    for (int i = 0; i < 2; i++)
        all[i] = sums ? clt_reshape(row_of(sums, i), 1, flat) : NULL;
    return clt_graph_status(own[0]->graph);
}
