/*
 * Statements, element by element. Options: N_IN (1 to 4 operands a, b, c, d) and BODY, made of
 * LET(name,value) and OUT(value) over the operands, the numbers p0 .. p3 and the batch count n; T is
 * the type of all but the numbers.
 *
 * A work-item computes 16 elements. flat: operands and result are stored alike. spread: operand a
 * is read at the sum of i0 * a0 .. i5 * a5, i0 .. i5 being the index in a result of n0 x .. x n5.
 * Operands and result may be bytes (operands.clh).
 */
#include "operands.clh"
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

#define LOAD16(x) convert_float16(vload16(0, x))
#define TO_STORED_f(v) v
#define TO_STORED_b(v) convert_uchar16(v)
#define TO_STORED(v) BY_KIND(TO_STORED, out)(v)

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
        vstore16(TO_STORED(sixteen(LOAD16(a) IF2(, LOAD16(b)) IF3(, LOAD16(c)) IF4(, LOAD16(d)), p0,
                                   p1, p2, p3, n)),
                 0, out);
        return;
    }
    for (int i = 0; i < (int)(count - at); i++)
        out[i] = (ELEMENT(out))one(a[i] IF2(, b[i]) IF3(, c[i]) IF4(, d[i]), p0, p1, p2, p3, n);
}

#define STRIDES(x) , long x##0, long x##1, long x##2, long x##3, long x##4, long x##5

/* The index's digits from the last on; `rest` keeps what is left. */
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
#define LOAD(x) (x##5 ? LOAD16(x) : (float16)((float)x[0]))
            vstore16(TO_STORED(sixteen(LOAD(a) IF2(, LOAD(b)) IF3(, LOAD(c)) IF4(, LOAD(d)), p0,
                                       p1, p2, p3, n)),
                     0, out);
            continue;
        }
        for (int i = 0; i < run; i++)
            out[i] = (ELEMENT(out))one(a[i * a5] IF2(, b[i * b5]) IF3(, c[i * c5])
                                           IF4(, d[i * d5]),
                                       p0, p1, p2, p3, n);
    }
}
