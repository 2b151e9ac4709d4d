/*
 * Attention and its gradients on GPUs. A work-group has ROWS rows, with one or two tensors of theirs in
 * local memory, and goes through other rows COLUMNS at a time: a work-item (y, x) of ROWS / 4 by TX
 * has 4 rows of a ROWS x COLUMNS tile and COLUMNS / TX columns of it, and the same rows of sums of D
 * elements, D / TX of them.
 *
 *   attention      rows are the queries': sums += p v
 *   attention_dq   rows are the queries': dq += ds k
 *   attention_dkv  rows are the keys', columns the rows of the queries: dv += p dout, dk += ds q
 *
 * Build options: those of attention.clh; D, ROWS, TX. D / TX and COLUMNS / TX are multiples of 4. Rows begin where float4 fits.
 */
#include "attention.clh"
#include "gpu/halves.clh"

#define COLUMNS 32
#define THREADS (ROWS / 4 * TX)
#define LDR (ROWS + 4) /* rows of panels lie so far apart: fewer bank conflicts */
#define LDC (COLUMNS + 4)
#define NC (COLUMNS / TX / 4) /* float4 of a work-item's columns, and of its sums */
#define ND (D / TX / 4)
#define GROUP kernel __attribute__((reqd_work_group_size(THREADS, 1, 1)))

/*
 * load_panel_NAME: panel[d][i] = x[i][d] * scale for `size` rows; those from `count` on are the last one.
 * load_rows_NAME: rows[i][d] = x[i][d]; those from `count` on are 0: their weights are, too.
 */
#define DEFINE_LOADS(name, KIND)                                                                   \
    static inline void load_panel_##name(local float *panel, int ld, global const STORED(KIND) * x,\
                                         long step, int size, int count, float scale, int lid)     \
    {                                                                                              \
        for (int e = lid; e < size * (D / 4); e += THREADS) {                                      \
            const int i = e / (D / 4), d = e % (D / 4) * 4;                                        \
            const float4 v = GET4(KIND, x + min(i, count - 1) * step + d) * scale;                 \
            panel[d * ld + i] = v.x;                                                               \
            panel[(d + 1) * ld + i] = v.y;                                                         \
            panel[(d + 2) * ld + i] = v.z;                                                         \
            panel[(d + 3) * ld + i] = v.w;                                                         \
        }                                                                                          \
    }                                                                                              \
    static inline void load_rows_##name(local float *rows, global const STORED(KIND) * x,          \
                                        long step, int count, int lid)                             \
    {                                                                                              \
        for (int e = lid; e < COLUMNS * (D / 4); e += THREADS) {                                   \
            const int i = e / (D / 4), d = e % (D / 4) * 4;                                        \
            *(local float4 *)(rows + i * D + d) =                                                  \
                i < count ? GET4(KIND, x + i * step + d) : (float4)(0.0f);                         \
        }                                                                                          \
    }
DEFINE_LOADS(x, X_T)
#ifdef GRADIENT
DEFINE_LOADS(dout, DY_T)
#endif

#define FOUR_ROWS(acc, n, a, y)                                                                    \
    acc[(n)*4 + 0] = fma((float4)(a.x), y, acc[(n)*4 + 0]);                                        \
    acc[(n)*4 + 1] = fma((float4)(a.y), y, acc[(n)*4 + 1]);                                        \
    acc[(n)*4 + 2] = fma((float4)(a.z), y, acc[(n)*4 + 2]);                                        \
    acc[(n)*4 + 3] = fma((float4)(a.w), y, acc[(n)*4 + 3]);

/* s[n * 4 + i]: row i of the work-item's and float4 n of its columns, of the product of panels. */
static inline void products(local const float *a, local const float *b, float4 *s)
{
#pragma unroll
    for (int n = 0; n < 4 * NC; n++)
        s[n] = (float4)(0.0f);
#pragma unroll 4
    for (int d = 0; d < D; d++) {
        const float4 x = *(local const float4 *)(a + d * LDR);
#pragma unroll
        for (int n = 0; n < NC; n++) {
            const float4 y = *(local const float4 *)(b + d * LDC + n * 4 * TX);
            FOUR_ROWS(s, n, x, y)
        }
    }
}

/* sums += w^T rows: w[column][row], rows[column][d]. */
static inline void add_rows(local const float *w, local const float *rows, float4 *sums)
{
#pragma unroll 2
    for (int j = 0; j < COLUMNS; j++) {
        const float4 x = *(local const float4 *)(w + j * LDR);
#pragma unroll
        for (int n = 0; n < ND; n++) {
            const float4 y = *(local const float4 *)(rows + j * D + n * 4 * TX);
            FOUR_ROWS(sums, n, x, y)
        }
    }
}

static inline float element(float4 v, int l)
{
    return l == 0 ? v.x : l == 1 ? v.y : l == 2 ? v.z : v.w;
}

/* Puts column l of float4 n of the work-item's columns, for its four rows, to w[column][row]. */
#define PUT_COLUMNS(w, s)                                                                          \
    _Pragma("unroll") for (int n = 0; n < NC; n++) _Pragma("unroll") for (int l = 0; l < 4; l++)   \
        *(local float4 *)((w) + (tx * 4 + n * 4 * TX + l) * LDR + 4 * ty) =                        \
        (float4)(element(s[n * 4], l), element(s[n * 4 + 1], l), element(s[n * 4 + 2], l),         \
                 element(s[n * 4 + 3], l));

/* to[row] = sums of the work-item's rows. */
#define STORE_SUMS(KIND, to, step, sums, scales, rows)                                             \
    _Pragma("unroll") for (int n = 0; n < ND; n++) _Pragma("unroll") for (int i = 0; i < 4; i++)   \
    {                                                                                              \
        if (4 * ty + i < (rows))                                                                   \
            PUT4(KIND, sums[n * 4 + i] * scales[i],                                                \
                 (to) + (4 * ty + i) * (step) + tx * 4 + n * 4 * TX);                              \
    }

