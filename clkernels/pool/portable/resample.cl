/*
 * Weighted sums of windows of images, by the tables of runtime/ops/pool/resample2d.h, and means of
 * whole planes, on any device. A work-item computes one element of the result.
 *
 *   y[oy][ox] = sum over i < rows, j < columns of wy[i][oy] wx[j][ox] x[y0 + i][x0 + j]
 *
 * `ints` has y0 [OH], x0 [OW], rows [OH] and columns [OW]; `weights` has wy [TY, OH], then wx
 * [TX, OW].
 */

kernel void resample2d(global const float *x, long x_offset, global const int *ints,
                       long ints_offset, global const float *weights, long weights_offset,
                       global float *y, long y_offset, int H, int W, int OH, int OW, int TY,
                       int planes)
{
    const int image = OH * OW;
    const long item = get_global_id(0);
    if (item >= (long)planes * image)
        return;
    const long plane = item / image;
    const int r = (int)(item - plane * image), oy = r / OW, ox = r % OW;
    ints += ints_offset;
    weights += weights_offset;
    const int y0 = ints[oy], x0 = ints[OH + ox];
    const int rows = ints[OH + OW + oy], columns = ints[2 * OH + OW + ox];
    x += x_offset + plane * H * W + (long)y0 * W + x0;
    float sum = 0.0f;
    for (int i = 0; i < rows; i++, x += W) {
        float part = 0.0f;
        for (int j = 0; j < columns; j++)
            part = fma(weights[(long)TY * OH + (long)j * OW + ox], x[j], part);
        sum = fma(weights[(long)i * OH + oy], part, sum);
    }
    y[y_offset + item] = sum;
}

kernel void global_avg_pool2d(global const float *x, long x_offset, global float *y, long y_offset,
                              int planes, int count)
{
    const long plane = get_global_id(0);
    if (plane >= planes)
        return;
    x += x_offset + plane * count;
    float sum = 0.0f;
    for (int i = 0; i < count;) {
        /* Blocks of 64 are added up separately, which keeps rounding errors small in large
         * planes. */
        float part = 0.0f;
        for (const int end = min(i + 64, count); i < end; i++)
            part += x[i];
        sum += part;
    }
    y[y_offset + plane] = sum / (float)count;
}

kernel void global_avg_pool2d_grad(global const float *dy, long dy_offset, global float *dx,
                                   long dx_offset, int planes, int count)
{
    const long item = get_global_id(0);
    if (item < (long)planes * count)
        dx[dx_offset + item] = dy[dy_offset + item / count] / (float)count;
}
