/*
 * Pooling and its gradients on GPUs. Images and channels are `planes` of H x W and OH x OW;
 * neighbouring work-items have neighbouring results.
 *
 * Build options: MAX (1: maxima, 0: means); KH, KW, SY, SX, PY, PX, DIL_Y, DIL_X: the windows' size,
 * stride, padding and dilation; V: 4 where a work-item has four results side by side and float4 fits
 * the rows of both, else 1.
 */
#include "core/gpu/halves.clh"

/* What dy is stored as. */
#if MAX
#define DY IN1
#else
#define DY IN0
#endif

#define ARGUMENTS                                                                                  \
    global const STORED(DY) *dy, long dy_offset, global STORED(OUT0) *dx, long dx_offset,          \
        int planes, int H, int W, int OH, int OW, int count_pad

/* The work-item's plane, row and column (in units of V) of `rows` x `columns`. */
#define PLACE(rows, columns)                                                                       \
    const int item = (int)get_global_id(0), of_row = (columns) / V, of_plane = (rows) * of_row;    \
    const int plane = item / of_plane;                                                             \
    const int row = (item - plane * of_plane) / of_row;                                            \
    const int column = (item - plane * of_plane - row * of_row) * V;                               \
    if (plane >= planes)                                                                           \
        return;

/* NaN is the largest. */
#define LARGER(value, best) ((value) > (best) || isnan(value))

/* The factor of a window's sum in its mean, for the window that starts at (y, x). */
static inline float window_factor(int y, int x, int H, int W, int count_pad)
{
    const int y_end = min(y + KH, H + PY), x_end = min(x + KW, W + PX);
    const int all = (y_end - y) * (x_end - x);
    const int inside = (min(y_end, H) - max(y, 0)) * (min(x_end, W) - max(x, 0));
    return 1.0f / (float)(count_pad ? all : inside);
}

#if MAX
#define NEUTRAL (-INFINITY)
#define JOIN(sum, value) (LARGER(value, sum) ? (value) : (sum))
#else
#define NEUTRAL 0.0f
#define JOIN(sum, value) ((sum) + (value))
#endif

#ifdef FORWARD

/* The four windows' columns of a row are VECTORS float4 from FIRST on, counted from the first
 * window's start in an image without padding. */
#define FIRST (-((PX + 3) / 4 * 4))
#define VECTORS ((3 * SX + (KW - 1) * DIL_X - PX - FIRST) / 4 + 1)

kernel void pool2d(global const STORED(IN0) *x, long x_offset, global STORED(OUT0) *y,
                   long y_offset, int planes, int H, int W, int OH, int OW, int count_pad)
{
    PLACE(OH, OW)
    const int y0 = row * SY - PY, x0 = column * SX;
    x += x_offset + (long)plane * H * W;
    float all[V];
#pragma unroll
    for (int l = 0; l < V; l++)
        all[l] = NEUTRAL;
#pragma unroll
    for (int ky = 0; ky < KH; ky++) {
        const int iy = y0 + ky * DIL_Y;
        if (iy < 0 || iy >= H)
            continue;
        global const STORED(IN0) *from = x + iy * W;
#if V == 4
        float r[4 * VECTORS];
#pragma unroll
        for (int v = 0; v < VECTORS; v++) {
            const int ix = x0 + FIRST + 4 * v;
            float4 four = (float4)(NEUTRAL);
            if (ix >= 0 && ix < W)
                four = GET4(IN0, from + ix);
            r[4 * v] = four.x;
            r[4 * v + 1] = four.y;
            r[4 * v + 2] = four.z;
            r[4 * v + 3] = four.w;
        }
#pragma unroll
        for (int l = 0; l < 4; l++)
#pragma unroll
            for (int kx = 0; kx < KW; kx++) {
                const float value = r[l * SX + kx * DIL_X - PX - FIRST];
                all[l] = JOIN(all[l], value);
            }
#else
        for (int kx = 0; kx < KW; kx++) {
            const int ix = x0 - PX + kx * DIL_X;
            const float value = ix >= 0 && ix < W ? GET(IN0, from + ix) : NEUTRAL;
            all[0] = JOIN(all[0], value);
        }
#endif
    }
#if !MAX
#pragma unroll
    for (int l = 0; l < V; l++)
        all[l] *= window_factor(y0, x0 - PX + l * SX, H, W, count_pad);
#endif
    y += y_offset + ((long)plane * OH + row) * OW + column;
#if V == 4
    PUT4(OUT0, (float4)(all[0], all[1], all[2], all[3]), y);
#else
    PUT(OUT0, all[0], y);
#endif
}

