/* Rounding to 16 bits, by other arithmetic than the library's. */
#ifndef TESTS_COMM_NEAREST_H
#define TESTS_COMM_NEAREST_H

#include <math.h>

#include <cltrain/types.h>

/* Rounds to the nearest number of BF16 or F16, ties to even. */
static inline float nearest(clt_dtype dtype, float x)
{
    int exponent;
    if (x == 0)
        return x;
    frexpf(x, &exponent);
    int last = exponent - (dtype == CLT_BF16 ? 8 : 11);
    last = dtype == CLT_F16 && last < -24 ? -24 : last;
    return (float)ldexp(nearbyint(ldexp((double)x, -last)), last);
}

#endif
