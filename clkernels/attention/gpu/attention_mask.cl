/*
 * The gradient of attention's mask on GPUs: of each element, the sum of ds / scale over all scores
 * that the element is added to (attention/attention.clh has the formulas).
 *
 * Work-group (x, y, z) computes a tile of ROWS rows x COLUMNS keys of the mask: key block x, and
 * row block and head of the mask y. z is the image. If one mask serves all images, z is a slice,
 * which sums over every `slices`th image from z on; the slices' results lie mask_elements apart.
 * The work-group loops over the images, heads, rows and keys along which the mask is broadcast. The
 * tile's sums stay in registers until the end.
 *
 * Build options: those of attention_tile.clh, with GRADIENT.
 */
#include "attention/gpu/attention_tile.clh"

GROUP void attention_mask_grad(TENSOR(const STORED(X_T), q), TENSOR(const STORED(X_T), k),
                               TENSOR(const STORED(X_T), v), MASK,
                               TENSOR(const STORED(DY_T), dout), global const float *log_sums,
                               long log_sum_offset, global const float *deltas, long delta_offset,
                               global float *to, long to_offset, int heads, int group, int T, int S,
                               float q_scale, int images, int slices, long mask_elements DROP)
{
    local float own[D * LDR] __attribute__((aligned(16)));
    local float own_dout[D * LDR] __attribute__((aligned(16)));
    local float panel[D * LDC] __attribute__((aligned(16)));
    local float weights[COLUMNS * LDR] __attribute__((aligned(16)));
    const int lid = (int)get_local_id(0), tx = lid % TX, ty = lid / TX;
    const int before = clamp(PAST, -(1 << 30), S), blocks = mask_row ? (T + ROWS - 1) / ROWS : 1;
    const int z = (int)get_group_id(2), own_head = (int)get_group_id(1) / blocks;
    const int own_r0 = (int)get_group_id(1) % blocks * ROWS;
    const int own_c0 = (int)get_group_id(0) * COLUMNS;
    const int end_r = mask_row ? own_r0 + 1 : T, end_c = mask_key ? own_c0 + 1 : S;
    const int end_head = mask_head ? own_head + 1 : heads;
    const int end_image = mask_image ? z + 1 : images;
    const float scale = 1.0f; /* so that WEIGHTS makes ds / scale; q is scaled by q_scale */
    float4 sums[4 * NC], s[4 * NC], dp[4 * NC];
#pragma unroll
    for (int n = 0; n < 4 * NC; n++)
        sums[n] = (float4)(0.0f);
    for (long image = z; image < end_image; image += slices)
        for (int head = own_head; head < end_head; head++)
            for (int r0 = own_r0; r0 < end_r; r0 += ROWS) {
                const int rows = min(ROWS, T - r0);
                const int seen = clt_seen(r0 + rows - 1, before, S, is_causal);
                const long masked = mask_offset + image * mask_image;
                global const float *log_sum = log_sums + log_sum_offset + (image * heads + head) * T;
                global const float *delta = deltas + delta_offset + (image * heads + head) * T;
                if (own_c0 >= seen)
                    continue; /* these rows see none of these keys */
                load_panel_x(own, LDR, ROWS_OF(q, image, head) + r0 * q_row, q_row, ROWS, rows,
                             q_scale, lid);
                load_panel_dout(own_dout, LDR, ROWS_OF(dout, image, head) + r0 * dout_row, dout_row,
                                ROWS, rows, 1.0f, lid);
                for (int c0 = own_c0; c0 < min(end_c, seen); c0 += COLUMNS) {
                    const int count = min(COLUMNS, S - c0);
                    load_panel_x(panel, LDC, ROWS_OF(k, image, head / group) + c0 * k_row, k_row,
                                 COLUMNS, count, 1.0f, lid);
                    barrier(CLK_LOCAL_MEM_FENCE);
                    products(own + 4 * ty, panel + 4 * tx, s);
                    barrier(CLK_LOCAL_MEM_FENCE);
                    load_panel_x(panel, LDC, ROWS_OF(v, image, head / group) + c0 * v_row, v_row,
                                 COLUMNS, count, 1.0f, lid);
                    barrier(CLK_LOCAL_MEM_FENCE);
                    products(own_dout + 4 * ty, panel + 4 * tx, dp);
#ifdef DROPOUT
                    float4 kept[4 * NC];
                    KEPT_ROWS(kept, r0, c0)
#endif
                    WEIGHTS(r, c, KEPT_HERE)
#pragma unroll
                    for (int n = 0; n < 4 * NC; n++)
                        sums[n] += dp[n];
                    barrier(CLK_LOCAL_MEM_FENCE);
                }
            }
    to += to_offset + (mask_image ? z * mask_image : z * mask_elements) + own_head * mask_head;
    PUT_COLUMNS(weights, sums)
    barrier(CLK_LOCAL_MEM_FENCE);
    if (mask_row && mask_key) {
        for (int e = lid; e < ROWS * COLUMNS; e += THREADS) {
            const int t = own_r0 + e / COLUMNS, j = own_c0 + e % COLUMNS;
            if (t < T && j < S)
                to[t * mask_row + j * mask_key] = weights[e % COLUMNS * LDR + e / COLUMNS];
        }
        return;
    }
    /* The mask is broadcast along rows, keys or both: a work-item sums a row or a column of the
     * tile, or all of it. */
    const int count = mask_row ? min(ROWS, T - own_r0) : mask_key ? min(COLUMNS, S - own_c0) : 1;
    for (int e = lid; e < count; e += THREADS) {
        float sum = 0.0f;
        for (int i = 0; i < (mask_row ? COLUMNS : ROWS * (mask_key ? 1 : COLUMNS)); i++)
            sum += mask_row   ? weights[i * LDR + e]
                   : mask_key ? weights[e * LDR + i]
                              : weights[i / ROWS * LDR + i % ROWS];
        to[mask_row ? (own_r0 + e) * mask_row : (own_c0 + e) * mask_key] = sum;
    }
}
