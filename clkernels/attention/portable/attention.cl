/*
 * Attention and its gradients for every shape, without tiles; attention/attention.clh has the
 * formulas. A work-item computes one row of the result: of the queries, and in attention_dkv of the
 * keys.
 *
 * The arguments `sums`, `k_sums` and `v_sums` are where a row's D sums are added up in f32: the
 * result itself if it is f32, else scratch memory.
 * Build options: those of attention/attention.clh.
 */
#include "attention/attention.clh"

#ifdef DROPOUT
#define DROPPED(x, block, j) ((x)*DROP_FACTOR(block, j))
#else
#define DROPPED(x, block, j) (x)
#endif

#define DEFINE_DOT(name, KIND_A, KIND_B)                                                           \
    static inline float name(global const STORED(KIND_A) * a, global const STORED(KIND_B) * b,     \
                             int D)                                                                \
    {                                                                                              \
        float sum = 0.0f;                                                                          \
        for (int d = 0; d < D; d++)                                                                \
            sum = fma(GET(KIND_A, a + d), GET(KIND_B, b + d), sum);                                \
        return sum;                                                                                \
    }
DEFINE_DOT(dot_of, X_T, X_T)
DEFINE_DOT(dot_dout, DY_T, X_T)
DEFINE_DOT(dot_out, DY_T, Y_T)

/* Reads the keys once: `most` is the largest score so far, and when a larger one comes, the sums
 * are scaled down by `keep` (online softmax). */
kernel void attention(TENSOR(const STORED(X_T), q), TENSOR(const STORED(X_T), k),
                      TENSOR(const STORED(X_T), v), MASK, TENSOR(STORED(Y_T), out),
                      TENSOR(float, sums), global float *log_sum, long log_sum_offset, long items,
                      int heads, int group, int T, int S, int D, float scale DROP)
{
    const long item = get_global_id(0);
    if (item >= items)
        return;
    const int t = (int)(item % T), head = (int)(item / T % heads);
    const long image = item / T / heads;
    q = ROWS_OF(q, image, head) + t * q_row;
    k = ROWS_OF(k, image, head / group);
    v = ROWS_OF(v, image, head / group);
    out = ROWS_OF(out, image, head) + t * out_row;
    sums = ROWS_OF(sums, image, head) + t * sums_row;
    const long masked = mask_offset + image * mask_image + head * mask_head + t * mask_row;
    const int seen = clt_seen(t, PAST, S, is_causal);
#ifdef DROPOUT
    const ulong block = DROP_BLOCK(image, head, t, S);
#endif
    float most = -INFINITY, sum = 0.0f;
    for (int d = 0; d < D; d++)
        sums[d] = 0.0f;
    for (int j = 0; j < seen; j++) {
        const float s = dot_of(q, k + j * k_row, D) * scale +
                        clt_masked(mask, mask_kind, masked + j * mask_key);
        if (s == -INFINITY)
            continue;
        const float keep = s > most ? exp(most - s) : 1.0f;
        most = s > most ? s : most;
        const float p = exp(s - most);
        sum = sum * keep + p;
        const float weight = DROPPED(p, block, j);
        for (int d = 0; d < D; d++)
            sums[d] = fma(weight, GET(X_T, v + j * v_row + d), sums[d] * keep);
    }
    const int some = !(sum == 0.0f); /* a NaN counts */
    for (int d = 0; d < D; d++)
        PUT(Y_T, some ? sums[d] / sum : 0.0f, out + d);
    log_sum[log_sum_offset + item] = some ? most + log(sum) : INFINITY;
}

/* to[item] = delta of row `item` of all images and heads. */
kernel void attention_delta(TENSOR(const STORED(DY_T), dout), TENSOR(const STORED(Y_T), out),
                            global float *to, long to_offset, long items, int heads, int T, int D)
{
    const long item = get_global_id(0);
    if (item >= items)
        return;
    const int t = (int)(item % T), head = (int)(item / T % heads);
    const long image = item / T / heads;
    to[to_offset + item] = dot_out(ROWS_OF(dout, image, head) + t * dout_row,
                                   ROWS_OF(out, image, head) + t * out_row, D);
}

#define GRAD_ARGUMENTS                                                                             \
    TENSOR(const STORED(X_T), q), TENSOR(const STORED(X_T), k), TENSOR(const STORED(X_T), v),      \
        MASK, TENSOR(const STORED(DY_T), dout), global const float *log_sum, long log_sum_offset,  \
        global const float *delta, long delta_offset

