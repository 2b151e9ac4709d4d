/*
 * Pooling in the batch-blocked layout, on CPUs: x, dx are [planes, ih, iw] and y, dy
 * [planes, oh, ow]. Each element is a vector of LANES samples; planes = ceil(n / LANES) * channels.
 * All work-groups have one work-item, which computes one plane. Global size: (planes, 1, 1).
 *
 * clt_batch_blocked_avg_pool(x, y, SHAPE)
 * clt_batch_blocked_avg_pool_grad(dy, dx, SHAPE)
 * clt_batch_blocked_max_pool(x, y, SHAPE)
 * clt_batch_blocked_max_pool_grad(x, dy, dx, SHAPE)
 *   SHAPE = ih, iw, oh, ow, kh, kw, sy, sx, py, px, dil_y, dil_x, count_pad. With count_pad, the
 *   mean counts padding too, but not what lies beyond the padded image, where ceil mode may place a
 *   part of a window. The maximum is the first of equal elements, and NaN is larger than every
 *   number.
 * clt_batch_blocked_unpool(g, mask, dz, oh, ow, scale)
 *   The gradient in front of 2 x 2 pooling: dz [planes, oh, ow] = scale * g where the mask has the
 *   element's bit, else 0. g and mask are [planes, oh / 2, ow / 2]; the kernels of
 *   conv/batch_blocked/conv.cl write the mask. `scale` is 0.25 for means and 1 for maxima. An odd
 *   last row or column becomes 0; pass even sizes to leave it out of dz.
 *
 * Overlapping windows of gradients add up in dx in memory, so dx must be f32 then. Build option:
 * LANES.
 */
#include "core/batch_blocked/halves.clh"
#include "core/one_kernel.clh"

#define SHAPE                                                                                      \
    int ih, int iw, int oh, int ow, int kh, int kw, int sy, int sx, int py, int px, int dil_y,     \
        int dil_x, int count_pad

/* The factor from sum to mean of the window that starts at (y, x). */
INLINE float clt_window_factor(int y, int x, int ih, int iw, int kh, int kw, int py, int px,
                               int count_pad)
{
    const int y_end = min(y + kh, ih + py), x_end = min(x + kw, iw + px);
    const int all = (y_end - y) * (x_end - x);
    const int inside = (min(y_end, ih) - max(y, 0)) * (min(x_end, iw) - max(x, 0));
    return 1.0f / (float)(count_pad ? all : inside);
}

INLINE void clt_clear_plane(global STORED(OUT0) *x, int count)
{
    for (int i = 0; i < count; i++)
        STORE_AS(OUT0, (vecf)0.0f, x + i * LANES);
}

/* Whether windows neither overlap nor leave gaps, without padding. Then each element of the
 * gradient is written once, and only the margins that no window covers are cleared. */
INLINE bool clt_side_by_side(int kh, int kw, int sy, int sx, int py, int px, int dil_y, int dil_x)
{
    return sy == kh && sx == kw && py == 0 && px == 0 && dil_y == 1 && dil_x == 1;
}

INLINE void clt_clear_margins(global STORED(OUT0) *dx, int ih, int iw, int covered_y, int covered_x)
{
    for (int y = 0; y < covered_y && covered_x < iw; y++)
        clt_clear_plane(dx + (y * iw + covered_x) * LANES, iw - covered_x);
    if (covered_y < ih)
        clt_clear_plane(dx + covered_y * iw * LANES, (ih - covered_y) * iw);
}

/* Gradient of means for windows that neither overlap nor leave gaps. */
INLINE void clt_avg_grad_disjoint(global const STORED(IN0) *dy, global STORED(OUT0) *dx, int ih, int iw, int oh,
                               int ow, int kh, int kw, int count_pad)
{
    clt_clear_margins(dx, ih, iw, min(oh * kh, ih), min(ow * kw, iw));
    for (int oy = 0; oy < oh; oy++) {
        for (int ox = 0; ox < ow; ox++, dy += LANES) {
            const int y0 = oy * kh, x0 = ox * kw;
            const vecf share =
                LOAD_AS(IN0, dy) * clt_window_factor(y0, x0, ih, iw, kh, kw, 0, 0, count_pad);
            PREFETCH(dy + AHEAD);
            for (int ky = 0; ky < kh && y0 + ky < ih; ky++) {
                for (int kx = 0; kx < kw && x0 + kx < iw; kx++) {
                    global STORED(OUT0) *to = dx + ((y0 + ky) * iw + x0 + kx) * LANES;
                    PREFETCH(to + AHEAD);
                    STORE_AS(OUT0, share, to);
                }
            }
        }
    }
}

