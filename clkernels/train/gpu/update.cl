/*
 * The end of a step on GPUs: the kernels of train/update.clh for float4, and the gradient's norm
 * and the step status. A work-item updates one float4; sums are joined by a tree in local memory.
 * Buckets have a multiple of 64 floats.
 */
#define GROUP 256
#define UPDATE_KERNEL kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
#define VEC float4
#define ITEM float4
#define LOAD_F(x, i) (x)[i]
#define STORE_F(v, x, i) (x)[i] = v
#define BEHIND(i, at) ((i) - (at) / 4)
#define EACH(i)                                                                                    \
    const int i = begin / 4 + (int)get_global_id(0);                                               \
    if (i < (begin + count) / 4)
#include "core/gpu/halves.clh"
#define LOAD_G(x, i) GET4(G_T, (x) + 4 * (i))
#define STORE_G(v, x, i) PUT4(G_T, v, (x) + 4 * (i))
#define ROUND_h(v) clt_widen4_h(clt_narrow4_h(v))
#define ROUND_w(v) as_float4(convert_uint4(clt_narrow4_w(v)) << 16)
#define ROUND_G(v) CLT_STORAGE(ROUND, G_T)(v)
#include "core/gpu/tree.clh"
#include "train/update.clh"

CLT_TREE(tree, ACC, CLT_ADD, GROUP, 1)

/* partials[2 * (first + group)] = sum of squares of the group's share of the bucket's `count`
 * elements behind `from`, and the next number = its elements that are not finite. */
UPDATE_KERNEL void square_sum(global const GITEM *g, int from, int count, global ACC *partials,
                              int first, int groups)
{
    local ACC s[GROUP];
    const int lid = (int)get_local_id(0), group = (int)get_group_id(0);
    ACC sum = 0, bad = 0;
#pragma unroll 4
    for (int i = group * GROUP + lid; i < count / 4; i += groups * GROUP) {
        const float4 v = LOAD_G(g, from / 4 + i);
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

/* Computes the step status from n partial sums, by one group. */
UPDATE_KERNEL void step_status(global const ACC *partials, int n, float clip, int guard,
                               global float *status)
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
    if (lid == 0)
        write_status(status, sum, bad, clip, guard);
}
