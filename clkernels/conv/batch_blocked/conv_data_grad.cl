/*
 * Gradient of the input of a convolution in the batch-blocked layout.
 *
 * Both kernels take (g, g_at, w, w_at, dx, dx_at, n, groups, ci, ih, iw, co, oh, ow, rows):
 *   g   [B][groups * co][oh][ow] in batch blocks: gradient of the convolution's output. If 2 x 2
 *       pooling dropped an odd last row or column of the output, oh and ow may be the sizes without
 *       it.
 *   w   OIHW as PyTorch's: [groups * co][ci][KY][KX]
 *   dx  [B][groups * ci][ih][iw] in batch blocks
 *   n images; ci, co channels of a group; rows: how many rows of dx a work-group computes, of TC
 *   channels
 *   global size: (groups * ceil(ci / TC), ceil(ih / rows), ceil(n / LANES)), local (1, 1, 1)
 * Build options as in conv.cl: LANES; KY, KX; PY, PX [0]; DY, DX [1]; SY, SX [1]; IN0 [f]: how g is
 * stored (core/storage.clh).
 *
 * kernel clt_batch_blocked_conv_data_grad: SX = DX = 1 (SY and DY may be any)
 *   Scatters TX columns of g into TX + KX - 1 columns of TC channels of dx in registers, so the
 *   inner loop needs no test on columns. After K_BLOCK channels of g the sums are added to dx.
 *   TX, TC [4, 1]: TX + KX - 1 is at most 16; XTAIL [0]: ow % TX; CTAIL [0]: ci % TC; K_BLOCK [8].
 *   It takes (TX + KX - 1) * TC + TC + 2 registers of LANES floats.
 *
 * kernel clt_batch_blocked_conv_data_grad_any: any stride and dilation
 *   Slower: gathers two columns of TC channels of dx at a time. They read neighbouring columns of
 *   g. Copies the weights of a few channels of g, because they lie far apart in w. CTAIL [0]: ci %
 *   TC.
 */
#include "core/batch_blocked/halves.clh"
#include "core/one_kernel.clh"
#include "core/batch_blocked/stride.clh"

#ifndef TX
#define TX 4
#endif
#ifndef TC
#define TC 1
#endif
#ifndef XTAIL
#define XTAIL 0
#endif
#ifndef CTAIL
#define CTAIL 0
#endif
#ifndef K_BLOCK
#define K_BLOCK 8
#endif

#define TILE_ROWS TC
#define TILE_COLS TX
#include "core/batch_blocked/tile.clh"

#define TAPS (KY * KX)
#define SPAN (TX + KX - 1)

#if SX == 1 && DX == 1 && SPAN <= 16 && CLT_HAS(clt_batch_blocked_conv_data_grad)

/* Adds the products of channels k0 .. k1 - 1 and columns x0 .. x0 + tx - 1 of g to row iy of dx,
 * for the `tc` channels that begin at `dx` and `w`. Columns of dx that were not written yet (k0 is
 * 0) are stored instead. tc and tx are constants at every call. */
