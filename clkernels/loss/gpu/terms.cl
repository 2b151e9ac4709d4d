/*
 * Losses that add up a function of the elements at one index, on GPUs: sum over i of f(a[i], b[i],
 * ..). N_IN operands have the names a, b, c and d.
 *
 * terms: group p of `parts` takes the elements from count * p / parts on, in units of V, and writes
 * sums[p]. terms_total: one group adds up the parts and writes the weight `count`. The order of
 * both sums is fixed.
 *
 * Build options:
 * - N_IN, BODY: number of operands, and the statements that compute f, as in
 *   elementwise/portable/elementwise.cl but without the batch size n.
 * - GROUP: work-items of a group.
 * - V: 4 if all operands have equal strides and float4 fits them, else 1.
 * - SPREAD: how many of the sizes n0 .. n5 are used, the last ones; 0 if all operands have equal
 *   strides. Operand x has strides x0 .. x5, which are 0 for broadcast dimensions.
 */
#include "core/gpu/tree.clh"
#include "core/gpu/halves.clh"
#include "core/operands.clh"
#define EACH(X) X(a) IF2(X(b)) IF3(X(c)) IF4(X(d))

#if V == 4
#define VEC float4
#define READ(kind, p) GET4(kind, p)
#else
#define VEC float
#define READ(kind, p) GET(kind, p)
#endif

CLT_TREE(tree, float, CLT_ADD, GROUP, 1)

#define T VEC
static inline VEC vector(VEC a IF2(, VEC b) IF3(, VEC c) IF4(, VEC d), float p0, float p1, float p2,
                         float p3)
{
    BODY
}
#undef T

#define STRIDES(x) , long x##0, long x##1, long x##2, long x##3, long x##4, long x##5

#if SPREAD
#define SIZES , long n0, long n1, long n2, long n3, long n4, long n5 EACH(STRIDES)
/* Index along dimension k. `rest` is the linear index, from which the later dimensions are divided
 * off. */
#define DIGIT(k)                                                                                   \
    const int i##k = SPREAD > 6 - k ? rest % (int)n##k : rest;                                     \
    rest = SPREAD > 6 - k ? rest / (int)n##k : 0;
#define AT(x)                                                                                      \
    GET(KIND_OF(x), x##_base + x##_offset + i0 * x##0 + i1 * x##1 + i2 * x##2 + i3 * x##3 +        \
                        i4 * x##4 + i5 * x##5)
#else
#define SIZES
#define AT(x) READ(KIND_OF(x), x##_base + x##_offset + at)
#endif

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
terms(global const ELEMENT(a) *a_base, long a_offset IF2(, global const ELEMENT(b) *b_base, long b_offset)
          IF3(, global const ELEMENT(c) *c_base, long c_offset)
              IF4(, global const ELEMENT(d) *d_base, long d_offset),
      global float *sums, long sums_offset, long count, float p0, float p1, float p2, float p3,
      int parts SIZES)
{
    local float s[GROUP];
    const int lid = (int)get_local_id(0), part = (int)get_group_id(0);
    const long units = count / V;
    const int first = (int)(units * part / parts) * V, end = (int)(units * (part + 1) / parts) * V;
    VEC total = 0.0f;
/* Not unrolled: four iterations of BODY at a time need twice the registers. */
#pragma unroll 1
    for (int at = first + lid * V; at < end; at += GROUP * V) {
#if SPREAD
        int rest = at;
        DIGIT(5) DIGIT(4) DIGIT(3) DIGIT(2) DIGIT(1) DIGIT(0)
#endif
        total += vector(AT(a) IF2(, AT(b)) IF3(, AT(c)) IF4(, AT(d)), p0, p1, p2, p3);
    }
#if V == 4
    const float all = tree(s, (total.x + total.z) + (total.y + total.w), lid, lid);
#else
    const float all = tree(s, total, lid, lid);
#endif
    if (lid == 0)
        sums[sums_offset + part] = all;
}

kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
terms_total(global const float *sums, long sums_offset, global float *sum, long sum_offset,
            global float *weight, long weight_offset, int parts, long count)
{
    local float s[GROUP];
    const int lid = (int)get_local_id(0);
    float total = 0.0f;
    for (int p = lid; p < parts; p += GROUP)
        total += sums[sums_offset + p];
    total = tree(s, total, lid, lid);
    if (lid == 0) {
        sum[sum_offset] = total;
        weight[weight_offset] = (float)count;
    }
}
