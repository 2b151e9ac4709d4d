/* Reductions of host arrays in a fixed order. */
#ifndef CLT_COMM_REDUCTION_H
#define CLT_COMM_REDUCTION_H

#include <stdbool.h>
#include <stdint.h>

#include <cltrain/types.h>

/* The most devices of a process. A node has at most as many ranks, so this is also the most arrays
 * that are reduced together, and pointers to them fit on the stack. */
enum { CLT_COMM_MAX_DEVICES = 64 };

/* Number of separate sums of squares: element i is added to lane i % CLT_REDUCE_LANES. */
enum { CLT_REDUCE_LANES = 16 };

/* Reduces `in_count` arrays of n elements, and writes the result to `out_count` arrays. If the
 * types agree, an output may be one of the inputs. Outputs must not overlap each other. Without
 * inputs, a sum is 0, a minimum is the largest value of the type, and a maximum the least. f16 and
 * bf16 are reduced in f32 and rounded once, to the nearest. Integers wrap. A NaN wins a minimum or
 * maximum. A mean is divided by `divisor`. `squares` gets the sum of squares of the result, and
 * `finite` is set too; `squares` may be NULL. Bits do not depend on the machine's vector width. */
typedef void (*clt_reduce_fn)(const void *const *in, int in_count, void *const *out, int out_count,
                              int64_t n, clt_comm_reduction reduction, int divisor, double *squares,
                              bool *finite);

/* Returns the reduction of arrays of `from` to arrays of `to`. The types must be equal, or one is
 * f32 and the other a 16-bit type. Returns NULL for types without reductions. */
clt_reduce_fn clt_reduce_for(clt_dtype from, clt_dtype to);

#endif
