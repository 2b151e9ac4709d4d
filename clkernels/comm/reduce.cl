/*
 * Reductions between devices that copy each other's buffers (comm/transports/peer.c). Each device
 * reduces one block of all participants' data. The results have the same bits as those of
 * comm/core/reduction.c.
 *
 * kernel clt_comm_reduce_TYPE(own, own_first, others, stride, before, has_own, after, reduction,
 *                             divisor, result, count)
 *   Reduces arrays of `count` elements to `result`, in the order of the participants: `before`
 *   arrays in `others`; `own` from element own_first on, if has_own; then `after` more arrays in
 *   `others`. The arrays in `others` begin `stride` elements apart. `reduction` is a number of
 *   <cltrain/comm.h>: sum, mean (sum / divisor), minimum or maximum. Work-items divide the elements
 *   (EACH).
 * kernel clt_comm_measure_TYPE(result, count, piece, partial, at)
 *   Writes LANES pairs of doubles for each `piece` elements of `result`, from pair `at` of
 *   `partial` on: the sum of squares of every LANES-th element, and a sum that is 0 if these
 *   elements are finite, else NaN. One work-item computes one pair.
 *
 * TYPE is f32, i32, f16 or bf16, and with DOUBLE also f64. Without DOUBLE there are no measure
 * kernels, and means only of i32. 16-bit floats are reduced in f32 and rounded once, to nearest,
 * ties to even. A NaN makes a minimum or maximum NaN. Build options: CPU (0, 1), DOUBLE (0, 1),
 * LANES.
 */
#pragma OPENCL FP_CONTRACT OFF
#if DOUBLE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

enum { SUM = 0, MEAN = 1, MINIMUM = 2, MAXIMUM = 3 };

/* Loops over the elements of a work-item: a contiguous range on CPUs; on GPUs every n-th element, n
 * being the number of work-items. */
#if CPU
#define EACH(i, count)                                                                             \
    const long share_ = ((count) + get_global_size(0) - 1) / get_global_size(0);                   \
    const long first_ = (long)get_global_id(0) * share_;                                           \
    const long end_ = min(first_ + share_, count);                                                 \
    for (long i = first_; i < end_; i++)
#else
#define EACH(i, count) for (long i = get_global_id(0); i < (count); i += get_global_size(0))
#endif

float from_f16(ushort v)
{
    const uint half_bits = v, body = (half_bits & 0x7fff) << 13;
    if ((half_bits & 0x7c00) == 0x7c00)
        return as_float(body | 0x7f800000 | (half_bits & 0x8000) << 16);
    /* The factor is 2^112, the difference of the exponents' biases. The product is exact, also for
     * values below 2^-14, which are subnormal in f16. */
    return as_float(as_uint(as_float(body) * 5.192296858534828e33f) | (half_bits & 0x8000) << 16);
}

