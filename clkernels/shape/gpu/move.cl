/*
 * Copies elements as bits between strided arrays on GPUs. A work-item copies V elements side by
 * side, and its neighbours the next ones, so that stores are coalesced.
 *
 * Build options: E, an unsigned integer type of the element's size; T, the type that V elements are
 * read as: an unsigned integer, uint2 or uint4; V; RANK: how many of the sizes n0 .. n7 are used,
 * the last ones. If V is larger than 1, the host guarantees that steps along n7 are 1, and that all
 * other steps, all offsets, and sizes along n7 are multiples of V.
 */
#define GROUP 256
#define KERNEL kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
#define EIGHT(x) int x##0, int x##1, int x##2, int x##3, int x##4, int x##5, int x##6, int x##7
#define ALL(X) X(7) X(6) X(5) X(4) X(3) X(2) X(1) X(0)

/* Index along dimension k. `rest` is the linear index, from which the later dimensions are divided
 * off. */
#define DIGIT(k)                                                                                   \
    const int i##k = RANK > 8 - k ? rest % n##k : rest;                                            \
    rest = RANK > 8 - k ? rest / n##k : 0;

/* Element (i0 .. i7) of n0 x .. x n7 goes from x[from + i0 * x0 + .. + i7 * x7] to
 * out[to + i0 * y0 + .. + i7 * y7]. */
KERNEL void move(global const E *x, long x_offset, global E *out, long out_offset, int from, int to,
                 int count, EIGHT(n), EIGHT(x), EIGHT(y))
{
    const int at = (int)get_global_id(0) * V;
    if (at >= count)
        return;
    int rest = at, read = from, write = to;
    ALL(DIGIT)
#define STEP(k)                                                                                    \
    read += i##k * x##k;                                                                           \
    write += i##k * y##k;
    ALL(STEP)
    *(global T *)(out + out_offset + write) = *(global const T *)(x + x_offset + read);
}

/* Writes a whole result n0 x .. x n7: an array m0 x .. x m7 is placed in it, and the other elements
 * become `fill`. Element q of the array goes to index ik = lk + qk * sk in every dimension k, and
 * is read from x[q0 * x0 + .. + q7 * x7]. Build option STEPPED: 1 if a step sk other than 1
 * occurs. */
KERNEL void place(global const E *x, long x_offset, global E *out, long out_offset, int count,
                  uint fill, EIGHT(n), EIGHT(l), EIGHT(m), EIGHT(s), EIGHT(x))
{
    const int at = (int)get_global_id(0) * V;
    if (at >= count)
        return;
    int rest = at, read = 0, inside = 1;
    ALL(DIGIT)
#if STEPPED
#define PART(k)                                                                                    \
    if (RANK > 7 - k) {                                                                            \
        const int q = (i##k - l##k) / s##k;                                                        \
        inside &= i##k >= l##k && q < m##k && q * s##k == i##k - l##k;                             \
        read += q * x##k;                                                                          \
    }
#else
#define PART(k)                                                                                    \
    if (RANK > 7 - k) {                                                                            \
        const int q = i##k - l##k;                                                                 \
        inside &= (uint)q < (uint)m##k;                                                            \
        read += q * x##k;                                                                          \
    }
#endif
    ALL(PART)
    T v = (T)(fill);
    if (inside)
        v = *(global const T *)(x + x_offset + read);
    *(global T *)(out + out_offset + at) = v;
}
