/*
 * Batch norm on GPUs; norm/batch_norm.clh has the formulas and arguments. Sums: work-group (i, j)
 * has WIDTH neighbouring channels and share j of the images; GROUP / WIDTH work-items add up one
 * channel and join their results in local memory. Element-wise kernels: a work-item computes one
 * vector of V elements.
 *
 * Build options: GROUP, work-items of a group; WIDTH: 1, or more if the elements of a channel are
 * not contiguous (V is 1 then); V: 4 if float4 fits the pixels of a channel, else 1; those of
 * norm/batch_norm.clh.
 */
#include "core/gpu/halves.clh"
#include "core/gpu/tree.clh"
#include "norm/batch_norm.clh"

#if V == 4
#define AT(kind, p, i) GET4(kind, (p) + (i))
#define TO(kind, v, p, i) PUT4(kind, v, (p) + (i))
#define VEC float4
#define SUM_OF(v) (((v).x + (v).z) + ((v).y + (v).w))
#else
#define AT(kind, p, i) GET(kind, (p) + (i))
#define TO(kind, v, p, i) PUT(kind, v, (p) + (i))
#define VEC float
#define SUM_OF(v) (v)
#endif
#define HEIGHT (GROUP / WIDTH)
#define KERNEL kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))

CLT_TREE(tree_sums, float2, CLT_ADD, HEIGHT, WIDTH)

CLT_TREE(tree_moments, float4, join_two, HEIGHT, WIDTH)

/* Finds the group's share `part` of the images and the work-item's channel c. Work-items beyond the
 * last channel are not `inside` and get no elements. */
#define BEGIN                                                                                      \
    const int lid = (int)get_local_id(0), row = lid / WIDTH, part = (int)get_group_id(1);          \
    const int own = (int)get_group_id(0) * WIDTH + lid % WIDTH, inside = own < C;                  \
    const int c = inside ? own : 0, vectors = pixels / V;                                          \
    const int end = inside ? (int)((long)images * (part + 1) / parts) : 0;

/* Loop over the work-item's vectors of its channel; `at` is the offset of a vector. The image b and
 * the vector o in it advance together by additions, because divisions are slow. */
#define EACH(at)                                                                                   \
    for (int b = (int)((long)images * part / parts) + row / vectors, o = row % vectors, once = 1;  \
         b < end; o += HEIGHT % vectors, b += HEIGHT / vectors + (o >= vectors),                   \
             o -= o >= vectors ? vectors : 0, once = 1)                                            \
        for (const long at = ((long)b * C + c) * pixels + (long)o * V; once; once = 0)

/* Welford's update with V values at a time: `middle` is the mean of a vector's values. */
KERNEL void batch_norm_moments(MOMENTS_ARGUMENTS, int parts)
{
    local float4 s[GROUP];
    BEGIN
    float mean = 0.0f, squares = 0.0f, count = 0.0f;
    x += x_offset;
    EACH(at)
    {
        const VEC v = AT(IN0, x, at);
        const float middle = SUM_OF(v) * (1.0f / V), delta = middle - mean;
        const VEC far = v - middle, square = far * far;
        count += 1.0f;
        mean += delta / count;
        squares += SUM_OF(square) + delta * (middle - mean) * V;
    }
    const float4 all =
        tree_moments(s, (float4)(mean, squares, count * V, 0.0f), lid, row);
    if (row == 0 && inside) {
        out += out_offset + 3L * part * C;
        out[c] = all.x;
        out[C + c] = all.y;
        out[2 * C + c] = all.z;
    }
}

/* d, or 0 if the ReLU of the forward pass gave 0. */
static inline VEC through(VEC d, VEC far, float scale, float bias)
{
#if RELU
    return fma(far, (VEC)scale, (VEC)bias) <= 0.0f ? (VEC)(0.0f) : d;
#else
    return d;
#endif
}

KERNEL void batch_norm_grad_sums(SUMS_ARGUMENTS, int parts)
{
    local float2 s[GROUP];
    BEGIN
    CHANNEL(k, c)
    VEC sum = 0.0f, product = 0.0f;
    x += x_offset;
    dy += dy_offset;
    EACH(at)
    {
        const VEC far = AT(IN0, x, at) - k.mean, d = through(AT(IN1, dy, at), far, k.scale, k.bias);
        sum += d;
        product = fma(d, far, product);
    }
    const float2 all = tree_sums(s, (float2)(SUM_OF(sum), SUM_OF(product)), lid, row);
    if (row == 0 && inside) {
        out[out_offset + 2L * part * C + c] = all.x;
        out[out_offset + (2L * part + 1) * C + c] = all.y * k.rstd;
    }
}

/* Finds the work-item's vector i and channel c, and far = x - mean. */
#define ELEMENT                                                                                    \
    const long i = (long)get_global_id(0) * V;                                                     \
    if (i >= (long)images * C * pixels)                                                            \
        return;                                                                                    \
    const int c = (int)((uint)(i / pixels) % (uint)C);                                             \
    CHANNEL(k, c)                                                                  \
    const VEC far = AT(IN0, x + x_offset, i) - k.mean;

KERNEL void batch_norm(FORWARD_ARGUMENTS)
{
    ELEMENT
    VEC y = fma(far, (VEC)k.scale, (VEC)k.bias);
    IF_ADD(y += AT(IN4, addend + addend_offset, i);)
#if RELU
    y = y < 0.0f ? (VEC)(0.0f) : y;
#endif
    TO(OUT0, y, out + out_offset, i);
}

KERNEL void batch_norm_grad(GRAD_ARGUMENTS)
{
    ELEMENT
    TAKEN(factor, term, k, c)
    const VEC d = through(AT(IN1, dy + dy_offset, i), far, k.scale, k.bias);
    TO(OUT0, d * k.scale - far * factor - term, out + out_offset, i);
}
