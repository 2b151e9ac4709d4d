/*
 * Batch norm on any device; norm/batch_norm.clh has the formulas and arguments. Element-wise
 * kernels compute one element a work-item. Sums take two kernels: a work-item adds up one channel
 * over a share of the images, and the parts are joined in order. The channel kernels (join, recall,
 * running, tracked) serve CPUs and GPUs too.
 */
#include "norm/batch_norm.clh"

/* Moments of channel c over share `part` of the images, by Welford's update. `out` is
 * [parts, 3, C]. */
kernel void batch_norm_moments(MOMENTS_ARGUMENTS, int parts)
{
    const int part = (int)(get_global_id(0) / C), c = (int)(get_global_id(0) % C);
    moment all = 0.0f;
    if (part >= parts)
        return;
    const int end = (int)((long)images * (part + 1) / parts);
    for (int b = (int)((long)images * part / parts); b < end; b++)
        for (int i = 0; i < pixels; i++) {
            const float v = GET(IN0, x + x_offset + ((long)b * C + c) * pixels + i);
            const float delta = v - all.MEAN;
            all.COUNT += 1.0f;
            all.MEAN += delta / all.COUNT;
            all.SQUARES += delta * (v - all.MEAN);
        }
    out += out_offset + 3L * part * C;
    out[c] = all.MEAN;
    out[C + c] = all.SQUARES;
    out[2 * C + c] = all.COUNT;
}

/* Joins parts [parts, 3, C] in order into moments [3, C], a channel a work-item. */
kernel void batch_norm_join(IN(part) OUT(out) int C, int parts)
{
    const int c = (int)get_global_id(0);
    moment all = 0.0f;
    if (c >= C)
        return;
    part += part_offset + c;
    for (int p = 0; p < parts; p++, part += 3L * C) {
        all = join_two(all, (moment)(part[0], part[C], part[2 * C], 0.0f));
    }
    out[out_offset + c] = all.MEAN;
    out[out_offset + C + c] = all.SQUARES;
    out[out_offset + 2 * C + c] = all.COUNT;
}

/* Writes the running mean and variance as moments with number 1, for evaluation. */
kernel void batch_norm_recall(IN(mean) IN(var) OUT(out) int C)
{
    const int c = (int)get_global_id(0);
    if (c >= C)
        return;
    out[out_offset + c] = mean[mean_offset + c];
    out[out_offset + C + c] = var[var_offset + c];
    out[out_offset + 2 * C + c] = 1.0f;
}

/* New running statistics: a step of `momentum` towards the batch's mean and unbiased variance. They
 * stay unchanged if the batch has no samples; the variance also if it has one value. */
kernel void batch_norm_running(IN(moments) IN(mean) IN(var) OUT(new_mean) OUT(new_var)
                               int C, float momentum)
{
    const int c = (int)get_global_id(0);
    if (c >= C)
        return;
    moments += moments_offset + c;
    const float count = moments[2 * C];
    float m = mean[mean_offset + c], v = var[var_offset + c];
    if (count > 0.0f)
        m += momentum * (moments[0] - m);
    if (count > 1.0f)
        v += momentum * (moments[C] / (count - 1.0f) - v);
    new_mean[new_mean_offset + c] = m;
    new_var[new_var_offset + c] = v;
}

/* num_batches_tracked + 1, by one work-item. */
kernel void batch_norm_tracked(global const int *tracked, long tracked_offset, global int *out,
                               long out_offset)
{
    if (get_global_id(0) == 0)
        out[out_offset] = tracked[tracked_offset] + 1;
}

/* Finds the work-item's element i and channel c, and far = x - mean. */
#define BEGIN                                                                                      \
    const long i = get_global_id(0);                                                               \
    if (i >= (long)images * C * pixels)                                                            \
        return;                                                                                    \
    const int c = (int)(i / pixels % C);                                                           \
    CHANNEL(k, c)                                                                  \
    const float far = GET(IN0, x + x_offset + i) - k.mean;

/* d, or 0 if the ReLU of the forward pass gave 0. */
#if RELU
#define THROUGH(d, far, k) (fma(far, (k).scale, (k).bias) <= 0.0f ? 0.0f : (d))
#else
#define THROUGH(d, far, k) (d)
#endif

kernel void batch_norm(FORWARD_ARGUMENTS)
{
    BEGIN
    float y = fma(far, k.scale, k.bias);
    IF_ADD(y += GET(IN4, addend + addend_offset + i);)
#if RELU
    y = y < 0.0f ? 0.0f : y;
#endif
    PUT(OUT0, y, out + out_offset + i);
}

/* db and dw of channel c over share `part` of the images. `out` is [parts, 2, C]: db, then dw. */
kernel void batch_norm_grad_sums(SUMS_ARGUMENTS, int parts)
{
    const int part = (int)(get_global_id(0) / C), c = (int)(get_global_id(0) % C);
    float db = 0.0f, dw = 0.0f;
    if (part >= parts)
        return;
    CHANNEL(k, c)
    const int end = (int)((long)images * (part + 1) / parts);
    for (int b = (int)((long)images * part / parts); b < end; b++)
        for (int i = 0; i < pixels; i++) {
            const long at = ((long)b * C + c) * pixels + i;
            const float far = GET(IN0, x + x_offset + at) - k.mean;
            const float d = THROUGH(GET(IN1, dy + dy_offset + at), far, k);
            db += d;
            dw = fma(d, far, dw);
        }
    out[out_offset + 2L * part * C + c] = db;
    out[out_offset + (2L * part + 1) * C + c] = dw * k.rstd;
}

kernel void batch_norm_grad(GRAD_ARGUMENTS)
{
    BEGIN
    TAKEN(factor, term, k, c)
    const float d = THROUGH(GET(IN1, dy + dy_offset + i), far, k);
    PUT(OUT0, d * k.scale - far * factor - term, out + out_offset + i);
}
