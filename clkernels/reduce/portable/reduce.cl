/*
 * Sums, maxima and counts over axes, on any device. Result o of `count` has index (i0 .. i3) in
 * k0 x .. x k3 and begins at x[i0 * a0 + .. + i3 * a3]. Its `length` elements lie
 * j0 * b0 + .. + j3 * b3 further, for (j0 .. j3) in r0 x .. x r3. A work-item computes one result.
 * If there are few results, `parts` work-items compute partial ones, each over an equal share of
 * the elements in order, and a second kernel joins these in order.
 */
#include "core/storage.clh"

#define SIZES(x) long x##0, long x##1, long x##2, long x##3
#define ARGUMENTS                                                                                  \
    global float *out_base, long out_offset, long count, int parts, long length, int divide,      \
        SIZES(k), SIZES(a), SIZES(r), SIZES(b)

#define DIGIT(i, n)                                                                                \
    long i = 0;                                                                                    \
    if (n > 1) {                                                                                   \
        i = rest % n;                                                                              \
        rest /= n;                                                                                 \
    }

/* Finds the work-item's result o, its first element `start` in x, and its share [at, end) of the
 * elements. */
#define BEGIN                                                                                      \
    const long item = (long)get_global_id(0);                                                      \
    if (item >= count * parts)                                                                     \
        return;                                                                                    \
    const long o = item % count, share = (length + parts - 1) / parts;                             \
    long at = item / count * share, start;                                                         \
    const long end = min(at + share, length);                                                      \
    {                                                                                              \
        long rest = o;                                                                             \
        DIGIT(i3, k3) DIGIT(i2, k2) DIGIT(i1, k1) DIGIT(i0, k0)                                    \
        start = x_offset + i0 * a0 + i1 * a1 + i2 * a2 + i3 * a3;                                  \
    }

/* Finds the next run: at most 256 elements from x on that lie b3 apart. Advances `at`. */
#define RUN                                                                                        \
    long rest = at;                                                                                \
    DIGIT(j3, r3) DIGIT(j2, r2) DIGIT(j1, r1) DIGIT(j0, r0)                                        \
    global const STORED(IN0) *x = x_base + start + j0 * b0 + j1 * b1 + j2 * b2 + j3 * b3;                \
    const int run = (int)min(min(end - at, r3 - j3), 256L);                                        \
    at += run;

/* Sums, or means if `divide`. Each run is added up separately, which keeps rounding errors
 * small. */
kernel void add(global const STORED(IN0) *x_base, long x_offset, ARGUMENTS)
{
    BEGIN
    float total = 0;
    while (at < end) {
        RUN
        float sum = 0;
        int i = 0;
#if EXACT(IN0)
        if (b3 == 1 && run >= 16) {
            float16 sums = 0;
            for (; i + 16 <= run; i += 16)
                sums += vload16(0, x + i);
            sum = ((sums.s0 + sums.s8) + (sums.s4 + sums.sc)) +
                  ((sums.s1 + sums.s9) + (sums.s5 + sums.sd)) +
                  (((sums.s2 + sums.sa) + (sums.s6 + sums.se)) +
                   ((sums.s3 + sums.sb) + (sums.s7 + sums.sf)));
        }
#endif
        for (; i < run; i++)
            sum += GET(IN0, x + i * b3);
        total += sum;
    }
    out_base[out_offset + item] = divide ? (length ? total / (float)length : 0.0f) : total;
}

/* Maxima; NaN is the largest. */
kernel void largest(global const STORED(IN0) *x_base, long x_offset, ARGUMENTS)
{
    BEGIN
    float most = -INFINITY;
    while (at < end) {
        RUN
        for (int i = 0; i < run; i++) {
            const float value = GET(IN0, x + i * b3);
            most = value > most || isnan(value) ? value : most;
        }
    }
    out_base[out_offset + item] = most;
}

/* The number of elements that equal y, the maximum. */
kernel void count_equal(global const STORED(IN0) *x_base, long x_offset, global const float *y_base,
                        long y_offset, ARGUMENTS)
{
    BEGIN
    const float y = y_base[y_offset + o];
    float found = 0;
    while (at < end) {
        RUN
        for (int i = 0; i < run; i++)
            found += GET(IN0, x + i * b3) == y ? 1.0f : 0.0f;
    }
    out_base[out_offset + item] = found;
}

/* Joins partial sums [parts, count] in order. max_parts joins maxima. */
kernel void add_parts(global const float *part_base, long part_offset, global float *out_base,
                      long out_offset, long count, int parts, long length, int divide)
{
    const long o = (long)get_global_id(0);
    if (o >= count)
        return;
    float total = 0;
    for (int p = 0; p < parts; p++)
        total += part_base[part_offset + p * count + o];
    out_base[out_offset + o] = divide ? (length ? total / (float)length : 0.0f) : total;
}

kernel void max_parts(global const float *part_base, long part_offset, global float *out_base,
                      long out_offset, long count, int parts, long length, int divide)
{
    const long o = (long)get_global_id(0);
    if (o >= count)
        return;
    float most = -INFINITY;
    for (int p = 0; p < parts; p++) {
        const float value = part_base[part_offset + p * count + o];
        most = value > most || isnan(value) ? value : most;
    }
    out_base[out_offset + o] = most;
}
