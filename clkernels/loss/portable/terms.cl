/*
 * Losses that add up a function of the elements at one index: sum over i of f(a[i], b[i], ..). N_IN
 * operands have the names a, b, c and d. Build options: N_IN, and BODY, the statements that compute
 * f, as in elementwise/portable/elementwise.cl but without the batch size n.
 *
 * terms: work-item p of `parts` adds up the elements from count * p / parts on, and writes sums[p].
 * The index has up to six dimensions of sizes n0 .. n5. Operand x has strides x0 .. x5, which are 0
 * for broadcast dimensions. terms_total: one work-item adds up the parts in order and writes the
 * weight `count`. Blocks of 64 are added up separately, which keeps rounding errors small.
 */
#include "core/operands.clh"
#define EACH(X) X(a) IF2(X(b)) IF3(X(c)) IF4(X(d))

#define T float
static inline float one(float a IF2(, float b) IF3(, float c) IF4(, float d), float p0, float p1,
                        float p2, float p3)
{
    BODY
}
#undef T

#define STRIDES(x) , long x##0, long x##1, long x##2, long x##3, long x##4, long x##5

/* Index along dimension k. `rest` is the linear index, from which the later dimensions are divided
 * off. */
#define DIGIT(k)                                                                                   \
    long i##k = 0;                                                                                 \
    if (n##k > 1) {                                                                                \
        i##k = rest % n##k;                                                                        \
        rest /= n##k;                                                                              \
    }
#define AT(x)                                                                                      \
    GET(KIND_OF(x), x##_base + x##_offset + i0 * x##0 + i1 * x##1 + i2 * x##2 + i3 * x##3 +        \
                        i4 * x##4 + i5 * x##5)

kernel void terms(global const ELEMENT(a) *a_base,
                  long a_offset IF2(, global const ELEMENT(b) *b_base, long b_offset)
                      IF3(, global const ELEMENT(c) *c_base, long c_offset)
                          IF4(, global const ELEMENT(d) *d_base, long d_offset),
                  global float *sums, long sums_offset, long count, float p0, float p1, float p2,
                  float p3, int parts, long n0, long n1, long n2, long n3, long n4,
                  long n5 EACH(STRIDES))
{
    const int part = (int)get_global_id(0);
    if (part >= parts)
        return;
    const long first = count * part / parts, end = count * (part + 1) / parts;
    float total = 0.0f;
    for (long from = first; from < end; from += 64) {
        const long stop = min(from + 64, end);
        float block = 0.0f;
        for (long at = from; at < stop; at++) {
            long rest = at;
            DIGIT(5) DIGIT(4) DIGIT(3) DIGIT(2) DIGIT(1) DIGIT(0)
            block += one(AT(a) IF2(, AT(b)) IF3(, AT(c)) IF4(, AT(d)), p0, p1, p2, p3);
        }
        total += block;
    }
    sums[sums_offset + part] = total;
}

kernel void terms_total(global const float *sums, long sums_offset, global float *sum,
                        long sum_offset, global float *weight, long weight_offset, int parts,
                        long count)
{
    if (get_global_id(0) > 0)
        return;
    float total = 0.0f;
    for (int from = 0; from < parts; from += 64) {
        const int end = min(from + 64, parts);
        float block = 0.0f;
        for (int p = from; p < end; p++)
            block += sums[sums_offset + p];
        total += block;
    }
    sum[sum_offset] = total;
    weight[weight_offset] = (float)count;
}
