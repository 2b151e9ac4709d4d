/* Sums that are rounded to 16 bits with error feedback. */
#ifndef CLT_COMM_ROUNDING_H
#define CLT_COMM_ROUNDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cltrain/types.h>

/* Who rounds keeps what the rounding leaves over. `before` is read and `after` written, so a step
 * can be undone. */
typedef struct clt_rounding {
    const float *before; /* NULL: there is no error feedback */
    float *after;
    float scale; /* a power of two: the residual is kept divided by it */
} clt_rounding;

/* Returns the rounding of the elements from `first` on. */
static inline clt_rounding clt_rounding_from(const clt_rounding *rounding, int64_t first)
{
    return rounding->before
               ? (clt_rounding){rounding->before + first, rounding->after + first, rounding->scale}
               : *rounding;
}

/* The arrays of a sum, of f32 or 16 bits. Outputs have 16 bits. */
typedef struct clt_reduce_sum {
    clt_dtype from, to;
    const void *const *in;
    int in_count;
    void *const *out;
    int out_count;
} clt_reduce_sum;

/* Sums n elements in f32 as clt_reduce_for does, adds the residual times its scale, rounds the
 * result and writes it to all outputs. The new residual is what was rounded away, divided by the
 * scale. `squares` and `finite` are those of the rounded result; `squares` may be NULL. */
void clt_reduce_rounded(const clt_reduce_sum *sum, int64_t n, const clt_rounding *rounding,
                        double *squares, bool *finite);

#endif
