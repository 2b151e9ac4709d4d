/* Attention and its gradients: one work-item a row of the queries, or of the keys. */
#include "attention.clh"

static inline float dot_of(global const float *a, global const float *b, int D)
{
    float sum = 0.0f;
    for (int d = 0; d < D; d++)
        sum = fma(a[d], b[d], sum);
    return sum;
}

kernel void attention(TENSOR(const float, q), TENSOR(const float, k), TENSOR(const float, v), MASK,
                      TENSOR(float, out), global float *log_sum, long log_sum_offset, long items,
                      int heads, int group, int T, int S, int D, float scale)
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
    const long masked = mask_offset + image * mask_image + head * mask_head + t * mask_row;
    const int seen = clt_seen(t, PAST, S, is_causal);
    float most = -INFINITY, sum = 0.0f;
    for (int d = 0; d < D; d++)
        out[d] = 0.0f;
    for (int j = 0; j < seen; j++) {
        const float s = dot_of(q, k + j * k_row, D) * scale +
                        clt_masked(mask, mask_kind, masked + j * mask_key);
        if (s == -INFINITY)
            continue;
        const float keep = s > most ? exp(most - s) : 1.0f;
        most = s > most ? s : most;
        const float p = exp(s - most);
        sum = sum * keep + p;
        for (int d = 0; d < D; d++)
            out[d] = fma(p, v[j * v_row + d], out[d] * keep);
    }
    const int some = !(sum == 0.0f); /* a NaN counts */
    for (int d = 0; d < D; d++)
        out[d] = some ? out[d] / sum : 0.0f;
    log_sum[log_sum_offset + item] = some ? most + log(sum) : INFINITY;
}

/* to[item] = sum of dout * out over the row. */
kernel void attention_delta(TENSOR(const float, dout), TENSOR(const float, out), global float *to,
                            long to_offset, long items, int heads, int T, int D)
{
    const long item = get_global_id(0);
    if (item >= items)
        return;
    const int t = (int)(item % T), head = (int)(item / T % heads);
    const long image = item / T / heads;
    to[to_offset + item] = dot_of(ROWS_OF(dout, image, head) + t * dout_row,
                                  ROWS_OF(out, image, head) + t * out_row, D);
}

#define GRAD_ARGUMENTS                                                                             \
    TENSOR(const float, q), TENSOR(const float, k), TENSOR(const float, v), MASK,                  \
        TENSOR(const float, dout), global const float *log_sum, long log_sum_offset,               \
        global const float *delta, long delta_offset

kernel void attention_dq(GRAD_ARGUMENTS, TENSOR(float, dq), long items, int heads, int group, int T,
                         int S, int D, float scale)
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
    const long masked = mask_offset + image * mask_image + head * mask_head + t * mask_row;
    const int seen = clt_seen(t, PAST, S, is_causal);
    for (int d = 0; d < D; d++)
        dq[d] = 0.0f;
    for (int j = 0; j < seen; j++) {
        const float s = dot_of(q, k + j * k_row, D) * scale +
                        clt_masked(mask, mask_kind, masked + j * mask_key);
        const float p = exp(s - log_sum[log_sum_offset + item]);
        const float ds = p * (dot_of(dout, v + j * v_row, D) - delta[delta_offset + item]) * scale;
        for (int d = 0; d < D; d++)
            dq[d] = fma(ds, k[j * k_row + d], dq[d]);
    }
}

/* For row j of the keys: over all heads of its group, and their rows that see it. */
kernel void attention_dkv(GRAD_ARGUMENTS, TENSOR(float, dk), TENSOR(float, dv), long items,
                          int kv_heads, int group, int T, int S, int D, float scale)
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
    for (int d = 0; d < D; d++)
        dk[d] = dv[d] = 0.0f;
    for (int head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (int t = 0; t < T; t++) {
            const long row = (image * kv_heads * group + head) * T + t;
            const long masked = mask_offset + image * mask_image + head * mask_head + t * mask_row;
            global const float *x = ROWS_OF(q, image, head) + t * q_row;
            global const float *dy = ROWS_OF(dout, image, head) + t * dout_row;
            if (j >= clt_seen(t, PAST, S, is_causal))
                continue;
            const float s =
                dot_of(x, k, D) * scale + clt_masked(mask, mask_kind, masked + j * mask_key);
            const float p = exp(s - log_sum[log_sum_offset + row]);
            const float ds = p * (dot_of(dy, v, D) - delta[delta_offset + row]) * scale;
            for (int d = 0; d < D; d++) {
                dv[d] = fma(p, dy[d], dv[d]);
                dk[d] = fma(ds, x[d], dk[d]);
            }
        }
}
