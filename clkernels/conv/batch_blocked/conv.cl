/*
 * Direct convolution in the batch-blocked layout, with bias, activation and 2 x 2 pooling. A vector
 * holds one element of LANES images. A work-group computes TC channels of some rows of y, in
 * register tiles of TC channels x TX columns. A weight is broadcast to all lanes.
 *
 * kernel clt_batch_blocked_conv(x, x_at, w, w_at, bias, bias_at, y, y_at, mask, mask_at,
 *                       n, groups, ci, ih, iw, co, oh, ow, rows)
 *   x     [B][groups * ci][ih][iw] in batch blocks
 *   w     OIHW as PyTorch's: [groups * co][ci][KY][KX]
 *   bias  [groups * co]; read only if BIAS
 *   y     [B][groups * co][oh][ow] in batch blocks; with POOL [B][groups * co][oh / 2][ow / 2]
 *   mask  uchar [B][groups * co][oh / 2][ow / 2] in batch blocks, written only if POOL: bit
 *         2 * dy + dx is set if the gradient of the pooled value flows to element (dy, dx) of the
 *         window
 *   n images; ci, co channels of a group; ih, iw, oh, ow sizes before pooling; rows: rows of y of a
 *   work-group. Any valid buffer may stand for a buffer that is not used.
 *   global size: (groups * ceil(co / TC), ceil(rows of y / rows), ceil(n / LANES)), local (1, 1, 1)
 *
 * Build options (defaults in brackets):
 *   LANES; KY, KX; SY, SX stride [1]; DY, DX dilation [1]; PY, PX padding above and on the left [0]
 *   IN0, OUT0 [f]  how x and y are stored (core/storage.clh)
 *   BIAS [0]       1: adds the bias
 *   ACT [0]        1: ReLU
 *   POOL [0]       1: average, 2: maximum, over windows of 2 x 2 with stride 2 and without padding.
 *                  An odd last row or column is not computed.
 *   TX, TC [4, 3]  register tile, columns x channels, at most 8 x 8; TX must be even with POOL. It
 *                  takes TX * TC + TC + 1 registers of LANES floats. One more than there are halves
 *                  the speed.
 *   XTAIL [0]      (columns computed) % TX; with POOL, ow / 2 * 2 columns are computed
 *   CTAIL [0]      co % TC
 *   EDGES [0]      1: every column is tested for the padding, which halves the code and suits rows
 *                  of few tiles; 0: only columns in tiles at the edges
 */
#include "core/batch_blocked/halves.clh"
#include "core/batch_blocked/stride.clh"

#ifndef BIAS
#define BIAS 0
#endif
#ifndef ACT
#define ACT 0
#endif
#ifndef POOL
#define POOL 0
#endif
#ifndef TX
#define TX 4
#endif
#ifndef TC
#define TC 3
#endif
#ifndef XTAIL
#define XTAIL 0
#endif
#ifndef CTAIL
#define CTAIL 0
#endif

#define TILE_ROWS TC
#define TILE_COLS TX
#include "core/batch_blocked/tile.clh"

#ifndef EDGES
#define EDGES 0
#endif
#define PADDED (PX > 0)
#define TAPS (KY * KX)

#if POOL
#define POOLED_ROWS 2
/* The name of the variable of channel c for the window that column t lies in. */
#define POOLED(name, c, t) POOLED_(name, c, PAIR_##t)
#define POOLED_(name, c, pair) POOLED__(name, c, pair)
#define POOLED__(name, c, pair) name##c##pair
#define PAIR_0 0
#define PAIR_1 0
#define PAIR_2 2
#define PAIR_3 2
#define PAIR_4 4
#define PAIR_5 4
#define PAIR_6 6
#define PAIR_7 6
#else
#define POOLED_ROWS 1
#endif

INLINE vecf clt_activate(vecf v)
{
#if ACT == 1
    return clt_relu(v);
#else
    return v;
#endif
}

