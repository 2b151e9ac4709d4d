/*
 * Sums, maxima and counts over axes of which the last is contiguous, and the sum of squared
 * differences, on CPUs, a vector of elements at a time. REDUCE selects the operation
 * (reduce/cpu/reduce.clh). All work-groups have one work-item.
 *
 * Result (i0 .. i3) of k0 x .. x k3 begins at x[i0 * a0 + .. + i3 * a3]. Its `length` elements lie
 * j0 * b0 + .. + j3 * b3 further, for (j0 .. j3) in r0 x .. x r3, where b3 is 1. A work-item
 * computes `share` neighbouring results of `count`, over one of `parts` equal shares, in order, of
 * their elements. It writes [result][part]; a second launch over rows of `parts` elements joins the
 * parts. Results are divided by `divisor`, unless it is -1; 0 makes them 0.
 *
 * Global size: ceil(count / share) * parts. Build options, with defaults in brackets: VW, width of
 * a vector (4, 8 or 16); REDUCE; X_T [f]: storage type of x (core/storage.clh).
 */
#define LANES VW
#include "core/batch_blocked/halves.clh"
#include "reduce/cpu/reduce.clh"

#ifndef X_T
#define X_T f
#endif

/* Number of independent accumulators, which hides the latency of additions. */
#define SIDE 4
#define STEP (SIDE * VW)
#define LINE 16 /* floats of a cache line: one prefetch fetches them */
/* Elements of a run, and runs, that are added up separately: keeps rounding errors small. */
#define BLOCK 4096
#define RUNS 64
#define SHARE 32 /* results of a work-item, at most */

#define SIZES(x) long x##0, long x##1, long x##2, long x##3
#define DIGIT(i, n)                                                                                \
    if (n > 1) {                                                                                   \
        i = rest % n;                                                                              \
        rest /= n;                                                                                 \
    }

/* Advances index i of n; at its end, sets it to 0 and runs `more`, which advances the next one. */
#define NEXT(i, n, more)                                                                           \
    if (++i == n) {                                                                                \
        i = 0;                                                                                     \
        more;                                                                                      \
    }

/* Adds `run` contiguous elements to `all`. */
INLINE vecf take_run(global const STORED(X_T) *x, long run, vecf y, vecf all)
{
    while (run >= STEP) {
        const int block = (int)min(run / STEP * STEP, (long)BLOCK);
        vecf side[SIDE];
#pragma unroll
        for (int s = 0; s < SIDE; s++)
            side[s] = (vecf)(START);
        for (int i = 0; i < block; i += STEP)
#pragma unroll
            for (int s = 0; s < SIDE; s++) {
                if (s * VW % LINE == 0)
                    PREFETCH(x + i + s * VW + AHEAD);
                const vecf v = LOAD_AS(X_T, x + i + s * VW);
                side[s] = TAKE(side[s], v, y);
            }
        side[0] = JOIN(side[0], side[1]);
        side[2] = JOIN(side[2], side[3]);
        side[0] = JOIN(side[0], side[2]);
        all = JOIN(all, side[0]);
        x += block;
        run -= block;
    }
    for (; run >= VW; run -= VW, x += VW) {
        const vecf v = LOAD_AS(X_T, x);
        all = TAKE(all, v, y);
    }
    if (run > 0) {
        const vecf v = LOAD_PART_AS(X_T, x, (int)run, NEUTRAL);
        all = TAKE(all, v, y);
    }
    return all;
}

#if REDUCE == 2
#define OPERANDS                                                                                   \
    global const STORED(X_T) *x_base, long x_offset, global const float *y_base, long y_offset
#define COMPARED(o) (vecf)(y_base[y_offset + (o)])
#else
#define OPERANDS global const STORED(X_T) *x_base, long x_offset
#define COMPARED(o) (vecf)(0.0f)
#endif

