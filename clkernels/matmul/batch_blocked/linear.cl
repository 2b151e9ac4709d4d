/*
 * Linear layers in the batch-blocked layout, on CPUs: x [B, in], y and g (the gradient of y)
 * [B, out] are batch-blocked, w [out, in] is in plain order. One vector holds an element of LANES
 * samples, so products over `in` or `out` need no sum over vector lanes. All work-groups have one
 * work-item.
 *
 * clt_batch_blocked_linear(x, w, bias, y, n, in, out)
 *   y = x w^T + bias, then the activation. bias [out] is only read if BIAS is 1. A work-item
 *   computes TC channels of TB blocks of samples. Global size: (ceil(out / TC),
 *   ceil(n / (LANES * TB)), 1).
 * clt_batch_blocked_linear_data_grad(g, y, w, dx, n, in, out)
 *   dx = g w. With ACT = 1, the gradient passes through a ReLU behind the layer first: g counts
 *   where that ReLU's output y [B, out] is larger than 0. The kernel repeats this for every tile,
 *   so for wide layers a separate kernel before it is faster. With ACT = 2, dx passes through a
 *   ReLU in front of the layer: y [B, in] is that ReLU's output. Otherwise y is not read. Global
 *   size: (ceil(in / TC), ceil(n / (LANES * TB)), 1).
 * clt_batch_blocked_linear_weight_grad(x, g, y, dw, db, n, in, out, chunk)
 *   dw = g^T x, and db = the sum of g over samples if BIAS is 1. The batch is divided into chunks
 *   of `chunk` blocks of LANES samples. Work-item (i, o, c) computes IN_BLOCK x OUT_BLOCK weights
 *   for chunk c, and writes dw [chunks, out, in], db [chunks, out]. clt_batch_blocked_sum_chunks
 *   (conv/batch_blocked/conv_weight_grad.cl) adds up several chunks. ACT = 1 as above. Global size:
 *   (ceil(in / IN_BLOCK), ceil(out / OUT_BLOCK), chunks), where chunks =
 *   ceil(ceil(n / LANES) / chunk), but at least 1.
 *
 * Build options, with defaults in brackets:
 * - LANES; BIAS [0]; ACT [0]: 1 = ReLU.
 * - TC x TB [3 x 4]: the register tile, channels x blocks of samples, or outputs x inputs in the
 *   weight gradient. At most 8 x 8. It takes TC * TB + TC + 1 vector registers.
 * - A_T, B_T, C_T [f]: the storage types of the first and second batch-blocked operand and of the
 *   batch-blocked result (core/storage.clh). y has the type of g.
 * - IN_BLOCK [96], OUT_BLOCK [32]: weights of a work-item of the weight gradient.
 */
#include "core/batch_blocked/halves.clh"
#include "core/one_kernel.clh"
#include "core/product.clh"

#ifndef BIAS
#define BIAS 0
#endif
#ifndef ACT
#define ACT 0
#endif
#ifndef TC
#define TC 3
#endif
#ifndef TB
#define TB 4
#endif
#ifndef IN_BLOCK
#define IN_BLOCK 96
#endif
#ifndef OUT_BLOCK
#define OUT_BLOCK 32
#endif

#define TILE_ROWS TC
#define TILE_COLS TB
#include "core/batch_blocked/tile.clh"

/* g, or with ACT = 1: 0 where y <= 0, else g. A NaN in y keeps g. */
#if ACT == 1
#define LOAD_GRAD(T, g, y) select(LOAD_AS(T, g), (vecf)0.0f, LOAD_AS(T, y) <= 0.0f)
#else
#define LOAD_GRAD(T, g, y) LOAD_AS(T, g)
#endif

/* out[t][c] = sum over k of a[t][k] * w[c * w_channel + k * w_k], for `tb` blocks t and nc channels
 * c. `a` has `inner` elements a block, `out` has `outer`. If `gradient`, ACT is applied as
 * described above; otherwise bias and activation follow. Channels beyond nc read the last weight
 * again and are not stored. Callers pass literals for tb and gradient, so that the compiler removes
 * the branches. */
