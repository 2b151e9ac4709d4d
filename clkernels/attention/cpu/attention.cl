/*
 * Attention on CPUs, with online softmax; attention/attention.clh has the formulas. Work-groups
 * have one work-item.
 *
 * Work-item (x, y, z) computes COLUMNS rows of out, of head y of image z. The rows of q are the
 * lanes of NV vectors. So maxima and sums of a row need no operation across lanes, and elements of
 * k and v are broadcast from where they lie. The keys come in blocks of KEYS. For each block:
 *
 *   1. score_tile: weights[key][row] = s, in local memory, and the rows' maxima.
 *   2. weights = exp(weights - maximum). Older sums are scaled by keep = exp(old - new maximum).
 *   3. value_tile: sums[d][row] = sums * keep + sum over the keys of v[key][d] weights[key][row].
 *
 * With is_causal, vector v skips the keys of a block from ends[v] on, which none of its rows sees.
 *
 * Build options: those of attention_tile.clh; KEYS, a multiple of MR and of 8.
 */
#include "attention/cpu/attention_tile.clh"

/* Computes the scores of MR keys from key i of the block on, for the vectors from `from` on, and
 * updates the maxima `most`. With `edge`, some rows do not see all keys of the block. */
INLINE void score_tile(PLACE const float *k, long k_row, int i, int count, local const float *panel,
                       local float *weights, vecf *most, const veci *seen, int j0, int edge,
                       const int from)
{
    vecf acc[MR][NV];
    multiply(k + i * k_row, k_row, count - 1 - i, panel, from, NV, acc);
    EACH(r, 0, MR)
    EACH(v, from, NV)
    {
        vecf s = acc[r][v];
        if (edge)
            s = select((vecf)(-INFINITY), s, (veci)(j0 + i + r) < seen[v]);
        most[v] = select(most[v], s, most[v] < s);
        *(local vecf *)(weights + (i + r) * COLUMNS + v * VW) = s;
    }
}

/* sums[d .. d + size)[row] = sums * keep + sum over the keys of v[key][d] weights[key][row]. */
INLINE void value_tile(PLACE const float *v, long v_row, int d, local const float *weights,
                       local float *sums, const vecf *keep, const int *ends, const int size)
{
    vecf acc[MR][NV];
    EACH(i, 0, size)
    EACH(w, 0, NV)
    acc[i][w] = *(local const vecf *)(sums + (d + i) * COLUMNS + w * VW) * keep[w];
    v += d;
    int j = 0;
    EACH(from, 0, NV)
    for (; j < ends[from]; j++) {
        vecf y[NV];
        EACH(w, from, NV) y[w] = *(local const vecf *)(weights + j * COLUMNS + w * VW);
        EACH(i, 0, size)
        {
            const vecf a = (vecf)(v[j * v_row + i]);
            EACH(w, from, NV) acc[i][w] = fma(a, y[w], acc[i][w]);
        }
    }
    EACH(i, 0, size)
    EACH(w, 0, NV) *(local vecf *)(sums + (d + i) * COLUMNS + w * VW) = acc[i][w];
}

/* out[row][d] = sums[d][row] * scales[row], which transposes the sums. */
INLINE void store_rows(global STORED(Y_T) * out, long step, local const float *sums,
                       local const float *scales, int rows)
{
#define GET_FOUR(i) (*(local const float4 *)(sums + (first + (i)) * COLUMNS + row))
#define PUT_COLUMN(j, value)                                                                              \
    if (row + j < rows)                                                                            \
        STORE_AS(Y_T, (value)*scales[row + j], out + (row + j) * step + first);
    for (int k = 0; k < D; k += VW) {
        const int first = min(k, D - VW);
        for (int row = 0; row < rows; row += 4)
            CLT_FOUR_COLUMNS(GET_FOUR, PUT_COLUMN)
    }
#undef GET_FOUR
#undef PUT_COLUMN
}

