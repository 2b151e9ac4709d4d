/*
 * What happens to buckets at the end of a step, on GPUs: as train/update.cl says, but a work-item has
 * one float4, and sums are joined in local memory. Buckets have a multiple of 64 floats.
 *
 * ACC is double where the device has it (CLT_FP64), else float.
 */
#include "gpu/tree.clh"

#ifdef CLT_FP64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define ACC double
#else
#define ACC float
#endif
#define GROUP 256
#define KERNEL kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))

CLT_TREE(tree, ACC, CLT_ADD, GROUP, 1)

/* partials[2 * (first + group)] = sum of squares of one share of the bucket, [.. + 1] = number of
 * elements that are not finite. */
KERNEL void square_sum(global const float4 *g, int count, global ACC *partials, int first,
                       int groups)
{
    local ACC s[GROUP];
    const int lid = (int)get_local_id(0), group = (int)get_group_id(0);
    ACC sum = 0, bad = 0;
#pragma unroll 4
    for (int i = group * GROUP + lid; i < count / 4; i += groups * GROUP) {
        const float4 v = g[i];
        const int4 finite = isfinite(v);
        const float4 square = v * v;
        sum += (square.x + square.z) + (square.y + square.w);
        bad += 4 + (finite.x + finite.y + finite.z + finite.w);
    }
    sum = tree(s, sum, lid, lid);
    bad = tree(s, bad, lid, lid);
    if (lid == 0) {
        partials[2 * (first + group)] = sum;
        partials[2 * (first + group) + 1] = bad;
    }
}

/* By one group. */
KERNEL void step_word(global const ACC *partials, int n, float clip, int guard, global float *word)
{
    local ACC s[GROUP];
    const int lid = (int)get_local_id(0);
    ACC sum = 0, bad = 0;
    for (int i = lid; i < n; i += GROUP) {
        sum += partials[2 * i];
        bad += partials[2 * i + 1];
    }
    sum = tree(s, sum, lid, lid);
    bad = tree(s, bad, lid, lid);
    if (lid)
        return;
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

KERNEL void add_to(global float4 *sum, global const float4 *term, int count)
{
    const int i = (int)get_global_id(0);
    if (i < count / 4)
        sum[i] += term[i];
}

/* state = value, bytes as uints. */
KERNEL void assign_state(global const float *word, global const uint *value, long value_offset,
                         global uint *state, long state_offset, int count)
{
    const int i = (int)get_global_id(0);
    if (i < count && word[0] == 1.0f)
        state[state_offset + i] = value[value_offset + i];
}

#define UPDATE_BEGIN                                                                               \
    const int i = (int)get_global_id(0);                                                           \
    if (i >= count / 4 || word[0] != 1.0f)                                                         \
        return;                                                                                    \
    float4 weight = w[i];                                                                          \
    float4 grad = g[i] * word[1];                                                                  \
    if (decoupled)                                                                                 \
        weight -= lr * decay * weight;                                                             \
    else                                                                                           \
        grad = fma((float4)(decay), weight, grad);

KERNEL void sgd(global const float *word, global float4 *w, global const float4 *g, int count,
                float lr, float decay, int decoupled)
{
    UPDATE_BEGIN
    w[i] = weight - lr * grad;
}

KERNEL void momentum(global const float *word, global float4 *w, global const float4 *g, int count,
                     float lr, float decay, int decoupled, global float4 *buffer, float mu,
                     int nesterov)
{
    UPDATE_BEGIN
    const float4 velocity = fma((float4)(mu), buffer[i], grad);
    buffer[i] = velocity;
    w[i] = weight - lr * (nesterov ? fma((float4)(mu), velocity, grad) : velocity);
}

/* rest = 1 - beta, which floats would lose digits of; correction1 = 1 - beta1^t,
 * root2 = sqrt(1 - beta2^t). Kingma and Ba, ICLR 2015. */
KERNEL void adam(global const float *word, global float4 *w, global const float4 *g, int count,
                 float lr, float decay, int decoupled, global float4 *first, global float4 *second,
                 float rest1, float beta2, float rest2, float epsilon, float correction1,
                 float root2)
{
    UPDATE_BEGIN
    const float4 m = fma((float4)(rest1), grad - first[i], first[i]);
    const float4 v = fma((float4)(rest2), grad * grad, beta2 * second[i]);
    first[i] = m;
    second[i] = v;
    w[i] = weight - (lr / correction1) * m / (sqrt(v) / root2 + epsilon);
}
