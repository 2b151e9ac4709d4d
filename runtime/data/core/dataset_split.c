/* Divides a batch among devices and ranks. */
#include <math.h>

#include <cltrain/data.h>

#include "base/error.h"

static clt_status check(int64_t total, int parts, const double *weights, int64_t quantum,
                        double *sum)
{
    if (total < 0 || parts < 1 || quantum < 1)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "%lld samples cannot be split in %d parts of multiples of %lld",
                        (long long)total, parts, (long long)quantum);
    *sum = parts;
    if (!weights)
        return CLT_OK;
    *sum = 0;
    for (int p = 0; p < parts; p++) {
        if (!isfinite(weights[p]) || weights[p] < 0)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "the weight of part %d is %g: it must be finite and not negative", p,
                            weights[p]);
        *sum += weights[p];
    }
    if (!(*sum > 0) || !isfinite(*sum))
        return clt_fail(CLT_INVALID_ARGUMENT, "the weights of %d parts sum to %g", parts, *sum);
    return CLT_OK;
}

/* Writes the units of each part to units[0 .. parts). D'Hondt's method never gives a part less than
 * its share rounded down. The division starts from these shares, so it takes at most about `parts`
 * rounds. */
static void divide(int64_t total, int parts, const double *weights, double sum, int64_t *units)
{
    int64_t given = 0;
    for (int p = 0; p < parts; p++) {
        units[p] = weights ? (int64_t)floor((double)total * (weights[p] / sum)) : total / parts;
        /* Floating point may round a share up to the next integer. One less is still a lower
         * bound. */
        if (weights && units[p] > 0)
            units[p]--;
        given += units[p];
    }
    for (; given < total; given++) {
        int best = -1;
        double best_load = 0;
        for (int p = 0; p < parts; p++) {
            double weight = weights ? weights[p] : 1.0;
            double load = (double)(units[p] + 1) / weight;
            if (weight > 0 && (best < 0 || load < best_load)) {
                best = p;
                best_load = load;
            }
        }
        units[best]++;
    }
}

clt_status clt_split(int64_t total, int parts, const double *weights, int64_t quantum,
                     int64_t *offsets)
{
    double sum;
    CLT_TRY(check(total, parts, weights, quantum, &sum));
    int64_t *units = offsets + 1;
    divide(total / quantum + (total % quantum != 0), parts, weights, sum, units);
    offsets[0] = 0;
    for (int p = 0; p < parts; p++) {
        int64_t rest = total - offsets[p];
        offsets[p + 1] = units[p] > rest / quantum ? total : offsets[p] + units[p] * quantum;
    }
    return CLT_OK;
}

int64_t clt_virtual_shard_begin(int64_t total, int64_t shards, int64_t shard)
{
    const int64_t larger = total % shards;
    return total / shards * shard + (shard < larger ? shard : larger);
}

clt_status clt_split_capacity(int64_t total, int parts, const double *weights, int64_t quantum,
                              int64_t *capacity)
{
    double sum;
    CLT_TRY(check(total, parts, weights, quantum, &sum));
    divide(total / quantum + (total % quantum != 0), parts, weights, sum, capacity);
    for (int p = 0; p < parts; p++)
        capacity[p] = capacity[p] > total / quantum ? total : capacity[p] * quantum;
    return CLT_OK;
}