#elif V == 4

/* Windows that lie side by side and leave nothing out: each element belongs to one. A work-item has
 * four windows, KW float4 of each of their rows. */
#define WINDOW(v, j) ((4 * (v) + (j)) / KW)
#define TAP(v, j) ((4 * (v) + (j)) % KW)

kernel void pool2d_grad(
#if MAX
    global const STORED(IN0) *x, long x_offset,
#endif
    ARGUMENTS)
{
    PLACE(OH, OW)
    const long first = ((long)plane * H + row * KH) * W + column * KW;
    float g[4];
    *(float4 *)g = GET4(DY, dy + dy_offset + ((long)plane * OH + row) * OW + column);
    dx += dx_offset + first;
#if MAX
    int at[4] = {0, 0, 0, 0};
    float best[4];
    x += x_offset + first;
#pragma unroll
    for (int ky = 0; ky < KH; ky++)
#pragma unroll
        for (int v = 0; v < KW; v++) {
            float r[4];
            *(float4 *)r = GET4(IN0, x + ky * W + 4 * v);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int l = WINDOW(v, j), tap = ky * KW + TAP(v, j);
                if (tap == 0 || LARGER(r[j], best[l])) {
                    best[l] = r[j];
                    at[l] = tap;
                }
            }
        }
#else
#pragma unroll
    for (int l = 0; l < 4; l++)
        g[l] *= 1.0f / (float)(KH * KW);
#endif
#pragma unroll
    for (int ky = 0; ky < KH; ky++)
#pragma unroll
        for (int v = 0; v < KW; v++) {
            float r[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int l = WINDOW(v, j);
#if MAX
                r[j] = at[l] == ky * KW + TAP(v, j) ? g[l] : 0.0f;
#else
                r[j] = g[l];
#endif
            }
            PUT4(OUT0, *(float4 *)r, dx + ky * W + 4 * v);
        }
}

#else

#if MAX
/* Where in x (plane [H, W]) the maximum of the window at (y0, x0) is. */
static inline int window_max(global const STORED(IN0) *x, int y0, int x0, int H, int W)
{
    int at = -1;
    float best = -INFINITY;
    for (int ky = 0; ky < KH; ky++)
        for (int kx = 0; kx < KW; kx++) {
            const int iy = y0 + ky * DIL_Y, ix = x0 + kx * DIL_X;
            if (iy < 0 || iy >= H || ix < 0 || ix >= W)
                continue;
            const float value = GET(IN0, x + iy * W + ix);
            if (at < 0 || LARGER(value, best)) {
                best = value;
                at = iy * W + ix;
            }
        }
    return at;
}
#endif

/* An element gets its share of every window that it lies in, or dy of those whose maximum it is. */
kernel void pool2d_grad(
#if MAX
    global const STORED(IN0) *x, long x_offset,
#endif
    ARGUMENTS)
{
    PLACE(H, W)
#if MAX
    x += x_offset + (long)plane * H * W;
#endif
    dy += dy_offset + (long)plane * OH * OW;
    float sum = 0.0f;
    for (int ky = 0; ky < KH; ky++) {
        const int ty = row + PY - ky * DIL_Y, oy = ty / SY;
        if (ty < 0 || ty != oy * SY || oy >= OH)
            continue;
        for (int kx = 0; kx < KW; kx++) {
            const int tx = column + PX - kx * DIL_X, ox = tx / SX;
            if (tx < 0 || tx != ox * SX || ox >= OW)
                continue;
#if MAX
            if (window_max(x, oy * SY - PY, ox * SX - PX, H, W) == row * W + column)
                sum += GET(DY, dy + oy * OW + ox);
#else
            sum += GET(DY, dy + oy * OW + ox) *
                   window_factor(oy * SY - PY, ox * SX - PX, H, W, count_pad);
#endif
        }
    }
    PUT(OUT0, sum, dx + dx_offset + ((long)plane * H + row) * W + column);
}

#endif
