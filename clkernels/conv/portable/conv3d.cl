/*
 * Three-dimensional convolution and its gradients for every shape. A work-item computes one element
 * of the result, as in conv/portable/conv2d.cl, which also has the kernel that adds the slices of
 * conv3d_weight_grad.
 */
#include "core/activation.clh"

/* Sizes, stride sz, sy, sx, padding pz, py, px and dilation dz_, dy_, dx_. */
#define CLT_SHAPE                                                                                  \
    int B, int C, int O, int groups, int D, int H, int W, int OD, int OH, int OW, int KD, int KH,  \
        int KW, int sz, int sy, int sx, int pz, int py, int px, int dz_, int dy_, int dx_

/* x [B, C, D, H, W], w [O, C / groups, KD, KH, KW] -> y [B, O, OD, OH, OW]. */
kernel void conv3d(global const float *x, long x_offset, global const float *w, long w_offset,
                   global const float *bias, long bias_offset, global float *y, long y_offset,
                   CLT_SHAPE, int has_bias, int act, float slope)
{
    const int volume = OD * OH * OW, image = O * volume;
    const long item = get_global_id(0);
    if (item >= (long)B * image)
        return;
    const int b = (int)(item / image), r = (int)(item - (long)b * image);
    const int o = r / volume, oz = r / (OH * OW) % OD, oy = r / OW % OH, ox = r % OW;
    const int c_group = C / groups, c0 = o / (O / groups) * c_group;
    x += x_offset + ((long)b * C + c0) * D * H * W;
    w += w_offset + (long)o * c_group * KD * KH * KW;
    float sum = 0.0f;
    for (int c = 0; c < c_group; c++)
        for (int kz = 0; kz < KD; kz++) {
            const int iz = oz * sz - pz + kz * dz_;
            if (iz < 0 || iz >= D)
                continue;
            float part = 0.0f;
            for (int ky = 0; ky < KH; ky++) {
                const int iy = oy * sy - py + ky * dy_;
                if (iy < 0 || iy >= H)
                    continue;
                for (int kx = 0; kx < KW; kx++) {
                    const int ix = ox * sx - px + kx * dx_;
                    if (ix >= 0 && ix < W)
                        part += x[((c * D + iz) * H + iy) * W + ix] *
                                w[((c * KD + kz) * KH + ky) * KW + kx];
                }
            }
            sum += part;
        }
    if (has_bias)
        sum += bias[bias_offset + o];
    y[y_offset + item] = clt_activate(sum, act, slope);
}

/* dy [B, O, OD, OH, OW], w -> dx [B, C, D, H, W]: gathers the gradients of all outputs that the
 * input contributed to. */
kernel void conv3d_data_grad(global const float *dy, long dy_offset, global const float *w,
                             long w_offset, global float *dx, long dx_offset, CLT_SHAPE)
{
    const int volume = D * H * W, image = C * volume;
    const long item = get_global_id(0);
    if (item >= (long)B * image)
        return;
    const int b = (int)(item / image), r = (int)(item - (long)b * image);
    const int c = r / volume, iz = r / (H * W) % D, iy = r / W % H, ix = r % W;
    const int c_group = C / groups, o_group = O / groups;
    const int o0 = c / c_group * o_group, c_in = c % c_group;
    dy += dy_offset + ((long)b * O + o0) * OD * OH * OW;
    w += w_offset + ((long)o0 * c_group + c_in) * KD * KH * KW;
    float sum = 0.0f;
    for (int o = 0; o < o_group; o++)
        for (int kz = 0; kz < KD; kz++) {
            const int tz = iz + pz - kz * dz_, oz = tz / sz;
            if (tz < 0 || tz != oz * sz || oz >= OD)
                continue;
            float part = 0.0f;
            for (int ky = 0; ky < KH; ky++) {
                const int ty = iy + py - ky * dy_, oy = ty / sy;
                if (ty < 0 || ty != oy * sy || oy >= OH)
                    continue;
                for (int kx = 0; kx < KW; kx++) {
                    const int tx = ix + px - kx * dx_, ox = tx / sx;
                    if (tx >= 0 && tx == ox * sx && ox < OW)
                        part += dy[((o * OD + oz) * OH + oy) * OW + ox] *
                                w[((o * c_group * KD + kz) * KH + ky) * KW + kx];
                }
            }
            sum += part;
        }
    dx[dx_offset + item] = sum;
}

/* x, dy -> parts [slices][sums], partial sums over the images of each slice. Sums below `weights`
 * are the gradients of the weights, those from `weights` on of the biases, if there are any. */
kernel void conv3d_weight_grad(global const float *x, long x_offset, global const float *dy,
                               long dy_offset, global float *parts, long parts_offset, CLT_SHAPE,
                               int sums, int slices)
{
    const int item = (int)get_global_id(0);
    if (item >= sums * slices)
        return;
    const int slice = item / sums, s = item % sums;
    const int first = (int)((long)B * slice / slices), end = (int)((long)B * (slice + 1) / slices);
    const int taps = KD * KH * KW, c_group = C / groups, weights = O * c_group * taps;
    const int is_bias = s >= weights;
    const int o = is_bias ? s - weights : s / (c_group * taps);
    const int c = o / (O / groups) * c_group + s / taps % c_group;
    const int kz = s / (KH * KW) % KD, ky = s / KW % KH, kx = s % KW;
    float sum = 0.0f;
    for (int b = first; b < end; b++) {
        global const float *image = x + x_offset + ((long)b * C + (is_bias ? 0 : c)) * D * H * W;
        global const float *grad = dy + dy_offset + ((long)b * O + o) * OD * OH * OW;
        for (int oz = 0; oz < OD; oz++) {
            const int iz = oz * sz - pz + kz * dz_;
            if (!is_bias && (iz < 0 || iz >= D))
                continue;
            float layer = 0.0f;
            for (int oy = 0; oy < OH; oy++) {
                const int iy = oy * sy - py + ky * dy_;
                float part = 0.0f;
                for (int ox = 0; ox < OW; ox++) {
                    const int ix = ox * sx - px + kx * dx_;
                    const float g = grad[(oz * OH + oy) * OW + ox];
                    if (is_bias)
                        part += g;
                    else if (iy >= 0 && iy < H && ix >= 0 && ix < W)
                        part += g * image[(iz * H + iy) * W + ix];
                }
                layer += part;
            }
            sum += layer;
        }
    }
    parts[parts_offset + item] = sum;
}