/* Adds an element to the pooled value of its window and to the mask. `before` is the element before
 * the activation, `bit` its bit in the mask. */
INLINE void clt_pool_join(vecf *pooled, veci *mask, vecf before, int bit)
{
    const vecf v = clt_activate(before);
#if ACT == 1
    const veci flows = ~(before <= 0.0f) & bit;
#else
    const veci flows = bit;
#endif
#if POOL == 2
    /* As in PyTorch, the first of equal values is chosen, and a NaN wins. */
    const veci better = bit == 1 ? (veci)-1 : (v > *pooled) | isnan(v);
    *pooled = select(*pooled, v, better);
    *mask = select(*mask, flows, better);
#else
    *pooled = bit == 1 ? v : *pooled + v;
    *mask = bit == 1 ? flows : *mask | flows;
#endif
}

/*
 * Computes one tile of `tc` channels x `tx` columns of row oy of the output. w, bias, y and mask
 * point at the first channel. With `edge`, columns of x may lie in the padding. tc, tx and edge are
 * constants at every call, so that the compiler removes the tests on them.
 */
INLINE void clt_conv_tile(global const STORED(IN0) * x, global const float *w,
                          global const float *bias, global STORED(OUT0) * y, global uchar *mask, int ci, int ih, int iw, int co,
                          int oh, int ow, int oy, int x0, const int tc, const int tx,
                          const int edge)
{
    const int ix0 = x0 * SX - PX;
    /* DX * LANES: oh < 0 is never true, but the compiler does not know that. If it knew the step,
     * it would keep the columns that two taps share in registers, more than there are. */
    const int step = DX * LANES + (oh < 0);
#define DECLARE(c, t) vecf a##c##t;
    EACH_CELL(DECLARE)
#if POOL
#define DECLARE_POOLED(c, t)                                                                       \
    vecf p##c##t;                                                                                  \
    veci m##c##t;
    EACH_CELL(DECLARE_POOLED)
#endif
    for (int dy = 0; dy < POOLED_ROWS; dy++) {
#if BIAS
#define START(c, t)                                                                                \
    if (c < tc && t < tx)                                                                          \
        a##c##t = bias[c];
#else
#define START(c, t) a##c##t = 0.0f;
#endif
        EACH_CELL(START)
        const int iy0 = (oy * POOLED_ROWS + dy) * SY - PY;
        for (int k = 0; k < ci; k++) {
            for (int ky = 0; ky < KY; ky++) {
                const int iy = iy0 + ky * DY;
                if ((uint)iy >= (uint)ih)
                    continue;
                global const STORED(IN0) *row = x + ((k * ih + iy) * iw + ix0) * LANES;
                global const float *wk = w + (k * KY + ky) * KX;
#if KX <= 8
#pragma unroll
#endif
                for (int kx = 0; kx < KX; kx++) {
#define WEIGHT(c)                                                                                  \
    vecf w##c;                                                                                     \
    if (c < tc)                                                                                    \
        w##c = wk[ci * TAPS * c];
#define FMA(c, t)                                                                                  \
    if (c < tc)                                                                                    \
        a##c##t = fma(v##t, w##c, a##c##t);
#define COLUMN(t)                                                                                  \
    if (t < tx && (!edge || (uint)(ix0 + t * SX + kx * DX) < (uint)iw)) {                          \
        const vecf v##t = LOAD_AS(IN0, row + t * SX * LANES);                                      \
        ROWS_OF(FMA, t)                                                                            \
    }
                    EACH_ROW(WEIGHT)
                    EACH_COL(COLUMN)
                    row += step;
                    wk++;
                }
            }
        }
#if POOL
#define JOIN(c, t)                                                                                 \
    if (c < tc && t < tx)                                                                          \
        clt_pool_join(&POOLED(p, c, t), &POOLED(m, c, t), a##c##t, (dy ? 4 : 1) << (t & 1));
        EACH_CELL(JOIN)
#endif
    }
#if POOL
    const int ph = oh / 2, pw = ow / 2;
#define PUT_TILE(c, t)                                                                             \
    if (c < tc && t < tx && (t & 1) == 0) {                                                        \
        const int at = ((c * ph + oy) * pw + (x0 + t) / 2) * LANES;                                \
        STORE_AS(OUT0, (POOL == 1 ? POOLED(p, c, t) * 0.25f : POOLED(p, c, t)), y + at);           \
        STORE_BYTES(TO_BYTES(POOLED(m, c, t)), mask + at);                                                    \
    }
#else
#define PUT_TILE(c, t)                                                                             \
    if (c < tc && t < tx)                                                                          \
        STORE_AS(OUT0, clt_activate(a##c##t), y + ((c * oh + oy) * ow + x0 + t) * LANES);
#endif
    EACH_CELL(PUT_TILE)
}

/* Computes all rows of a work-group for `tc` channels. */
INLINE void clt_conv_rows(global const STORED(IN0) * x, global const float *w,
                          global const float *bias, global STORED(OUT0) * y, global uchar *mask, int ci, int ih, int iw, int co,
                          int oh, int ow, int first, int last, const int tc)
{
    const int columns = POOL ? ow / 2 * 2 : ow;
    for (int oy = first; oy < last; oy++) {
#if !PADDED
        for (int x0 = 0; x0 + TX <= columns; x0 += TX)
            clt_conv_tile(x, w, bias, y, mask, ci, ih, iw, co, oh, ow, oy, x0, tc, TX, 0);
#elif EDGES
        for (int x0 = 0; x0 + TX <= columns; x0 += TX)
            clt_conv_tile(x, w, bias, y, mask, ci, ih, iw, co, oh, ow, oy, x0, tc, TX, 1);
#else
        for (int x0 = 0; x0 + TX <= columns; x0 += TX) {
            if (x0 * SX - PX >= 0 && (x0 + TX - 1) * SX - PX + (KX - 1) * DX < iw)
                clt_conv_tile(x, w, bias, y, mask, ci, ih, iw, co, oh, ow, oy, x0, tc, TX, 0);
            else
                clt_conv_tile(x, w, bias, y, mask, ci, ih, iw, co, oh, ow, oy, x0, tc, TX, 1);
        }
#endif
#if XTAIL
        clt_conv_tile(x, w, bias, y, mask, ci, ih, iw, co, oh, ow, oy, columns - XTAIL, tc, XTAIL,
                        PADDED);
#endif
    }
}

KERNEL void clt_batch_blocked_conv(global const STORED(IN0) * x, long x_at, global const float *w,
                           long w_at, global const float *bias, long bias_at,
                           global STORED(OUT0) * y, long y_at,
                           global uchar *mask, long mask_at, int n, int groups, int ci, int ih,
                           int iw, int co, int oh, int ow, int rows)
{
    const int tiles = (co + TC - 1) / TC;
    const int group = get_global_id(0) / tiles, c0 = get_global_id(0) % tiles * TC;
    const long b = get_global_id(2);
    const int height = oh / POOLED_ROWS, width = ow / POOLED_ROWS;
    const int first = get_global_id(1) * rows, last = min(first + rows, height);
    const long out = ((b * groups + group) * co + c0) * height * width * LANES;
    x += x_at + (b * groups + group) * ci * ih * iw * LANES;
    w += w_at + (long)(group * co + c0) * ci * TAPS;
    bias += bias_at + group * co + c0;
    y += y_at + out;
    mask += mask_at + out;
#if CTAIL
    if (c0 + TC > co) {
        clt_conv_rows(x, w, bias, y, mask, ci, ih, iw, co, oh, ow, first, last, CTAIL);
        return;
    }
#endif
    clt_conv_rows(x, w, bias, y, mask, ci, ih, iw, co, oh, ow, first, last, TC);
}
