/*
 * Moves of elements as bits on GPUs: a work-item has V elements side by side, its neighbours the next
 * ones. Options: E, an unsigned integer of the element's size; T, what V elements are read as: an
 * unsigned integer, or uint2, or uint4; RANK: how many of the sizes n0 .. n7 are used, from the last
 * on. With V above 1, all steps but those along n7, which are 1, and all offsets and sizes along it
 * are multiples of V.
 */
#define GROUP 256
#define KERNEL kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
#define EIGHT(x) int x##0, int x##1, int x##2, int x##3, int x##4, int x##5, int x##6, int x##7
#define ALL(X) X(7) X(6) X(5) X(4) X(3) X(2) X(1) X(0)

/* The index's digits from the last on; `rest` keeps what is left. */
#define DIGIT(k)                                                                                   \
    const int i##k = RANK > 8 - k ? rest % n##k : rest;                                            \
    rest = RANK > 8 - k ? rest / n##k : 0;

/* Element (i0 .. i7) of n0 x .. x n7 goes from x[from + sum of ik * xk] to out[to + sum of
 * ik * yk]. */
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

/* Element (i0 .. i7) of the result, n0 x .. x n7, is x[sum of qk * xk] where every ik is
 * lk + qk * sk with qk in 0 .. mk - 1; elsewhere it is made of `fill`. STEPPED: steps s other than 1
 * occur. */
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
