/*
 * Attention of few rows on CPUs, such as the one row of a token that continues a text;
 * attention/attention.clh has the formulas. Work-groups have one work-item.
 *
 * Work-item (t, head, image) computes row t. The lanes of VECTORS vectors are elements of the row,
 * so that keys and values are read in memory order and once. attention.cl would fill one lane of a
 * vector with the row. Keys come in blocks of KEYS, with online softmax.
 *
 * Build options: those of attention/attention.clh; VW; VECTORS, of VW elements, in a row; KEYS, a
 * multiple of VW.
 */
#define LANES VW
#include "attention/attention.clh"
#include "core/batch_blocked/halves.clh"
#include "core/batch_blocked/math.clh"

#define EACH(i, count) _Pragma("unroll") for (int i = 0; i < count; i++)

KERNEL void attention_few(TENSOR(const STORED(X_T), q), TENSOR(const STORED(X_T), k),
                          TENSOR(const STORED(X_T), v), MASK, TENSOR(STORED(Y_T), out),
                          global float *log_sum, long log_sum_offset, int heads, int group, int T,
                          int S, float scale)
{
    local float scores[KEYS] __attribute__((aligned(64)));
    const int t = (int)get_global_id(0), head = (int)get_global_id(1);
    const long image = (long)get_global_id(2);
    const int all = clt_seen(t, PAST, S, is_causal);
    const long masked = (mask_kind == 1 ? mask_offset : 0) + image * mask_image + head * mask_head +
                        t * mask_row;
    vecf row[VECTORS], sums[VECTORS];
    float most = -INFINITY, base = 0.0f, total = 0.0f;
    if (mask_kind == 2)
        mask = (global const float *)((global const uchar *)mask + mask_offset);
    q = ROWS_OF(q, image, head) + t * q_row;
    k = ROWS_OF(k, image, head / group);
    v = ROWS_OF(v, image, head / group);
    EACH(i, VECTORS)
    {
        row[i] = LOAD_AS(X_T, q + i * VW) * scale;
        sums[i] = (vecf)(0.0f);
    }
    for (int j0 = 0; j0 < all; j0 += KEYS) {
        const int count = min(KEYS, all - j0);
        float top = most;
        for (int j = 0; j < count; j++) {
            global const STORED(X_T) *key = k + (j0 + j) * k_row;
            vecf acc = row[0] * LOAD_AS(X_T, key);
            EACH(i, VECTORS - 1)
                acc = fma(row[i + 1], LOAD_AS(X_T, key + (i + 1) * VW), acc);
            float s = clt_sum_lanes(acc);
            if (mask_kind)
                s += clt_masked(mask, mask_kind, masked + (j0 + j) * mask_key);
            top = top < s || isnan(s) ? s : top;
            scores[j] = s;
        }
        for (int j = count; j % VW; j++)
            scores[j] = -INFINITY;
        base = top == -INFINITY ? 0.0f : top;
        const float keep = exp(most - base);
        vecf sum = (vecf)(0.0f);
        most = top;
        for (int j = 0; j < count; j += VW) {
            local vecf *at = (local vecf *)(scores + j);
            *at = clt_exp(*at - base);
            sum += *at;
        }
        total = fma(total, keep, clt_sum_lanes(sum));
        EACH(i, VECTORS) sums[i] *= keep;
        for (int j = 0; j < count; j++) {
            global const STORED(X_T) *value = v + (j0 + j) * v_row;
            EACH(i, VECTORS) sums[i] = fma((vecf)(scores[j]), LOAD_AS(X_T, value + i * VW), sums[i]);
        }
    }
    log_sum[log_sum_offset + (image * heads + head) * T + t] =
        total == 0.0f ? INFINITY : base + log(total);
    const float factor = total == 0.0f ? 0.0f : 1.0f / total;
    out = ROWS_OF(out, image, head) + t * out_row;
    EACH(i, VECTORS) STORE_AS(Y_T, sums[i] * factor, out + i * VW);
}
