/*
 * Two-dimensional convolution and its gradients for every shape. A work-item computes one element
 * of the result:
 *
 *   y[b][o][oy][ox] = activation(bias[o] + sum over c, ky, kx of
 *       w[o][c][ky][kx] x[b][c0 + c][oy sy - py + ky dy_][ox sx - px + kx dx_])
 *
 * c0 is the first channel of o's group. Elements outside of x count as 0. A channel's products are
 * added up first, which keeps rounding errors small.
 */
#include "core/activation.clh"

/* Sizes, stride sy, sx, padding py, px and dilation dy_, dx_. */
#define CLT_SHAPE                                                                                  \
    int B, int C, int H, int W, int O, int OH, int OW, int KH, int KW, int sy, int sx, int py,     \
        int px, int dy_, int dx_, int groups

/* x [B, C, H, W], w [O, C / groups, KH, KW] -> y [B, O, OH, OW]. */
kernel void conv2d(global const float *x, long x_offset, global const float *w, long w_offset,
                   global const float *bias, long bias_offset, global float *y, long y_offset,
                   CLT_SHAPE, int has_bias, int act, float slope)
{
    const int image = O * OH * OW;
    const long item = get_global_id(0);
    if (item >= (long)B * image)
        return;
    const int b = (int)(item / image), r = (int)(item - (long)b * image);
    const int o = r / (OH * OW), oy = r / OW % OH, ox = r % OW;
    const int c_group = C / groups, c0 = o / (O / groups) * c_group;
    x += x_offset + (long)b * C * H * W + c0 * H * W;
    w += w_offset + o * c_group * KH * KW;
    float sum = 0.0f;
    for (int c = 0; c < c_group; c++) {
        float part = 0.0f;
        for (int ky = 0; ky < KH; ky++) {
            const int iy = oy * sy - py + ky * dy_;
            if (iy < 0 || iy >= H)
                continue;
            for (int kx = 0; kx < KW; kx++) {
                const int ix = ox * sx - px + kx * dx_;
                if (ix >= 0 && ix < W)
                    part += x[(c * H + iy) * W + ix] * w[(c * KH + ky) * KW + kx];
            }
        }
        sum += part;
    }
    if (has_bias)
        sum += bias[bias_offset + o];
    y[y_offset + item] = clt_activate(sum, act, slope);
}

/* dy [B, O, OH, OW], w -> dx [B, C, H, W]: gathers the gradients of all outputs that the input
 * contributed to. */
kernel void conv2d_data_grad(global const float *dy, long dy_offset, global const float *w,
                             long w_offset, global float *dx, long dx_offset, CLT_SHAPE)
{
    const int image = C * H * W;
    const long item = get_global_id(0);
    if (item >= (long)B * image)
        return;
    const int b = (int)(item / image), r = (int)(item - (long)b * image);
    const int c = r / (H * W), iy = r / W % H, ix = r % W;
    const int c_group = C / groups, o_group = O / groups;
    const int o0 = c / c_group * o_group, c_in = c % c_group;
    dy += dy_offset + (long)b * O * OH * OW + o0 * OH * OW;
    w += w_offset + (o0 * c_group + c_in) * KH * KW;
    float sum = 0.0f;
    for (int o = 0; o < o_group; o++) {
        float part = 0.0f;
        for (int ky = 0; ky < KH; ky++) {
            const int ty = iy + py - ky * dy_;
            const int oy = ty / sy;
            if (ty < 0 || ty != oy * sy || oy >= OH)
                continue;
            for (int kx = 0; kx < KW; kx++) {
                const int tx = ix + px - kx * dx_;
                const int ox = tx / sx;
                if (tx >= 0 && tx == ox * sx && ox < OW)
                    part += dy[(o * OH + oy) * OW + ox] * w[(o * c_group * KH + ky) * KW + kx];
            }
        }
        sum += part;
    }
    dx[dx_offset + item] = sum;
}

/* x, dy -> parts [slices][sums], partial sums over the images of each slice. Sums below `weights`
 * are the gradients of the weights, those from `weights` on of the biases, if there are any. */
kernel void conv2d_weight_grad(global const float *x, long x_offset, global const float *dy,
                               long dy_offset, global float *parts, long parts_offset, CLT_SHAPE,
                               int sums, int slices)
{
    const int item = (int)get_global_id(0);
    if (item >= sums * slices)
        return;
    const int slice = item / sums, s = item % sums;
    const int first = (int)((long)B * slice / slices), end = (int)((long)B * (slice + 1) / slices);
    const int c_group = C / groups, weights = O * c_group * KH * KW;
    const int is_bias = s >= weights;
    const int o = is_bias ? s - weights : s / (c_group * KH * KW);
    const int c = o / (O / groups) * c_group + s / (KH * KW) % c_group;
    const int ky = s / KW % KH, kx = s % KW;
    x += x_offset + (is_bias ? 0 : c * H * W);
    dy += dy_offset + o * OH * OW;
    float sum = 0.0f;
    for (int b = first; b < end; b++) {
        global const float *image = x + (long)b * C * H * W;
        global const float *grad = dy + (long)b * O * OH * OW;
        for (int oy = 0; oy < OH; oy++) {
            const int iy = oy * sy - py + ky * dy_;
            float part = 0.0f;
            for (int ox = 0; ox < OW; ox++) {
                const int ix = ox * sx - px + kx * dx_;
                if (is_bias)
                    part += grad[oy * OW + ox];
                else if (iy >= 0 && iy < H && ix >= 0 && ix < W)
                    part += grad[oy * OW + ox] * image[iy * W + ix];
            }
            sum += part;
        }
    }
    parts[parts_offset + item] = sum;
}

/* dw, db = the sums of all slices' parts, in a fixed order. A work-item adds up one element. */
kernel void conv2d_weight_sum(global const float *parts, long parts_offset, global float *dw,
                              long dw_offset, global float *db, long db_offset, int weights,
                              int sums, int slices)
{
    const int s = (int)get_global_id(0);
    if (s >= sums)
        return;
    float sum = 0.0f;
    for (int slice = 0; slice < slices; slice++)
        sum += parts[parts_offset + slice * sums + s];
    if (s < weights)
        dw[dw_offset + s] = sum;
    else
        db[db_offset + s - weights] = sum;
}
