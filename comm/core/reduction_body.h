/*
 * The reductions of one element type for one instruction set. reduction.c includes this file once
 * for each pair. The includer defines:
 *
 * TYPE, RESULT: the types that are read and written;
 * ARITH: the type of the arithmetic (integers are unsigned, so that they wrap);
 * ORDER: the type of comparisons;
 * LOAD: converts vectors of TYPE to vectors of ARITH;
 * SAVE, RELOAD: convert to vectors of RESULT and back;
 * LEAST, MOST: the extreme values of the type;
 * OVERFLOWS: the square of a finite value may be infinite, so the finite flag needs its own sum;
 * UNIT: doubles of a native vector; TARGET: an attribute; NAME.
 *
 * Vectors are the compilers' own, because GCC's -O2 does not vectorise loops of unknown length, and
 * keeps the running sums of squares in memory.
 */
#define PASTE2(a, b) a##_##b
#define PASTE(a, b) PASTE2(a, b)
#define VALUES PASTE(NAME, values)
#define RESULTS PASTE(NAME, results)
#define ARITHS PASTE(NAME, ariths)
#define ORDERS PASTE(NAME, orders)
#define MASKS PASTE(NAME, masks)
#define WIDE PASTE(NAME, wide)
#define COMBINE PASTE(NAME, combine)
#define BLOCK PASTE(NAME, block)
#define BODY PASTE(NAME, body)
#define MEASURE PASTE(NAME, measure)
#define INLINE TARGET static inline __attribute__((always_inline))

typedef TYPE VALUES __attribute__((vector_size(UNIT * sizeof(TYPE))));
typedef RESULT RESULTS __attribute__((vector_size(UNIT * sizeof(RESULT))));
typedef ARITH ARITHS __attribute__((vector_size(UNIT * sizeof(ARITH))));
typedef ORDER ORDERS __attribute__((vector_size(UNIT * sizeof(ARITH))));
typedef MASK MASKS __attribute__((vector_size(UNIT * sizeof(ARITH))));
typedef double WIDE __attribute__((vector_size(UNIT * sizeof(double))));

INLINE ARITHS COMBINE(ARITHS a, ARITHS b, clt_comm_reduction reduction)
{
    if (reduction == CLT_COMM_SUM || reduction == CLT_COMM_MEAN)
        return a + b;
    /* If neither a < b nor a >= b holds, one of them is NaN, and so is their sum. */
    const ORDERS x = (ORDERS)a, y = (ORDERS)b;
    const MASKS less = (MASKS)(x < y), ordered = less | (MASKS)(x >= y);
    const MASKS first = reduction == CLT_COMM_MIN ? less : ~less;
    const MASKS picked = ((MASKS)a & first) | ((MASKS)b & ~first);
    return (ARITHS)((picked & ordered) | ((MASKS)(a + b) & ~ordered));
}

/* Reduces LANES elements from `at` on. */
INLINE void BLOCK(const void *const *in, int in_count, void *const *out, int out_count, int64_t at,
                  clt_comm_reduction reduction, int divisor, WIDE *square, WIDE *odd)
{
    UNROLL for (int u = 0; u < LANES / UNIT; u++, at += UNIT)
    {
        const ORDER none = reduction == CLT_COMM_MIN   ? (ORDER)MOST
                           : reduction == CLT_COMM_MAX ? (ORDER)LEAST
                                                       : 0;
        ARITHS all = (ARITHS)((ORDERS){0} + none);
        VALUES v;
        for (int k = 0; k < in_count; k++) {
            memcpy(&v, (const TYPE *)in[k] + at, sizeof v);
            all = k ? COMBINE(all, LOAD(v), reduction) : LOAD(v);
        }
        if (reduction == CLT_COMM_MEAN)
            all = (ARITHS)((ORDERS)all / (ORDER)divisor);
        const RESULTS result = SAVE(all);
        for (int k = 0; k < out_count; k++)
            memcpy((RESULT *)out[k] + at, &result, sizeof result);
        if (square) {
            const WIDE w = __builtin_convertvector((ORDERS)RELOAD(result), WIDE);
            square[u] += w * w;
            if (OVERFLOWS)
                odd[u] += w - w;
        }
    }
}

