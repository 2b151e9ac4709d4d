/*
 * Pooling in the LANES layout: x, dx [planes][ih][iw] and y, dy [planes][oh][ow], each element a
 * vector of lanes; planes = ceil(n / LANES) * channels.
 *
 * kernel clt_lanes_avg_pool(x, x_at, y, y_at, SHAPE)
 * kernel clt_lanes_avg_pool_grad(dy, dy_at, dx, dx_at, SHAPE)
 * kernel clt_lanes_max_pool(x, x_at, y, y_at, SHAPE)
 * kernel clt_lanes_max_pool_grad(x, x_at, dy, dy_at, dx, dx_at, SHAPE)
 *   SHAPE = ih, iw, oh, ow, kh, kw, sy, sx, py, px, dil_y, dil_x, count_pad
 *   count_pad: the mean counts the padding; windows that ceil mode lets hang over the padded image
 *   count only what lies within it. The maximum is the first of equals; NaN is larger than all.
 *   global size: (planes, 1, 1), local (1, 1, 1)
 *
 * kernel clt_lanes_unpool(g, g_at, mask, mask_at, dz, dz_at, oh, ow, scale)
 *   the gradient before 2 x 2 pooling, from that of the pooled values and the mask of conv.cl:
 *   g, mask [planes][oh / 2][ow / 2], dz [planes][oh][ow]: scale * g where the mask says, else 0;
 *   scale 0.25 for the average, 1 for the maximum. Give even oh and ow (sizes / 2 * 2) where the
 *   dropped row and column are not wanted.
 *   global size: (planes, 1, 1), local (1, 1, 1)
 *
 * Option: LANES.
 */
#include "common.clh"

#define SHAPE                                                                                      \
    int ih, int iw, int oh, int ow, int kh, int kw, int sy, int sx, int py, int px, int dil_y,     \
        int dil_x, int count_pad

/* The factor of a window's sum in its mean, for the window that starts at (y, x). */
INLINE float clt_window_factor(int y, int x, int ih, int iw, int kh, int kw, int py, int px,
                               int count_pad)
{
    const int y_end = min(y + kh, ih + py), x_end = min(x + kw, iw + px);
    const int all = (y_end - y) * (x_end - x);
    const int inside = (min(y_end, ih) - max(y, 0)) * (min(x_end, iw) - max(x, 0));
    return 1.0f / (float)(count_pad ? all : inside);
}

INLINE void clt_clear_plane(global float *x, int count)
{
    for (int i = 0; i < count; i++)
        STORE((vecf)0.0f, x + i * LANES);
}

KERNEL void clt_lanes_avg_pool(global const float *x, long x_at, global float *y, long y_at, SHAPE)
{
    const long plane = get_global_id(0);
    x += x_at + plane * ih * iw * LANES;
    y += y_at + plane * oh * ow * LANES;
    for (int oy = 0; oy < oh; oy++) {
        for (int ox = 0; ox < ow; ox++) {
            const int y0 = oy * sy - py, x0 = ox * sx - px;
            vecf sum = 0.0f;
            for (int iy = max(y0, 0); iy < min(y0 + kh, ih); iy++)
                for (int ix = max(x0, 0); ix < min(x0 + kw, iw); ix++)
                    sum += LOAD(x + (iy * iw + ix) * LANES);
            STORE(sum * clt_window_factor(y0, x0, ih, iw, kh, kw, py, px, count_pad),
                  y + (oy * ow + ox) * LANES);
        }
    }
}

KERNEL void clt_lanes_avg_pool_grad(global const float *dy, long dy_at, global float *dx,
                                    long dx_at, SHAPE)
{
    const long plane = get_global_id(0);
    dy += dy_at + plane * oh * ow * LANES;
    dx += dx_at + plane * ih * iw * LANES;
    clt_clear_plane(dx, ih * iw);
    for (int oy = 0; oy < oh; oy++) {
        for (int ox = 0; ox < ow; ox++) {
            const int y0 = oy * sy - py, x0 = ox * sx - px;
            const vecf share = LOAD(dy + (oy * ow + ox) * LANES) *
                               clt_window_factor(y0, x0, ih, iw, kh, kw, py, px, count_pad);
            for (int iy = max(y0, 0); iy < min(y0 + kh, ih); iy++) {
                for (int ix = max(x0, 0); ix < min(x0 + kw, iw); ix++) {
                    global float *to = dx + (iy * iw + ix) * LANES;
                    STORE(LOAD(to) + share, to);
                }
            }
        }
    }
}