#ifdef DROPOUT
/*
 * Sets dropped weights to 0, of VW rows and keys [0, end) of the block of keys. `block` is the
 * Philox block of the first row's first key; rows are `step` blocks apart. Each 64-bit lane of x
 * computes the four numbers of one row. x[..][c] belongs to even rows for even c, and to odd rows
 * for odd c. The numbers of even rows and those of odd rows, shifted up by 32 bits, join to a
 * vector in the order of the rows, without a shuffle.
 */
INLINE void drop_rows(local float *weights, int end, ulong block, ulong step, int drop_least,
                      uint sub, ulong seed, uint steps)
{
    const vecl even = CLT_FIRST * (2 * step) + block;
    for (int j = 0; j < end; j += 2 * CLT_CALLS) {
        vecl x[4][CLT_CALLS];
        EACH(c, 0, CLT_CALLS) x[0][c] = even + ((ulong)(j / 4 + c / 2) + (c % 2 ? step : 0ul));
        clt_random_lanes(seed, DROPOUT, sub, steps, x[0], x[1], x[2], x[3]);
        EACH(i, 0, 2 * CLT_CALLS)
        if (j + i < end) {
            const vecl low = x[i % 4][i / 4 * 2] & CLT_HALF, high = x[i % 4][i / 4 * 2 + 1] << 32;
            local vecf *at = (local vecf *)(weights + (j + i) * COLUMNS);
            *at = select((vecf)(0.0f), *at, AS_INTS(AS_UINTS(low | high) >> 8) >= drop_least);
        }
    }
}

/* Drops weights of vector w of the kernel's rows. Kept weights are multiplied by KEPT_SCALE at the
 * end, when rows are divided by their sums. */
#define DROP_ROWS(w)                                                                               \
    drop_rows(weights + (w)*VW, ends[w],                                                           \
              DROP_BLOCK(image, head, t0 + (w)*VW, S) + (ulong)(j0 / 4),                 \
              (ulong)((S + 3) / 4), drop_least, (uint)drop_sub, drop_seed, drop_step);
#define KEPT_SCALE drop_scale
#else
#define DROP_ROWS(w)
#define KEPT_SCALE 1.0f
#endif

