/* Reductions of host arrays in a fixed order. */
#ifndef CLT_COMM_REDUCTION_H
#define CLT_COMM_REDUCTION_H

#include <stdbool.h>
#include <stdint.h>

#include <cltrain/comm.h>

/* Most devices of a process and so, with at most as many ranks, arrays that are reduced together:
 * pointers to their data fit on the stack. */
enum { CLT_COMM_MAX_DEVICES = 64 };

/* Squares are added in so many separate sums, element i to lane i % CLT_REDUCE_LANES. */
enum { CLT_REDUCE_LANES = 16 };

/* Arrays hold n elements. Where types agree, an output may be one of the inputs; outputs do not
 * overlap each other. Without inputs a sum is 0, a minimum the largest and a maximum the least
 * value of the type. f16 and bf16 are reduced in f32 and rounded once, to the nearest; integers
 * wrap; a NaN wins a minimum or maximum. `divisor`: what a mean is divided by. `squares`: where the
 * sum of squares of the result goes, NULL: not wanted; `finite` is set with it. Bits do not depend
 * on the machine's vector width. */
typedef void (*clt_reduce_fn)(const void *const *in, int in_count, void *const *out, int out_count,
                              int64_t n, clt_comm_reduction reduction, int divisor, double *squares,
                              bool *finite);

/* Of arrays of `from` to arrays of `to`, which is the same, or f32 for or from a shorter type. NULL
 * for types without reductions. */
clt_reduce_fn clt_reduce_for(clt_dtype from, clt_dtype to);

#endif
