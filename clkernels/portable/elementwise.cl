/*
 * One expression, element by element. Options: N_IN (1 to 4 operands a, b, c, d), EXPR (of type T,
 * of the operands and the numbers p0, p1), TA .. TD and TO (element types; default float).
 *
 * flat: operands and result of the same stored elements. A work-item computes 16.
 * spread: operands are repeated along dimensions of stride 0. `size` holds the result's dimensions,
 * `sa` .. `sd` the operands' strides, 0 to repeat; up to 5 dimensions, the first padded with 1.
 */
#ifndef TA
#define TA float
#endif
#ifndef TB
#define TB float
#endif
#ifndef TC
#define TC float
#endif
#ifndef TD
#define TD float
#endif
#ifndef TO
#define TO float
#endif
#define GLUE_(a, b) a##b
#define GLUE(a, b) GLUE_(a, b)

#define PARAMETERS                                                                                 \
    global const TA *a_base, long a_offset IF2(, global const TB *b_base, long b_offset)           \
        IF3(, global const TC *c_base, long c_offset) IF4(, global const TD *d_base, long d_offset)
#if N_IN >= 2
#define IF2(...) __VA_ARGS__
#else
#define IF2(...)
#endif
#if N_IN >= 3
#define IF3(...) __VA_ARGS__
#else
#define IF3(...)
#endif
#if N_IN >= 4
#define IF4(...) __VA_ARGS__
#else
#define IF4(...)
#endif

#define T float
inline float one(float a IF2(, float b) IF3(, float c) IF4(, float d), float p0, float p1)
{
    return EXPR;
}
#undef T

#define T float16
inline float16 sixteen(float16 a IF2(, float16 b) IF3(, float16 c) IF4(, float16 d), float p0,
                       float p1)
{
    return EXPR;
}
#undef T

#define LOAD16(TYPE, p) convert_float16(GLUE(vload, 16)(0, p))

kernel void flat(PARAMETERS, global TO *out_base, long out_offset, long count, float p0, float p1)
{
    const long at = (long)get_global_id(0) * 16;
    if (at >= count)
        return;
    global const TA *a = a_base + a_offset + at;
    IF2(global const TB *b = b_base + b_offset + at;)
    IF3(global const TC *c = c_base + c_offset + at;)
    IF4(global const TD *d = d_base + d_offset + at;)
    global TO *out = out_base + out_offset + at;
    if (at + 16 <= count) {
        const float16 y = sixteen(LOAD16(TA, a) IF2(, LOAD16(TB, b)) IF3(, LOAD16(TC, c))
                                      IF4(, LOAD16(TD, d)),
                                  p0, p1);
        vstore16(GLUE(GLUE(convert_, TO), 16)(y), 0, out);
        return;
    }
    for (int i = 0; i < (int)(count - at); i++)
        out[i] = (TO)one(a[i] IF2(, b[i]) IF3(, c[i]) IF4(, d[i]), p0, p1);
}

kernel void spread(PARAMETERS, global TO *out_base, long out_offset, long count, int n1, int n2,
                   int n3, int n4, long a0, int a1, int a2, int a3, int a4
                   IF2(, long b0, int b1, int b2, int b3, int b4)
                   IF3(, long c0, int c1, int c2, int c3, int c4)
                   IF4(, long d0, int d1, int d2, int d3, int d4), float p0, float p1)
{
    const long i = (long)get_global_id(0);
    if (i >= count)
        return;
    const int i4 = (int)(i % n4);
    const long r3 = i / n4;
    const int i3 = (int)(r3 % n3);
    const long r2 = r3 / n3;
    const int i2 = (int)(r2 % n2);
    const long r1 = r2 / n2;
    const int i1 = (int)(r1 % n1);
    const long i0 = r1 / n1;
    const float a = a_base[a_offset + i0 * a0 + i1 * a1 + i2 * a2 + i3 * a3 + i4 * a4];
    IF2(const float b = b_base[b_offset + i0 * b0 + i1 * b1 + i2 * b2 + i3 * b3 + i4 * b4];)
    IF3(const float c = c_base[c_offset + i0 * c0 + i1 * c1 + i2 * c2 + i3 * c3 + i4 * c4];)
    IF4(const float d = d_base[d_offset + i0 * d0 + i1 * d1 + i2 * d2 + i3 * d3 + i4 * d4];)
    out_base[out_offset + i] = (TO)one(a IF2(, b) IF3(, c) IF4(, d), p0, p1);
}