#define PLACE                                                                                      \
    const int lid = (int)get_local_id(0), tx = lid % TX, ty = lid / TX;                            \
    const int r0 = (int)get_group_id(0) * ROWS, before = clamp(PAST, -(1 << 30), S);               \
    const int own_head = (int)get_group_id(1);                                                     \
    const long image = (long)get_group_id(2);                                                      \
    if (mask_kind == 2)                                                                            \
        mask = (global const float *)((global const uchar *)mask + mask_offset);                   \
    const long masked = (mask_kind == 1 ? mask_offset : 0) + image * mask_image;

/* The score of (row t, key j) with the mask, -INFINITY if it does not take part. */
#define SCORE(dot, t, j)                                                                           \
    ((t) < T && (j) < clt_seen(t, before, S, is_causal)                                            \
         ? (dot) + clt_masked(mask, mask_kind, masked + head * mask_head + (t)*mask_row +          \
                                                   (j)*mask_key)                                   \
         : -INFINITY)

#ifdef DROPOUT
#define FACTORS(bits)                                                                              \
    (float4)(CLT_KEPT(bits.x) ? drop_scale : 0.0f, CLT_KEPT(bits.y) ? drop_scale : 0.0f,           \
             CLT_KEPT(bits.z) ? drop_scale : 0.0f, CLT_KEPT(bits.w) ? drop_scale : 0.0f)

/* What the weights of the work-item's tile are multiplied by, whose rows from t0 on are the queries'
 * and columns from j0 on the keys, and the other way about: a block is four of a row. */
#define KEPT_ROWS(kept, t0, j0)                                                                    \
    _Pragma("unroll") for (int n = 0; n < NC; n++) _Pragma("unroll") for (int i = 0; i < 4; i++)   \
    {                                                                                              \
        const uint4 bits = DROP_BITS(DROP_BLOCK(image, heads, head, T, (t0) + 4 * ty + i, S) +     \
                                     (ulong)(((j0) + 4 * tx + n * 4 * TX) / 4));                   \
        kept[n * 4 + i] = FACTORS(bits);                                                           \
    }
#define KEPT_COLUMNS(kept, t0, j0)                                                                 \
    _Pragma("unroll") for (int n = 0; n < NC; n++)                                                 \
    {                                                                                              \
        float e[4][4];                                                                             \
        _Pragma("unroll") for (int l = 0; l < 4; l++)                                              \
        {                                                                                          \
            const int t = (t0) + 4 * tx + n * 4 * TX + l;                                          \
            const uint4 bits = DROP_BITS(DROP_BLOCK(image, heads, head, T, t, S) +                 \
                                         (ulong)(((j0) + 4 * ty) / 4));                            \
            *(float4 *)e[l] = FACTORS(bits);                                                       \
        }                                                                                          \
        _Pragma("unroll") for (int i = 0; i < 4; i++) kept[n * 4 + i] =                            \
            (float4)(e[0][i], e[1][i], e[2][i], e[3][i]);                                          \
    }
#endif

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
#include "gpu/tree.clh"

#define LANES 8 /* work-items of a row */
#define DELTA_GROUP 256
CLT_TREE(sum_of_row, float, CLT_ADD, LANES, 1)

/* to[image][head][row] = sum of dout * out over the row. */
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

#ifdef DROPOUT
#define DROPPED(x, n) (x) *= kept[n];
#else
#define DROPPED(x, n)
#endif

/* p and ds of the work-item's tile, of rows r and columns c, as WEIGHTS says which are t and j. */
#define WEIGHTS(t_of, j_of)                                                                        \
    _Pragma("unroll") for (int n = 0; n < NC; n++) _Pragma("unroll") for (int i = 0; i < 4; i++)   \
    {                                                                                              \
        float e[4], g[4];                                                                          \
        DROPPED(dp[n * 4 + i], n * 4 + i)                                                          \
        *(float4 *)e = s[n * 4 + i];                                                               \
        *(float4 *)g = dp[n * 4 + i];                                                              \
        _Pragma("unroll") for (int l = 0; l < 4; l++)                                              \
        {                                                                                          \
            const int r = r0 + 4 * ty + i, c = c0 + 4 * tx + n * 4 * TX + l;                       \
            const int t = t_of, j = j_of, row = min(t, T - 1);                                     \
            const float score = SCORE(e[l], t, j);                                                 \
            e[l] = score == -INFINITY ? 0.0f : exp(score - log_sum[row]);                          \
            g[l] = e[l] == 0.0f ? 0.0f : e[l] * (g[l] - delta[row]) * scale;                       \
        }                                                                                          \
        s[n * 4 + i] = *(float4 *)e;                                                               \
        DROPPED(s[n * 4 + i], n * 4 + i)                                                           \
        dp[n * 4 + i] = *(float4 *)g;                                                              \
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
        WEIGHTS(r, c)
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
            load_panel_x(panel, LDC, x, q_row, COLUMNS, count, 1.0f, lid);
            barrier(CLK_LOCAL_MEM_FENCE);
            products(own + 4 * ty, panel + 4 * tx, s);
            barrier(CLK_LOCAL_MEM_FENCE);
            load_panel_dout(panel, LDC, dy, dout_row, COLUMNS, count, 1.0f, lid);
            barrier(CLK_LOCAL_MEM_FENCE);
            products(own_v + 4 * ty, panel + 4 * tx, dp);
#ifdef DROPOUT
            float4 kept[4 * NC];
            KEPT_COLUMNS(kept, c0, r0)
#endif
            WEIGHTS(c, r)
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