/* Adds the squares of LANES results. */
INLINE void MEASURE(const RESULT *result, WIDE *square, WIDE *odd)
{
    for (int u = 0; u < LANES / UNIT; u++) {
        RESULTS v;
        memcpy(&v, result + u * UNIT, sizeof v);
        const WIDE w = __builtin_convertvector((ORDERS)RELOAD(v), WIDE);
        square[u] += w * w;
        if (OVERFLOWS)
            odd[u] += w - w;
    }
}

INLINE void BODY(const void *const *in, int in_count, void *const *out, int out_count, int64_t n,
                 clt_comm_reduction reduction, int divisor, double *squares, bool *finite)
{
    WIDE square[LANES / UNIT], odd[LANES / UNIT];
    memset(square, 0, sizeof square);
    memset(odd, 0, sizeof odd);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        /* The address is computed as a number, because it may lie behind the array. */
        for (int k = 0; k < in_count; k++)
            for (size_t line = 0; line < LANES * sizeof(TYPE); line += LINE)
                __builtin_prefetch(
                    (const void *)((uintptr_t)in[k] + (size_t)i * sizeof(TYPE) + AHEAD + line));
        BLOCK(in, in_count, out, out_count, i, reduction, divisor, squares ? square : NULL, odd);
    }
    if (i < n) {
        /* The rest is copied to a block of its own, padded with zeros. */
        TYPE rest[CLT_REDUCE_MOST][LANES];
        RESULT result[LANES];
        const void *from[CLT_REDUCE_MOST];
        void *to[1] = {result};
        const size_t left = (size_t)(n - i);
        for (int k = 0; k < in_count; k++) {
            memset(rest[k], 0, sizeof rest[k]);
            memcpy(rest[k], (const TYPE *)in[k] + i, left * sizeof(TYPE));
            from[k] = rest[k];
        }
        BLOCK(from, in_count, to, 1, 0, reduction, divisor, NULL, NULL);
        memset(result + left, 0, sizeof result - left * sizeof(RESULT));
        for (int k = 0; k < out_count; k++)
            memcpy((RESULT *)out[k] + i, result, left * sizeof(RESULT));
        if (squares)
            MEASURE(result, square, odd);
    }
    if (squares) {
        double lane[LANES], odd_lane[LANES];
        memcpy(lane, square, sizeof lane);
        memcpy(odd_lane, odd, sizeof odd_lane);
        *squares = batch_blocked_sum(lane);
        *finite = OVERFLOWS ? batch_blocked_sum(odd_lane) == 0 : isfinite(*squares);
    }
}

/* The usual case is the sum of two arrays, written to one or both. It keeps its pointers in
 * registers. */
TARGET static void NAME(const void *const *in, int in_count, void *const *out, int out_count,
                        int64_t n, clt_comm_reduction reduction, int divisor, double *squares,
                        bool *finite)
{
    const bool two = in_count == 2 && reduction == CLT_COMM_SUM;
    if (two && (out_count == 1 || out_count == 2)) {
        const void *const from[2] = {in[0], in[1]};
        void *const to[2] = {out[0], out[out_count - 1]};
        if (out_count == 1 && squares)
            BODY(from, 2, to, 1, n, CLT_COMM_SUM, 1, squares, finite);
        else if (out_count == 1)
            BODY(from, 2, to, 1, n, CLT_COMM_SUM, 1, NULL, NULL);
        else if (squares)
            BODY(from, 2, to, 2, n, CLT_COMM_SUM, 1, squares, finite);
        else
            BODY(from, 2, to, 2, n, CLT_COMM_SUM, 1, NULL, NULL);
    } else if (reduction == CLT_COMM_SUM) {
        BODY(in, in_count, out, out_count, n, CLT_COMM_SUM, 1, squares, finite);
    } else {
        BODY(in, in_count, out, out_count, n, reduction, divisor, squares, finite);
    }
}

#undef INLINE
#undef BODY
#undef MEASURE
#undef BLOCK
#undef COMBINE
#undef WIDE
#undef MASKS
#undef ORDERS
#undef ARITHS
#undef VALUES
#undef RESULTS
#undef PASTE
#undef PASTE2
#undef NAME
#undef TYPE
#undef RESULT
#undef ARITH
#undef ORDER
#undef MASK
#undef LOAD
#undef SAVE
#undef RELOAD
#undef LEAST
#undef MOST
#undef OVERFLOWS
