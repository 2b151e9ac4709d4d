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

enum { TILE = 2048, LANES = 16 };

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
    double odd[LANES]; /* 0, or NaN once a value was not finite */
} lanes;

static void lanes_end(const lanes *l, double *squares, bool *finite)
{
    double sum = 0, odd = 0;
    for (int j = 0; j < LANES; j++) {
        sum += l->square[j];
        odd += l->odd[j];
    }
    *squares = sum;
    *finite = odd == 0;
}

/* `odd` needs its own sum: the square of a finite f64 may overflow. */
#define DEFINE_SQUARES(name, type)                                                                 \
    WIDE static void name##_squares(const type *x, int n, lanes *l)                                \
    {                                                                                              \
        int i = 0;                                                                                 \
        for (; i + LANES <= n; i += LANES) {                                                       \
            for (int j = 0; j < LANES; j++) {                                                      \
                double v = (double)x[i + j];                                                       \
                l->square[j] += v * v;                                                             \
                l->odd[j] += v - v;                                                                \
            }                                                                                      \
        }                                                                                          \
        for (int j = 0; i < n; i++, j++) {                                                         \
            double v = (double)x[i];                                                               \
            l->square[j] += v * v;                                                                 \
            l->odd[j] += v - v;                                                                    \
        }                                                                                          \
    }

/* `arith` is the type in which the addition is defined for all values (integers wrap). */
#define DEFINE_SUM(name, type, arith)                                                              \
    DEFINE_SQUARES(name, type)                                                                     \
    WIDE static void name##_add(type *restrict sum, const type *restrict x, int n)                 \
    {                                                                                              \
        for (int i = 0; i < n; i++)                                                                \
            sum[i] = (type)((arith)sum[i] + (arith)x[i]);                                          \
    }                                                                                              \
    WIDE static void name##_add_to(type *restrict sum, const type *a, const type *b, int n)        \
    {                                                                                              \
        for (int i = 0; i < n; i++)                                                                \
            sum[i] = (type)((arith)a[i] + (arith)b[i]);                                            \
    }                                                                                              \
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
        if (squares)                                                                               \
            lanes_end(&l, squares, finite);                                                        \
    }

DEFINE_SUM(sum_f32, float, float)
DEFINE_SUM(sum_f64, double, double)
DEFINE_SUM(sum_i32, int32_t, uint32_t)

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
