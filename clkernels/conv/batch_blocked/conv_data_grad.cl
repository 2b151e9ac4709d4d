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
 *   A row of taps takes several passes over the columns, of TW taps each. The sums of a column wait
 *   for each other, so a pass takes columns that are TW apart after each other.
 *   TX, TC [4, 1]: TX + KX - 1 is at most 16; TW [1], at most 4; XTAIL [0]: ow % TX; CTAIL [0]: ci %
 *   TC; K_BLOCK [8]. It takes (TX + KX - 1) * TC + TW * TC + 1 registers of LANES floats.
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
#ifndef TW
#define TW 1
#endif
#ifndef K_BLOCK
#define K_BLOCK 8
#endif

#define TILE_ROWS TC
#define TILE_COLS TX
#include "core/batch_blocked/tile.clh"

#define TAPS (KY * KX)
#define SPAN (TX + KX - 1)

/* Columns of g. If several passes read a column, the compiler may not keep it in a register
 * meanwhile: there are only registers for the sums. */
#if EXACT(IN0) && TW < KX
#define LOAD_G(p) (*(volatile global const vecf_anywhere *)(p))
#else
#define LOAD_G(p) LOAD_AS(IN0, p)
#endif
/* As FOR_A, for up to 8 channels of a tile. */
#define EACH_CHANNEL(n, M, p, t) EACH_CHANNEL__(n, M, p, t)
#define EACH_CHANNEL__(n, M, p, t) EACH_CHANNEL_##n(M, p, t)
#define EACH_CHANNEL_1(M, p, t) M(0, p, t)
#define EACH_CHANNEL_2(M, p, t) EACH_CHANNEL_1(M, p, t) M(1, p, t)
#define EACH_CHANNEL_3(M, p, t) EACH_CHANNEL_2(M, p, t) M(2, p, t)
#define EACH_CHANNEL_4(M, p, t) EACH_CHANNEL_3(M, p, t) M(3, p, t)
#define EACH_CHANNEL_5(M, p, t) EACH_CHANNEL_4(M, p, t) M(4, p, t)
#define EACH_CHANNEL_6(M, p, t) EACH_CHANNEL_5(M, p, t) M(5, p, t)
#define EACH_CHANNEL_7(M, p, t) EACH_CHANNEL_6(M, p, t) M(6, p, t)
#define EACH_CHANNEL_8(M, p, t) EACH_CHANNEL_7(M, p, t) M(7, p, t)
/* M for each tap of a pass. */
#if TW == 1
#define TAPS_OF_PASS(M, c, p, t) M(0, c, p, t)
#elif TW == 2
#define TAPS_OF_PASS(M, c, p, t) M(0, c, p, t) M(1, c, p, t)
#elif TW == 3
#define TAPS_OF_PASS(M, c, p, t) M(0, c, p, t) M(1, c, p, t) M(2, c, p, t)
#else
#define TAPS_OF_PASS(M, c, p, t) M(0, c, p, t) M(1, c, p, t) M(2, c, p, t) M(3, c, p, t)
#endif

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
    for (int ky = 0; ky < KY; ky++) {
        const int sy = iy + PY - ky * DY;
        const int oy = SY == 1 ? sy : sy / SY;
        if ((uint)sy >= (uint)(oh * SY) || (SY > 1 && sy % SY))
            continue;
        global const STORED(IN0) *row = g + ((k0 * oh + oy) * ow + x0) * LANES;
        global const float *wk = w + k0 * ci * TAPS + ky * KX;
        for (int k = k0; k < k1; k++, row += oh * ow * LANES, wk += ci * TAPS) {
#define WEIGHT(c, k, p)                                                                            \
    const vecf w##k##c = c < tc && p * TW + k < KX ? wk[c * TAPS + p * TW + k] : 0.0f;
#define WEIGHTS(k, p, b) FOR_C(TC, WEIGHT, k, p)
/* Tap k of pass p, and column t of g. */
#define FMA(k, c, p, t)                                                                            \
    if (c < tc && p * TW + k < KX)                                                                \
        a[c][AT(t + p * TW + k)] = fma(v, w##k##c, a[c][AT(t + p * TW + k)]);
#define FMAS(c, p, t) TAPS_OF_PASS(FMA, c, p, t)
#define COLUMN(i, f, p)                                                                            \
    if (i * TW + f < tx) {                                                                         \
        const vecf v = LOAD_G(row + (i * TW + f) * LANES);                                         \
        EACH_CHANNEL(TC, FMAS, p, (i * TW + f))                                                           \
    }
#define PHASE(f, p, b) FOR_C(TX, COLUMN, f, p)
#define PASS(p, a, b)                                                                              \
    if (p * TW < KX) {                                                                             \
        FOR_B(TW, WEIGHTS, p, 0)                                                                   \
        FOR_B(TW, PHASE, p, 0)                                                                     \
    }
            FOR_A(KX, PASS, 0, 0)
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
