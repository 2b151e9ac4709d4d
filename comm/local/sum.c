/*
 * Everything is done in tiles that stay in the first-level cache, so that each array is read and
 * written once whatever the number of devices. The loops are plain C that compilers vectorise.
 *
 * Squares are added in LANES separate sums, element i to lane i % LANES, and the lanes in order at
 * the end. So the order is fixed and yet vectorisable. A square of an f32 is exact in double, hence
 * the same bits with and without fused multiply-add.
 */
#include "comm/local/sum.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { TILE = 2048, LANES = 16, STRIP = 64 };

/* Wider vectors where the processor has them, without making the whole library need them. The
 * resolvers that this creates run before a sanitizer's runtime is ready. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_THREAD__) &&                  \
    !defined(__SANITIZE_ADDRESS__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

typedef struct lanes {
    double square[LANES];
    double odd[LANES]; /* 0, or NaN once a value was not finite; for f64 only, see DEFINE_SQUARES */
} lanes;

static double lanes_sum(const double *lane)
{
    double sum = 0;
    for (int j = 0; j < LANES; j++)
        sum += lane[j];
    return sum;
}

/* `overflows`: the square of a finite value may be infinite (f64), so that whether values are
 * finite needs a sum of its own. The inner loops have a constant length: without it GCC's -O2 does
 * not vectorise. */
#define DEFINE_SQUARES(name, type, overflows)                                                      \
    WIDE static void name##_squares(const type *restrict x, int n, lanes *restrict l)              \
    {                                                                                              \
        int i = 0;                                                                                 \
        for (; i + LANES <= n; i += LANES) {                                                       \
            for (int j = 0; j < LANES; j++) {                                                      \
                double v = (double)x[i + j];                                                       \
                l->square[j] += v * v;                                                             \
                if (overflows)                                                                     \
                    l->odd[j] += v - v;                                                            \
            }                                                                                      \
        }                                                                                          \
        for (int j = 0; i < n; i++, j++) {                                                         \
            double v = (double)x[i];                                                               \
            l->square[j] += v * v;                                                                 \
            if (overflows)                                                                         \
                l->odd[j] += v - v;                                                                \
        }                                                                                          \
    }

/* `arith` is the type in which the addition is defined for all values (integers wrap). */
#define DEFINE_ADD(name, type, arith)                                                              \
    WIDE static void name##_add(type *restrict sum, const type *restrict x, int n)                 \
    {                                                                                              \
        int i = 0;                                                                                 \
        for (; i + STRIP <= n; i += STRIP) {                                                       \
            for (int j = 0; j < STRIP; j++)                                                        \
                sum[i + j] = (type)((arith)sum[i + j] + (arith)x[i + j]);                          \
        }                                                                                          \
        for (; i < n; i++)                                                                         \
            sum[i] = (type)((arith)sum[i] + (arith)x[i]);                                          \
    }                                                                                              \
    WIDE static void name##_add_to(type *restrict sum, const type *a, const type *b, int n)        \
    {                                                                                              \
        int i = 0;                                                                                 \
        for (; i + STRIP <= n; i += STRIP) {                                                       \
            for (int j = 0; j < STRIP; j++)                                                        \
                sum[i + j] = (type)((arith)a[i + j] + (arith)b[i + j]);                            \
        }                                                                                          \
        for (; i < n; i++)                                                                         \
            sum[i] = (type)((arith)a[i] + (arith)b[i]);                                            \
    }

#define DEFINE_SUM(name, type, arith, overflows)                                                   \
    DEFINE_SQUARES(name, type, overflows)                                                          \
    DEFINE_ADD(name, type, arith)                                                                  \
    static void name(const void *const *in, int in_count, void *const *out, int out_count,         \
                     int64_t n, double *squares, bool *finite)                                     \
    {                                                                                              \
        type tile[TILE];                                                                           \
        lanes l = {{0}, {0}};                                                                      \
        for (int64_t at = 0; at < n; at += TILE) {                                                 \
            int m = n - at < TILE ? (int)(n - at) : TILE;                                          \
            size_t bytes = (size_t)m * sizeof(type);                                               \
            if (in_count == 0)                                                                     \
                memset(tile, 0, bytes);                                                            \
            else if (in_count == 1)                                                                \
                memcpy(tile, (const type *)in[0] + at, bytes);                                     \
            else                                                                                   \
                name##_add_to(tile, (const type *)in[0] + at, (const type *)in[1] + at, m);        \
            for (int k = 2; k < in_count; k++)                                                     \
                name##_add(tile, (const type *)in[k] + at, m);                                     \
            if (squares)                                                                           \
                name##_squares(tile, m, &l);                                                       \
            for (int k = 0; k < out_count; k++)                                                    \
                memcpy((type *)out[k] + at, tile, bytes);                                          \
        }                                                                                          \
        if (squares) {                                                                             \
            *squares = lanes_sum(l.square);                                                        \
            *finite = overflows ? lanes_sum(l.odd) == 0 : isfinite(*squares);                      \
        }                                                                                          \
    }

DEFINE_SUM(sum_f32, float, float, false)
DEFINE_SUM(sum_f64, double, double, true)
DEFINE_SUM(sum_i32, int32_t, uint32_t, false)

clt_sum_fn clt_sum_for(clt_dtype dtype)
{
    switch (dtype) {
    case CLT_F32:
        return sum_f32;
    case CLT_F64:
        return sum_f64;
    case CLT_I32:
        return sum_i32;
    default:
        return NULL;
    }
}
