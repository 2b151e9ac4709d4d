/*
 * Attention and its gradients on matrix units, for q, k, v and dout in 16 bits.
 * attention/attention.clh has the formulas, attention/gpu/attention.cl the kernel for delta. Weights and ds are rounded
 * to 16 bits before they are multiplied. Sums, scores and the online softmax are f32.
 *
 * Work-group (x, y, z) computes ROWS rows from x * ROWS on, of head y of image z. A warp has UNIT_M
 * of these rows: their products with COLUMNS columns, and their sums of D elements, are fragments
 * in its registers (core/gpu/matrix_unit.clh).
 *
 *   attention_matrix      rows are queries, columns are keys: out, with online softmax, and log_sum
 *   attention_dq_matrix   rows are queries, columns are keys: dq += ds k
 *   attention_dkv_matrix  rows are keys, columns are queries: dv += p m dout, dk += ds q
 *
 * Local memory has the group's own rows as [ROWS][LDD], the weights of the tile as [ROWS][LDC], and
 * one panel for columns. The panel is loaded again for each use: as [COLUMNS][LDD] for products,
 * and transposed, as [D][LDC], to be multiplied by weights.
 *
 * Build options: those of attention/attention.clh and core/gpu/matrix_unit.clh; D, a multiple of
 * 32; ROWS, a multiple of UNIT_M; GRADIENT for the gradients. X_T and DY_T are UNIT_T.
 */
#include "attention/attention.clh"
#include "attention/gpu/attention_score.clh"
#include "core/gpu/matrix_unit.clh"

#define COLUMNS 32
#define WARPS (ROWS / UNIT_M)
#define THREADS (WARPS * UNIT_LANES)
#define LDD (D + 8) /* pitches of panels, padded: fewer bank conflicts */
#define LDC (COLUMNS + 8)
#define NC (COLUMNS / UNIT_N) /* fragments of a warp in its products, and in its sums */
#define ND (D / UNIT_N)
#define PANEL (COLUMNS * LDD > D * LDC ? COLUMNS * LDD : D * LDC)
#define GROUP kernel __attribute__((reqd_work_group_size(THREADS, 1, 1)))
#define LOCAL(name, size) local ushort name[size] __attribute__((aligned(16)));

/* panel[i][d] = x[i][d] for `size` rows. Rows from `count` on repeat the last. */
UNIT_INLINE void load_panel(local ushort *panel, global const ushort *x, long step, int size,
                            int count, int lid)
{
    for (int e = lid; e < size * (D / 8); e += THREADS) {
        const int i = e / (D / 8), d = e % (D / 8) * 8;
        *(local ushort8 *)(panel + i * LDD + d) =
            *(global const ushort8 *)(x + min(i, count - 1) * step + d);
    }
}

/* panel[d][i] = x[i][d] for COLUMNS rows. Rows from `count` on are 0, and so are their weights. */
UNIT_INLINE void load_columns(local ushort *panel, global const ushort *x, long step, int count,
                              int lid)
{
    for (int e = lid; e < COLUMNS / 2 * (D / 8); e += THREADS) {
        const int i = e % (COLUMNS / 2) * 2, d = e / (COLUMNS / 2) * 8;
        uint8 even = (uint8)(0), odd = (uint8)(0);
        uint pair[8] __attribute__((aligned(32)));
        if (i < count)
            even = convert_uint8(*(global const ushort8 *)(x + i * step + d));
        if (i + 1 < count)
            odd = convert_uint8(*(global const ushort8 *)(x + (i + 1) * step + d));
        *(uint8 *)pair = even | odd << 16;
#pragma unroll
        for (int l = 0; l < 8; l++)
            *(local uint *)(panel + (d + l) * LDC + i) = pair[l];
    }
}

/* s = the product of the warp's rows of `a` and the panel b. */
UNIT_INLINE void products(local const ushort *a, local const ushort *b, unit_c *s, int lane,
                          local float *scratch)
{
    UNIT_UNROLL for (int n = 0; n < NC; n++) s[n] = unit_zero();
    UNIT_UNROLL for (int d = 0; d < D; d += UNIT_K)
    {
        const unit_a x = unit_load_a(a + d, LDD, lane);
        UNIT_UNROLL for (int n = 0; n < NC; n++) s[n] = unit_multiply(
            s[n], x, unit_load_b(b + n * UNIT_N * LDD + d, LDD, lane), lane, scratch);
    }
}

