/*
 * The second pass of losses, and the mean squared error, on GPUs. Build options: GROUP, work-items
 * of a group; V: 4 if float4 fits both operands of mse, else 1.
 */
#include "core/gpu/tree.clh"

#if V == 4
#define VEC float4
#else
#define VEC float
#endif

CLT_TREE(tree, float, CLT_ADD, GROUP, 1)
CLT_TREE(tree_longs, long, CLT_ADD, GROUP, 1)

/* One group adds up `parts` partial sums and counts in a fixed order. Writes the sum and, as a
 * float, the weight. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
loss_total(global const float *sums, long sums_offset, global const int *counts,
           long counts_offset, global float *sum, long sum_offset, global float *weight,
           long weight_offset, int parts)
{
    local float s[GROUP];
    local long n[GROUP];
    const int lid = (int)get_local_id(0);
    float total = 0.0f;
    long count = 0;
    for (int p = lid; p < parts; p += GROUP) {
        total += sums[sums_offset + p];
        count += counts[counts_offset + p];
    }
    total = tree(s, total, lid, lid);
    count = tree_longs(n, count, lid, lid);
    if (lid == 0) {
        sum[sum_offset] = total;
        weight[weight_offset] = (float)count;
    }
}

/* sum of (x - target)^2. Group p takes the elements from elements * p / parts on, in units of V;
 * its count is their number. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
mse(global const float *x, long x_offset, global const float *target, long target_offset,
    global float *sums, long sums_offset, global int *counts, long counts_offset, long elements,
    int parts)
{
    local float s[GROUP];
    const int lid = (int)get_local_id(0), part = (int)get_group_id(0);
    const long units = elements / V, first = units * part / parts * V,
               end = units * (part + 1) / parts * V;
    x += x_offset;
    target += target_offset;
    VEC total = 0.0f;
#pragma unroll 4
    for (long i = first + lid * V; i < end; i += GROUP * V) {
        const VEC difference =
            *(global const VEC *)(x + i) - *(global const VEC *)(target + i);
        total += difference * difference;
    }
#if V == 4
    const float all = tree(s, (total.x + total.z) + (total.y + total.w), lid, lid);
#else
    const float all = tree(s, total, lid, lid);
#endif
    if (lid == 0) {
        sums[sums_offset + part] = all;
        counts[counts_offset + part] = (int)(end - first);
    }
}

/* out = 2 upstream[0] (x - target), V elements a work-item. For the target's gradient, the caller
 * exchanges x and target. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
mse_grad(global const float *x, long x_offset, global const float *target, long target_offset,
         global const float *upstream, long upstream_offset, global float *out, long out_offset,
         long elements)
{
    const long i = (long)get_global_id(0) * V;
    if (i >= elements)
        return;
    *(global VEC *)(out + out_offset + i) =
        2.0f * upstream[upstream_offset] * (*(global const VEC *)(x + x_offset + i) -
                                            *(global const VEC *)(target + target_offset + i));
}
