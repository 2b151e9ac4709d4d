/*
 * The gradients dq, dk and dv of attention on CPUs; attention/attention.clh has the formulas.
 * Work-groups have one work-item.
 *
 *   attention_delta   delta of each row
 *   attention_grad    dk and dv, and dq or a part of it
 *   attention_sum     dq, the sum of the parts
 *
 * Work-item (x, y, z) of attention_grad computes head y of k and v of image z, for every `slices`th
 * block of COLUMNS keys from block x on. The keys are the lanes of vectors. For each ROWS rows of
 * the queries that see some of these keys, it computes p and ds in local memory
 * (attention_weights.clh). Then it adds p^T dout to dv and ds^T q to dk, both in local memory, and
 * ds k to dq. With several slices, each writes its own part of dq.
 *
 * Build options: those of attention_weights.clh; RM and CV: rows and vectors of a register tile of
 * the three sums. If D is no multiple of VW, the last vector of a row overlaps the one before, and
 * both must be in one register tile. Otherwise the elements that both have would be added twice.
 */
#include "attention/cpu/attention_weights.clh"

#define VECTORS ((D + VW - 1) / VW)
#define AT(v) min((v)*VW, D - VW) /* first element of a row's vector */

/*
 * Adds to vectors [c, c + n) of rows to[0 .. size) the sum over k in [begin, end) of w[i][k] times
 * row k of x. w[i][k] is w[i * w_row + k * w_step]. Rows beyond `last` are computed and not stored.
 */
#define SUM_TILE(name, TO)                                                                         \
    INLINE void name(TO float *to, long to_row, int last, local const float *w,                    \
                     const int w_row, const int w_step, PLACE const float *x, long x_row,          \
                     int begin, int end, const int c, const int n, const int size)                 \
    {                                                                                              \
        vecf acc[RM][CV];                                                                          \
        EACH(i, 0, size)                                                                           \
        EACH(v, 0, n)                                                                              \
        acc[i][v] = *(TO const vecf_anywhere *)(to + min(i, last) * to_row + AT(c + v));        \
        for (int k = begin; k < end; k++) {                                                        \
            vecf y[CV];                                                                            \
            EACH(v, 0, n) y[v] = LOAD_ROW(x + k * x_row + AT(c + v));                              \
            EACH(i, 0, size)                                                                       \
            {                                                                                      \
                const vecf a = (vecf)(w[i * w_row + k * w_step]);                                  \
                EACH(v, 0, n) acc[i][v] = fma(a, y[v], acc[i][v]);                                 \
            }                                                                                      \
        }                                                                                          \
        EACH(i, 0, size)                                                                           \
        if (i <= last)                                                                             \
            EACH(v, 0, n)                                                                          \
        *(TO vecf_anywhere *)(to + i * to_row + AT(c + v)) = acc[i][v];                         \
    }
SUM_TILE(sum_tile_local, local)
SUM_TILE(sum_tile_global, global)

/* dk or dv of the block's keys: to[key] += sum over the rows of w[row][key] x[row]. `first_key` is
 * the row, counted from the first of the rows, that is the first to see key 0. */
INLINE void sum_keys(local float *to, local const float *w, PLACE const float *x, long x_row,
                     int first_key, int rows, int keys)
{
#define TILE(size)                                                                                 \
    {                                                                                              \
        const int begin = clamp(first_key + j, 0, rows);                                           \
        EACH(c, 0, VECTORS / CV)                                                                   \
        sum_tile_local(to + j * D, D, size - 1, w + j, 1, COLUMNS, x, x_row, begin, rows, c *CV,   \
                       CV, size);                                                                  \
        if (VECTORS % CV)                                                                          \
            sum_tile_local(to + j * D, D, size - 1, w + j, 1, COLUMNS, x, x_row, begin, rows,      \
                           VECTORS / CV * CV, VECTORS % CV, size);                                 \
    }
    int j = 0;
    for (; j + RM <= COLUMNS && j < keys; j += RM)
        TILE(RM)
    if (COLUMNS % RM && j < keys)
        TILE(COLUMNS % RM)
#undef TILE
}