INLINE void clt_scatter(global const STORED(IN0) * g, global const float *w, global float *dx, int ci,
                        int ih, int iw, int oh, int ow, int iy, int x0, int k0, int k1,
                        const int tc, const int tx)
{
    vecf a[TC][SPAN];
#define CLEAR(j, c, b)                                                                             \
    if (j < SPAN)                                                                                  \
        a[c][AT(j)] = 0.0f;
#define CLEAR_ROW(c, a, b) FOR_B(16, CLEAR, c, 0)
#define AT(j) (j < SPAN ? j : 0)
    FOR_A(TC, CLEAR_ROW, 0, 0)
    for (int k = k0; k < k1; k++) {
        for (int ky = 0; ky < KY; ky++) {
            const int sy = iy + PY - ky * DY;
            const int oy = SY == 1 ? sy : sy / SY;
            if ((uint)sy >= (uint)(oh * SY) || (SY > 1 && sy % SY))
                continue;
            global const STORED(IN0) *row = g + ((k * oh + oy) * ow + x0) * LANES;
            global const float *wk = w + k * ci * TAPS + ky * KX;
#define COLUMN(t, a, b)                                                                            \
    vecf v##t;                                                                                     \
    if (t < tx)                                                                                    \
        v##t = LOAD_AS(IN0, row + t * LANES);
#define FMA(t, k, c)                                                                               \
    if (t < tx)                                                                                    \
        a[c][t + k] = fma(v##t, weight, a[c][t + k]);
#define CHANNEL(c, k, b)                                                                           \
    if (c < tc) {                                                                                  \
        const vecf weight = wk[c * TAPS + k];                                                      \
        FOR_C(TX, FMA, k, c)                                                                       \
    }
#define TAP(k, a, b) FOR_B(TC, CHANNEL, k, 0)
            FOR_A(TX, COLUMN, 0, 0)
            FOR_A(KX, TAP, 0, 0)
        }
    }
    const int left = x0 - PX;
    const int is_new = k0 == 0 ? (x0 == 0 ? 0 : KX - 1) : SPAN;
#define PUT_AT(j, c, b)                                                                            \
    if (j < tx + KX - 1 && (uint)(left + j) < (uint)iw) {                                          \
        global float *to = dx + ((c * ih + iy) * iw + left + j) * LANES;                           \
        STORE(j >= is_new ? a[c][AT(j)] : a[c][AT(j)] + LOAD(to), to);                             \
    }
#define PUT_ROW(c, a, b)                                                                           \
    if (c < tc) {                                                                                  \
        FOR_B(16, PUT_AT, c, 0)                                                                    \
    }
    FOR_A(TC, PUT_ROW, 0, 0)
}

/* Prefetches the weights of channels k0 .. k1 - 1 of g. The channels lie far apart, so the
 * processor does not fetch them by itself. */
INLINE void clt_fetch_weights(global const float *w, int ci, int k0, int k1, const int tc)
{
    enum { LINE = 16 };
    for (int k = k0; k < k1; k++) {
        global const float *wk = w + k * ci * TAPS;
        for (int i = 0; i < tc * TAPS; i += LINE)
            PREFETCH(wk + i);
        PREFETCH(wk + tc * TAPS - 1);
    }
}

/* Computes all rows of a work-group for `tc` channels. */
INLINE void clt_scatter_rows(global const STORED(IN0) * g, global const float *w, global float *dx, int ci,
                             int ih, int iw, int co, int oh, int ow, int first, int last,
                             const int tc)
{
    /* Columns from here on are reached by no column of g: their gradient is 0. */
    const int reach = ow + KX - 1 - PX;
    for (int iy = first; iy < last; iy++) {
        for (int ix = max(reach, 0); ix < iw; ix++) {
#define CLEAR_COLUMN(c, a, b)                                                                      \
    if (c < tc)                                                                                    \
        STORE((vecf)0.0f, dx + ((c * ih + iy) * iw + ix) * LANES);
            FOR_A(TC, CLEAR_COLUMN, 0, 0)
        }
    }
    for (int k0 = 0; k0 < co; k0 += K_BLOCK) {
        const int k1 = min(k0 + K_BLOCK, co);
        clt_fetch_weights(w, ci, k1, min(k1 + K_BLOCK, co), tc);
        for (int iy = first; iy < last; iy++) {
            for (int x0 = 0; x0 + TX <= ow; x0 += TX)
                clt_scatter(g, w, dx, ci, ih, iw, oh, ow, iy, x0, k0, k1, tc, TX);
#if XTAIL
            clt_scatter(g, w, dx, ci, ih, iw, oh, ow, iy, ow - XTAIL, k0, k1, tc, XTAIL);
#endif
        }
    }
}

KERNEL void clt_batch_blocked_conv_data_grad(global const STORED(IN0) * g, long g_at, global const float *w,
                                     long w_at, global float *dx, long dx_at, int n, int groups,
                                     int ci, int ih, int iw, int co, int oh, int ow, int rows)
{
    const int tiles = (ci + TC - 1) / TC;
    const int group = get_global_id(0) / tiles, c0 = get_global_id(0) % tiles * TC;
    const long b = get_global_id(2);
    const int first = get_global_id(1) * rows, last = min(first + rows, ih);
    g += g_at + (b * groups + group) * co * oh * ow * LANES;
    w += w_at + ((long)group * co * ci + c0) * TAPS;
    dx += dx_at + ((b * groups + group) * ci + c0) * ih * iw * LANES;
#if CTAIL
    if (c0 + TC > ci) {
        clt_scatter_rows(g, w, dx, ci, ih, iw, co, oh, ow, first, last, CTAIL);
        return;
    }
#endif
    clt_scatter_rows(g, w, dx, ci, ih, iw, co, oh, ow, first, last, TC);
}

#endif

#if CLT_HAS(clt_batch_blocked_conv_data_grad_any)

/* Channels of g whose weights are copied together. */
enum { COPIED = 2048 / (TAPS * TC) < 4 ? 4 : 2048 / (TAPS * TC) };

/* Adds the products of channels k0 .. k1 - 1 of g to row iy of dx in columns ix and ix + SX, for
 * `tc` channels. If k0 is 0, stores them. `copy` has the weights [TAPS][COPIED][TC] from channel k0
 * on. */
INLINE void clt_data_grad_pair(global const STORED(IN0) * g, private const float *copy,
                               global float *dx, int ih, int iw, int oh, int ow, int iy, int ix,
                               int k0, int k1, const int tc)
{
#define DECLARE_GRAD(c) vecf d##c = 0.0f, e##c = 0.0f;
    EACH_ROW(DECLARE_GRAD)
    for (int ky = 0; ky < KY; ky++) {
        const int y = iy + PY - ky * DY;
        if (y < 0 || y % SY || y / SY >= oh)
            continue;
        for (int kx = 0; kx < KX; kx++) {
            const int from = ix + PX - kx * DX;
            if (from % SX)
                continue;
            const int x = from / SX, first = x >= 0 && x < ow, second = x >= -1 && x + 1 < ow;
            private const float *weight = copy + (ky * KX + kx) * COPIED * TC;
            global const STORED(IN0) *v = g + ((k0 * oh + y / SY) * ow + x) * LANES;
#define ADD_FIRST(c)                                                                               \
    if (c < tc)                                                                                    \
        d##c = fma(one, (vecf)weight[c], d##c);
#define ADD_SECOND(c)                                                                              \
    if (c < tc)                                                                                    \
        e##c = fma(two, (vecf)weight[c], e##c);
#define ADD_BOTH(c) ADD_FIRST(c) ADD_SECOND(c)
            if (first && second)
                for (int k = k0; k < k1; k++, weight += TC, v += oh * ow * LANES) {
                    const vecf one = LOAD_AS(IN0, v), two = LOAD_AS(IN0, v + LANES);
                    EACH_ROW(ADD_BOTH)
                }
            else if (first)
                for (int k = k0; k < k1; k++, weight += TC, v += oh * ow * LANES) {
                    const vecf one = LOAD_AS(IN0, v);
                    EACH_ROW(ADD_FIRST)
                }
            else if (second)
                for (int k = k0; k < k1; k++, weight += TC, v += oh * ow * LANES) {
                    const vecf two = LOAD_AS(IN0, v + LANES);
                    EACH_ROW(ADD_SECOND)
                }
        }
    }
#define PUT_GRAD(c)                                                                                \
    if (c < tc) {                                                                                  \
        global float *to = dx + ((c * ih + iy) * iw + ix) * LANES;                                 \
        STORE(k0 ? LOAD(to) + d##c : d##c, to);                                                    \
        if (ix + SX < iw)                                                                          \
            STORE(k0 ? LOAD(to + SX * LANES) + e##c : e##c, to + SX * LANES);                      \
    }
    EACH_ROW(PUT_GRAD)
}

/* Computes the rows of a work-group for `tc` channels. */
INLINE void clt_data_grad_rows(global const STORED(IN0) * g, global const float *w,
                               private float *copy, global float *dx, int ci, int ih, int iw,
                               int co, int oh, int ow, int first, int last, const int tc)
{
    for (int k0 = 0; k0 < co; k0 += COPIED) {
        const int k1 = min(k0 + COPIED, co);
        for (int k = k0; k < k1; k++)
            for (int c = 0; c < tc; c++)
                for (int t = 0; t < TAPS; t++)
                    copy[(t * COPIED + k - k0) * TC + c] = w[(k * ci + c) * TAPS + t];
        for (int iy = first; iy < last; iy++)
            for (int phase = 0; phase < SX; phase++)
                for (int ix = phase; ix < iw; ix += 2 * SX)
                    clt_data_grad_pair(g, copy, dx, ih, iw, oh, ow, iy, ix, k0, k1, tc);
    }
}

KERNEL void clt_batch_blocked_conv_data_grad_any(global const STORED(IN0) * g, long g_at, global const float *w,
                                         long w_at, global float *dx, long dx_at, int n,
                                         int groups, int ci, int ih, int iw, int co, int oh,
                                         int ow, int rows)
{
    const int tiles = (ci + TC - 1) / TC;
    const int group = get_global_id(0) / tiles, c0 = get_global_id(0) % tiles * TC;
    const long b = get_global_id(2);
    const int first = get_global_id(1) * rows, last = min(first + rows, ih);
    g += g_at + (b * groups + group) * co * oh * ow * LANES;
    w += w_at + ((long)group * co * ci + c0) * TAPS;
    dx += dx_at + ((b * groups + group) * ci + c0) * ih * iw * LANES;
    float copy[TAPS * COPIED * TC];
#if CTAIL
    if (c0 + TC > ci) {
        clt_data_grad_rows(g, w, copy, dx, ci, ih, iw, co, oh, ow, first, last, CTAIL);
        return;
    }
#endif
    clt_data_grad_rows(g, w, copy, dx, ci, ih, iw, co, oh, ow, first, last, TC);
}
#endif