/* dq of one row of the queries. */
kernel void attention_dq(GRAD_ARGUMENTS, TENSOR(STORED(DQ_T), dq), TENSOR(float, sums), long items,
                         int heads, int group, int T, int S, int D, float scale DROP)
{
    const long item = get_global_id(0);
    if (item >= items)
        return;
    const int t = (int)(item % T), head = (int)(item / T % heads);
    const long image = item / T / heads;
    q = ROWS_OF(q, image, head) + t * q_row;
    k = ROWS_OF(k, image, head / group);
    v = ROWS_OF(v, image, head / group);
    dout = ROWS_OF(dout, image, head) + t * dout_row;
    dq = ROWS_OF(dq, image, head) + t * dq_row;
    sums = ROWS_OF(sums, image, head) + t * sums_row;
    const long masked = mask_offset + image * mask_image + head * mask_head + t * mask_row;
    const int seen = clt_seen(t, PAST, S, is_causal);
#ifdef DROPOUT
    const ulong block = DROP_BLOCK(image, head, t, S);
#endif
    for (int d = 0; d < D; d++)
        sums[d] = 0.0f;
    for (int j = 0; j < seen; j++) {
        const float s = dot_of(q, k + j * k_row, D) * scale +
                        clt_masked(mask, mask_kind, masked + j * mask_key);
        const float p = exp(s - log_sum[log_sum_offset + item]);
        const float dp = DROPPED(dot_dout(dout, v + j * v_row, D), block, j);
        const float ds = p * (dp - delta[delta_offset + item]) * scale;
        for (int d = 0; d < D; d++)
            sums[d] = fma(ds, GET(X_T, k + j * k_row + d), sums[d]);
    }
    for (int d = 0; d < D; d++)
        PUT(DQ_T, sums[d], dq + d);
}

/* dk and dv of one key: sums over all heads of q that share it, and over their rows that see it. */
kernel void attention_dkv(GRAD_ARGUMENTS, TENSOR(STORED(DK_T), dk), TENSOR(STORED(DV_T), dv),
                          TENSOR(float, k_sums), TENSOR(float, v_sums), long items, int kv_heads, int group, int T, int S, int D, float scale DROP)
{
    const long item = get_global_id(0);
    if (item >= items)
        return;
    const int j = (int)(item % S), kv_head = (int)(item / S % kv_heads);
    const long image = item / S / kv_heads;
    k = ROWS_OF(k, image, kv_head) + j * k_row;
    v = ROWS_OF(v, image, kv_head) + j * v_row;
    dk = ROWS_OF(dk, image, kv_head) + j * dk_row;
    dv = ROWS_OF(dv, image, kv_head) + j * dv_row;
    k_sums = ROWS_OF(k_sums, image, kv_head) + j * k_sums_row;
    v_sums = ROWS_OF(v_sums, image, kv_head) + j * v_sums_row;
    for (int d = 0; d < D; d++)
        k_sums[d] = v_sums[d] = 0.0f;
    for (int head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (int t = 0; t < T; t++) {
            const long row = (image * kv_heads * group + head) * T + t;
            const long masked = mask_offset + image * mask_image + head * mask_head + t * mask_row;
            global const STORED(X_T) *x = ROWS_OF(q, image, head) + t * q_row;
            global const STORED(DY_T) *dy = ROWS_OF(dout, image, head) + t * dout_row;
            if (j >= clt_seen(t, PAST, S, is_causal))
                continue;
            const float s =
                dot_of(x, k, D) * scale + clt_masked(mask, mask_kind, masked + j * mask_key);
            const float p = exp(s - log_sum[log_sum_offset + row]);
#ifdef DROPOUT
            const float factor =
                DROP_FACTOR(DROP_BLOCK(image, head, t, S), j);
#else
            const float factor = 1.0f;
#endif
            const float dp = dot_dout(dy, v, D) * factor, weight = p * factor;
            const float ds = p * (dp - delta[delta_offset + row]) * scale;
            for (int d = 0; d < D; d++) {
                v_sums[d] = fma(weight, GET(DY_T, dy + d), v_sums[d]);
                k_sums[d] = fma(ds, GET(X_T, x + d), k_sums[d]);
            }
        }
    for (int d = 0; d < D; d++) {
        PUT(DK_T, k_sums[d], dk + d);
        PUT(DV_T, v_sums[d], dv + d);
    }
}