/* The maximum of the window that starts at (y0, x0), and where it is in each lane. */
INLINE vecf clt_window_max(global const float *x, int y0, int x0, int ih, int iw, int kh, int kw,
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
            const vecf v = LOAD(x + (iy * iw + ix) * LANES);
            const veci better = where < 0 | v > best | isnan(v);
            best = select(best, v, better);
            where = select(where, (veci)(iy * iw + ix), better);
        }
    }
    *at = where;
    return best;
}

KERNEL void clt_lanes_max_pool(global const float *x, long x_at, global float *y, long y_at, SHAPE)
{
    const long plane = get_global_id(0);
    x += x_at + plane * ih * iw * LANES;
    y += y_at + plane * oh * ow * LANES;
    for (int oy = 0; oy < oh; oy++) {
        for (int ox = 0; ox < ow; ox++) {
            veci at;
            const vecf best = clt_window_max(x, oy * sy - py, ox * sx - px, ih, iw, kh, kw, dil_y,
                                             dil_x, &at);
            STORE(best, y + (oy * ow + ox) * LANES);
        }
    }
}

KERNEL void clt_lanes_max_pool_grad(global const float *x, long x_at, global const float *dy,
                                    long dy_at, global float *dx, long dx_at, SHAPE)
{
    const long plane = get_global_id(0);
    x += x_at + plane * ih * iw * LANES;
    dy += dy_at + plane * oh * ow * LANES;
    dx += dx_at + plane * ih * iw * LANES;
    clt_clear_plane(dx, ih * iw);
    for (int oy = 0; oy < oh; oy++) {
        for (int ox = 0; ox < ow; ox++) {
            const int y0 = oy * sy - py, x0 = ox * sx - px;
            veci at;
            clt_window_max(x, y0, x0, ih, iw, kh, kw, dil_y, dil_x, &at);
            const vecf g = LOAD(dy + (oy * ow + ox) * LANES);
            for (int ky = 0; ky < kh; ky++) {
                const int iy = y0 + ky * dil_y;
                for (int kx = 0; kx < kw && iy >= 0 && iy < ih; kx++) {
                    const int ix = x0 + kx * dil_x;
                    if (ix < 0 || ix >= iw)
                        continue;
                    global float *to = dx + (iy * iw + ix) * LANES;
                    const vecf before = LOAD(to);
                    STORE(select(before, before + g, at == iy * iw + ix), to);
                }
            }
        }
    }
}

KERNEL void clt_lanes_unpool(global const float *g, long g_at, global const uchar *mask,
                             long mask_at, global float *dz, long dz_at, int oh, int ow,
                             float scale)
{
    const long plane = get_global_id(0);
    const int ph = oh / 2, pw = ow / 2;
    g += g_at + plane * ph * pw * LANES;
    mask += mask_at + plane * ph * pw * LANES;
    dz += dz_at + plane * oh * ow * LANES;
    for (int y = 0; y < ph; y++) {
        global float *to = dz + 2 * y * ow * LANES;
        for (int x = 0; x < pw; x++) {
            const int at = (y * pw + x) * LANES;
            const vecf v = LOAD(g + at) * scale;
            const veci bits = TO_INTS(LOAD_BYTES(mask + at));
            STORE(select((vecf)0.0f, v, (bits & 1) != 0), to);
            STORE(select((vecf)0.0f, v, (bits & 2) != 0), to + LANES);
            STORE(select((vecf)0.0f, v, (bits & 4) != 0), to + ow * LANES);
            STORE(select((vecf)0.0f, v, (bits & 8) != 0), to + (ow + 1) * LANES);
            to += 2 * LANES;
        }
        if (ow % 2) {
            STORE((vecf)0.0f, to);
            STORE((vecf)0.0f, to + ow * LANES);
        }
    }
    if (oh % 2)
        clt_clear_plane(dz + (oh - 1) * ow * LANES, ow);
}