INLINE vecf clt_inner_sum(global const STORED(IN0) *x, int iw, int kh, int kw)
{
    vecf sum = 0.0f;
#pragma unroll
    for (int ky = 0; ky < kh; ky++) {
#pragma unroll
        for (int kx = 0; kx < kw; kx++) {
            sum += LOAD_AS(IN0, x + (ky * iw + kx) * LANES);
            PREFETCH(x + (ky * iw + kx) * LANES + AHEAD);
        }
    }
    return sum;
}

/* Computes a plane. A window size that the caller passes as a literal unrolls the inner loops. */
INLINE void clt_mean_plane(global const STORED(IN0) *x, global STORED(OUT0) *y, int ih, int iw, int oh, int ow,
                           int kh, int kw, int sy, int sx, int py, int px, int count_pad)
{
    for (int oy = 0; oy < oh; oy++) {
        const int y0 = oy * sy - py;
        const bool inner_row = y0 >= 0 && y0 + kh <= ih;
        for (int ox = 0; ox < ow; ox++, y += LANES) {
            const int x0 = ox * sx - px;
            vecf sum = 0.0f;
            if (inner_row && x0 >= 0 && x0 + kw <= iw) {
                STORE_AS(OUT0, clt_inner_sum(x + (y0 * iw + x0) * LANES, iw, kh, kw) / (float)(kh * kw), y);
                continue;
            }
            for (int iy = max(y0, 0); iy < min(y0 + kh, ih); iy++)
                for (int ix = max(x0, 0); ix < min(x0 + kw, iw); ix++)
                    sum += LOAD_AS(IN0, x + (iy * iw + ix) * LANES);
            STORE_AS(OUT0, sum * clt_window_factor(y0, x0, ih, iw, kh, kw, py, px, count_pad), y);
        }
    }
}

#if CLT_HAS(clt_batch_blocked_avg_pool)
KERNEL void clt_batch_blocked_avg_pool(global const STORED(IN0) *x, long x_at, global STORED(OUT0) *y, long y_at, SHAPE)
{
    const long plane = get_global_id(0);
    x += x_at + plane * ih * iw * LANES;
    y += y_at + plane * oh * ow * LANES;
    if (kh == 2 && kw == 2)
        clt_mean_plane(x, y, ih, iw, oh, ow, 2, 2, sy, sx, py, px, count_pad);
    else if (kh == 3 && kw == 3)
        clt_mean_plane(x, y, ih, iw, oh, ow, 3, 3, sy, sx, py, px, count_pad);
    else
        clt_mean_plane(x, y, ih, iw, oh, ow, kh, kw, sy, sx, py, px, count_pad);
}
#endif

#if CLT_HAS(clt_batch_blocked_avg_pool_grad)
KERNEL void clt_batch_blocked_avg_pool_grad(global const STORED(IN0) *dy, long dy_at, global STORED(OUT0) *dx,
                                    long dx_at, SHAPE)
{
    const long plane = get_global_id(0);
    dy += dy_at + plane * oh * ow * LANES;
    dx += dx_at + plane * ih * iw * LANES;
    if (clt_side_by_side(kh, kw, sy, sx, py, px, dil_y, dil_x)) {
        if (kh == 2 && kw == 2)
            clt_avg_grad_disjoint(dy, dx, ih, iw, oh, ow, 2, 2, count_pad);
        else
            clt_avg_grad_disjoint(dy, dx, ih, iw, oh, ow, kh, kw, count_pad);
        return;
    }
    clt_clear_plane(dx, ih * iw);
    for (int oy = 0; oy < oh; oy++) {
        for (int ox = 0; ox < ow; ox++) {
            const int y0 = oy * sy - py, x0 = ox * sx - px;
            const vecf share = LOAD_AS(IN0, dy + (oy * ow + ox) * LANES) *
                               clt_window_factor(y0, x0, ih, iw, kh, kw, py, px, count_pad);
            for (int iy = max(y0, 0); iy < min(y0 + kh, ih); iy++) {
                for (int ix = max(x0, 0); ix < min(x0 + kw, iw); ix++) {
                    global STORED(OUT0) *to = dx + (iy * iw + ix) * LANES;
                    STORE_AS(OUT0, LOAD_AS(OUT0, to) + share, to);
                }
            }
        }
    }
}
#endif