INLINE void clt_linear_tile(global const STORED(A_T) * a, global const STORED(A_T) * mask,
                            global const float *w, global const float *bias,
                            global STORED(C_T) * out, int inner, int outer, int w_channel, int w_k,
                            int nc, const int tb, const int gradient)
{
#define DECLARE(c, t) vecf s##c##t = 0.0f;
    EACH_CELL(DECLARE)
#define POINT(c) global const float *w##c = w + min(c, nc - 1) * w_channel;
    EACH_ROW(POINT)
    for (int k = 0; k < inner; k++) {
#define WEIGHT(c) const vecf b##c = *w##c;
#define FMA(c, t) s##c##t = fma(v##t, b##c, s##c##t);
#define BLOCK(t)                                                                                   \
    if (t < tb) {                                                                                  \
        const int at = (t * inner + k) * LANES;                                                    \
        const vecf v##t = gradient ? LOAD_GRAD(A_T, a + at, mask + at) : LOAD_AS(A_T, a + at);     \
        ROWS_OF(FMA, t)                                                                            \
    }
#define NEXT(c) w##c += w_k;
        EACH_ROW(WEIGHT)
        EACH_COL(BLOCK)
        EACH_ROW(NEXT)
    }
#define PUT_SUM(c, t)                                                                                  \
    if (t < tb && c < nc) {                                                                        \
        vecf v = s##c##t;                                                                          \
        if (gradient && ACT == 2)                                                                  \
            v = select(v, (vecf)0.0f, LOAD_AS(A_T, mask + (t * outer + c) * LANES) <= 0.0f);       \
        if (!gradient && BIAS)                                                                     \
            v += bias[c];                                                                          \
        if (!gradient && ACT == 1)                                                                 \
            v = clt_relu(v);                                                                       \
        STORE_AS(C_T, v, out + (t * outer + c) * LANES);                                           \
    }
    EACH_CELL(PUT_SUM)
}

#if CLT_HAS(clt_batch_blocked_linear)
KERNEL void clt_batch_blocked_linear(global const STORED(A_T) * x, long x_at, global const float *w,
                             long w_at, global const float *bias, long bias_at,
                             global STORED(C_T) * y, long y_at, int n, int in, int out)
{
    const int c0 = get_global_id(0) * TC, nc = min(TC, out - c0);
    int b = get_global_id(1) * TB;
    const int blocks = clt_blocks(n);
    w += w_at + (long)c0 * in;
    bias += bias_at + c0;
    if (b + TB <= blocks) {
        clt_linear_tile(x + x_at + (long)b * in * LANES, x, w, bias,
                        y + y_at + ((long)b * out + c0) * LANES, in, out, in, 1, nc, TB, 0);
        return;
    }
    for (; b < blocks; b++)
        clt_linear_tile(x + x_at + (long)b * in * LANES, x, w, bias,
                        y + y_at + ((long)b * out + c0) * LANES, in, out, in, 1, nc, 1, 0);
}
#endif

#if CLT_HAS(clt_batch_blocked_linear_data_grad)
KERNEL void clt_batch_blocked_linear_data_grad(global const STORED(A_T) * g, long g_at,
                                       global const STORED(A_T) * y, long y_at,
                                       global const float *w, long w_at, global STORED(C_T) * dx,
                                       long dx_at, int n, int in, int out)
{
    const int c0 = get_global_id(0) * TC, nc = min(TC, in - c0);
    int b = get_global_id(1) * TB;
    const int blocks = clt_blocks(n);
    w += w_at + c0;
    const long mask_step = (ACT == 2 ? in : out) * LANES;
    y += y_at + (ACT == 2 ? c0 * LANES : 0);
    if (b + TB <= blocks) {
        clt_linear_tile(g + g_at + (long)b * out * LANES, y + b * mask_step, w, w,
                        dx + dx_at + ((long)b * in + c0) * LANES, out, in, 1, in, nc, TB, 1);
        return;
    }
    for (; b < blocks; b++)
        clt_linear_tile(g + g_at + (long)b * out * LANES, y + b * mask_step, w, w,
                        dx + dx_at + ((long)b * in + c0) * LANES, out, in, 1, in, nc, 1, 1);
}
#endif