KERNEL void reduce(OPERANDS, global float *out_base, long out_offset, long count, int parts,
                   long length, long divisor, SIZES(k), SIZES(a), SIZES(r), SIZES(b), int share)
{
    const long item = (long)get_global_id(0), part = item % parts;
    const long first = item / parts * share, last = min(first + share, count);
    /* Parts begin at whole cache lines, if results do. */
    const long size = ((length + parts - 1) / parts + LINE - 1) / LINE * LINE;
    const long end = min((part + 1) * size, length);
    const int results = (int)(last - first);
    vecf all[SHARE], block[SHARE];
    long start[SHARE];
    {
        long i0 = 0, i1 = 0, i2 = 0, i3 = 0, rest = first;
        DIGIT(i3, k3) DIGIT(i2, k2) DIGIT(i1, k1) DIGIT(i0, k0)
        for (int o = 0; o < results; o++) {
            start[o] = i0 * a0 + i1 * a1 + i2 * a2 + i3 * a3;
            all[o] = block[o] = (vecf)(START);
            NEXT(i3, k3, NEXT(i2, k2, NEXT(i1, k1, i0++)))
        }
    }
    x_base += x_offset;
    long at = min(part * size, length), j0 = 0, j1 = 0, j2 = 0, j3 = 0;
    if (at) {
        long rest = at;
        DIGIT(j3, r3) DIGIT(j2, r2) DIGIT(j1, r1) DIGIT(j0, r0)
    }
    /* For each run of elements, visits all results. If results lie between the runs of each other,
     * memory is then read contiguously. */
    for (int runs = 1; at < end; runs++) {
        const long run = min(end - at, r3 - j3), from = j0 * b0 + j1 * b1 + j2 * b2 + j3;
        for (int o = 0; o < results; o++)
            block[o] = take_run(x_base + start[o] + from, run, COMPARED(first + o), block[o]);
        if (runs % RUNS == 0)
            for (int o = 0; o < results; o++) {
                all[o] = JOIN(all[o], block[o]);
                block[o] = (vecf)(START);
            }
        at += run;
        j3 = 0;
        NEXT(j2, r2, NEXT(j1, r1, j0++))
    }
    for (int o = 0; o < results; o++) {
        float value = join_lanes(JOIN(all[o], block[o]));
        if (divisor >= 0)
            value = divisor ? value / (float)divisor : 0.0f;
        out_base[out_offset + (first + o) * parts + part] = value;
    }
}

#if REDUCE == 0
INLINE vecf add_squares(vecf all, vecf x, vecf target)
{
    const vecf difference = x - target;
    return fma(difference, difference, all);
}

/* Partial sums and counts of squared differences, as in loss/portable/loss.cl: part p has the
 * elements from elements * p / parts on. Global size: parts. */
KERNEL void mse(global const float *x, long x_offset, global const float *target, long target_offset,
                global float *sums, long sums_offset, global int *counts, long counts_offset,
                long elements, int parts)
{
    const int part = (int)get_global_id(0);
    const long first = elements * part / parts, end = elements * (part + 1) / parts;
    vecf all = (vecf)(0.0f);
    long i = first;
    x += x_offset;
    target += target_offset;
    while (end - i >= STEP) {
        const long stop = i + min((end - i) / STEP * STEP, (long)BLOCK);
        vecf side[SIDE];
#pragma unroll
        for (int s = 0; s < SIDE; s++)
            side[s] = (vecf)(0.0f);
        for (; i < stop; i += STEP)
#pragma unroll
            for (int s = 0; s < SIDE; s++) {
                if (s * VW % LINE == 0) {
                    PREFETCH(x + i + s * VW + AHEAD);
                    PREFETCH(target + i + s * VW + AHEAD);
                }
                side[s] = add_squares(side[s], LOAD(x + i + s * VW), LOAD(target + i + s * VW));
            }
        all += (side[0] + side[1]) + (side[2] + side[3]);
    }
    for (; i < end; i += VW) {
        const int rest = (int)(end - i);
        all = rest >= VW ? add_squares(all, LOAD(x + i), LOAD(target + i))
                         : add_squares(all, clt_load_part(x + i, rest, 0.0f),
                                       clt_load_part(target + i, rest, 0.0f));
    }
    sums[sums_offset + part] = clt_sum_lanes(all);
    counts[counts_offset + part] = (int)(end - first);
}
#endif
