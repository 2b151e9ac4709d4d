/*
 * What happens to buckets at the end of a step: the gradient's norm, the step's word, the
 * optimizers, and sums of micro-batches. Buckets are flat arrays of `count` floats (a multiple of
 * 64); a work-item owns CHUNK of them.
 */
#define KERNEL kernel
#define CHUNK 64
#define VEC float16
#define ITEM float
#define LOAD(x, i) vload16(0, (x) + (i))
#define STORE(v, x, i) vstore16(v, 0, (x) + (i))
#define EACH(i)                                                                                    \
    const int at = begin + (int)get_global_id(0) * CHUNK;                                          \
    if (at < begin + count)                                                                        \
        for (int i = at; i < at + CHUNK; i += 16)
#include "train/update.clh"

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
    write_word(word, sum, bad, clip, guard);
}