KERNEL void attention(TENSOR(const STORED(X_T), q), TENSOR(const STORED(X_T), k),
                      TENSOR(const STORED(X_T), v), MASK, TENSOR(STORED(Y_T), out), global float *log_sum, long log_sum_offset, int heads,
                      int group, int T, int S, float scale DROP)
{
    local float panel[D * COLUMNS] __attribute__((aligned(64)));
    local float sums[D * COLUMNS] __attribute__((aligned(64)));
    local float weights[KEYS * COLUMNS] __attribute__((aligned(64)));
    local float scales[COLUMNS] __attribute__((aligned(64)));
#if COPIES
    local float k_rows[KEYS * D] __attribute__((aligned(64)));
    local float v_rows[KEYS * D] __attribute__((aligned(64)));
#endif
    const int t0 = (int)get_global_id(0) * COLUMNS, head = (int)get_global_id(1);
    const long image = (long)get_global_id(2);
    const int rows = min(COLUMNS, T - t0), before = preceding(PAST, S);
    const int all = clt_seen(t0 + rows - 1, before, S, is_causal);
    k = ROWS_OF(k, image, head / group);
    v = ROWS_OF(v, image, head / group);
    const long masked =
        (mask_kind == 1 ? mask_offset : 0) + image * mask_image + head * mask_head + t0 * mask_row;
    if (mask_kind == 2)
        mask = (global const float *)((global const uchar *)mask + mask_offset);
    vecf most[NV], total[NV], base[NV], keep[NV];
    veci seen[NV];
    fetch_rows(k, k_row, min(KEYS, all));
    load_panel(panel, ROWS_OF(q, image, head) + t0 * q_row, q_row, rows, scale);
    EACH(w, 0, NV)
    {
        most[w] = (vecf)(-INFINITY);
        total[w] = base[w] = (vecf)(0.0f);
        seen[w] = (veci)(S);
        if (is_causal)
            seen[w] = clamp((veci)(before + t0 + w * VW + 1) + LANE_NUMBERS, (veci)(0), (veci)(S));
    }
    for (int i = 0; i < D * COLUMNS; i += VW)
        *(local vecf *)(sums + i) = (vecf)(0.0f);
    for (int j0 = 0; j0 < all; j0 += KEYS) {
        const int count = min(KEYS, all - j0);
        const int edge = clt_seen(t0, before, S, is_causal) < j0 + KEYS;
        int ends[NV];
#if COPIES
        copy_rows(k_rows, k + j0 * k_row, k_row, count);
        copy_rows(v_rows, v + j0 * v_row, v_row, count);
#else
        fetch_rows(v + j0 * v_row, v_row, count);
#endif
        EACH(w, 0, NV) ends[w] = clamp(clt_seen(t0 + w * VW + VW - 1, before, S, is_causal) - j0, 0, count);
        vecf top[NV];
        EACH(w, 0, NV) top[w] = most[w];
        for (int i = 0; i < count; i += MR) {
            int from = 0;
            EACH(w, 0, NV - 1) from += ends[w] <= i;
            EACH(w, 0, NV)
            if (from == w)
                score_tile(ROWS_AT(k_rows, k + j0 * k_row, k_row), i, count, panel, weights, top, seen, j0, edge, w);
        }
        if (mask_kind)
            EACH(w, 0, NV)
            {
                top[w] = most[w];
                for (int j = 0; j < ends[w]; j++) {
                    local vecf *at = (local vecf *)(weights + j * COLUMNS + w * VW);
                    *at += masks(mask, mask_kind,
                                 masked + (j0 + j) * mask_key + min(w * VW, rows - 1) * mask_row,
                                 mask_row, max(rows - w * VW, 1));
                    top[w] = select(top[w], *at, top[w] < *at);
                }
            }
        EACH(w, 0, NV)
        {
            vecf sum = (vecf)(0.0f), power;
            base[w] = select(top[w], (vecf)(0.0f), top[w] == -INFINITY);
            keep[w] = clt_exp(most[w] - base[w]);
            most[w] = top[w];
            for (int j = 0; j < ends[w]; j++) {
                local vecf *at = (local vecf *)(weights + j * COLUMNS + w * VW);
                const vecf e = clt_exp_split(*at - base[w], &power) * power;
                sum += e;
                *at = e;
            }
            total[w] = fma(total[w], keep[w], sum);
            DROP_ROWS(w)
        }
        fetch_rows(k + (j0 + KEYS) * k_row, k_row, min(KEYS, all - j0 - KEYS));
        int d = 0;
        for (; d + MR <= D; d += MR)
            value_tile(ROWS_AT(v_rows, v + j0 * v_row, v_row), d, weights, sums, keep, ends, MR);
        if (D % MR)
            value_tile(ROWS_AT(v_rows, v + j0 * v_row, v_row), d, weights, sums, keep, ends, D % MR);
    }
    log_sum += log_sum_offset + (image * heads + head) * T + t0;
    EACH(w, 0, NV)
    {
        const veci none = total[w] == 0.0f;
        *(local vecf *)(scales + w * VW) = select(KEPT_SCALE / total[w], (vecf)(0.0f), none);
        const vecf logs = select(base[w] + log(total[w]), (vecf)(INFINITY), none);
        if (rows >= (w + 1) * VW)
            STORE(logs, log_sum + w * VW);
        else if (rows > w * VW)
            clt_store_part(logs, log_sum + w * VW, rows - w * VW);
    }
    store_rows(ROWS_OF(out, image, head) + t0 * out_row, out_row, sums, scales, rows);
}
