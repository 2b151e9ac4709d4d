/*
 * Pooling and its gradients on GPUs. x is [planes, H, W] and y [planes, OH, OW]; a plane is a
 * channel of an image. A work-item computes V results side by side, and its neighbours the next
 * ones, so that loads are coalesced. No local memory is used; overlapping windows share the cache.
 *
 * The file has one kernel a program: pool2d with FORWARD, else pool2d_grad. Build options: FORWARD;
 * MAX: 1 for maxima, 0 for means; KH, KW, SY, SX, PY, PX, DIL_Y, DIL_X: size, stride, padding and
 * dilation of a window; V: 4 if float4 fits the rows of both tensors, else 1. In a gradient, V is 4
 * only if windows neither overlap nor leave gaps.
 */
#include "core/gpu/halves.clh"

/* Storage type of dy. */
#if MAX
#define DY IN1
#else
#define DY IN0
#endif

#define ARGUMENTS                                                                                  \
    global const STORED(DY) *dy, long dy_offset, global STORED(OUT0) *dx, long dx_offset,          \
        int planes, int H, int W, int OH, int OW, int count_pad

/* Finds the work-item's plane, row and column in planes of `rows` x `columns`. Columns come in
 * units of V. */
#define PLACE(rows, columns)                                                                       \
    const int item = (int)get_global_id(0), of_row = (columns) / V, of_plane = (rows) * of_row;    \
    const int plane = item / of_plane;                                                             \
    const int row = (item - plane * of_plane) / of_row;                                            \
    const int column = (item - plane * of_plane - row * of_row) * V;                               \
    if (plane >= planes)                                                                           \
        return;

/* NaN is the largest. */
#define LARGER(value, best) ((value) > (best) || isnan(value))

/* The factor from sum to mean of the window that starts at (y, x). */
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

/* A row of the four windows lies in VECTORS aligned float4. The first one begins FIRST elements
 * from the start of the first window without padding; FIRST is negative or 0. */
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

/* Windows neither overlap nor leave gaps, so each element belongs to one window. A work-item
 * computes four windows: KW float4 in each of their KH rows. Element j of float4 v belongs to
 * window WINDOW(v, j) and is its column TAP(v, j). */
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
/* Position in plane x [H, W] of the maximum of the window at (y0, x0). */
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

/* Gathers dx: an element gets its share of dy from every window that contains it, or dy of every
 * window whose maximum it is. */
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
