/*
 * Copies elements as bits between two strided arrays on CPUs (slices, concatenation, padding,
 * permutations of dimensions). Element (i0 .. i7) of n0 x .. x n7 goes from
 * x[from + i0 * x0 + .. + i7 * x7] to out[to + i0 * y0 + .. + i7 * y7]. All work-groups have one
 * work-item, which moves `share` of the `count` elements, in runs along n7.
 *
 * With FILL, all other elements of the result become `bits`. A work-item then moves whole blocks of
 * `inner` elements. For each block it first fills the `line` elements of the result that contain
 * the block, which stay in the caches until the block is moved.
 *
 * Global size: ceil(count / share). Build options: T, an unsigned integer type of the element's
 * size; VT, elements of a vector; FILL.
 */
#define LANES 4 /* for common.clh, whose vectors are not used here */
#include "core/batch_blocked/common.clh"

#define VECTOR(n) CLT_JOIN(T, n)
typedef VECTOR(VT) vec __attribute__((aligned(1)));
typedef VECTOR(8) vec8 __attribute__((aligned(1)));
typedef VECTOR(4) vec4 __attribute__((aligned(1)));

#define FAR (2048 / (int)sizeof(T)) /* distance of prefetches, in elements */

/* Copies `run` elements that are contiguous on both sides. The next run begins x_next and out_next
 * behind the ends of this run, and is prefetched. The last vector ends with the run, and so may
 * copy some elements twice. */
INLINE void copy(global const T *x, global T *out, long run, long x_next, long out_next)
{
    if (run >= VT) {
        const long near = run - FAR;
        long i = 0;
        for (; i + VT <= run; i += VT) {
            PREFETCH(x + i + FAR + (i < near ? 0 : x_next));
            PREFETCH(out + i + FAR + (i < near ? 0 : out_next));
            *(global vec *)(out + i) = *(global const vec *)(x + i);
        }
        if (i < run)
            *(global vec *)(out + run - VT) = *(global const vec *)(x + run - VT);
    } else if (run >= 8) {
        *(global vec8 *)out = *(global const vec8 *)x;
        *(global vec8 *)(out + run - 8) = *(global const vec8 *)(x + run - 8);
    } else if (run >= 4) {
        *(global vec4 *)out = *(global const vec4 *)x;
        *(global vec4 *)(out + run - 4) = *(global const vec4 *)(x + run - 4);
    } else {
        for (int i = 0; i < (int)run; i++)
            out[i] = x[i];
    }
}

INLINE void copy_steps(global const T *x, long x_step, global T *out, long out_step, long run,
                       long x_next, long out_next)
{
    /* Literal steps let the compiler vectorise these loops. */
    if (x_step == 1 && out_step == 1)
        copy(x, out, run, x_next, out_next);
    else if (x_step == 2 && out_step == 1)
        for (int i = 0; i < (int)run; i++)
            out[i] = x[2 * i];
    else if (x_step == 1 && out_step == 2)
        for (int i = 0; i < (int)run; i++)
            out[2 * i] = x[i];
    else
        for (long i = 0; i < run; i++)
            out[i * out_step] = x[i * x_step];
}

#if FILL
INLINE void fill(global T *out, long count, T bits)
{
    long i = 0;
    for (; i + VT <= count; i += VT) {
        PREFETCH(out + i + FAR);
        *(global vec *)(out + i) = (vec)(bits);
    }
    for (; i < count; i++)
        out[i] = bits;
}
#define FILLS , long bits, long inner, long line
#else
#define FILLS
#endif

#define NEXT(i, n, more)                                                                           \
    if (++i == n) {                                                                                \
        i = 0;                                                                                     \
        more;                                                                                      \
    }
#define EIGHT(x) long x##0, long x##1, long x##2, long x##3, long x##4, long x##5, long x##6, long x##7

KERNEL void move(global const T *x_base, long x_offset, global T *out_base, long out_offset,
                 long from, long to, long count, long share FILLS, EIGHT(n), EIGHT(x), EIGHT(y))
{
    long at = (long)get_global_id(0) * share;
    const long end = min(at + share, count);
    long i0 = 0, i1 = 0, i2 = 0, i3 = 0, i4 = 0, i5 = 0, i6 = 0, i7 = 0;
    x_base += x_offset + from;
    out_base += out_offset;
    if (at < end) {
#if FILL
        fill(out_base + at / inner * line, (end - at) / inner * line, (T)bits);
#endif
        long rest = at;
#define DIGIT(k)                                                                                   \
    if (n##k > 1) {                                                                                \
        i##k = rest % n##k;                                                                        \
        rest /= n##k;                                                                              \
    }
        DIGIT(7) DIGIT(6) DIGIT(5) DIGIT(4) DIGIT(3) DIGIT(2) DIGIT(1) DIGIT(0)
    }
    out_base += to;
    while (at < end) {
        global const T *x = x_base + i0 * x0 + i1 * x1 + i2 * x2 + i3 * x3 + i4 * x4 + i5 * x5 +
                            i6 * x6 + i7 * x7;
        global T *out = out_base + i0 * y0 + i1 * y1 + i2 * y2 + i3 * y3 + i4 * y4 + i5 * y5 +
                        i6 * y6 + i7 * y7;
        /* The rest of a line, then whole lines as long as they follow in dimension 6. */
        long run = min(end - at, n7 - i7);
        do {
            copy_steps(x, x7, out, y7, run, x6 - run, y6 - run);
            at += run;
            x += x6;
            out += y6;
            i6++;
        } while (run == n7 && i6 < n6 && at + run <= end);
        i7 = 0;
        if (i6 == n6) {
            i6 = 0;
            NEXT(i5, n5, NEXT(i4, n4, NEXT(i3, n3, NEXT(i2, n2, NEXT(i1, n1, i0++)))))
        }
    }
}
