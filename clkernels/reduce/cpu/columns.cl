/*
 * Sums, maxima and counts over axes on CPUs, if neighbouring results lie side by side in the
 * operand, so that a vector holds VW results and no sum over vector lanes is needed. REDUCE selects
 * the operation (reduce/cpu/reduce.clh). All work-groups have one work-item, which computes WIDTH
 * neighbouring results over one of `parts` equal shares, in order, of each result's `length`
 * elements. It writes [part][result]; a second launch of the same kernel joins the parts.
 *
 * Result (i0, i1, i2, i3) of k0 x .. x k3 begins at x[i0 * a0 + i1 * a1 + i2 * a2 + i3 * a3]. Its
 * elements lie j0 * b0 + .. + j3 * b3 further, for (j0 .. j3) in r0 x .. x r3. Results are divided
 * by `divisor`, unless it is -1; 0 makes them 0.
 *
 * Global size: ceil(k3 / WIDTH) * k0 * k1 * k2 * parts. Build options, with defaults in brackets:
 * VW, width of a vector (4, 8 or 16); REDUCE; X_T [f]: storage type of x (core/storage.clh).
 */
#define LANES VW
#include "core/batch_blocked/halves.clh"
#include "reduce/cpu/reduce.clh"

#ifndef X_T
#define X_T f
#endif
#define WIDTH 512
#define TILE 64  /* columns whose sums stay in registers over ROWS rows */
#define VECTORS (TILE / VW)
#define ROWS 8
#define LINE 16   /* floats of a cache line: one prefetch fetches them */
#define BLOCK 256 /* rows that are added up separately: keeps rounding errors small */

#define SIZES(x) long x##0, long x##1, long x##2, long x##3
#define DIGIT(i, n)                                                                                \
    long i = 0;                                                                                    \
    if (n > 1) {                                                                                   \
        i = rest % n;                                                                              \
        rest /= n;                                                                                 \
    }

/* Adds `rows` rows, `step` apart, of `count` vectors to `all`, and prefetches the next rows.
 * Callers pass literals for both numbers, so that the loops are unrolled and the sums stay in
 * registers. */
INLINE void take_tile(global const STORED(X_T) * x, long step, const int rows, const int count,
                      const vecf *y, vecf *all)
{
    vecf block[VECTORS];
#pragma unroll
    for (int v = 0; v < count; v++)
        block[v] = all[v];
#pragma unroll
    for (int i = 0; i < rows; i++)
#pragma unroll
        for (int v = 0; v < count; v++) {
            if (v * VW % LINE == 0)
                PREFETCH(x + (rows + i) * step + v * VW);
            const vecf value = LOAD_AS(X_T, x + i * step + v * VW);
            block[v] = TAKE(block[v], value, y[v]);
        }
#pragma unroll
    for (int v = 0; v < count; v++)
        all[v] = block[v];
}

/* Adds `rows` rows of `width` columns to the vectors at `all`: by tiles, then by vectors, then the
 * rest. */
INLINE void take_rows(global const STORED(X_T) * x, long step, const int rows, int width, const vecf *y,
                      vecf *all)
{
    int c = 0;
    for (; c + TILE <= width; c += TILE)
        take_tile(x + c, step, rows, VECTORS, y + c / VW, all + c / VW);
    for (; c + VW <= width; c += VW)
        take_tile(x + c, step, rows, 1, y + c / VW, all + c / VW);
    for (int i = 0; c < width && i < rows; i++) {
        const vecf value = LOAD_PART_AS(X_T, x + c + i * step, width - c, NEUTRAL);
        all[c / VW] = TAKE(all[c / VW], value, y[c / VW]);
    }
}

#if REDUCE == 2
#define OPERANDS                                                                                   \
    global const STORED(X_T) * x_base, long x_offset, global const float *y_base, long y_offset
#define COMPARED(o, lanes)                                                                         \
    ((lanes) == VW ? LOAD(y_base + y_offset + (o)) : clt_load_part(y_base + y_offset + (o), lanes, NAN))
#else
#define OPERANDS global const STORED(X_T) * x_base, long x_offset
#define COMPARED(o, lanes) (vecf)(0.0f)
#endif

KERNEL void reduce(OPERANDS, global float *out_base, long out_offset, long count, int parts,
                   long length, long divisor, SIZES(k), SIZES(a), SIZES(r), SIZES(b))
{
    long rest = (long)get_global_id(0);
    const long groups = (k3 + WIDTH - 1) / WIDTH, column = rest % groups * WIDTH;
    rest /= groups;
    DIGIT(i2, k2) DIGIT(i1, k1) DIGIT(i0, k0)
    const long part = rest, share = (length + parts - 1) / parts;
    const long end = min((part + 1) * share, length);
    const int width = (int)min((long)WIDTH, k3 - column);
    const long result = ((i0 * k1 + i1) * k2 + i2) * k3 + column;
    global const STORED(X_T) *from = x_base + x_offset + i0 * a0 + i1 * a1 + i2 * a2 + column;
    global float *out = out_base + out_offset + part * count + result;
    const int vectors = (width + VW - 1) / VW;
    vecf all[WIDTH / VW], block[WIDTH / VW], y[REDUCE == 2 ? WIDTH / VW : 1];
    for (int v = 0; v < vectors; v++) {
        all[v] = (vecf)(START);
        if (REDUCE == 2)
            y[v] = COMPARED(result + v * VW, min(width - v * VW, VW));
    }
    for (long at = part * share; at < end;) {
        rest = at;
        DIGIT(j3, r3) DIGIT(j2, r2) DIGIT(j1, r1) DIGIT(j0, r0)
        global const STORED(X_T) *x = from + j0 * b0 + j1 * b1 + j2 * b2 + j3 * b3;
        const int run = (int)min(min(end - at, r3 - j3), (long)BLOCK);
        int i = 0;
        for (int v = 0; v < vectors; v++)
            block[v] = (vecf)(START);
        for (; i + ROWS <= run; i += ROWS)
            take_rows(x + i * b3, b3, ROWS, width, y, block);
        for (; i < run; i++)
            take_rows(x + i * b3, b3, 1, width, y, block);
        for (int v = 0; v < vectors; v++)
            all[v] = JOIN(all[v], block[v]);
        at += run;
    }
    for (int v = 0; v < vectors; v++) {
        vecf value = all[v];
        if (divisor >= 0)
            value = divisor ? value / (float)divisor : (vecf)(0.0f);
        if (v * VW + VW <= width)
            STORE(value, out + v * VW);
        else
            clt_store_part(value, out + v * VW, width - v * VW);
    }
}
