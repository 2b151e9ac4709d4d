/*
 * Attention and its gradients on GPUs, by the tiles of attention_tile.clh; attention/attention.clh
 * has the formulas. Work-group (x, y, z) computes ROWS rows from x * ROWS on, of head y of image z.
 *
 *   attention        rows are queries, columns are keys: out, with online softmax, and log_sum
 *   attention_delta  delta of each row
 *   attention_dq     rows are queries, columns are keys: dq += ds k
 *   attention_dkv    rows are keys, columns are queries: dv += p m dout, dk += ds q
 *
 * For each COLUMNS columns, the work-group computes the products of its rows with them in
 * registers, makes weights of the products, transposes the weights through local memory, and adds
 * the columns' rows, multiplied by them, to its sums. The panel in local memory is loaded again for
 * each use.
 *
 * Build options: those of attention_tile.clh. GRADIENT selects the gradients.
 */
#include "attention/gpu/attention_tile.clh"

/* The work-item's place, and the arguments of the mask made relative to the image. */
#define PLACE                                                                                      \
    const int lid = (int)get_local_id(0), tx = lid % TX, ty = lid / TX;                            \
    const int r0 = (int)get_group_id(0) * ROWS, before = clamp(PAST, -(1 << 30), S);               \
    const int own_head = (int)get_group_id(1);                                                     \
    const long image = (long)get_group_id(2);                                                      \
    if (mask_kind == 2)                                                                            \
        mask = (global const float *)((global const uchar *)mask + mask_offset);                   \
    const long masked = (mask_kind == 1 ? mask_offset : 0) + image * mask_image;

#ifndef GRADIENT

GROUP void attention(TENSOR(const STORED(X_T), q), TENSOR(const STORED(X_T), k),
                     TENSOR(const STORED(X_T), v), MASK, TENSOR(STORED(Y_T), out), global float *log_sum, long log_sum_offset, int heads,
                     int group, int T, int S, float scale DROP)
{
    local float own[D * LDR] __attribute__((aligned(16)));
    local float panel[D * LDC] __attribute__((aligned(16)));
    local float weights[COLUMNS * LDR] __attribute__((aligned(16)));
    PLACE
    const int head = own_head, rows = min(ROWS, T - r0);
    const int all = clt_seen(r0 + rows - 1, before, S, is_causal);
    float4 sums[4 * ND], s[4 * NC];
    float most[4], total[4], scales[4];
    k = ROWS_OF(k, image, head / group);
    v = ROWS_OF(v, image, head / group);
    load_panel_x(own, LDR, ROWS_OF(q, image, head) + r0 * q_row, q_row, ROWS, rows, scale, lid);
#pragma unroll
    for (int n = 0; n < 4 * ND; n++)
        sums[n] = (float4)(0.0f);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        most[i] = -INFINITY;
        total[i] = 0.0f;
    }
    for (int j0 = 0; j0 < all; j0 += COLUMNS) {
        const int count = min(COLUMNS, all - j0);
        load_panel_x(panel, LDC, k + j0 * k_row, k_row, COLUMNS, count, 1.0f, lid);
        barrier(CLK_LOCAL_MEM_FENCE);
        /* The scores, and the largest one of the work-item in each row. */
        products(own + 4 * ty, panel + 4 * tx, s);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float top = -INFINITY;
#pragma unroll
            for (int n = 0; n < NC; n++) {
                float e[4];
                *(float4 *)e = s[n * 4 + i];
#pragma unroll
                for (int l = 0; l < 4; l++) {
                    e[l] = SCORE(e[l], r0 + 4 * ty + i, j0 + 4 * tx + n * 4 * TX + l);
                    top = fmax(top, e[l]);
                }
                s[n * 4 + i] = *(float4 *)e;
            }
            weights[tx * LDR + 4 * ty + i] = top;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        load_rows_x(panel, v + j0 * v_row, v_row, count, lid);
        /* The largest score of a row over its TX work-items; `keep` scales the older sums. */
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float top = most[i];
            for (int x = 0; x < TX; x++)
                top = fmax(top, weights[x * LDR + 4 * ty + i]);
            const float base = top == -INFINITY ? 0.0f : top, keep = exp(most[i] - base);
            most[i] = top;
            total[i] *= keep;
#pragma unroll
            for (int n = 0; n < NC; n++) {
                s[n * 4 + i] = exp(s[n * 4 + i] - base);
                total[i] += (s[n * 4 + i].x + s[n * 4 + i].y) + (s[n * 4 + i].z + s[n * 4 + i].w);
            }
#pragma unroll
            for (int n = 0; n < ND; n++)
                sums[n * 4 + i] *= keep;
        }
