/*
 * Convolution in the LANES layout: forward with bias, activation and 2 x 2 pooling, and, for
 * stride 1, the gradient of its input (a convolution with the taps reversed).
 *
 * kernel clt_lanes_conv(x, x_at, w, w_at, bias, bias_at, y, y_at, mask, mask_at,
 *                       n, groups, ci, ih, iw, co, oh, ow, rows)
 *   x     [B][groups * ci][ih][iw] in lanes: input; DATA_GRAD: gradient of the convolution's output
 *   w     OIHW as PyTorch's: [groups * co][ci][KY][KX]; DATA_GRAD: the same tensor of the forward
 *         convolution, whose O is this kernel's ci and whose I is its co: [groups * ci][co][KY][KX]
 *   bias  [groups * co]; read only if BIAS
 *   y     [B][groups * co][oh][ow] in lanes; with POOL [B][groups * co][oh / 2][ow / 2]
 *   mask  uchar [B][groups * co][oh / 2][ow / 2] in lanes, written only if POOL: bit 2 * dy + dx is
 *         set if the gradient of the pooled value flows to element (dy, dx) of the window
 *   n images; ci, co channels of a group; ih, iw, oh, ow sizes before pooling; rows: output rows
 *   (POOL: pooled rows) of a work-group. Buffers that are not used may be any valid buffer.
 *   global size: (groups * ceil(co / TC), ceil(rows of y / rows), ceil(n / LANES)), local (1, 1, 1)
 *
 * Build options (defaults in brackets): LANES; KY, KX; SY, SX stride [1]; DY, DX dilation [1];
 * PY, PX padding before [0]; BIAS [0]; ACT [0]: 1 = ReLU; POOL [0]: 1 = average, 2 = maximum, both
 * 2 x 2, stride 2, without padding, last odd row and column dropped (and not computed);
 * TX x TC [4 x 3]: register tile, columns x channels; TX must be even with POOL;
 * XTAIL [0]: (columns computed) % TX, where POOL computes ow / 2 * 2 columns; CTAIL [0]: co % TC;
 * IW, OW: iw and the columns computed as constants, for narrow padded images: skips the padding
 * exactly, where otherwise the tiles at the edges test each column.
 * DATA_GRAD [0]: for the gradient of a convolution (K, S = 1, P, D) give PY = (KY - 1) * DY - P
 * (may be negative), and x = gradient of its output, (ih, iw) = its output's size, (oh, ow) = its
 * input's size, ci = its output channels of a group, co = its input channels of a group.
 *
 * kernel clt_lanes_conv_data_grad(g, g_at, w, w_at, dx, dx_at, n, groups, ci, ih, iw, co, oh, ow,
 *                                 rows): any stride, slower
 *   g [B][groups * co][oh][ow] in lanes, w [groups * co][ci][KY][KX], dx [B][groups * ci][ih][iw]
 *   K, S, P, D as in the forward convolution; rows of dx of a work-group
 *   global size: (groups * ceil(ci / TC), ceil(ih / rows), ceil(n / LANES)), local (1, 1, 1)
 *   CTAIL = ci % TC.
 */
#include "common.clh"

#ifndef SY
#define SY 1
#endif
#ifndef SX
#define SX 1
#endif
#ifndef DY
#define DY 1
#endif
#ifndef DX
#define DX 1
#endif
#ifndef PY
#define PY 0
#endif
#ifndef PX
#define PX 0
#endif
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
#ifndef DATA_GRAD
#define DATA_GRAD 0
#endif

#define TAPS (KY * KX)

/* Where weight (output channel c of the tile, input channel k, ky, kx) lies, from the tile's w. */
#if DATA_GRAD
#define W_AT(c, k, ky, kx)                                                                         \
    (((k) * co + (c)) * TAPS + (KY - 1 - (ky)) * KX + (KX - 1 - (kx)))
#else
#define W_AT(c, k, ky, kx) (((c) * ci + (k)) * TAPS + (ky) * KX + (kx))
#endif

#if POOL
#define POOLED_ROWS 2
#else
#define POOLED_ROWS 1
#endif

