/*
 * Element-wise operators, and fused chains of them, on GPUs. N_IN, BODY, `flat` and `spread` are as
 * in elementwise/portable/elementwise.cl. A work-item computes V neighbouring elements, the next
 * work-item the next V.
 *
 * Build options: N_IN, BODY; V: 4 or 1; SPREAD: 0 for `flat`, else how many of the sizes n0 .. n5
 * are used, from n5 on; REPEAT: a bit for each operand that is broadcast along n5. With V = 4, the
 * other operands are contiguous along n5, which is a multiple of 4.
 */
#include "core/gpu/halves.clh"
#include "core/operands.clh"
#define EACH(X) X(a, 1) IF2(X(b, 2)) IF3(X(c, 4)) IF4(X(d, 8))

#if V == 4
#define VEC float4
#define WHOLE(x, p) GET4(KIND_OF(x), p)
#define WRITE(y, p) PUT4(KIND_OF(out), y, p)
#else
#define VEC float
#define WHOLE(x, p) GET(KIND_OF(x), p)
#define WRITE(y, p) PUT(KIND_OF(out), y, p)
#endif

#define T VEC
static inline VEC vector(VEC a IF2(, VEC b) IF3(, VEC c) IF4(, VEC d), float p0, float p1, float p2,
                         float p3, float n)
{
    BODY
}
#undef T

#define POINTERS                                                                                   \
    global const ELEMENT(a) *a_base,                                                               \
        long a_offset IF2(, global const ELEMENT(b) *b_base, long b_offset)                        \
            IF3(, global const ELEMENT(c) *c_base, long c_offset)                                  \
                IF4(, global const ELEMENT(d) *d_base, long d_offset),                             \
        global ELEMENT(out) *out_base, long out_offset, long count, float p0, float p1, float p2,  \
        float p3, int images

#if !SPREAD

kernel void flat(POINTERS)
{
    const long at = (long)get_global_id(0) * V;
    const float n = (float)images;
    if (at >= count)
        return;
#define POINT(x, bit) global const ELEMENT(x) *x = x##_base + x##_offset + at;
    EACH(POINT)
    global ELEMENT(out) *out = out_base + out_offset + at;
#if V == 4
    const int left = (int)min(count - at, 4L);
#define LOAD(x) (left == 4 ? WHOLE(x, x) : GET_EDGE(KIND_OF(x), x, left))
#else
#define LOAD(x) GET(KIND_OF(x), x)
#endif
    const VEC y = vector(LOAD(a) IF2(, LOAD(b)) IF3(, LOAD(c)) IF4(, LOAD(d)), p0, p1, p2, p3, n);
#if V == 4
    if (left < 4) {
        PUT_EDGE(KIND_OF(out), y, out, left);
        return;
    }
#endif
    WRITE(y, out);
}

#else

#define STRIDES(x, bit) , long x##0, long x##1, long x##2, long x##3, long x##4, long x##5

/* Splits `rest` into the indices i5, i4, .. i0; those of unused sizes are 0. */
#define DIGIT(k)                                                                                   \
    const int i##k = SPREAD > 6 - k ? rest % (int)n##k : rest;                                     \
    rest = SPREAD > 6 - k ? rest / (int)n##k : 0;

kernel void spread(POINTERS, long n0, long n1, long n2, long n3, long n4, long n5 EACH(STRIDES))
{
    const int at = (int)get_global_id(0) * V;
    const float n = (float)images;
    if (at >= (int)count)
        return;
    int rest = at;
    DIGIT(5) DIGIT(4) DIGIT(3) DIGIT(2) DIGIT(1) DIGIT(0)
#define PLACE(x, bit)                                                                              \
    global const ELEMENT(x) *x##_at = x##_base + x##_offset + i0 * x##0 + i1 * x##1 +              \
                                      i2 * x##2 + i3 * x##3 + i4 * x##4 + i5 * x##5;               \
    VEC x;                                                                                         \
    if (V == 1 || REPEAT & bit)                                                                    \
        x = (VEC)(GET(KIND_OF(x), x##_at));                                                               \
    else                                                                                           \
        x = WHOLE(x, x##_at);
    EACH(PLACE)
    WRITE(vector(a IF2(, b) IF3(, c) IF4(, d), p0, p1, p2, p3, n), out_base + out_offset + at);
}

#endif
