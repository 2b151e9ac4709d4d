/* Sums of host arrays in a fixed order. */
#ifndef CLT_COMM_SUM_H
#define CLT_COMM_SUM_H

#include <stdbool.h>
#include <stdint.h>

#include <cltrain/types.h>

/* Arrays hold n elements. An output may be one of the inputs; outputs do not overlap each other.
 * in_count 0 gives zeros. `squares`: where the sum of squares of the result goes, NULL: not wanted;
 * `finite` is set with it. Bits do not depend on the machine's vector width. */
typedef void (*clt_sum_fn)(const void *const *in, int in_count, void *const *out, int out_count,
                           int64_t n, double *squares, bool *finite);

/* NULL for a type without a sum. */
clt_sum_fn clt_sum_for(clt_dtype dtype);

#endif
