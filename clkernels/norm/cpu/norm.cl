/*
 * Layer norm, RMS norm and their gradients on CPUs, a vector of elements at a time; norm/norm.clh
 * has the formula and arguments. All work-groups have one work-item. A work-item of norm_rows
 * computes `share` rows. A row stays in the caches between its passes, so memory is read and
 * written once.
 *
 * Build options: VW, width of a vector (4, 8 or 16); those of norm/norm.clh.
 */
#define LANES VW
#include "core/batch_blocked/halves.clh"
#include "norm/norm.clh"

/* Number of independent accumulators, which hides the latency of additions. */
#define SIDE 4
#define STEP (SIDE * VW)

/* The vector of the row that begins at c. Elements beyond the row are `fill`. */
#define ROW_OF(kind, x, c, C, fill)                                                                \
    ((c) + VW <= (C) ? LOAD_AS(kind, (x) + (c)) : LOAD_PART_AS(kind, (x) + (c), (C) - (c), fill))

/* total += sum of `term`, an expression of v, over the vectors v of row x. Elements beyond the row
 * are `fill`. */
#define SUM_ROW(total, x, C, fill, term)                                                           \
    {                                                                                              \
        vecf all[SIDE] = {0.0f, 0.0f, 0.0f, 0.0f};                                                 \
        int c = 0;                                                                                 \
        for (; c + STEP <= C; c += STEP)                                                           \
            _Pragma("unroll") for (int s = 0; s < SIDE; s++)                                       \
            {                                                                                      \
                const vecf v = LOAD_AS(IN0, x + c + s * VW);                                               \
                all[s] += term;                                                                    \
            }                                                                                      \
        for (; c < C; c += VW) {                                                                   \
            const vecf v = ROW_OF(IN0, x, c, C, fill);                                             \
            all[0] += term;                                                                        \
        }                                                                                          \
        total += clt_sum_lanes((all[0] + all[1]) + (all[2] + all[3]));                             \
    }

KERNEL void norm_rows(FORWARD, int share)
{
    const long first = get_global_id(0) * (long)share, end = min(first + share, rows);
    x += x_offset + first * C;
    y += y_offset + first * C;
    BEGIN_AFFINE
    for (long r = first; r < end; r++, x += C, y += C) {
        float mean = 0.0f, squares = 0.0f;
#if !RMS
        SUM_ROW(mean, x, C, 0.0f, v)
        mean /= (float)C;
        means[means_offset + r] = mean;
#endif
        SUM_ROW(squares, x, C, mean, (v - mean) * (v - mean))
        const float rstd = 1.0f / sqrt(squares / (float)C + eps);
        rstds[rstds_offset + r] = rstd;
        int c = 0;
        for (; c + VW <= C; c += VW) {
            vecf v = (LOAD_AS(IN0, x + c) - mean) * rstd;
            IF_WEIGHT(v *= LOAD(w + c);)
            IF_BIAS(v += LOAD(b + c);)
            PREFETCH(x + C + c);
            PREFETCH(y + C + c);
            STORE_AS(OUT0, v, y + c);
        }
        for (; c < C; c++) {
            float v = (GET(IN0, x + c) - mean) * rstd;
            IF_WEIGHT(v *= w[c];)
            IF_BIAS(v += b[c];)
            PUT(OUT0, v, y + c);
        }
    }
}

/* The vector of the row that begins at c. Elements beyond the row are 0. */
INLINE vecf load_row(global const float *x, int c, int C)
{
    return c + VW <= C ? LOAD(x + c) : clt_load_part(x + c, C - c, 0.0f);
}

INLINE void store_row(vecf v, global float *x, int c, int C)
{
    if (c + VW <= C)
        STORE(v, x + c);
    else
        clt_store_part(v, x + c, C - c);
}

/* Adds the terms of one row, for the vector that begins at c, to the sums for weight and bias. */
INLINE void add_sums(global float *sums, vecf d, vecf h, int c, int C)
{
#if DW
    store_row(fma(d, h, load_row(sums, c, C)), sums, c, C);
#endif
#if DB
    store_row(d + load_row(sums + C, c, C), sums + C, c, C);
#endif
}

/* With g = dy w and h = (x - mean) rstd: dx = rstd (g - mean of g - h * mean of g h). RMS norm has
 * no mean of g. Work-item p computes the rows from rows * p / parts on, and adds up dy h and dy of
 * these rows in sums [parts, 2, C], in the same pass over memory. */
KERNEL void norm_rows_grad(OPERANDS IF_WEIGHT(IN(w)) ROWS_OUT(OUT0, dx) IF_SUMS(OUT(sums)) long rows, int C,
                           int parts)
{
    const int part = (int)get_global_id(0);
    const long first = rows * part / parts, end = rows * (part + 1) / parts;
    x += x_offset + first * C;
    dy += dy_offset + first * C;
    dx += dx_offset + first * C;
    IF_WEIGHT(w += w_offset;)
#if DW || DB
    sums += sums_offset + 2L * part * C;
    for (int c = 0; c < 2 * C; c += VW)
        store_row((vecf)(0.0f), sums, c, 2 * C);
#else
    global float *sums = 0;
#endif
    for (long r = first; r < end; r++, x += C, dy += C, dx += C) {
        const float rstd = rstds[rstds_offset + r];
        float mean = 0.0f;
        IF_MEAN(mean = means[means_offset + r];)
        vecf sum[2] = {0.0f, 0.0f}, product[2] = {0.0f, 0.0f};
        int c = 0;
        for (; c + 2 * VW <= C; c += 2 * VW)
#pragma unroll
            for (int s = 0; s < 2; s++) {
                const vecf g = LOAD_AS(IN1, dy + c + s * VW) IF_WEIGHT(*LOAD(w + c + s * VW));
                IF_MEAN(sum[s] += g;)
                product[s] = fma(g, LOAD_AS(IN0, x + c + s * VW) - mean, product[s]);
            }
        for (; c < C; c += VW) {
            const vecf g = ROW_OF(IN1, dy, c, C, 0.0f) IF_WEIGHT(*load_row(w, c, C));
            IF_MEAN(sum[0] += g;)
            product[0] = fma(g, ROW_OF(IN0, x, c, C, 0.0f) - mean, product[0]);
        }
        const float all = clt_sum_lanes(sum[0] + sum[1]) / (float)C;
        const float factor = clt_sum_lanes(product[0] + product[1]) * rstd / (float)C;
        for (c = 0; c + VW <= C; c += VW) {
            const vecf d = LOAD_AS(IN1, dy + c), h = (LOAD_AS(IN0, x + c) - mean) * rstd;
            PREFETCH(x + C + c);
            PREFETCH(dy + C + c);
            PREFETCH(dx + C + c);
            STORE_AS(OUT0, rstd * (d IF_WEIGHT(*LOAD(w + c)) - all - h * factor), dx + c);
            add_sums(sums, d, h, c, C);
        }
        if (c < C) {
            const vecf d = ROW_OF(IN1, dy, c, C, 0.0f), h = (ROW_OF(IN0, x, c, C, 0.0f) - mean) * rstd;
            STORE_PART_AS(OUT0, rstd * (d IF_WEIGHT(*load_row(w, c, C)) - all - h * factor),
                          dx + c, C - c);
            add_sums(sums, d, h, c, C);
        }
    }
}