/* The sums of tc channels x tx columns from (y, x0). `edge`: columns may lie in the padding. */
INLINE void clt_conv_tile(vecf acc[TC][TX], global const float *x, global const float *w, int ci,
                          int ih, int iw, int co, int y, int x0, const int tc, const int tx,
                          const int edge)
{
    const int iy0 = y * SY - PY, ix0 = x0 * SX - PX;
    for (int k = 0; k < ci; k++) {
        for (int ky = 0; ky < KY; ky++) {
            const int iy = iy0 + ky * DY;
            if ((uint)iy >= (uint)ih)
                continue;
            global const float *row = x + ((k * ih + iy) * iw + ix0) * LANES;
#pragma unroll
            for (int kx = 0; kx < KX; kx++) {
                float weight[TC];
#pragma unroll
                for (int c = 0; c < tc; c++)
                    weight[c] = w[W_AT(c, k, ky, kx)];
#pragma unroll
                for (int t = 0; t < tx; t++) {
                    const int step = t * SX + kx * DX;
                    if (!edge || (uint)(ix0 + step) < (uint)iw) {
                        const vecf v = LOAD(row + step * LANES);
#pragma unroll
                        for (int c = 0; c < tc; c++)
                            acc[c][t] = fma(v, (vecf)weight[c], acc[c][t]);
                    }
                }
            }
        }
    }
}

INLINE vecf clt_activate(vecf v)
{
#if ACT == 1
    return clt_relu(v);
#else
    return v;
#endif
}

/* Pooled values so far and the bits of their masks; row dy of the windows. */
INLINE void clt_pool_row(vecf sum[TC][(TX + 1) / 2], veci bits[TC][(TX + 1) / 2], vecf acc[TC][TX],
                         int dy, const int tc, const int tx)
{
#pragma unroll
    for (int c = 0; c < tc; c++) {
#pragma unroll
        for (int t = 0; t < tx; t++) {
            const int bit = 1 << (2 * dy + (t & 1));
            const vecf v = clt_activate(acc[c][t]);
            vecf *s = &sum[c][t / 2];
            veci *m = &bits[c][t / 2];
#if ACT == 1
            const veci flows = ~(acc[c][t] <= 0.0f) & bit;
#else
            const veci flows = bit;
#endif
#if POOL == 2
            /* The first of equal values, and NaN, as PyTorch. */
            const veci better = bit == 1 ? (veci)-1 : (v > *s) | isnan(v);
            *s = select(*s, v, better);
            *m = select(*m, flows, better);
#else
            *s = bit == 1 ? v : *s + v;
            *m = bit == 1 ? flows : *m | flows;
#endif
        }
    }
}

/* One tile of `tc` channels x `tx` computed columns of row y of the output. */
INLINE void clt_conv_output(global const float *x, global const float *w, global const float *bias,
                            global float *y, global uchar *mask, int ci, int ih, int iw, int co,
                            int oh, int ow, int oy, int x0, const int tc, const int tx,
                            const int edge)
{
    vecf acc[TC][TX];
#if POOL
    vecf sum[TC][(TX + 1) / 2];
    veci bits[TC][(TX + 1) / 2];
#endif
    for (int dy = 0; dy < POOLED_ROWS; dy++) {
#pragma unroll
        for (int c = 0; c < tc; c++) {
#pragma unroll
            for (int t = 0; t < tx; t++)
                acc[c][t] = BIAS ? (vecf)bias[c] : (vecf)0.0f;
        }
        clt_conv_tile(acc, x, w, ci, ih, iw, co, oy * POOLED_ROWS + dy, x0, tc, tx, edge);
#if POOL
        clt_pool_row(sum, bits, acc, dy, tc, tx);
#endif
    }
#if POOL
    const int ph = oh / 2, pw = ow / 2;
#pragma unroll
    for (int c = 0; c < tc; c++) {
#pragma unroll
        for (int t = 0; t < tx / 2; t++) {
            const int at = ((c * ph + oy) * pw + x0 / 2 + t) * LANES;
            STORE(POOL == 1 ? sum[c][t] * 0.25f : sum[c][t], y + at);
            STORE(TO_BYTES(bits[c][t]), mask + at);
        }
    }
#else
#pragma unroll
    for (int c = 0; c < tc; c++) {
#pragma unroll
        for (int t = 0; t < tx; t++)
            STORE(clt_activate(acc[c][t]), y + ((c * oh + oy) * ow + x0 + t) * LANES);
    }
#endif
}

