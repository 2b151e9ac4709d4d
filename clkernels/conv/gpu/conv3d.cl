/*
 * What makes three-dimensional convolutions two-dimensional ones on GPUs: a work-item moves V floats of
 * a plane, its neighbours the next ones. Option V: 4 where float4 fits the planes, else 1.
 */
#define GROUP 256
#define KERNEL kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))

#if V == 4
#define FLOATS float4
#else
#define FLOATS float
#endif

/*
 * x [B, channels, size, plane] -> out [B, results, channels x taps, plane]: the planes that each plane of
 * the result is made of, zeros where there is none; `plane` in units of V, `count` of out. `back`: of
 * dx, from those of dy.
 */
KERNEL void unfold_planes(global const float *x, long x_offset, global float *out, long out_offset,
                          int count, int plane, int channels, int size, int results, int taps,
                          int stride, int padding, int dilation, int back)
{
    const int item = (int)get_global_id(0);
    if (item >= count)
        return;
    const int r = item / plane, p = item - r * plane;
    const int q = r / taps, tap = (r - q * taps) * dilation;
    const int image = q / channels, channel = q - image * channels;
    const int b = image / results, at = image - b * results;
    const int t = back ? at + padding - tap : at * stride - padding + tap;
    const int z = back ? t / stride : t;
    const int inside = t >= 0 && z < size && (!back || z * stride == t);
    FLOATS v = (FLOATS)(0.0f);
    if (inside)
        v = *(global const FLOATS *)(x + x_offset +
                                     (((long)b * channels + channel) * size + z) * plane * V +
                                     p * V);
    *(global FLOATS *)(out + out_offset + (long)item * V) = v;
}

/* x [.., m, n, plane] -> out [.., n, m, plane]; `plane` in units of V, `count` of out. */
KERNEL void swap_planes(global const float *x, long x_offset, global float *out, long out_offset,
                        int count, int plane, int m, int n)
{
    const int item = (int)get_global_id(0);
    if (item >= count)
        return;
    const int r = item / plane, p = item - r * plane;
    const int q = r / m, i = r - q * m;
    const int b = q / n, j = q - b * n;
    *(global FLOATS *)(out + out_offset + (long)item * V) =
        *(global const FLOATS *)(x + x_offset + (((long)b * m + i) * n + j) * plane * V + p * V);
}
