/* Weights of samples, as running sums for draws. */
#include <math.h>

#include "base/alloc.h"
#include "base/error.h"
#include "data/core/dataset.h"

static clt_status add_up(const clt_dataset *d, const double *weights, double *sums)
{
    double sum = 0;
    for (int64_t i = 0; i < d->count; i++) {
        if (!isfinite(weights[i]) || weights[i] < 0)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "data set '%s': the weight of sample %lld is %g: must be finite, and "
                            "not negative",
                            d->name, (long long)i, weights[i]);
        sums[i] = sum += weights[i];
    }
    if (!(sum > 0) || !isfinite(sum))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "data set '%s': the weights of all samples add up to %g", d->name, sum);
    return CLT_OK;
}

clt_status clt_dataset_set_sample_weights(clt_dataset *dataset, const double *weights)
{
    if (!dataset)
        return clt_fail(CLT_INVALID_ARGUMENT, "the data set is NULL");
    CLT_TRY(clt_dataset_need_fixed(dataset, "weights of samples"));
    double *sums = NULL;
    if (weights) {
        sums = clt_calloc((size_t)dataset->count, sizeof *sums);
        CLT_TRY_MEMORY(sums);
        const clt_status status = add_up(dataset, weights, sums);
        if (status != CLT_OK) {
            clt_free(sums);
            return status;
        }
    }
    clt_free(dataset->drawn);
    dataset->drawn = sums;
    return CLT_OK;
}
