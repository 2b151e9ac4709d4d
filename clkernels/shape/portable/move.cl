/*
 * Copies and fills of elements as bits, on any device. A work-item handles 16 elements. Build
 * option: T, an unsigned integer type of the element's size.
 *
 * move: element (i0 .. i7) of n0 x .. x n7 goes from x[from + i0 * x0 + .. + i7 * x7] to
 * out[to + i0 * y0 + .. + i7 * y7]. fill: sets `count` contiguous elements to `bits`.
 */
/* Index along dimension k. `rest` is the linear index, from which the later dimensions are divided
 * off. */
#define DIGIT(k)                                                                                   \
    long i##k = 0;                                                                                 \
    if (n##k > 1) {                                                                                \
        i##k = rest % n##k;                                                                        \
        rest /= n##k;                                                                              \
    }

kernel void move(global const T *x_base, long x_offset, global T *out_base, long out_offset,
                 long from, long to, long count, long n0, long n1, long n2, long n3, long n4,
                 long n5, long n6, long n7, long x0, long x1, long x2, long x3, long x4, long x5,
                 long x6, long x7, long y0, long y1, long y2, long y3, long y4, long y5, long y6,
                 long y7)
{
    const long first = (long)get_global_id(0) * 16;
    if (first >= count)
        return;
    const long end = min(first + 16, count);
    for (long at = first; at < end;) {
        long rest = at;
        DIGIT(7) DIGIT(6) DIGIT(5) DIGIT(4) DIGIT(3) DIGIT(2) DIGIT(1) DIGIT(0)
        global const T *x = x_base + x_offset + from + i0 * x0 + i1 * x1 + i2 * x2 + i3 * x3 +
                            i4 * x4 + i5 * x5 + i6 * x6 + i7 * x7;
        global T *out = out_base + out_offset + to + i0 * y0 + i1 * y1 + i2 * y2 + i3 * y3 +
                        i4 * y4 + i5 * y5 + i6 * y6 + i7 * y7;
        const int run = (int)min(end - at, n7 - i7);
        for (int i = 0; i < run; i++)
            out[i * y7] = x[i * x7];
        at += run;
    }
}

kernel void fill(global T *out_base, long out_offset, long count, long bits)
{
    const long first = (long)get_global_id(0) * 16;
    if (first >= count)
        return;
    global T *out = out_base + out_offset + first;
    const int run = (int)min(16L, count - first);
    for (int i = 0; i < run; i++)
        out[i] = (T)bits;
}
