/*
 * What happens to buckets at the end of a step: the gradient's norm, the step's word, the
 * optimizers, and sums of micro-batches. Buckets are flat arrays of `count` floats (a multiple of
 * 64); a work-item owns CHUNK of them.
 *
 * The word: { ok, scale, norm, 0 }. Updates apply `scale` to the gradient and do nothing unless ok
 * is 1. Once 0 it stays 0, so that no later step changes the weights of the last good one.
 *
 * ACC is double where the device has it, else float.
 */
#ifdef CLT_FP64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define ACC double
#else
#define ACC float
#endif
#define CHUNK 64

/* partials[2 * (first + group)] = sum of squares of one share of the bucket, [.. + 1] = number of
 * elements that are not finite. Each work-item sums every groups-th chunk, in order. */
kernel void square_sum(global const float *g, int count, global ACC *partials, int first,
                       int groups)
{
    const int group = (int)get_global_id(0);
    ACC sum = 0, bad = 0;
    if (group >= groups)
        return;
    for (int c = group * CHUNK; c < count; c += groups * CHUNK) {
        float16 s = 0;
        int16 wrong = 0;
        for (int i = 0; i < CHUNK; i += 16) {
            const float16 v = vload16(0, g + c + i);
            s = fma(v, v, s);
            wrong |= !isfinite(v);
        }
        float part[16];
        int flags[16];
        vstore16(s, 0, part);
        vstore16(wrong, 0, flags);
        for (int i = 0; i < 16; i++) {
            sum += part[i];
            bad += flags[i] ? 1 : 0;
        }
    }
    partials[2 * (first + group)] = sum;
    partials[2 * (first + group) + 1] = bad;
}

kernel void step_word(global const ACC *partials, int n, float clip, int guard, global float *word)
{
    ACC sum = 0, bad = 0;
    for (int i = 0; i < n; i++) {
        sum += partials[2 * i];
        bad += partials[2 * i + 1];
    }
    const float norm = (float)sqrt(sum);
    word[1] = clip > 0 ? fmin(1.0f, clip / (norm + 1e-6f)) : 1.0f;
    word[2] = norm;
    if (guard && bad > 0)
        word[0] = 0;
}

/* upstream = coefficient / weight; 0 for weight 0. */
kernel void loss_upstream(global const float *weight, long weight_offset, global float *upstream,
                          int index, float coefficient)
{
    const float w = weight[weight_offset];
    upstream[index] = w > 0 ? coefficient / w : 0.0f;
}

kernel void add_to(global float *sum, global const float *term, int count)
{
    const int at = (int)get_global_id(0) * CHUNK;
    if (at >= count)
        return;
    for (int i = at; i < at + CHUNK; i += 16)
        vstore16(vload16(0, sum + i) + vload16(0, term + i), 0, sum + i);
}

/* state = value, bytes as uints. */
kernel void assign_state(global const float *word, global const uint *value, long value_offset,
                         global uint *state, long state_offset, int count)
{
    const int i = (int)get_global_id(0);
    if (i < count && word[0] == 1.0f)
        state[state_offset + i] = value[value_offset + i];
}

#define UPDATE_BEGIN                                                                               \
    const int at = (int)get_global_id(0) * CHUNK;                                                  \
    if (at >= count || word[0] != 1.0f)                                                            \
        return;                                                                                    \
    const float scale = word[1];                                                                   \
    for (int i = at; i < at + CHUNK; i += 16) {                                                    \
        float16 weight = vload16(0, w + i);                                                        \
        float16 grad = vload16(0, g + i) * scale;                                                  \
        if (decoupled)                                                                             \
            weight -= lr * decay * weight;                                                         \
        else                                                                                       \
            grad = fma((float16)decay, weight, grad);

#define UPDATE_END                                                                                 \
    vstore16(weight, 0, w + i);                                                                    \
    }

kernel void sgd(global const float *word, global float *w, global const float *g, int count,
                float lr, float decay, int decoupled)
{
    UPDATE_BEGIN
    weight -= lr * grad;
    UPDATE_END
}

kernel void momentum(global const float *word, global float *w, global const float *g, int count,
                     float lr, float decay, int decoupled, global float *buffer, float mu,
                     int nesterov)
{
    UPDATE_BEGIN
    const float16 velocity = fma((float16)mu, vload16(0, buffer + i), grad);
    vstore16(velocity, 0, buffer + i);
    weight -= lr * (nesterov ? fma((float16)mu, velocity, grad) : velocity);
    UPDATE_END
}

/* rest = 1 - beta, which floats would lose digits of; correction1 = 1 - beta1^t,
 * root2 = sqrt(1 - beta2^t). Kingma and Ba, ICLR 2015. */
kernel void adam(global const float *word, global float *w, global const float *g, int count,
                 float lr, float decay, int decoupled, global float *first, global float *second,
                 float rest1, float beta2, float rest2, float epsilon,
                 float correction1, float root2)
{
    UPDATE_BEGIN
    const float16 m = fma((float16)rest1, grad - vload16(0, first + i), vload16(0, first + i));
    const float16 v = fma((float16)rest2, grad * grad, beta2 * vload16(0, second + i));
    vstore16(m, 0, first + i);
    vstore16(v, 0, second + i);
    weight -= (lr / correction1) * m / (sqrt(v) / root2 + epsilon);
    UPDATE_END
}