/* dq[row] += sum over the block's keys that the row sees of ds[row][key] k[key]. */
INLINE void sum_rows(global float *dq, long dq_row, local const float *ds, PLACE const float *k,
                     long k_row, int rows, int first_seen, int k0, int keys, int S, int is_causal)
{
    for (int i = 0; i < rows; i += RM) {
        const int last = min(RM, rows - i) - 1;
        const int end = min(clt_seen(i + last, first_seen, S, is_causal) - k0, keys);
        EACH(c, 0, VECTORS / CV)
        sum_tile_global(dq + i * dq_row, dq_row, last, ds + i * COLUMNS, COLUMNS, 1, k, k_row, 0,
                        end, c *CV, CV, RM);
        if (VECTORS % CV)
            sum_tile_global(dq + i * dq_row, dq_row, last, ds + i * COLUMNS, COLUMNS, 1, k, k_row,
                            0, end, VECTORS / CV * CV, VECTORS % CV, RM);
    }
}

#define STORE_KEYS(KIND, to, step, from)                                                           \
    for (int j = 0; j < keys; j++)                                                                 \
        EACH(v, 0, VECTORS)                                                                        \
    STORE_AS(KIND, *(local const vecf_anywhere *)((from) + j * D + AT(v)),                         \
             (to) + j * (step) + AT(v));