#ifdef DROPOUT
        {
            float4 kept[4 * NC];
            KEPT_ROWS(kept, r0, j0)
#pragma unroll
            for (int n = 0; n < 4 * NC; n++)
                s[n] *= kept[n];
        }
#endif
        barrier(CLK_LOCAL_MEM_FENCE);
        PUT_COLUMNS(weights, s)
        barrier(CLK_LOCAL_MEM_FENCE);
        add_rows(weights + 4 * ty, panel + 4 * tx, sums);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    /* The sum of a row's weights over its TX work-items. */
    log_sum += log_sum_offset + (image * heads + head) * T;
#pragma unroll
    for (int i = 0; i < 4; i++)
        weights[tx * LDR + 4 * ty + i] = total[i];
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float sum = 0.0f;
        for (int x = 0; x < TX; x++)
            sum += weights[x * LDR + 4 * ty + i];
        const int none = sum == 0.0f;
        scales[i] = none ? 0.0f : 1.0f / sum;
        if (tx == 0 && 4 * ty + i < rows)
            log_sum[r0 + 4 * ty + i] = none ? INFINITY : most[i] + log(sum);
    }
    STORE_SUMS(Y_T, ROWS_OF(out, image, head) + r0 * out_row, out_row, sums, scales, rows)
}

#else
#include "core/gpu/tree.clh"

#define LANES 8 /* work-items that sum one row */
#define DELTA_GROUP 256
CLT_TREE(sum_of_row, float, CLT_ADD, LANES, 1)

/* to[image][head][row] = delta, the sum of dout * out over the row. */
kernel __attribute__((reqd_work_group_size(DELTA_GROUP, 1, 1))) void
attention_delta(TENSOR(const STORED(DY_T), dout), TENSOR(const STORED(Y_T), out), global float *to,
                long to_offset, int T)
{
    local float parts[DELTA_GROUP];
    const int lid = (int)get_local_id(0), lane = lid % LANES;
    const int t = (int)get_global_id(0) / LANES, head = (int)get_group_id(1);
    const long image = (long)get_group_id(2);
    global const STORED(DY_T) *a = ROWS_OF(dout, image, head) + min(t, T - 1) * dout_row;
    global const STORED(Y_T) *b = ROWS_OF(out, image, head) + min(t, T - 1) * out_row;
    float4 sum = (float4)(0.0f);
    for (int d = lane * 4; d < D; d += LANES * 4)
        sum = fma(GET4(DY_T, a + d), GET4(Y_T, b + d), sum);
    const float all = sum_of_row(parts, (sum.x + sum.y) + (sum.z + sum.w), lid, lane);
    if (lane == 0 && t < T)
        to[to_offset + (image * get_num_groups(1) + head) * T + t] = all;
}

