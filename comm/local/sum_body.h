/*
 * The sum of one element type for one instruction set; sum.c includes this once for each pair.
 * Defined there: TYPE, ARITH (the type in which addition is defined for all values: integers wrap),
 * OVERFLOWS (the square of a finite value may be infinite, so that whether all are finite needs a
 * sum of its own), UNIT (doubles of a native vector), TARGET (an attribute), NAME.
 *
 * Vectors are the compilers' own: GCC's -O2 does not vectorise loops of unknown length, and keeps
 * the running sums of squares in memory.
 */
#define PASTE2(a, b) a##_##b
#define PASTE(a, b) PASTE2(a, b)
#define VALUES PASTE(NAME, values)
#define SUMS PASTE(NAME, sums)
#define WIDE PASTE(NAME, wide)
#define BODY PASTE(NAME, body)

typedef TYPE VALUES __attribute__((vector_size(UNIT * sizeof(TYPE))));
typedef ARITH SUMS __attribute__((vector_size(UNIT * sizeof(ARITH))));
typedef double WIDE __attribute__((vector_size(UNIT * sizeof(double))));

TARGET static inline __attribute__((always_inline)) void BODY(const void *const *in, int in_count,
                                                              void *const *out, int out_count,
                                                              int64_t n, double *squares,
                                                              bool *finite)
{
    WIDE square[LANES / UNIT], odd[LANES / UNIT];
    memset(square, 0, sizeof square);
    memset(odd, 0, sizeof odd);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        UNROLL for (int u = 0; u < LANES / UNIT; u++)
        {
            int64_t at = i + u * UNIT;
            SUMS sum = {0}, x;
            if (in_count > 0)
                memcpy(&sum, (const TYPE *)in[0] + at, sizeof sum);
            for (int k = 1; k < in_count; k++) {
                memcpy(&x, (const TYPE *)in[k] + at, sizeof x);
                sum += x;
            }
            for (int k = 0; k < out_count; k++)
                memcpy((TYPE *)out[k] + at, &sum, sizeof sum);
            if (squares) {
                WIDE v = __builtin_convertvector((VALUES)sum, WIDE);
                square[u] += v * v;
                if (OVERFLOWS)
                    odd[u] += v - v;
            }
        }
    }
    double lane[LANES], odd_lane[LANES];
    memcpy(lane, square, sizeof lane);
    memcpy(odd_lane, odd, sizeof odd_lane);
    for (int j = 0; i < n; i++, j++) {
        ARITH sum = in_count > 0 ? (ARITH)((const TYPE *)in[0])[i] : 0;
        for (int k = 1; k < in_count; k++)
            sum += (ARITH)((const TYPE *)in[k])[i];
        for (int k = 0; k < out_count; k++)
            ((TYPE *)out[k])[i] = (TYPE)sum;
        double v = (double)(TYPE)sum;
        lane[j] += v * v;
        odd_lane[j] += v - v;
    }
    if (squares) {
        *squares = lanes_sum(lane);
        *finite = OVERFLOWS ? lanes_sum(odd_lane) == 0 : isfinite(*squares);
    }
}

/* Two devices, in place, is the usual case and has its pointers in registers. */
TARGET static void NAME(const void *const *in, int in_count, void *const *out, int out_count,
                        int64_t n, double *squares, bool *finite)
{
    if (in_count == 2 && out_count == 2 && in[0] == out[0] && in[1] == out[1]) {
        void *const both[2] = {out[0], out[1]};
        if (squares)
            BODY((const void *const *)both, 2, both, 2, n, squares, finite);
        else
            BODY((const void *const *)both, 2, both, 2, n, NULL, NULL);
    } else {
        BODY(in, in_count, out, out_count, n, squares, finite);
    }
}

#undef BODY
#undef WIDE
#undef SUMS
#undef VALUES
#undef PASTE
#undef PASTE2
#undef NAME
#undef TYPE
#undef ARITH
#undef OVERFLOWS