KERNEL void attention_grad(TENSOR(const STORED(X_T), q), TENSOR(const STORED(X_T), k),
                           TENSOR(const STORED(X_T), v), MASK, TENSOR(const STORED(DY_T), dout),
                           global const float *log_sum, long log_sum_offset,
                           global const float *delta, long delta_offset, TENSOR(float, dq),
                           TENSOR(STORED(DK_T), dk), TENSOR(STORED(DV_T), dv), int heads,
                           int group, int T, int S, float scale, long dq_slice DROP)
{
    local float k_panel[D * COLUMNS] __attribute__((aligned(64)));
    local float v_panel[D * COLUMNS] __attribute__((aligned(64)));
    /* sums: dv, then dk. weights: p, then ds. */
    local float sums[2 * D * COLUMNS] __attribute__((aligned(64)));
    local float weights[2 * ROWS * COLUMNS] __attribute__((aligned(64)));
#if COPIES
    local float k_rows[COLUMNS * D] __attribute__((aligned(64)));
    local float x_rows[ROWS * D] __attribute__((aligned(64)));
    local float dy_rows[ROWS * D] __attribute__((aligned(64)));
#endif
    local float *p = weights, *ds = weights + ROWS * COLUMNS;
    const int slice = (int)get_global_id(0), slices = (int)get_global_size(0);
    const int kv_head = (int)get_global_id(1), before = preceding(PAST, S);
    const long image = (long)get_global_id(2);
    k = ROWS_OF(k, image, kv_head);
    v = ROWS_OF(v, image, kv_head);
    dk = ROWS_OF(dk, image, kv_head);
    dv = ROWS_OF(dv, image, kv_head);
    dq += slice * dq_slice;
    if (mask_kind == 2)
        mask = (global const float *)((global const uchar *)mask + mask_offset);
    const long masked = (mask_kind == 1 ? mask_offset : 0) + image * mask_image;
    log_sum += log_sum_offset;
    delta += delta_offset;
    for (int head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (int t = 0; t < T; t++)
            EACH(w, 0, VECTORS)
            STORE((vecf)(0.0f), ROWS_OF(dq, image, head) + t * dq_row + AT(w));
    for (int k0 = slice * COLUMNS; k0 < S; k0 += slices * COLUMNS) {
        const int keys = min(COLUMNS, S - k0), first = is_causal ? max(k0 - before, 0) : 0;
        fetch_rows(k + k0 * k_row, k_row, keys);
        fetch_rows(v + k0 * v_row, v_row, keys);
        load_panel(k_panel, k + k0 * k_row, k_row, keys, scale);
        load_panel(v_panel, v + k0 * v_row, v_row, keys, 1.0f);
#if COPIES
        copy_rows(k_rows, k + k0 * k_row, k_row, keys);
#endif
        for (int i = 0; i < 2 * D * COLUMNS; i += VW)
            *(local vecf *)(sums + i) = (vecf)(0.0f);
        for (int head = kv_head * group; head < (kv_head + 1) * group; head++)
            for (int t0 = first; t0 < T; t0 += ROWS) {
                const int rows = min(ROWS, T - t0);
                const long at = (image * heads + head) * T + t0;
                global const STORED(X_T) *x = ROWS_OF(q, image, head) + t0 * q_row;
                global const STORED(DY_T) *dy = ROWS_OF(dout, image, head) + t0 * dout_row;
                if (t0 == first) {
                    fetch_rows(x, q_row, rows);
                    fetch_rows(dy, dout_row, rows);
                }
                fetch_rows(x + ROWS * q_row, q_row, min(ROWS, T - t0 - ROWS));
                fetch_rows(dy + ROWS * dout_row, dout_row, min(ROWS, T - t0 - ROWS));
#if COPIES
                copy_rows(x_rows, x, q_row, rows);
                copy_dout(dy_rows, dy, dout_row, rows);
#endif
                WEIGH(ROWS_AT(x_rows, x, q_row), ROWS_AT(dy_rows, dy, dout_row), log_sum + at,
                      delta + at, scale)
                /* The first row, counted from t0, that sees key k0. Below 0: all rows see it. */
                const int sees = is_causal ? k0 - before - t0 : -COLUMNS;
                /* dv += p^T dout, then dk += ds^T q. */
#if COPIES
                for (int which = 0; which < 2; which++)
                    sum_keys(sums + which * D * COLUMNS, weights + which * ROWS * COLUMNS,
                             which ? x_rows : dy_rows, D, sees, rows, keys);
#else
                for (int which = 0; which < 2; which++)
                    sum_keys(sums + which * D * COLUMNS, weights + which * ROWS * COLUMNS,
                             which ? x : dy, which ? q_row : dout_row, sees, rows, keys);
#endif
                sum_rows(ROWS_OF(dq, image, head) + t0 * dq_row, dq_row, ds,
                         ROWS_AT(k_rows, k + k0 * k_row, k_row), rows, before + t0, k0, keys, S, is_causal);
            }
        STORE_KEYS(DK_T, dk + k0 * dk_row, dk_row, sums + D * COLUMNS)
        STORE_KEYS(DV_T, dv + k0 * dv_row, dv_row, sums)
    }
}

#define CHUNK 16 /* rows of a work-item in the two kernels below */

/* to[image][head][row] = delta, the sum of dout * out over the row. */
KERNEL void attention_delta(TENSOR(const STORED(DY_T), dout), TENSOR(const STORED(Y_T), out),
                            global float *to, long to_offset, int T)
{
    const int head = (int)get_global_id(1), heads = (int)get_global_size(1);
    const int t0 = (int)get_global_id(0) * CHUNK;
    const long image = (long)get_global_id(2);
    dout = ROWS_OF(dout, image, head);
    out = ROWS_OF(out, image, head);
    to += to_offset + (image * heads + head) * T;
    for (int t = t0; t < min(t0 + CHUNK, T); t++) {
        vecf sum = (vecf)(0.0f);
        float rest = 0.0f;
        for (int d = 0; d + VW <= D; d += VW)
            sum = fma(LOAD_AS(DY_T, dout + t * dout_row + d), LOAD_AS(Y_T, out + t * out_row + d), sum);
        for (int d = D / VW * VW; d < D; d++)
            rest = fma(GET(DY_T, dout + t * dout_row + d), GET(Y_T, out + t * out_row + d), rest);
        to[t] = clt_sum_lanes(sum) + rest;
    }
}

/* dq = the sum of the parts of all slices, in a fixed order. */
KERNEL void attention_sum(global const float *parts, long parts_offset, long slice, int slices,
                          TENSOR(STORED(DQ_T), dq), int T)
{
    const int head = (int)get_global_id(1), heads = (int)get_global_size(1);
    const int t0 = (int)get_global_id(0) * CHUNK;
    const long image = (long)get_global_id(2);
    dq = ROWS_OF(dq, image, head);
    parts += parts_offset + (image * heads + head) * T * D;
    for (int t = t0; t < min(t0 + CHUNK, T); t++)
        EACH(v, 0, VECTORS)
        {
            vecf sum = LOAD(parts + t * D + AT(v));
            for (int s = 1; s < slices; s++)
                sum += LOAD(parts + s * slice + t * D + AT(v));
            STORE_AS(DQ_T, sum, dq + t * dq_row + AT(v));
        }
}
