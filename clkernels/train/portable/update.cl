/*
 * The end of a step on CPUs: the kernels of train/update.clh for float16, and the gradient's norm
 * and the step status. Buckets are arrays of `count` floats, a multiple of 64; a work-item updates
 * CHUNK of them.
 */
#define UPDATE_KERNEL kernel
#define CHUNK 64
#define VEC float16
#define ITEM float
#define LOAD_F(x, i) vload16(0, (x) + (i))
#define STORE_F(v, x, i) vstore16(v, 0, (x) + (i))
#define BEHIND(i, at) ((i) - (at))
#define EACH(i)                                                                                    \
    const int at = begin + (int)get_global_id(0) * CHUNK;                                          \
    if (at < begin + count)                                                                        \
        for (int i = at; i < at + CHUNK; i += 16)
#define LANES 16
#include "core/batch_blocked/halves.clh"
#define LOAD_G(x, i) LOAD_AS(G_T, (x) + (i))
#define STORE_G(v, x, i) STORE_AS(G_T, v, (x) + (i))
#define ROUND_h(v) clt_widen_h(clt_narrow_h(v))
#define ROUND_w(v) clt_widen_w(clt_narrow_w(v))
#define ROUND_G(v) CLT_STORAGE(ROUND, G_T)(v)
#include "train/update.clh"

/* partials[2 * (first + group)] = sum of squares of the work-item's share of the bucket's `count`
 * elements behind `from`, and the next number = its elements that are not finite. The share is
 * contiguous chunks. Squares are added up lane by lane, and the lanes at the end, so the order is
 * fixed. */
kernel void square_sum(global const GITEM *g, int from, int count, global ACC *partials, int first,
                       int groups)
{
    const int group = (int)get_global_id(0), chunks = count / CHUNK;
    ACC16 sum = 0;
    int16 wrong = 0;
    if (group >= groups)
        return;
    const int begin = (int)((long)chunks * group / groups) * CHUNK;
    const int end = (int)((long)chunks * (group + 1) / groups) * CHUNK;
    for (int c = begin; c < end; c += CHUNK) {
        float16 s = 0;
        for (int i = 0; i < CHUNK; i += 16) {
            const float16 v = LOAD_G(g, from + c + i);
            s = fma(v, v, s);
            wrong -= !isfinite(v); /* -1 where it is true */
        }
        sum += CONVERT_ACC16(s);
    }
    ACC lanes[16], total = 0, bad = 0;
    int flags[16];
    vstore16(sum, 0, lanes);
    vstore16(wrong, 0, flags);
    for (int i = 0; i < 16; i++) {
        total += lanes[i];
        bad += flags[i];
    }
    partials[2 * (first + group)] = total;
    partials[2 * (first + group) + 1] = bad;
}

enum { STEP_STATUS = 8 }; /* floats */

/* Computes the step status from n partial sums in order, by one work-item. Entry `entry` of
 * `reports`, which the host reads, is a copy. */
kernel void step_status(global const ACC *partials, int n, float clip, int guard,
                        global float *status, global float *reports, int entry)
{
    ACC sum = 0, bad = 0;
    for (int i = 0; i < n; i++) {
        sum += partials[2 * i];
        bad += partials[2 * i + 1];
    }
    write_status(status, sum, bad, clip, guard);
    for (int i = 0; i < STEP_STATUS; i++)
        reports[entry * STEP_STATUS + i] = status[i];
}
