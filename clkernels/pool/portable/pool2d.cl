/*
 * Maximum and mean pooling and their gradients for every shape, on any device: the fallback of the
 * other variants. x is [planes, H, W] and y [planes, OH, OW]; a plane is a channel of an image. A
 * work-item computes one element of the result. sy, sx are strides, py, px padding, dil_y, dil_x
 * dilation (1 for means). Sizes are arguments, so all shapes share one program.
 */
#include "core/storage.clh"

#define CLT_SHAPE                                                                                  \
    int planes, int H, int W, int OH, int OW, int KH, int KW, int sy, int sx, int py, int px,      \
        int dil_y, int dil_x, int count_pad

/* The factor from sum to mean of the window that starts at (y, x). With count_pad, padding counts
 * too, but not what lies beyond the padded image, where ceil mode may place a part of a window. */
static float window_factor(int y, int x, int H, int W, int KH, int KW, int py, int px,
                           int count_pad)
{
    const int y_end = min(y + KH, H + py), x_end = min(x + KW, W + px);
    const int all = (y_end - y) * (x_end - x);
    const int inside = (min(y_end, H) - max(y, 0)) * (min(x_end, W) - max(x, 0));
    return 1.0f / (float)(count_pad ? all : inside);
}

kernel void avg_pool2d(global const STORED(IN0) *x, long x_offset, global STORED(OUT0) *y, long y_offset,
                       CLT_SHAPE)
{
    const int image = OH * OW;
    const long item = get_global_id(0);
    if (item >= (long)planes * image)
        return;
    const long plane = item / image;
    const int r = (int)(item - plane * image);
    const int y0 = r / OW * sy - py, x0 = r % OW * sx - px;
    x += x_offset + plane * H * W;
    float sum = 0.0f;
    for (int iy = max(y0, 0); iy < min(y0 + KH, H); iy++)
        for (int ix = max(x0, 0); ix < min(x0 + KW, W); ix++)
            sum += GET(IN0, x + iy * W + ix);
    PUT(OUT0, sum * window_factor(y0, x0, H, W, KH, KW, py, px, count_pad), y + y_offset + item);
}

/* Gathers dx: an element gets its share of dy from every window that contains it. No two work-items
 * write one element, so no atomics are needed. */
kernel void avg_pool2d_grad(global const STORED(IN0) *dy, long dy_offset, global STORED(OUT0) *dx,
                            long dx_offset, CLT_SHAPE)
{
    const int image = H * W;
    const long item = get_global_id(0);
    if (item >= (long)planes * image)
        return;
    const long plane = item / image;
    const int r = (int)(item - plane * image);
    const int ty = r / W + py, tx = r % W + px; /* position in the padded image */
    const int oy_first = ty < KH ? 0 : (ty - KH) / sy + 1;
    const int ox_first = tx < KW ? 0 : (tx - KW) / sx + 1;
    dy += dy_offset + plane * OH * OW;
    float sum = 0.0f;
    for (int oy = oy_first; oy < min(ty / sy + 1, OH); oy++)
        for (int ox = ox_first; ox < min(tx / sx + 1, OW); ox++)
            sum += GET(IN0, dy + oy * OW + ox) *
                   window_factor(oy * sy - py, ox * sx - px, H, W, KH, KW, py, px, count_pad);
    PUT(OUT0, sum, dx + dx_offset + item);
}

/* Position of the first maximum of the window that starts at (y0, x0). A NaN is larger than
 * everything before it. -1 if no element lies in the image. */
static int window_max(global const STORED(IN0) *x, int y0, int x0, int H, int W, int KH, int KW,
                      int dil_y, int dil_x)
{
    int at = -1;
    float best = -INFINITY;
    for (int ky = 0; ky < KH; ky++) {
        const int iy = y0 + ky * dil_y;
        if (iy < 0 || iy >= H)
            continue;
        for (int kx = 0; kx < KW; kx++) {
            const int ix = x0 + kx * dil_x;
            if (ix < 0 || ix >= W)
                continue;
            const float value = GET(IN0, x + iy * W + ix);
            if (at < 0 || value > best || isnan(value)) {
                best = value;
                at = iy * W + ix;
            }
        }
    }
    return at;
}

kernel void max_pool2d(global const STORED(IN0) *x, long x_offset, global STORED(OUT0) *y, long y_offset,
                       CLT_SHAPE)
{
    const int image = OH * OW;
    const long item = get_global_id(0);
    if (item >= (long)planes * image)
        return;
    const long plane = item / image;
    const int r = (int)(item - plane * image);
    x += x_offset + plane * H * W;
    const int at = window_max(x, r / OW * sy - py, r % OW * sx - px, H, W, KH, KW, dil_y, dil_x);
    PUT(OUT0, at < 0 ? -INFINITY : GET(IN0, x + at), y + y_offset + item);
}

/* Gathers dx: an element gets dy of every window whose maximum it is. Each maximum is searched
 * again, so the forward pass need not store its position. */
kernel void max_pool2d_grad(global const STORED(IN0) *x, long x_offset, global const STORED(IN1) *dy,
                            long dy_offset, global STORED(OUT0) *dx, long dx_offset, CLT_SHAPE)
{
    const int image = H * W;
    const long item = get_global_id(0);
    if (item >= (long)planes * image)
        return;
    const long plane = item / image;
    const int r = (int)(item - plane * image);
    x += x_offset + plane * image;
    dy += dy_offset + plane * OH * OW;
    float sum = 0.0f;
    for (int ky = 0; ky < KH; ky++) {
        const int ty = r / W + py - ky * dil_y, oy = ty / sy;
        if (ty < 0 || ty != oy * sy || oy >= OH)
            continue;
        for (int kx = 0; kx < KW; kx++) {
            const int tx = r % W + px - kx * dil_x, ox = tx / sx;
            if (tx < 0 || tx != ox * sx || ox >= OW)
                continue;
            if (window_max(x, oy * sy - py, ox * sx - px, H, W, KH, KW, dil_y, dil_x) == r)
                sum += GET(IN1, dy + oy * OW + ox);
        }
    }
    PUT(OUT0, sum, dx + dx_offset + item);
}
