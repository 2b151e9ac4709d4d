/*
 * The gradient of attention's mask for every shape: of each element, the sum of p (m dout.v -
 * delta) over all scores that the element is added to (attention/attention.clh has the formulas).
 *
 * A work-item computes one element of the mask [mask images, mask_heads, mask_rows, mask_keys]. If
 * one mask serves all images, there are `slices` work-items for each element, and each sums over
 * every `slices`th image; attention_mask_sum then adds their results.
 * Build options: those of attention/attention.clh.
 */
#include "attention/attention.clh"

kernel void attention_mask_grad(TENSOR(const STORED(X_T), q), TENSOR(const STORED(X_T), k),
                                TENSOR(const STORED(X_T), v), MASK,
                                TENSOR(const STORED(DY_T), dout), global const float *log_sum,
                                long log_sum_offset, global const float *delta, long delta_offset,
                                global float *to, long to_offset, long items, int heads, int group,
                                int T, int S, int D, float scale, int images, int slices,
                                int mask_heads, int mask_rows, int mask_keys DROP)
{
    const long item = get_global_id(0);
    if (item >= items)
        return;
    const int own_key = (int)(item % mask_keys), own_row = (int)(item / mask_keys % mask_rows);
    const int own_head = (int)(item / mask_keys / mask_rows % mask_heads);
    const int z = (int)(item / mask_keys / mask_rows / mask_heads);
    const int end_image = mask_image ? z + 1 : images;
    const int end_head = mask_head ? own_head + 1 : heads;
    const int end_t = mask_row ? own_row + 1 : T, end_j = mask_key ? own_key + 1 : S;
    float sum = 0.0f;
    log_sum += log_sum_offset;
    delta += delta_offset;
    for (long image = z; image < end_image; image += slices)
        for (int head = own_head; head < end_head; head++)
            for (int t = own_row; t < end_t; t++) {
                const long row = (image * heads + head) * T + t;
                const long masked =
                    mask_offset + image * mask_image + head * mask_head + t * mask_row;
                global const STORED(X_T) *x = ROWS_OF(q, image, head) + t * q_row;
                global const STORED(DY_T) *dy = ROWS_OF(dout, image, head) + t * dout_row;
                for (int j = own_key; j < min(end_j, clt_seen(t, PAST, S, is_causal)); j++) {
                    global const STORED(X_T) *y = ROWS_OF(k, image, head / group) + j * k_row;
                    global const STORED(X_T) *w = ROWS_OF(v, image, head / group) + j * v_row;
                    float s = 0.0f, dp = 0.0f;
                    for (int d = 0; d < D; d++) {
                        s = fma(GET(X_T, x + d), GET(X_T, y + d), s);
                        dp = fma(GET(DY_T, dy + d), GET(X_T, w + d), dp);
                    }
                    s = s * scale + clt_masked(mask, mask_kind, masked + j * mask_key);
#ifdef DROPOUT
                    dp *= DROP_FACTOR(DROP_BLOCK(image, head, t, S), j);
#endif
                    sum += exp(s - log_sum[row]) * (dp - delta[row]);
                }
            }
    to[to_offset + item] = sum;
}

/* to[item] = the sum of the results of all slices, in a fixed order. */
kernel void attention_mask_sum(global const float *parts, long parts_offset, global float *to,
                               long to_offset, long items, int slices)
{
    const long item = get_global_id(0);
    if (item >= items)
        return;
    float sum = 0.0f;
    for (int s = 0; s < slices; s++)
        sum += parts[parts_offset + s * items + item];
    to[to_offset + item] = sum;
}
