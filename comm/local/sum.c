/*
 * One pass over all arrays, LANES elements at a time. Squares are added in LANES separate sums,
 * element i to lane i % LANES, and the lanes in order at the end: a fixed order that is the same
 * for every width of vectors. A square of an f32 is exact in double, hence the same bits with and
 * without fused multiply-add.
 */
#include "comm/local/sum.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum { LANES = 16 };

#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

static double lanes_sum(const double *lane)
{
    double sum = 0;
    for (int j = 0; j < LANES; j++)
        sum += lane[j];
    return sum;
}

/* Vectors of 16 bytes, which every processor this runs on has. */
#define TARGET
#define UNIT 2
#define TYPE float
#define ARITH float
#define OVERFLOWS 0
#define NAME sum_f32
#include "comm/local/sum_body.h"
#define TYPE int32_t
#define ARITH uint32_t
#define OVERFLOWS 0
#define NAME sum_i32
#include "comm/local/sum_body.h"
#define TYPE double
#define ARITH double
#define OVERFLOWS 1
#define NAME sum_f64
#include "comm/local/sum_body.h"
#undef UNIT
#undef TARGET

/* f32 again for the wider vectors that x86 processors may have. */
#ifdef __x86_64__
#define TARGET __attribute__((target("avx2")))
#define UNIT 4
#define TYPE float
#define ARITH float
#define OVERFLOWS 0
#define NAME sum_f32_avx2
#include "comm/local/sum_body.h"
#endif

clt_sum_fn clt_sum_for(clt_dtype dtype)
{
    switch (dtype) {
    case CLT_F32:
#ifdef __x86_64__
        if (__builtin_cpu_supports("avx2"))
            return sum_f32_avx2;
#endif
        return sum_f32;
    case CLT_F64:
        return sum_f64;
    case CLT_I32:
        return sum_i32;
    default:
        return NULL;
    }
}