/* Computes a tile of `no` x `ni` weights: sums over the blocks from .. to - 1. x, g and y point to
 * block 0. Lanes beyond sample n are left out by selection, because they may hold NaN. */
INLINE void clt_linear_weight_tile(global const STORED(A_T) * x, global const STORED(B_T) * g,
                                   global const STORED(B_T) * y, global float *dw, int in, int out,
                                   int from, int to, int n, int no, int ni)
{
    EACH_CELL(DECLARE)
    for (int b = from; b < to; b++) {
        const long x_block = (long)b * in * LANES, g_block = (long)b * out * LANES;
        const veci valid = clt_valid_lanes(b, n);
#define LOAD_G(c)                                                                                  \
    const int h##c = min(c, no - 1) * LANES;                                                       \
    const vecf d##c = LOAD_GRAD(B_T, g + g_block + h##c, y + g_block + h##c);
#define ADD(c, t) s##c##t = fma(v##t, d##c, s##c##t);
#define ADD_VALID(c, t) s##c##t = select(s##c##t, fma(v##t, d##c, s##c##t), valid);
#define INPUT(t)                                                                                   \
    const vecf v##t = LOAD_AS(A_T, x + x_block + min(t, ni - 1) * LANES);                          \
    ROWS_OF(ADD, t)
#define INPUT_VALID(t)                                                                             \
    const vecf v##t = LOAD_AS(A_T, x + x_block + min(t, ni - 1) * LANES);                          \
    ROWS_OF(ADD_VALID, t)
        EACH_ROW(LOAD_G)
        if (n - b * LANES >= LANES) {
            EACH_COL(INPUT)
        } else {
            EACH_COL(INPUT_VALID)
        }
    }
#define PUT_WEIGHT(c, t)                                                                           \
    if (c < no && t < ni)                                                                          \
        dw[(long)c * in + t] = clt_sum_lanes(s##c##t);
    EACH_CELL(PUT_WEIGHT)
}

#if CLT_HAS(clt_batch_blocked_linear_weight_grad)
KERNEL void clt_batch_blocked_linear_weight_grad(global const STORED(A_T) * x, long x_at,
                                         global const STORED(B_T) * g, long g_at,
                                         global const STORED(B_T) * y, long y_at, global float *dw, long dw_at, global float *db, long db_at,
                                         int n, int in, int out, int chunk)
{
    const int i0 = get_global_id(0) * IN_BLOCK, i1 = min(i0 + IN_BLOCK, in);
    const int o0 = get_global_id(1) * OUT_BLOCK, o1 = min(o0 + OUT_BLOCK, out);
    const long part = get_global_id(2);
    const int from = (int)part * chunk, to = min(from + chunk, clt_blocks(n));
    x += x_at;
    g += g_at;
    y += y_at;
    dw += dw_at + part * out * in;
    for (int i = i0; i < i1; i += TB) {
        for (int o = o0; o < o1; o += TC)
            clt_linear_weight_tile(x + i * LANES, g + o * LANES, y + o * LANES,
                                   dw + (long)o * in + i, in, out, from, to, n, min(TC, o1 - o),
                                   min(TB, i1 - i));
    }
#if BIAS
    for (int o = o0; o < o1 && i0 == 0; o++) {
        vecf sum = 0.0f;
        for (int b = from; b < to; b++) {
            const long at = ((long)b * out + o) * LANES;
            sum = select(sum, sum + LOAD_GRAD(B_T, g + at, y + at), clt_valid_lanes(b, n));
        }
        db[db_at + part * out + o] = clt_sum_lanes(sum);
    }
#endif
}
#endif
