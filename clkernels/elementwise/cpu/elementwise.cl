/*
 * Element-wise operators, and fused chains of them, on CPUs. N_IN, BODY and the strides a0 .. a5
 * are as in elementwise/portable/elementwise.cl. Work-groups have one work-item.
 *
 * A work-item computes `share` elements in runs. A run lies within one line of the last dimension
 * of the result, n0 x .. x n5. So vectors of a run need no index arithmetic, and operands that are
 * broadcast along the line are loaded once.
 *
 * With TERMS, the kernel is named `terms`. It stores no results, but adds them up: out[i] is the
 * sum of the results of work-item i (runtime/ops/loss/terms.c).
 *
 * Build options: N_IN, BODY; VW, lanes of a vector; SPLAT, a bit for each operand that is broadcast
 * along the last dimension (all others are contiguous there); TERMS.
 * Global size: ceil(count / share).
 */
#define LANES VW
#include "core/batch_blocked/log.clh"

#define exp clt_exp
#define tanh clt_tanh
#define erf clt_erf
#define log clt_log
#define log1p clt_log1p
#define rsqrt(x) (1.0f / sqrt(x))

#include "core/batch_blocked/halves.clh"
#include "core/operands.clh"
#define EACH(X) X(a, 1) IF2(X(b, 2)) IF3(X(c, 4)) IF4(X(d, 8))
#define EACH_AS_ARGUMENT(X) X(a, 1) IF2(, X(b, 2)) IF3(, X(c, 4)) IF4(, X(d, 8))

#define T vecf

#define OPERAND(x, bit) T x
INLINE T compute(EACH_AS_ARGUMENT(OPERAND), float p0, float p1, float p2, float p3, float n)
{
    BODY
}

/* A whole vector of an operand; the last `rest` elements of a run; a prefetch. */
#define WHOLE(x, bit) (SPLAT & bit ? x##_splat : LOAD_AS(KIND_OF(x), x + i))
#define PART(x, bit) (SPLAT & bit ? x##_splat : LOAD_PART_AS(KIND_OF(x), x + i, rest, 0.0f))
#define FETCH(x, bit)                                                                              \
    if (!(SPLAT & bit))                                                                            \
        PREFETCH(x + i + AHEAD);

#define POINTER(x, bit) global const ELEMENT(x) *x##_base, long x##_offset
#define STRIDES(x, bit) , long x##0, long x##1, long x##2, long x##3, long x##4, long x##5

/* TAKE stores a vector of the result, or with TERMS adds it up. */
#ifdef TERMS
#define NAME terms
#define TAKE(y, place) all += y
#define TAKE_PART(y, place, rest) all += select((vecf)0.0f, y, LANE_NUMBERS < (veci)(rest))
#else
#define NAME runs
#define TAKE(y, place) STORE_AS(KIND_OF(out), y, place)
#define TAKE_PART(y, place, rest) STORE_PART_AS(KIND_OF(out), y, place, rest)
#endif

KERNEL void NAME(EACH_AS_ARGUMENT(POINTER), global ELEMENT(out) *out, long out_offset,
                 long count, long share, float p0, float p1, float p2, float p3, int images,
                 long n0, long n1, long n2, long n3, long n4, long n5 EACH(STRIDES))
{
    const float n = (float)images;
    long at = (long)get_global_id(0) * share;
    const long end = min(at + share, count);
    long i0 = 0, i1 = 0, i2 = 0, i3 = 0, i4 = 0, i5 = 0;
#ifdef TERMS
    vecf all = (vecf)0.0f;
#endif
    if (at < end) { /* with TERMS, work-items beyond the last element run too */
        long rest = at;
#define DIGIT(k)                                                                                   \
    i##k = rest % n##k;                                                                            \
    rest /= n##k;
        DIGIT(5) DIGIT(4) DIGIT(3) DIGIT(2) DIGIT(1) DIGIT(0)
    }
    out += out_offset;
    while (at < end) {
        const long run = min(end - at, n5 - i5);
#define PLACE(x, bit)                                                                              \
    global const ELEMENT(x) *x = x##_base + x##_offset + i0 * x##0 + i1 * x##1 + i2 * x##2 +       \
                                 i3 * x##3 + i4 * x##4 + i5 * x##5;
        EACH(PLACE)
        /* Loaded before the loop, because the compiler cannot know that stores to the result leave
         * the operands unchanged. */
#define REPEAT(x, bit) const vecf x##_splat = SPLAT & bit ? GET(KIND_OF(x), x) : 0.0f;
        EACH(REPEAT)
        long i = 0;
        for (; i + VW <= run; i += VW) {
            EACH(FETCH)
#ifndef TERMS
            PREFETCH(out + at + i + AHEAD);
#endif
            const vecf y = compute(EACH_AS_ARGUMENT(WHOLE), p0, p1, p2, p3, n);
            TAKE(y, out + at + i);
        }
        if (i < run) {
            const int rest = (int)(run - i);
            const vecf y = compute(EACH_AS_ARGUMENT(PART), p0, p1, p2, p3, n);
            TAKE_PART(y, out + at + i, rest);
        }
        at += run;
        i5 = 0;
        /* Advance to the next line. */
        if (++i4 == n4) {
            i4 = 0;
            if (++i3 == n3) {
                i3 = 0;
                if (++i2 == n2) {
                    i2 = 0;
                    if (++i1 == n1) {
                        i1 = 0;
                        i0++;
                    }
                }
            }
        }
    }
#ifdef TERMS
    out[get_global_id(0)] = clt_sum_lanes(all);
#endif
}
