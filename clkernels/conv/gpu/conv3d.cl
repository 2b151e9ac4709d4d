/*
 * Copies that turn three-dimensional convolutions into two-dimensional ones of planes on GPUs
 * (runtime/ops/conv/conv3d_gpu.c). A work-item copies V neighbouring floats of a plane, the next
 * work-item the next V. The host defines V: 4 if planes are multiples of float4, else 1.
 */
#define GROUP 256
#define KERNEL kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))

#if V == 4
#define FLOATS float4
#else
#define FLOATS float
#endif

/*
 * x [B, channels, size, plane] -> out [B, results, channels x taps, plane]: copies, for each of the
 * `results` planes of the result, the planes of x under the kernel's taps along the depth. The
 * copies of padding are zeros. With `back`, x is dy and the result dx: copies the planes of dy that
 * a plane of dx contributed to, and zeros for those that a stride skips.
 *
 * `plane` is the size of a plane and `count` the size of out, both in units of V floats.
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

/* Transposes x [.., m, n, plane] to out [.., n, m, plane]. `plane` and `count` as above. */
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