GROUP void attention_dq(TENSOR(const STORED(X_T), q), TENSOR(const STORED(X_T), k), TENSOR(const STORED(X_T), v),
                        MASK, TENSOR(const STORED(DY_T), dout), global const float *log_sum,
                        long log_sum_offset, global const float *delta, long delta_offset,
                        TENSOR(STORED(DQ_T), dq), int heads, int group, int T, int S,
                        float scale DROP)
{
    local float own[D * LDR] __attribute__((aligned(16)));
    local float own_dout[D * LDR] __attribute__((aligned(16)));
    local float panel[D * LDC] __attribute__((aligned(16)));
    local float weights[COLUMNS * LDR] __attribute__((aligned(16)));
    PLACE
    const int head = own_head, rows = min(ROWS, T - r0);
    const int all = clt_seen(r0 + rows - 1, before, S, is_causal);
    const float ones[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    float4 sums[4 * ND], s[4 * NC], dp[4 * NC];
    log_sum += log_sum_offset + (image * heads + head) * T;
    delta += delta_offset + (image * heads + head) * T;
    k = ROWS_OF(k, image, head / group);
    v = ROWS_OF(v, image, head / group);
    load_panel_x(own, LDR, ROWS_OF(q, image, head) + r0 * q_row, q_row, ROWS, rows, scale, lid);
    load_panel_dout(own_dout, LDR, ROWS_OF(dout, image, head) + r0 * dout_row, dout_row, ROWS, rows,
               1.0f, lid);
#pragma unroll
    for (int n = 0; n < 4 * ND; n++)
        sums[n] = (float4)(0.0f);
    for (int c0 = 0; c0 < all; c0 += COLUMNS) {
        const int count = min(COLUMNS, all - c0);
        load_panel_x(panel, LDC, k + c0 * k_row, k_row, COLUMNS, count, 1.0f, lid);
        barrier(CLK_LOCAL_MEM_FENCE);
        products(own + 4 * ty, panel + 4 * tx, s);
        barrier(CLK_LOCAL_MEM_FENCE);
        load_panel_x(panel, LDC, v + c0 * v_row, v_row, COLUMNS, count, 1.0f, lid);
        barrier(CLK_LOCAL_MEM_FENCE);
        products(own_dout + 4 * ty, panel + 4 * tx, dp);
#ifdef DROPOUT
        float4 kept[4 * NC];
        KEPT_ROWS(kept, r0, c0)
#endif
        WEIGHTS(r, c, KEPT_HERE)
        PUT_COLUMNS(weights, dp)
        barrier(CLK_LOCAL_MEM_FENCE);
        load_rows_x(panel, k + c0 * k_row, k_row, count, lid);
        barrier(CLK_LOCAL_MEM_FENCE);
        add_rows(weights + 4 * ty, panel + 4 * tx, sums);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    STORE_SUMS(DQ_T, ROWS_OF(dq, image, head) + r0 * dq_row, dq_row, sums, ones, rows)
}

GROUP void attention_dkv(TENSOR(const STORED(X_T), q), TENSOR(const STORED(X_T), k), TENSOR(const STORED(X_T), v),
                         MASK, TENSOR(const STORED(DY_T), dout), global const float *log_sum,
                         long log_sum_offset, global const float *delta, long delta_offset,
                         TENSOR(STORED(DK_T), dk), TENSOR(STORED(DV_T), dv), int heads, int group, int T, int S,
                         float scale DROP)
{
    local float own[D * LDR] __attribute__((aligned(16)));
    local float own_v[D * LDR] __attribute__((aligned(16)));
    local float panel[D * LDC] __attribute__((aligned(16)));
    local float weights[COLUMNS * LDR] __attribute__((aligned(16)));
    PLACE
    const int rows = min(ROWS, S - r0), first = is_causal ? max(r0 - before, 0) : 0;
    const float ones[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    float4 dks[4 * ND], dvs[4 * ND], s[4 * NC], dp[4 * NC];
    global const float *log_sums = log_sum + log_sum_offset, *deltas = delta + delta_offset;
    load_panel_x(own, LDR, ROWS_OF(k, image, own_head) + r0 * k_row, k_row, ROWS, rows, scale, lid);
    load_panel_x(own_v, LDR, ROWS_OF(v, image, own_head) + r0 * v_row, v_row, ROWS, rows, 1.0f, lid);
#pragma unroll
    for (int n = 0; n < 4 * ND; n++)
        dks[n] = dvs[n] = (float4)(0.0f);
    for (int head = own_head * group; head < (own_head + 1) * group; head++) {
        log_sum = log_sums + (image * heads + head) * T;
        delta = deltas + (image * heads + head) * T;
        for (int c0 = first; c0 < T; c0 += COLUMNS) {
            const int count = min(COLUMNS, T - c0);
            global const STORED(X_T) *x = ROWS_OF(q, image, head) + c0 * q_row;
            global const STORED(DY_T) *dy = ROWS_OF(dout, image, head) + c0 * dout_row;
#ifdef DROPOUT
            PUT_KEPT(weights, c0, r0)
#endif
            load_panel_x(panel, LDC, x, q_row, COLUMNS, count, 1.0f, lid);
            barrier(CLK_LOCAL_MEM_FENCE);
            products(own + 4 * ty, panel + 4 * tx, s);
            barrier(CLK_LOCAL_MEM_FENCE);
            load_panel_dout(panel, LDC, dy, dout_row, COLUMNS, count, 1.0f, lid);
            barrier(CLK_LOCAL_MEM_FENCE);
            products(own_v + 4 * ty, panel + 4 * tx, dp);
#define KEPT_OF(n, i) KEPT_THERE(weights, n, i)
            WEIGHTS(c, r, KEPT_OF)
            /* dv += p m dout, then dk += ds q. */
            PUT_COLUMNS(weights, s)
            barrier(CLK_LOCAL_MEM_FENCE);
            load_rows_dout(panel, dy, dout_row, count, lid);
            barrier(CLK_LOCAL_MEM_FENCE);
            add_rows(weights + 4 * ty, panel + 4 * tx, dvs);
            barrier(CLK_LOCAL_MEM_FENCE);
            PUT_COLUMNS(weights, dp)
            load_rows_x(panel, x, q_row, count, lid);
            barrier(CLK_LOCAL_MEM_FENCE);
            add_rows(weights + 4 * ty, panel + 4 * tx, dks);
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }
    STORE_SUMS(DK_T, ROWS_OF(dk, image, own_head) + r0 * dk_row, dk_row, dks, ones, rows)
    STORE_SUMS(DV_T, ROWS_OF(dv, image, own_head) + r0 * dv_row, dv_row, dvs, ones, rows)
}

#endif
