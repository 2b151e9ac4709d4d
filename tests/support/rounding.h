/* Rounding to 16 bits by arithmetic of the tests, which kernels and the host's sums are compared
 * with. */
#ifndef CLT_TESTS_SUPPORT_ROUNDING_H
#define CLT_TESTS_SUPPORT_ROUNDING_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <cltrain/types.h>

/* Rounds to the nearest number of F16 or BF16, ties to even. F16 becomes infinity beyond its
 * range. */
static inline float nearest(clt_dtype dtype, float x)
{
    int exponent;
    if (x == 0 || !isfinite(x))
        return x;
    frexpf(x, &exponent);
    int last = exponent - (dtype == CLT_BF16 ? 8 : 11);
    last = dtype == CLT_F16 && last < -24 ? -24 : last;
    const double r = ldexp(nearbyint(ldexp((double)x, -last)), last);
    return dtype == CLT_F16 && fabs(r) > 65504 ? copysignf(INFINITY, x) : (float)r;
}

/* Returns the bits of a finite number that the type has. */
static inline uint16_t bits_of(clt_dtype dtype, float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if (dtype == CLT_BF16)
        return (uint16_t)(u >> 16);
    const int exponent = (int)(u >> 23 & 255) - 127;
    const uint32_t sign = u >> 16 & 0x8000;
    if (exponent < -14) /* a multiple of 2^-24 */
        return (uint16_t)(sign | (uint32_t)ldexpf(fabsf(x), 24));
    return (uint16_t)(sign | (uint32_t)(exponent + 15) << 10 | (u >> 13 & 0x3ff));
}

static inline float float_of(clt_dtype dtype, uint16_t bits)
{
    float x;
    const uint32_t u = (uint32_t)bits << 16;
    memcpy(&x, &u, sizeof x);
    if (dtype == CLT_BF16)
        return x;
    const int exponent = bits >> 10 & 31;
    x = exponent == 31 ? INFINITY
        : exponent     ? ldexpf((float)((bits & 0x3ff) | 0x400), exponent - 25)
                       : ldexpf((float)(bits & 0x3ff), -24);
    return bits & 0x8000 ? -x : x;
}

#endif
