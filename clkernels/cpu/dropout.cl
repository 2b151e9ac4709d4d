/*
 * Dropout on CPUs, the same numbers as portable/dropout.cl: work-group size 1. Philox multiplies 32
 * by 32 bits, which vectors of 64 bits do in one instruction: each of their VW / 2 lanes makes the
 * four numbers of a block. A work-item has `share` elements. Global size: ceil(count / share).
 * Build options: VW, lanes of a vector of floats; STREAM.
 */
#define LANES VW
#include "lanes/common.clh"
#include "philox.clh"

#if VW == 16
typedef ulong8 vecl;
typedef ulong16 two_vecl;
#define FIRST ((vecl)(0, 1, 2, 3, 4, 5, 6, 7))
#elif VW == 8
typedef ulong4 vecl;
typedef ulong8 two_vecl;
#define FIRST ((vecl)(0, 1, 2, 3))
#else
typedef ulong2 vecl;
typedef ulong4 two_vecl;
#define FIRST ((vecl)(0, 1))
#endif
#define AS_UINTS(v) CLT_JOIN(as_uint, VW)(v)
#define TO_FLOATS(v) CLT_JOIN(convert_float, VW)(v)
#define HALF 0xFFFFFFFFul

/* The numbers of blocks from `block` on, in the order of the elements. */
INLINE void random_bits(ulong seed, uint sub, uint step, ulong block, vecu *bits)
{
    const vecl blocks = FIRST + block;
    vecl x = blocks & HALF, y = (blocks >> 32 & 0xFFul) | (ulong)(sub << 8);
    vecl z = (vecl)((ulong)step), w = (vecl)((ulong)STREAM);
    uint k0 = (uint)seed, k1 = (uint)(seed >> 32);
    /* The upper halves may hold anything: only the lower ones are multiplied. */
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const vecl p = (x & HALF) * 0xD2511F53ul, q = (z & HALF) * 0xCD9E8D57ul;
        x = q >> 32 ^ y ^ (ulong)k0;
        z = p >> 32 ^ w ^ (ulong)k1;
        y = q;
        w = p;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    two_vecl all;
    all.even = (x & HALF) | y << 32;
    all.odd = (z & HALF) | w << 32;
    bits[0] = AS_UINTS(all.lo);
    bits[1] = AS_UINTS(all.hi);
}

/* Elements one by one, `number` being the first one's. */
INLINE void drop_some(global const float *x, global float *out, int count, ulong number, float p,
                      float scale, uint sub, ulong seed, uint step)
{
    for (int i = 0; i < count; i++, number++) {
        const uint4 bits = clt_random4(seed, STREAM, sub, step, number >> 2);
        const uint k = (uint)(number & 3);
        const uint own = k < 2 ? (k == 0 ? bits.x : bits.y) : (k == 2 ? bits.z : bits.w);
        out[i] = clt_unit(own) >= p ? x[i] * scale : 0.0f;
    }
}

KERNEL void dropout(global const float *x, long x_offset, global float *out, long out_offset,
                    long count, long sample, float p, float scale, int sub, ulong seed, uint step,
                    long position, long share)
{
    const long at = (long)get_global_id(0) * share;
    const int size = (int)min(share, count - at);
    const ulong number = (ulong)(position * sample + at);
    x += x_offset + at;
    out += out_offset + at;
    /* Up to the first block that is whole. */
    int i = min((int)(-number & 3), size);
    drop_some(x, out, i, number, p, scale, (uint)sub, seed, step);
    for (; i + 2 * VW <= size; i += 2 * VW) {
        vecu bits[2];
        random_bits(seed, (uint)sub, step, (number + (ulong)i) >> 2, bits);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            PREFETCH(x + i + h * VW + AHEAD);
            PREFETCH(out + i + h * VW + AHEAD);
            const vecf unit = TO_FLOATS(bits[h] >> 8) * (1.0f / 16777216.0f);
            STORE(select((vecf)(0.0f), LOAD(x + i + h * VW) * scale, unit >= p), out + i + h * VW);
        }
    }
    drop_some(x + i, out + i, size - i, number + (ulong)i, p, scale, (uint)sub, seed, step);
}
