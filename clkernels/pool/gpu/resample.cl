/*
 * Weighted sums of windows of images by tables (TABLES), and the gradient of the means of whole
 * planes, on GPUs. pool/portable/resample.cl has the formula and the tables. A work-item computes V
 * elements side by side, and its neighbours the next ones, so that loads are coalesced. Build
 * options: TABLES: resample2d; V: 4 if float4 fits the rows that are written, else 1.
 */
#define GROUP 256
#define KERNEL kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))

#if V == 4
#define FLOATS float4
#define INTS int4
#else
#define FLOATS float
#define INTS int
#endif

#ifdef TABLES

KERNEL void resample2d(global const float *x, long x_offset, global const int *ints,
                       long ints_offset, global const float *weights, long weights_offset,
                       global float *y, long y_offset, int H, int W, int OH, int OW, int TY,
                       int planes)
{
    const int item = (int)get_global_id(0), of_row = OW / V, of_plane = OH * of_row;
    const int plane = item / of_plane;
    const int oy = (item - plane * of_plane) / of_row;
    const int ox = (item - plane * of_plane - oy * of_row) * V;
    if (plane >= planes)
        return;
    ints += ints_offset;
    weights += weights_offset;
    global const float *row = x + x_offset + ((long)plane * H + ints[oy]) * W;
    const int rows = ints[OH + OW + oy];
    global const int *columns = ints + 2 * OH + OW + ox;
    global const float *factors = weights + (long)TY * OH + ox;
    int at[V], count[V];
    float sum[V];
#pragma unroll
    for (int l = 0; l < V; l++) {
        at[l] = ints[OH + ox + l];
        count[l] = columns[l];
        sum[l] = 0.0f;
    }
    for (int i = 0; i < rows; i++, row += W) {
        const float factor = weights[(long)i * OH + oy];
#pragma unroll
        for (int l = 0; l < V; l++) {
            float part = 0.0f;
            for (int j = 0; j < count[l]; j++)
                part = fma(factors[(long)j * OW + l], row[at[l] + j], part);
            sum[l] = fma(factor, part, sum[l]);
        }
    }
    y += y_offset + ((long)plane * OH + oy) * OW + ox;
#if V == 4
    *(global float4 *)y = (float4)(sum[0], sum[1], sum[2], sum[3]);
#else
    *y = sum[0];
#endif
}

#else

KERNEL void global_avg_pool2d_grad(global const float *dy, long dy_offset, global float *dx,
                                   long dx_offset, int planes, int count)
{
    const int item = (int)get_global_id(0), of_plane = count / V, plane = item / of_plane;
    if (plane < planes)
        *(global FLOATS *)(dx + dx_offset + (long)item * V) =
            (FLOATS)(dy[dy_offset + plane] / (float)count);
}

#endif
