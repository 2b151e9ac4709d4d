/*
 * Pooling of values in plain order, and its gradients, on CPUs, for shapes that pool/cpu/pool2d.cl
 * declines. All work-groups have one work-item. Work-item i computes `share` planes
 * (channels of images) from i * share on, window by window. Gradients scatter dy to dx; no other
 * work-item writes that plane. sy, sx are strides, py, px padding, dil_y, dil_x dilation
 * (1 for means).
 */
#define KERNEL kernel __attribute__((reqd_work_group_size(1, 1, 1), intel_vec_len_hint(1)))

#define NUMBERS                                                                                    \
    int planes, int H, int W, int OH, int OW, int KH, int KW, int sy, int sx, int py, int px,      \
        int dil_y, int dil_x, int count_pad, int share

/* Loop over the work-item's planes. */
#define EACH_PLANE(p)                                                                              \
    for (long p = (long)get_global_id(0) * share,                                                  \
              behind = min(p + share, (long)planes);                                               \
         p < behind; p++)

/* The part of a window that lies in the image, along one axis: taps begin .. end - 1. Tap `begin`
 * reads element `at`. */
typedef struct span {
    int begin, end, at;
} span;

static inline span span_of(int o, int stride, int padding, int dilation, int kernel_size, int size)
{
    const int from = o * stride - padding;
    span s;
    s.begin = from < 0 ? min((dilation - 1 - from) / dilation, kernel_size) : 0;
    s.end = from >= size ? s.begin : min((size - 1 - from) / dilation + 1, kernel_size);
    s.end = max(s.end, s.begin);
    s.at = from + s.begin * dilation;
    return s;
}

/* Number of elements along one axis that the mean of a window counts. */
static inline int counted(int o, int stride, int padding, int kernel_size, int size, span s,
                          int count_pad)
{
    const int from = o * stride - padding;
    return count_pad ? min(from + kernel_size, size + padding) - from : s.end - s.begin;
}

#define EACH_WINDOW                                                                                \
    for (int oy = 0; oy < OH; oy++)                                                                \
        for (int ox = 0, once = 1; ox < OW; ox++, once = 1)                                        \
            for (const span y_span = span_of(oy, sy, py, dil_y, KH, H),                            \
                            x_span = span_of(ox, sx, px, dil_x, KW, W);                            \
                 once; once = 0)

#define MEAN_FACTOR                                                                                \
    (1.0f / (float)(counted(oy, sy, py, KH, H, y_span, count_pad) *                                \
                    counted(ox, sx, px, KW, W, x_span, count_pad)))

KERNEL void avg_pool2d(global const float *x, long x_offset, global float *y, long y_offset,
                       NUMBERS)
{
    EACH_PLANE(p)
    {
        global const float *from = x + x_offset + p * H * W;
        global float *to = y + y_offset + p * OH * OW;
        EACH_WINDOW
        {
            float sum = 0.0f;
            for (int i = 0; i < y_span.end - y_span.begin; i++)
                for (int j = 0; j < x_span.end - x_span.begin; j++)
                    sum += from[(y_span.at + i) * W + x_span.at + j];
            *to++ = sum * MEAN_FACTOR;
        }
    }
}

static inline void clear(global float *plane, int count)
{
    for (int i = 0; i < count; i++)
        plane[i] = 0.0f;
}

KERNEL void avg_pool2d_grad(global const float *dy, long dy_offset, global float *dx,
                            long dx_offset, NUMBERS)
{
    EACH_PLANE(p)
    {
        global const float *from = dy + dy_offset + p * OH * OW;
        global float *to = dx + dx_offset + p * H * W;
        clear(to, H * W);
        EACH_WINDOW
        {
            const float share_of_each = *from++ * MEAN_FACTOR;
            for (int i = 0; i < y_span.end - y_span.begin; i++)
                for (int j = 0; j < x_span.end - x_span.begin; j++)
                    to[(y_span.at + i) * W + x_span.at + j] += share_of_each;
        }
    }
}

/* Position of a window's first maximum. A NaN is larger than everything before it. -1 if no element
 * lies in the image. */
static inline int first_maximum(global const float *plane, int W, span y, span x, int dil_y,
                                int dil_x)
{
    int at = -1;
    float best = -INFINITY;
    for (int i = 0; i < y.end - y.begin; i++)
        for (int j = 0; j < x.end - x.begin; j++) {
            const int here = (y.at + i * dil_y) * W + x.at + j * dil_x;
            const float value = plane[here];
            if (at < 0 || value > best || isnan(value)) {
                best = value;
                at = here;
            }
        }
    return at;
}

KERNEL void max_pool2d(global const float *x, long x_offset, global float *y, long y_offset,
                       NUMBERS)
{
    EACH_PLANE(p)
    {
        global const float *from = x + x_offset + p * H * W;
        global float *to = y + y_offset + p * OH * OW;
        EACH_WINDOW
        {
            const int at = first_maximum(from, W, y_span, x_span, dil_y, dil_x);
            *to++ = at < 0 ? -INFINITY : from[at];
        }
    }
}

KERNEL void max_pool2d_grad(global const float *x, long x_offset, global const float *dy,
                            long dy_offset, global float *dx, long dx_offset, NUMBERS)
{
    EACH_PLANE(p)
    {
        global const float *plane = x + x_offset + p * H * W;
        global const float *from = dy + dy_offset + p * OH * OW;
        global float *to = dx + dx_offset + p * H * W;
        clear(to, H * W);
        EACH_WINDOW
        {
            const int at = first_maximum(plane, W, y_span, x_span, dil_y, dil_x);
            if (at >= 0)
                to[at] += *from;
            from++;
        }
    }
}
