/*
 * Transposes matrices of 4-byte elements on CPUs, in registers: out[i0][i1][i2] (n0 x n1 x n2,
 * contiguous) = x[i0 * x0 + i1 + i2 * x2]. A work-item has TILE x TILE elements.
 * Global size: (ceil(n2 / TILE), ceil(n1 / TILE), n0), local (1, 1, 1). Build option: LANES.
 */
#include "lanes/transpose.clh"

#define TILE 64

KERNEL void transpose(global const float *x, long x_offset, global float *out, long out_offset,
                      long n1, long n2, long x0, long x2)
{
    const long first2 = get_global_id(0) * TILE, end2 = min(first2 + TILE, n2);
    const long first1 = get_global_id(1) * TILE, end1 = min(first1 + TILE, n1);
    x += x_offset + get_global_id(2) * x0;
    out += out_offset + get_global_id(2) * n1 * n2;
    const long whole2 = first2 + (end2 - first2) / LANES * LANES;
    const long whole1 = first1 + (end1 - first1) / LANES * LANES;
    for (long i1 = first1; i1 < whole1; i1 += LANES) {
        for (long i2 = first2; i2 < whole2; i2 += LANES) {
            vecf a[LANES], b[LANES];
            global const float *from = x + i2 * x2 + i1;
            global float *to = out + i1 * n2 + i2;
#define GET(j, r, s) a[j] = LOAD(from + j * x2);
            FOR_A(LANES, GET, 0, 0)
            CLT_TRANSPOSE(a, b)
#define PUT(j, r, s) STORE(a[j], to + j * n2);
            FOR_A(LANES, PUT, 0, 0)
        }
    }
    for (long i1 = first1; i1 < end1; i1++)
        for (long i2 = i1 < whole1 ? whole2 : first2; i2 < end2; i2++)
            out[i1 * n2 + i2] = x[i2 * x2 + i1];
}
