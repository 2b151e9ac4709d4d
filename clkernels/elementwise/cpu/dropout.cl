/*
 * Dropout on CPUs, with the random numbers of elementwise/dropout.clh. Work-groups have one
 * work-item, which computes `share` elements, VECTORS * VW at a time.
 * Build options: VW, lanes of a vector of floats; STREAM.
 * Global size: ceil(count / share).
 */
#define LANES VW
#include "core/batch_blocked/philox.clh"
#include "elementwise/dropout.clh"

#define VECTORS (2 * CLT_CALLS)

/* Computes VECTORS vectors of random numbers from Philox block `block` on, in the order of
 * elements. */
INLINE void random_bits(ulong seed, uint sub, uint step, ulong block, vecu *bits)
{
    vecl x[CLT_CALLS];
#pragma unroll
    for (int c = 0; c < CLT_CALLS; c++)
        x[c] = CLT_FIRST + (block + (ulong)(c * VW / 2));
    clt_random_rows(seed, STREAM, sub, step, x, bits);
}

/* Computes elements one by one. The first one has number `number`. */
INLINE void drop_some(global const STORED(IN0) *x, global STORED(OUT0) *out, int count, ulong number, float p,
                      float scale, uint sub, ulong seed, uint step)
{
    for (int i = 0; i < count; i++, number++) {
        const uint4 bits = clt_random4(seed, STREAM, sub, step, number >> 2);
        const uint k = (uint)(number & 3);
        const uint own = k < 2 ? (k == 0 ? bits.x : bits.y) : (k == 2 ? bits.z : bits.w);
        PUT(OUT0, clt_unit(own) >= p ? GET(IN0, x + i) * scale : 0.0f, out + i);
    }
}

/* Computes elements with consecutive numbers. */
INLINE void drop_run(global const STORED(IN0) *x, global STORED(OUT0) *out, int size, ulong number,
                     float p, float scale, int sub, ulong seed, uint step)
{
    /* clt_unit(bits) >= p is equal to (bits >> 8) >= least, which needs no conversion to floats. */
    const int least = (int)ceil(p * 16777216.0f);
    /* The elements before the first whole Philox block. */
    int i = min((int)(-number & 3), size);
    drop_some(x, out, i, number, p, scale, (uint)sub, seed, step);
    for (; i + VECTORS * VW <= size; i += VECTORS * VW) {
        vecu bits[VECTORS];
        random_bits(seed, (uint)sub, step, (number + (ulong)i) >> 2, bits);
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            global const STORED(IN0) *from = x + i + v * VW;
            global STORED(OUT0) *to = out + i + v * VW;
            PREFETCH(from + AHEAD);
            PREFETCH(to + AHEAD);
            const veci kept = AS_INTS(bits[v] >> 8) >= least;
            STORE_AS(OUT0, select((vecf)(0.0f), LOAD_AS(IN0, from) * scale, kept), to);
        }
    }
    if (i < size) {
        vecu bits[VECTORS];
        random_bits(seed, (uint)sub, step, (number + (ulong)i) >> 2, bits);
        const uint *own = (const uint *)bits;
        for (int k = 0; i + k < size; k++)
            PUT(OUT0, (int)(own[k] >> 8) >= least ? GET(IN0, x + i + k) * scale : 0.0f,
                out + i + k);
    }
}

KERNEL void dropout(global const STORED(IN0) *x, long x_offset, global STORED(OUT0) *out, long out_offset,
                    long count, long sample, float p, float scale, int sub, ulong seed, uint step,
                    long position, long run, long row, long lowest, long share)
{
    const long first = (long)get_global_id(0) * share, end = min(first + share, count);
    for (long at = first, size; at < end; at += size) {
        size = min(end - at, run - at % run);
        drop_run(x + x_offset + at, out + out_offset + at, (int)size,
                 clt_drop_number(at, sample, position, run, row, lowest), p, scale, sub, seed,
                 step);
    }
}