ushort to_f16(float v)
{
    const uint all = as_uint(v), sign = all & 0x80000000u, size = all ^ sign;
    uint found;
    if (size >= 0x47800000)
        found = 0x7c00 | (size > 0x7f800000 ? 0x200 : 0);
    else if (size < 0x38800000)
        found = as_uint(as_float(size) + 0.5f) - 0x3f000000;
    else
        found = (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
    return (ushort)(found | sign >> 16);
}

float from_bf16(ushort v)
{
    return as_float((uint)v << 16);
}

ushort to_bf16(float v)
{
    const uint all = as_uint(v);
    return (ushort)((all & 0x7fffffff) > 0x7f800000 ? (all >> 16 | 0x40)
                                                    : (all + 0x7fff + (all >> 16 & 1)) >> 16);
}

#define SAME(v) (v)

/* The quotient is rounded to double and then to float. It has the same bits as if it were rounded
 * once, because a double has more than twice the bits of a float. */
float mean_float(float sum, int divisor)
{
#if DOUBLE
    return (float)((double)sum / (double)divisor);
#else
    return sum;
#endif
}
int mean_int(int sum, int divisor)
{
    return sum / divisor;
}
#if DOUBLE
double mean_double(double sum, int divisor)
{
    return sum / (double)divisor;
}
#endif

int add_int(int a, int b)
{
    return (int)((uint)a + (uint)b);
}
#define ADD(a, b) ((a) + (b))

#define REDUCE(NAME, TYPE, ARITH, LOAD, SAVE, PLUS, MEAN_OF, LEAST, MOST)                          \
    ARITH combine_##NAME(ARITH a, ARITH b, int reduction)                                          \
    {                                                                                              \
        if (reduction == SUM || reduction == MEAN)                                                 \
            return PLUS(a, b);                                                                     \
        if (!(a < b || a >= b))                                                                    \
            return PLUS(a, b);                                                                     \
        return (a < b) == (reduction == MINIMUM) ? a : b;                                          \
    }                                                                                              \
    kernel void clt_comm_reduce_##NAME(global const TYPE *own, long own_first,                     \
                                       global const TYPE *others, long stride, int before,         \
                                       int has_own, int after, int reduction, int divisor,         \
                                       global TYPE *result, long count)                            \
    {                                                                                              \
        EACH(i, count)                                                                             \
        {                                                                                          \
            ARITH all = reduction == MINIMUM ? MOST : reduction == MAXIMUM ? LEAST : 0;            \
            int n = 0;                                                                             \
            for (int k = 0; k < before; k++, n++) {                                                \
                const ARITH v = LOAD(others[k * stride + i]);                                      \
                all = n ? combine_##NAME(all, v, reduction) : v;                                   \
            }                                                                                      \
            if (has_own) {                                                                         \
                const ARITH v = LOAD(own[own_first + i]);                                          \
                all = n++ ? combine_##NAME(all, v, reduction) : v;                                 \
            }                                                                                      \
            for (int k = 0; k < after; k++, n++) {                                                 \
                const ARITH v = LOAD(others[(before + k) * stride + i]);                           \
                all = n ? combine_##NAME(all, v, reduction) : v;                                   \
            }                                                                                      \
            if (reduction == MEAN)                                                                 \
                all = MEAN_OF(all, divisor);                                                       \
            result[i] = SAVE(all);                                                                 \
        }                                                                                          \
    }

REDUCE(f32, float, float, SAME, SAME, ADD, mean_float, -INFINITY, INFINITY)
REDUCE(i32, int, int, SAME, SAME, add_int, mean_int, INT_MIN, INT_MAX)
REDUCE(f16, ushort, float, from_f16, to_f16, ADD, mean_float, -INFINITY, INFINITY)
REDUCE(bf16, ushort, float, from_bf16, to_bf16, ADD, mean_float, -INFINITY, INFINITY)
#if DOUBLE
REDUCE(f64, double, double, SAME, SAME, ADD, mean_double, -(double)INFINITY, (double)INFINITY)

#define MEASURE(NAME, TYPE, LOAD)                                                                  \
    kernel void clt_comm_measure_##NAME(global const TYPE *result, long count, long piece,         \
                                        global double *partial, long at)                           \
    {                                                                                              \
        const long first = get_global_id(0) / LANES * piece, end = min(first + piece, count);      \
        double squares = 0, odd = 0;                                                               \
        for (long i = first + get_global_id(0) % LANES; i < end; i += LANES) {                     \
            const double w = (double)LOAD(result[i]);                                              \
            squares += w * w;                                                                      \
            odd += w - w;                                                                          \
        }                                                                                          \
        partial[2 * (at + get_global_id(0))] = squares;                                            \
        partial[2 * (at + get_global_id(0)) + 1] = odd;                                            \
    }

MEASURE(f32, float, SAME)
MEASURE(i32, int, SAME)
MEASURE(f16, ushort, from_f16)
MEASURE(bf16, ushort, from_bf16)
MEASURE(f64, double, SAME)
#endif