/* All rows of a work-group for `tc` channels. */
INLINE void clt_conv_rows(global const float *x, global const float *w, global const float *bias,
                          global float *y, global uchar *mask, int ci, int ih, int iw, int co,
                          int oh, int ow, int first, int last, const int tc)
{
#ifdef OW
    const int columns = OW;
#else
    const int columns = POOL ? ow / 2 * 2 : ow;
#endif
    for (int oy = first; oy < last; oy++) {
#ifdef OW
#pragma unroll
        for (int x0 = 0; x0 + TX <= columns; x0 += TX)
            clt_conv_output(x, w, bias, y, mask, ci, ih, iw, co, oh, ow, oy, x0, tc, TX, 1);
#else
        for (int x0 = 0; x0 + TX <= columns; x0 += TX) {
            if (x0 * SX - PX >= 0 && (x0 + TX - 1) * SX - PX + (KX - 1) * DX < iw)
                clt_conv_output(x, w, bias, y, mask, ci, ih, iw, co, oh, ow, oy, x0, tc, TX, 0);
            else
                clt_conv_output(x, w, bias, y, mask, ci, ih, iw, co, oh, ow, oy, x0, tc, TX, 1);
        }
#endif
#if XTAIL
        clt_conv_output(x, w, bias, y, mask, ci, ih, iw, co, oh, ow, oy, columns - XTAIL, tc, XTAIL,
                        1);
#endif
    }
}

KERNEL void clt_lanes_conv(global const float *x, long x_at, global const float *w, long w_at,
                           global const float *bias, long bias_at, global float *y, long y_at,
                           global uchar *mask, long mask_at, int n, int groups, int ci, int ih,
                           int iw_any, int co, int oh, int ow_any, int rows)
{
#ifdef IW
    const int iw = IW;
#else
    const int iw = iw_any;
#endif
#if defined(OW) && !POOL
    const int ow = OW;
#else
    const int ow = ow_any;
#endif
    const int tiles = (co + TC - 1) / TC;
    const int group = get_global_id(0) / tiles, c0 = get_global_id(0) % tiles * TC;
    const long b = get_global_id(2);
    const int height = oh / POOLED_ROWS, width = ow / POOLED_ROWS;
    const int first = get_global_id(1) * rows, last = min(first + rows, height);
    const long out = ((b * groups + group) * co + c0) * height * width * LANES;
    x += x_at + (b * groups + group) * ci * ih * iw * LANES;
    w += w_at + (long)group * ci * co * TAPS + W_AT(c0, 0, 0, 0) - W_AT(0, 0, 0, 0);
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

/* The gradient of `tc` input channels at one element. */
INLINE void clt_data_grad_at(global const float *g, global const float *w, global float *dx, int ci,
                             int ih, int iw, int co, int oh, int ow, int iy, int ix, const int tc)
{
    vecf acc[TC];
#pragma unroll
    for (int c = 0; c < tc; c++)
        acc[c] = 0.0f;
    for (int ky = 0; ky < KY; ky++) {
        const int y = iy + PY - ky * DY;
        if (y < 0 || y % SY || y / SY >= oh)
            continue;
        for (int kx = 0; kx < KX; kx++) {
            const int x = ix + PX - kx * DX;
            if (x < 0 || x % SX || x / SX >= ow)
                continue;
            for (int k = 0; k < co; k++) {
                const vecf v = LOAD(g + ((k * oh + y / SY) * ow + x / SX) * LANES);
#pragma unroll
                for (int c = 0; c < tc; c++)
                    acc[c] = fma(v, (vecf)w[((k * ci + c) * KY + ky) * KX + kx], acc[c]);
            }
        }
    }
#pragma unroll
    for (int c = 0; c < tc; c++)
        STORE(acc[c], dx + ((c * ih + iy) * iw + ix) * LANES);
}

KERNEL void clt_lanes_conv_data_grad(global const float *g, long g_at, global const float *w,
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
    for (int iy = first; iy < last; iy++) {
        for (int ix = 0; ix < iw; ix++) {
#if CTAIL
            if (c0 + TC > ci) {
                clt_data_grad_at(g, w, dx, ci, ih, iw, co, oh, ow, iy, ix, CTAIL);
                continue;
            }
#endif
            clt_data_grad_at(g, w, dx, ci, ih, iw, co, oh, ow, iy, ix, TC);
        }
    }
}
