/*
 * Element-wise operators, and fused chains of them, for every shape.
 *
 * The host defines N_IN, the number of operands (1 to 4: a, b, c, d), and BODY, statements of
 * LET(name,value) and OUT(value) over the operands, the attribute's numbers p0 .. p3 and the batch
 * size n. T is the type of the operands, float or float16; p0 .. p3 and n are floats. The
 * expressions are in runtime/ops/elementwise/elementwise.c.
 *
 * A work-item computes 16 elements of the result.
 *   flat    operands and result have the same shape and layout
 *   spread  the result is n0 x .. x n5; its element (i0, .., i5) reads operand a at
 *           i0 * a0 + .. + i5 * a5, and the other operands likewise. A stride of 0 broadcasts.
 *
 * Operands and result may be stored in different types (core/operands.clh).
 */
#include "core/operands.clh"
#define EACH(X) X(a) IF2(X(b)) IF3(X(c)) IF4(X(d))

#define T float
static inline float one(float a IF2(, float b) IF3(, float c) IF4(, float d), float p0, float p1, float p2,
                 float p3, float n)
{
    BODY
}
#undef T

#define T float16
static inline float16 sixteen(float16 a IF2(, float16 b) IF3(, float16 c) IF4(, float16 d), float p0,
                       float p1, float p2, float p3, float n)
{
    BODY
}
#undef T

#define LOAD16_f(p) vload16(0, p)
#define LOAD16_h(p) vload_half16(0, (global const half *)(p))
#define LOAD16_w(p) as_float16(convert_uint16(vload16(0, p)) << 16)
#define LOAD16_b(p) convert_float16(vload16(0, p))
#define LOAD16(x) CLT_STORAGE(LOAD16, KIND_OF(x))(x)
#define STORE16_f(v, p) vstore16(v, 0, p)
#define STORE16_h(v, p) vstore_half16_rte(v, 0, (global half *)(p))
#define STORE16_w(v, p) vstore16(to_bf16(v), 0, p)
#define STORE16_b(v, p) vstore16(convert_uchar16(v), 0, p)
#define STORE16(v, p) CLT_STORAGE(STORE16, KIND_OF(out))(v, p)
#define READ(x, i) GET(KIND_OF(x), x + (i))

static inline ushort16 to_bf16(float16 v)
{
    const uint16 u = as_uint16(v), number = u + 0x7FFFu + (u >> 16 & 1u), nan = u | 0x00400000u;
    return convert_ushort16(select(number, nan, (u & 0x7FFFFFFFu) > 0x7F800000u) >> 16);
}

#define POINTERS                                                                                   \
    global const ELEMENT(a) *a_base,                                                               \
        long a_offset IF2(, global const ELEMENT(b) *b_base, long b_offset)                        \
            IF3(, global const ELEMENT(c) *c_base, long c_offset)                                  \
                IF4(, global const ELEMENT(d) *d_base, long d_offset),                             \
        global ELEMENT(out) *out_base, long out_offset, long count, float p0, float p1, float p2,  \
        float p3, int images

kernel void flat(POINTERS)
{
    const long at = (long)get_global_id(0) * 16;
    const float n = (float)images;
    if (at >= count)
        return;
#define POINT(x) global const ELEMENT(x) *x = x##_base + x##_offset + at;
    EACH(POINT)
    global ELEMENT(out) *out = out_base + out_offset + at;
    if (at + 16 <= count) {
        STORE16(sixteen(LOAD16(a) IF2(, LOAD16(b)) IF3(, LOAD16(c)) IF4(, LOAD16(d)), p0, p1, p2,
                        p3, n),
                out);
        return;
    }
    for (int i = 0; i < (int)(count - at); i++)
        PUT(KIND_OF(out),
            one(READ(a, i) IF2(, READ(b, i)) IF3(, READ(c, i)) IF4(, READ(d, i)), p0, p1, p2, p3,
                n),
            out + i);
}

#define STRIDES(x) , long x##0, long x##1, long x##2, long x##3, long x##4, long x##5

/* Splits `rest` into the indices i5, i4, .. i0. */
#define DIGIT(k)                                                                                   \
    long i##k = 0;                                                                                 \
    if (n##k > 1) {                                                                                \
        i##k = rest % n##k;                                                                        \
        rest /= n##k;                                                                              \
    }

kernel void spread(POINTERS, long n0, long n1, long n2, long n3, long n4, long n5 EACH(STRIDES))
{
    const long first = (long)get_global_id(0) * 16;
    const float n = (float)images;
    if (first >= count)
        return;
    const long end = min(first + 16, count);
    for (long at = first; at < end;) {
        long rest = at;
        DIGIT(5) DIGIT(4) DIGIT(3) DIGIT(2) DIGIT(1) DIGIT(0)
#define PLACE(x)                                                                                   \
    global const ELEMENT(x) *x = x##_base + x##_offset + i0 * x##0 + i1 * x##1 + i2 * x##2 +       \
                                 i3 * x##3 + i4 * x##4 + i5 * x##5;
        EACH(PLACE)
        global ELEMENT(out) *out = out_base + out_offset + at;
        const int run = (int)min(end - at, n5 - i5);
        at += run;
#define SMOOTH(x) &&(x##5 == 0 || x##5 == 1)
        if (run == 16 EACH(SMOOTH)) {
#define LOAD(x) (x##5 ? LOAD16(x) : (float16)(READ(x, 0)))
            STORE16(sixteen(LOAD(a) IF2(, LOAD(b)) IF3(, LOAD(c)) IF4(, LOAD(d)), p0, p1, p2, p3,
                            n),
                    out);
            continue;
        }
        for (int i = 0; i < run; i++)
            PUT(KIND_OF(out),
                one(READ(a, i * a5) IF2(, READ(b, i * b5)) IF3(, READ(c, i * c5))
                        IF4(, READ(d, i * d5)),
                    p0, p1, p2, p3, n),
                out + i);
    }
}