/* sums += the warp's rows of the weights times the transposed panel b. */
UNIT_INLINE void add_rows(local const ushort *weights, local const ushort *b, unit_c *sums,
                          int lane, local float *scratch)
{
    UNIT_UNROLL for (int j = 0; j < COLUMNS; j += UNIT_K)
    {
        const unit_a x = unit_load_a(weights + j, LDC, lane);
        UNIT_UNROLL for (int n = 0; n < ND; n++) sums[n] = unit_multiply(
            sums[n], x, unit_load_b(b + n * UNIT_N * LDC + j, LDC, lane), lane, scratch);
    }
}

/* Visits the lane's elements e of fragments n < count. r is the element's row among the warp's, c
 * its column in the tile. */
#define EACH(count)                                                                                \
    UNIT_UNROLL for (int n = 0; n < count; n++) UNIT_UNROLL for (int e = 0; e < UNIT_SUMS; e++)    \
    {                                                                                              \
        const int r = UNIT_ROW(lane, e), c = n * UNIT_N + UNIT_COLUMN(lane, e);                    \
        (void)r;                                                                                   \
        (void)c;
#define END }

/* Stores the warp's products as weights. */
UNIT_INLINE void put_weights(local ushort *weights, const unit_c *s, int lane)
{
    EACH(NC)
        weights[r * LDC + c] = UNIT_BITS(UNIT_GET(s[n], e));
    END
}

/* to[row][d] = sums[row][d] * scales[row] for the warp's rows below `rows`. */
#define STORE_SUMS(KIND, to, step, sums, scales, rows)                                             \
    EACH(ND)                                                                                       \
        if (r < (rows))                                                                            \
            UNIT_PUT(KIND, UNIT_GET(sums[n], e) * scales[UNIT_ROW_NUMBER(e)],                      \
                     (to) + r * (step) + c);                                                       \
    END

/* The work-item's place, and the arguments of the mask made relative to the image. r0 is the
 * group's first row, w0 the warp's. */
#define PLACE                                                                                      \
    UNIT_SCRATCH(WARPS)                                                                            \
    const int lid = (int)get_local_id(0), lane = lid % UNIT_LANES;                                 \
    const int warp_row = lid / UNIT_LANES * UNIT_M;                                                \
    const int r0 = (int)get_group_id(0) * ROWS, w0 = r0 + warp_row;                                \
    const int before = clamp(PAST, -(1 << 30), S);                                                 \
    const int own_head = (int)get_group_id(1);                                                     \
    const long image = (long)get_group_id(2);                                                      \
    if (mask_kind == 2)                                                                            \
        mask = (global const float *)((global const uchar *)mask + mask_offset);                   \
    const long masked = (mask_kind == 1 ? mask_offset : 0) + image * mask_image;

/* Replaces the products of the lane's part of a tile by scores. The warp's queries begin at t0, its
 * keys at j0; there are `rows` and `keys` of them. t and j are those of row r and column c. Most
 * tiles lie within what all queries see, without a mask. */
#define SCORES(t0, rows, j0, keys, t, j)                                                           \
    if (mask_kind == 0 && (t0) + (rows) <= T &&                                                    \
        (j0) + (keys) <= clt_seen(t0, before, S, is_causal)) {                                     \
        EACH(NC)                                                                                   \
            UNIT_SET(s[n], e, UNIT_GET(s[n], e) * scale);                                          \
        END                                                                                        \
    } else {                                                                                       \
        EACH(NC)                                                                                   \
            UNIT_SET(s[n], e, SCORE(UNIT_GET(s[n], e) * scale, t, j));                             \
        END                                                                                        \
    }

#ifdef DROPOUT
#define FACTOR(t, j) DROP_FACTOR(DROP_BLOCK(image, head, t, S), j)
#else
#define FACTOR(t, j) 1.0f
#endif

#ifndef GRADIENT

GROUP void attention_matrix(TENSOR(const STORED(X_T), q), TENSOR(const STORED(X_T), k),
                            TENSOR(const STORED(X_T), v), MASK, TENSOR(STORED(Y_T), out),
                            global float *log_sum, long log_sum_offset, int heads, int group, int T,
                            int S, float scale DROP)
{
    LOCAL(own, ROWS * LDD)
    LOCAL(panel, PANEL)
    LOCAL(weights, ROWS * LDC)
    local float parts[ROWS * UNIT_SHARERS];
    PLACE
    const int head = own_head, rows = min(ROWS, T - r0);
    const int all = clt_seen(r0 + rows - 1, before, S, is_causal);
    local const ushort *own_rows = own + warp_row * LDD;
    local ushort *own_weights = weights + warp_row * LDC;
    local float *own_parts = parts + warp_row * UNIT_SHARERS;
    unit_c sums[ND], s[NC];
    float most[UNIT_ROWS], total[UNIT_ROWS], scales[UNIT_ROWS];
    k = ROWS_OF(k, image, head / group);
    v = ROWS_OF(v, image, head / group);
    load_panel(own, ROWS_OF(q, image, head) + r0 * q_row, q_row, ROWS, rows, lid);
    UNIT_UNROLL for (int n = 0; n < ND; n++) sums[n] = unit_zero();
    UNIT_UNROLL for (int i = 0; i < UNIT_ROWS; i++)
    {
        most[i] = -INFINITY;
        total[i] = 0.0f;
    }
    for (int j0 = 0; j0 < all; j0 += COLUMNS) {
        const int count = min(COLUMNS, all - j0);
        float tops[UNIT_ROWS], keep[UNIT_ROWS];
        load_panel(panel, k + j0 * k_row, k_row, COLUMNS, count, lid);
        barrier(CLK_LOCAL_MEM_FENCE);
        products(own_rows, panel, s, lane, UNIT_SCRATCH_OF(lid));
        /* The scores, and the largest one of the work-item in each row. */
        UNIT_UNROLL for (int i = 0; i < UNIT_ROWS; i++) tops[i] = -INFINITY;
        SCORES(w0, UNIT_M, j0, COLUMNS, w0 + r, j0 + c)
        EACH(NC)
            tops[UNIT_ROW_NUMBER(e)] = fmax(tops[UNIT_ROW_NUMBER(e)], UNIT_GET(s[n], e));
        END
        UNIT_UNROLL for (int i = 0; i < UNIT_ROWS; i++)
            own_parts[UNIT_LANE_ROW(lane, i) * UNIT_SHARERS + UNIT_SHARER(lane)] = tops[i];
        barrier(CLK_LOCAL_MEM_FENCE);
        load_columns(panel, v + j0 * v_row, v_row, count, lid);
        /* The largest score of a row over the lanes that share it; `keep` scales the older sums. */
        UNIT_UNROLL for (int i = 0; i < UNIT_ROWS; i++)
        {
            float top = most[i];
            for (int x = 0; x < UNIT_SHARERS; x++)
                top = fmax(top, own_parts[UNIT_LANE_ROW(lane, i) * UNIT_SHARERS + x]);
            tops[i] = top == -INFINITY ? 0.0f : top;
            keep[i] = exp(most[i] - tops[i]);
            most[i] = top;
            total[i] *= keep[i];
        }
        EACH(NC)
            const float p = exp(UNIT_GET(s[n], e) - tops[UNIT_ROW_NUMBER(e)]);
            total[UNIT_ROW_NUMBER(e)] += p;
            UNIT_SET(s[n], e, p * FACTOR(w0 + r, j0 + c));
        END
        EACH(ND)
            UNIT_SET(sums[n], e, UNIT_GET(sums[n], e) * keep[UNIT_ROW_NUMBER(e)]);
        END
        put_weights(own_weights, s, lane);
        barrier(CLK_LOCAL_MEM_FENCE);
        add_rows(own_weights, panel, sums, lane, UNIT_SCRATCH_OF(lid));
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    /* The sum of a row's weights over the lanes that share it. */
    log_sum += log_sum_offset + (image * heads + head) * T;
    UNIT_UNROLL for (int i = 0; i < UNIT_ROWS; i++)
        own_parts[UNIT_LANE_ROW(lane, i) * UNIT_SHARERS + UNIT_SHARER(lane)] = total[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    UNIT_UNROLL for (int i = 0; i < UNIT_ROWS; i++)
    {
        const int r = UNIT_LANE_ROW(lane, i);
        float sum = 0.0f;
        for (int x = 0; x < UNIT_SHARERS; x++)
            sum += own_parts[r * UNIT_SHARERS + x];
        const int none = sum == 0.0f;
        scales[i] = none ? 0.0f : 1.0f / sum;
        if (UNIT_SHARER(lane) == 0 && w0 + r < T)
            log_sum[w0 + r] = none ? INFINITY : most[i] + log(sum);
    }
    STORE_SUMS(Y_T, ROWS_OF(out, image, head) + w0 * out_row, out_row, sums, scales, T - w0)
}

#else

/* Replaces the scores s and the products dp = dout.v of the lane's part of a tile by p m and ds.
 * t_of and j_of say which of row r and column c is the query and which the key. */
#define WEIGHTS(t_of, j_of)                                                                        \
    EACH(NC)                                                                                       \
        const int t = t_of, j = j_of, row = min(t, T - 1);                                         \
        (void)j;                                                                                   \
        const float m = FACTOR(t, j), p = exp(UNIT_GET(s[n], e) - log_sum[row]);                   \
        const float ds = p == 0.0f ? 0.0f : p * (UNIT_GET(dp[n], e) * m - delta[row]) * scale;     \
        UNIT_SET(s[n], e, p * m);                                                                  \
        UNIT_SET(dp[n], e, ds);                                                                    \
    END

GROUP void attention_dq_matrix(TENSOR(const STORED(X_T), q), TENSOR(const STORED(X_T), k),
                               TENSOR(const STORED(X_T), v), MASK, TENSOR(const STORED(DY_T), dout),
                               global const float *log_sum, long log_sum_offset,
                               global const float *delta, long delta_offset,
                               TENSOR(STORED(DQ_T), dq), int heads, int group, int T, int S,
                               float scale DROP)
{
    LOCAL(own, ROWS * LDD)
    LOCAL(own_dout, ROWS * LDD)
    LOCAL(panel, PANEL)
    LOCAL(weights, ROWS * LDC)
    PLACE
    const int head = own_head, rows = min(ROWS, T - r0);
    const int all = clt_seen(r0 + rows - 1, before, S, is_causal);
    local ushort *own_weights = weights + warp_row * LDC;
    unit_c sums[ND], s[NC], dp[NC];
    float ones[UNIT_ROWS];
    log_sum += log_sum_offset + (image * heads + head) * T;
    delta += delta_offset + (image * heads + head) * T;
    k = ROWS_OF(k, image, head / group);
    v = ROWS_OF(v, image, head / group);
    load_panel(own, ROWS_OF(q, image, head) + r0 * q_row, q_row, ROWS, rows, lid);
    load_panel(own_dout, ROWS_OF(dout, image, head) + r0 * dout_row, dout_row, ROWS, rows, lid);
    UNIT_UNROLL for (int n = 0; n < ND; n++) sums[n] = unit_zero();
    UNIT_UNROLL for (int i = 0; i < UNIT_ROWS; i++) ones[i] = 1.0f;
    for (int c0 = 0; c0 < all; c0 += COLUMNS) {
        const int count = min(COLUMNS, all - c0);
        load_panel(panel, k + c0 * k_row, k_row, COLUMNS, count, lid);
        barrier(CLK_LOCAL_MEM_FENCE);
        products(own + warp_row * LDD, panel, s, lane, UNIT_SCRATCH_OF(lid));
        barrier(CLK_LOCAL_MEM_FENCE);
        load_panel(panel, v + c0 * v_row, v_row, COLUMNS, count, lid);
        barrier(CLK_LOCAL_MEM_FENCE);
        products(own_dout + warp_row * LDD, panel, dp, lane, UNIT_SCRATCH_OF(lid));
        SCORES(w0, UNIT_M, c0, COLUMNS, w0 + r, c0 + c)
        WEIGHTS(w0 + r, c0 + c)
        put_weights(own_weights, dp, lane);
        barrier(CLK_LOCAL_MEM_FENCE);
        load_columns(panel, k + c0 * k_row, k_row, count, lid);
        barrier(CLK_LOCAL_MEM_FENCE);
        add_rows(own_weights, panel, sums, lane, UNIT_SCRATCH_OF(lid));
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    STORE_SUMS(DQ_T, ROWS_OF(dq, image, head) + w0 * dq_row, dq_row, sums, ones, T - w0)
}

GROUP void attention_dkv_matrix(TENSOR(const STORED(X_T), q), TENSOR(const STORED(X_T), k),
                                TENSOR(const STORED(X_T), v), MASK,
                                TENSOR(const STORED(DY_T), dout), global const float *log_sum, long log_sum_offset,
                                global const float *delta, long delta_offset,
                                TENSOR(STORED(DK_T), dk), TENSOR(STORED(DV_T), dv), int heads,
                                int group, int T, int S, float scale DROP)
{
    LOCAL(own, ROWS * LDD)
    LOCAL(own_v, ROWS * LDD)
    LOCAL(panel, PANEL)
    LOCAL(weights, ROWS * LDC)
    PLACE
    const int rows = min(ROWS, S - r0), first = is_causal ? max(r0 - before, 0) : 0;
    local ushort *own_weights = weights + warp_row * LDC;
    unit_c dks[ND], dvs[ND], s[NC], dp[NC];
    float ones[UNIT_ROWS];
    global const float *log_sums = log_sum + log_sum_offset, *deltas = delta + delta_offset;
    load_panel(own, ROWS_OF(k, image, own_head) + r0 * k_row, k_row, ROWS, rows, lid);
    load_panel(own_v, ROWS_OF(v, image, own_head) + r0 * v_row, v_row, ROWS, rows, lid);
    UNIT_UNROLL for (int n = 0; n < ND; n++) dks[n] = dvs[n] = unit_zero();
    UNIT_UNROLL for (int i = 0; i < UNIT_ROWS; i++) ones[i] = 1.0f;
    for (int head = own_head * group; head < (own_head + 1) * group; head++) {
        log_sum = log_sums + (image * heads + head) * T;
        delta = deltas + (image * heads + head) * T;
        for (int c0 = first; c0 < T; c0 += COLUMNS) {
            const int count = min(COLUMNS, T - c0);
            global const STORED(X_T) *x = ROWS_OF(q, image, head) + c0 * q_row;
            global const STORED(DY_T) *dy = ROWS_OF(dout, image, head) + c0 * dout_row;
            load_panel(panel, x, q_row, COLUMNS, count, lid);
            barrier(CLK_LOCAL_MEM_FENCE);
            products(own + warp_row * LDD, panel, s, lane, UNIT_SCRATCH_OF(lid));
            barrier(CLK_LOCAL_MEM_FENCE);
            load_panel(panel, dy, dout_row, COLUMNS, count, lid);
            barrier(CLK_LOCAL_MEM_FENCE);
            products(own_v + warp_row * LDD, panel, dp, lane, UNIT_SCRATCH_OF(lid));
            SCORES(c0, COLUMNS, w0, UNIT_M, c0 + c, w0 + r)
            WEIGHTS(c0 + c, w0 + r)
            /* dv += p m dout, then dk += ds q. */
            put_weights(own_weights, s, lane);
            barrier(CLK_LOCAL_MEM_FENCE);
            load_columns(panel, dy, dout_row, count, lid);
            barrier(CLK_LOCAL_MEM_FENCE);
            add_rows(own_weights, panel, dvs, lane, UNIT_SCRATCH_OF(lid));
            barrier(CLK_LOCAL_MEM_FENCE);
            put_weights(own_weights, dp, lane);
            load_columns(panel, x, q_row, count, lid);
            barrier(CLK_LOCAL_MEM_FENCE);
            add_rows(own_weights, panel, dks, lane, UNIT_SCRATCH_OF(lid));
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }
    STORE_SUMS(DK_T, ROWS_OF(dk, image, own_head) + w0 * dk_row, dk_row, dks, ones, S - w0)
    STORE_SUMS(DV_T, ROWS_OF(dv, image, own_head) + w0 * dv_row, dv_row, dvs, ones, S - w0)
}

#endif