/* The maximum of the window that starts at (y0, x0), and its position in each lane. */
INLINE vecf clt_window_max(global const STORED(IN0) *x, int y0, int x0, int ih, int iw, int kh, int kw,
                           int dil_y, int dil_x, veci *at)
{
    vecf best = -INFINITY;
    veci where = -1;
    for (int ky = 0; ky < kh; ky++) {
        const int iy = y0 + ky * dil_y;
        if (iy < 0 || iy >= ih)
            continue;
        for (int kx = 0; kx < kw; kx++) {
            const int ix = x0 + kx * dil_x;
            if (ix < 0 || ix >= iw)
                continue;
            const vecf v = LOAD_AS(IN0, x + (iy * iw + ix) * LANES);
            const veci better = where < 0 | v > best | isnan(v);
            best = select(best, v, better);
            where = select(where, (veci)(iy * iw + ix), better);
        }
    }
    *at = where;
    return best;
}

/* The maximum of a window that lies within the image. */
INLINE vecf clt_inner_max(global const STORED(IN0) *x, int iw, int kh, int kw, int dil_y, int dil_x)
{
    vecf best = LOAD_AS(IN0, x);
#pragma unroll
    for (int ky = 0; ky < kh; ky++) {
#pragma unroll
        for (int kx = 0; kx < kw; kx++) {
            global const STORED(IN0) *from = x + (ky * dil_y * iw + kx * dil_x) * LANES;
            const vecf v = LOAD_AS(IN0, from);
            PREFETCH(from + AHEAD);
            if (ky || kx)
                best = select(best, v, v > best | isnan(v));
        }
    }
    return best;
}

/* Computes a plane. A window size that the caller passes as a literal unrolls the inner loops. */
INLINE void clt_max_plane(global const STORED(IN0) *x, global STORED(OUT0) *y, int ih, int iw, int oh, int ow,
                          int kh, int kw, int sy, int sx, int py, int px, int dil_y, int dil_x)
{
    for (int oy = 0; oy < oh; oy++) {
        const int y0 = oy * sy - py;
        const bool inner_row = y0 >= 0 && y0 + (kh - 1) * dil_y < ih;
        for (int ox = 0; ox < ow; ox++, y += LANES) {
            const int x0 = ox * sx - px;
            veci at;
            if (inner_row && x0 >= 0 && x0 + (kw - 1) * dil_x < iw)
                STORE_AS(OUT0, clt_inner_max(x + (y0 * iw + x0) * LANES, iw, kh, kw, dil_y, dil_x), y);
            else
                STORE_AS(OUT0, clt_window_max(x, y0, x0, ih, iw, kh, kw, dil_y, dil_x, &at), y);
        }
    }
}

#if CLT_HAS(clt_batch_blocked_max_pool)
KERNEL void clt_batch_blocked_max_pool(global const STORED(IN0) *x, long x_at, global STORED(OUT0) *y, long y_at, SHAPE)
{
    const long plane = get_global_id(0);
    x += x_at + plane * ih * iw * LANES;
    y += y_at + plane * oh * ow * LANES;
    if (kh == 2 && kw == 2 && dil_y == 1 && dil_x == 1)
        clt_max_plane(x, y, ih, iw, oh, ow, 2, 2, sy, sx, py, px, 1, 1);
    else if (kh == 3 && kw == 3 && dil_y == 1 && dil_x == 1)
        clt_max_plane(x, y, ih, iw, oh, ow, 3, 3, sy, sx, py, px, 1, 1);
    else
        clt_max_plane(x, y, ih, iw, oh, ow, kh, kw, sy, sx, py, px, dil_y, dil_x);
}
#endif

#if CLT_HAS(clt_batch_blocked_max_pool_grad)
/* Gradient of maxima for windows that neither overlap nor leave gaps: finds each maximum again, and
 * writes dy to its position and 0 to the others. */
