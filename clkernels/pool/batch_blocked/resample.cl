/*
 * Weighted sums of windows of images by tables, and means of whole planes, in the batch-blocked
 * layout, on CPUs. x is [planes, H, W] and y [planes, OH, OW]; each element is a vector of LANES
 * samples, and planes = ceil(n / LANES) * channels. pool/portable/resample.cl has the formula and
 * the tables. All work-groups have one work-item.
 *
 * resample2d: work-item (i, p) computes `band` rows of y of plane p. Build option TX: 1 if no
 * window has more than one column, else 2. Without TX the file has global_avg_pool2d and
 * global_avg_pool2d_grad; a work-item computes one plane. Build option: LANES.
 */
#include "core/batch_blocked/common.clh"

#ifdef TX

KERNEL void resample2d(global const float *x, long x_offset, global const int *ints,
                       long ints_offset, global const float *weights, long weights_offset,
                       global float *y, long y_offset, int H, int W, int OH, int OW, int TY,
                       int band)
{
    const long plane = get_global_id(1);
    const int first = (int)get_global_id(0) * band, end = min(first + band, OH);
    ints += ints_offset;
    weights += weights_offset;
    x += x_offset + plane * H * W * LANES;
    y += y_offset + (plane * OH + first) * OW * LANES;
    global const int *begins = ints + OH, *counts = ints + 2 * OH + OW;
    global const float *factors = weights + (long)TY * OH;
    for (int oy = first; oy < end; oy++) {
        global const float *top = x + (long)ints[oy] * W * LANES;
        const int rows = ints[OH + OW + oy];
        for (int ox = 0; ox < OW; ox++, y += LANES) {
            global const float *from = top + begins[ox] * LANES;
            const int columns = counts[ox];
            vecf sum = 0.0f;
            PREFETCH(from + AHEAD);
            for (int i = 0; i < rows; i++, from += W * LANES) {
#if TX == 1
                vecf part = 0.0f;
                if (columns)
                    part = LOAD(from) * factors[ox];
#else
                vecf part = 0.0f;
                for (int j = 0; j < columns; j++)
                    part = fma((vecf)(factors[(long)j * OW + ox]), LOAD(from + j * LANES), part);
#endif
                sum = fma((vecf)(weights[(long)i * OH + oy]), part, sum);
            }
            STORE(sum, y);
        }
    }
}

#else

KERNEL void global_avg_pool2d(global const float *x, long x_offset, global float *y, long y_offset,
                              int count)
{
    enum { SUMS = 4 };
    const long plane = get_global_id(0);
    x += x_offset + plane * count * LANES;
    vecf sum[SUMS];
    for (int s = 0; s < SUMS; s++)
        sum[s] = 0.0f;
    int i = 0;
    for (; i + SUMS <= count; i += SUMS) {
        PREFETCH(x + i * LANES + AHEAD);
#pragma unroll
        for (int s = 0; s < SUMS; s++)
            sum[s] += LOAD(x + (i + s) * LANES);
    }
    for (; i < count; i++)
        sum[0] += LOAD(x + i * LANES);
    STORE(((sum[0] + sum[1]) + (sum[2] + sum[3])) / (float)count, y + y_offset + plane * LANES);
}

KERNEL void global_avg_pool2d_grad(global const float *dy, long dy_offset, global float *dx,
                                   long dx_offset, int count)
{
    const long plane = get_global_id(0);
    const vecf each = LOAD(dy + dy_offset + plane * LANES) / (float)count;
    dx += dx_offset + plane * count * LANES;
    for (int i = 0; i < count; i++)
        STORE(each, dx + i * LANES);
}

#endif