INLINE void clt_max_grad_disjoint(global const STORED(IN0) *x, global const STORED(IN1) *dy, global STORED(OUT0) *dx,
                               int ih, int iw, int oh, int ow, int kh, int kw)
{
    clt_clear_margins(dx, ih, iw, min(oh * kh, ih), min(ow * kw, iw));
    for (int oy = 0; oy < oh; oy++) {
        for (int ox = 0; ox < ow; ox++, dy += LANES) {
            const int first = (oy * kh * iw + ox * kw) * LANES;
            const int height = min(kh, ih - oy * kh), width = min(kw, iw - ox * kw);
            vecf best = LOAD_AS(IN0, x + first);
            veci where = first;
            for (int ky = 0; ky < kh && ky < height; ky++) {
                for (int kx = 0; kx < kw && kx < width; kx++) {
                    const int at = first + (ky * iw + kx) * LANES;
                    const vecf v = LOAD_AS(IN0, x + at);
                    const veci better = v > best | isnan(v);
                    PREFETCH(x + at + AHEAD);
                    best = select(best, v, better);
                    where = select(where, (veci)at, better);
                }
            }
            const vecf g = LOAD_AS(IN1, dy);
            PREFETCH(dy + AHEAD);
            for (int ky = 0; ky < kh && ky < height; ky++) {
                for (int kx = 0; kx < kw && kx < width; kx++) {
                    const int at = first + (ky * iw + kx) * LANES;
                    PREFETCH(dx + at + AHEAD);
                    STORE_AS(OUT0, select((vecf)0.0f, g, where == at), dx + at);
                }
            }
        }
    }
}

KERNEL void clt_batch_blocked_max_pool_grad(global const STORED(IN0) *x, long x_at, global const STORED(IN1) *dy,
                                    long dy_at, global STORED(OUT0) *dx, long dx_at, SHAPE)
{
    const long plane = get_global_id(0);
    x += x_at + plane * ih * iw * LANES;
    dy += dy_at + plane * oh * ow * LANES;
    dx += dx_at + plane * ih * iw * LANES;
    if (clt_side_by_side(kh, kw, sy, sx, py, px, dil_y, dil_x)) {
        if (kh == 2 && kw == 2)
            clt_max_grad_disjoint(x, dy, dx, ih, iw, oh, ow, 2, 2);
        else
            clt_max_grad_disjoint(x, dy, dx, ih, iw, oh, ow, kh, kw);
        return;
    }
    clt_clear_plane(dx, ih * iw);
    for (int oy = 0; oy < oh; oy++) {
        for (int ox = 0; ox < ow; ox++) {
            const int y0 = oy * sy - py, x0 = ox * sx - px;
            veci at;
            clt_window_max(x, y0, x0, ih, iw, kh, kw, dil_y, dil_x, &at);
            const vecf g = LOAD_AS(IN1, dy + (oy * ow + ox) * LANES);
            for (int ky = 0; ky < kh; ky++) {
                const int iy = y0 + ky * dil_y;
                for (int kx = 0; kx < kw && iy >= 0 && iy < ih; kx++) {
                    const int ix = x0 + kx * dil_x;
                    if (ix < 0 || ix >= iw)
                        continue;
                    global STORED(OUT0) *to = dx + (iy * iw + ix) * LANES;
                    const vecf before = LOAD_AS(OUT0, to);
                    STORE_AS(OUT0, select(before, before + g, at == iy * iw + ix), to);
                }
            }
        }
    }
}
#endif

#if CLT_HAS(clt_batch_blocked_unpool)
KERNEL void clt_batch_blocked_unpool(global const STORED(IN0) *g, long g_at, global const uchar *mask,
                             long mask_at, global STORED(OUT0) *dz, long dz_at, int oh, int ow,
                             float scale)
{
    const long plane = get_global_id(0);
    const int ph = oh / 2, pw = ow / 2;
    g += g_at + plane * ph * pw * LANES;
    mask += mask_at + plane * ph * pw * LANES;
    dz += dz_at + plane * oh * ow * LANES;
    for (int y = 0; y < ph; y++) {
        global STORED(OUT0) *to = dz + 2 * y * ow * LANES;
        for (int x = 0; x < pw; x++) {
            const int at = (y * pw + x) * LANES;
            const vecf v = LOAD_AS(IN0, g + at) * scale;
            const veci bits = TO_INTS(LOAD_BYTES(mask + at));
            STORE_AS(OUT0, select((vecf)0.0f, v, (bits & 1) != 0), to);
            STORE_AS(OUT0, select((vecf)0.0f, v, (bits & 2) != 0), to + LANES);
            STORE_AS(OUT0, select((vecf)0.0f, v, (bits & 4) != 0), to + ow * LANES);
            STORE_AS(OUT0, select((vecf)0.0f, v, (bits & 8) != 0), to + (ow + 1) * LANES);
            to += 2 * LANES;
        }
        if (ow % 2) {
            STORE_AS(OUT0, (vecf)0.0f, to);
            STORE_AS(OUT0, (vecf)0.0f, to + ow * LANES);
        }
    }
    if (oh % 2)
        clt_clear_plane(dz + (oh - 1) * ow * LANES, ow);
}
#endif
