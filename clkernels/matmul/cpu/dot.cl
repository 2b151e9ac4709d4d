/*
 * Products on CPUs that read both operands in memory order, without copying them: out[M, N] =
 * activation(op(A) op(B) + bias), row-major, for `pairs` pairs of matrices. They suit products that
 * are limited by memory bandwidth, or that are too short for the packing of gemm.cl. All
 * work-groups have one work-item.
 *
 * - `dots`: A is stored [M, K] and B [N, K]. Accumulators are vectors along K, which are added up
 *   at the end. A register tile is MR x NR elements of the result with UK vectors each. If the
 *   work-item has one row of tiles, the tile's NR rows of B lie far apart, and the next tile reads
 *   the rows behind them.
 * - `rows`: B is stored [K, N], and M is at most MR. Sums for MR x NB elements lie in local memory,
 *   which stays in the first-level cache. KR rows of B at a time are multiplied and added to them.
 *   They lie far apart, and the next step reads the rows behind them.
 *   A's element (m, k) is a[m * a_row + k * a_column]. This kernel ignores bias and activation.
 * - `sum`: adds up the slices of these kernels and of gemm.cl in a fixed order, then bias and
 *   activation.
 *
 * So a work-item reads NR or KR long streams of memory, and the processor fetches their next bytes.
 * With neighbouring rows the streams would be short: two cores of Zen 3 then read half as many
 * bytes a second from memory in f32, and a third in bf16.
 *
 * Work-item (x, y, z) computes TM x TN elements of pair z % pairs, over slice z / pairs of K. With
 * several slices, `out` is [slices, pairs, M, N]. Element n of the bias is bias[n * bias_step].
 *
 * Build options, with defaults in brackets:
 * - VW: width of a vector (4, 8 or 16 floats).
 * - A_T, B_T, C_T [f]: storage types of A, B, and the result of `sum` (core/storage.clh). `dots`
 *   and `rows` write floats.
 * - dots: MR, NR, UK, and KB, the elements of K in one pass. rows: MR, KR, and NB, the columns in
 *   one pass, a multiple of VW. sum: SHARE, the elements of a work-item.
 */
#include "core/activation.clh"
#include "core/storage.clh"
#define LANES VW
#include "core/batch_blocked/halves.clh"
#include "core/product.clh"

/* As of a packed launch (runtime/ops/core/launch.h). The offsets of a, b, bias and out are numbers 0
 * to 3. */
#define PARAMETERS                                                                                 \
    global const STORED(A_T) * a, global const STORED(B_T) * b, global const float *bias,          \
        global float *out, long16 numbers, long16 more

/* Finds the work-item's pair, its elements begin .. end - 1 of K, and its rows and columns. The
 * share of a slice is a multiple of the vector width. */
#define PLACE                                                                                      \
    const int M = (int)numbers.s4, N = (int)numbers.s5, K = (int)numbers.s6;                       \
    const int a_row = (int)numbers.s7, a_column = (int)numbers.s8, ldb = (int)numbers.s9;          \
    const long a_step = numbers.sa, b_step = numbers.sb;                                           \
    const int TM = (int)numbers.sc, TN = (int)numbers.sd, slices = (int)numbers.se;                \
    const int has_bias = (int)numbers.sf, bias_step = (int)more.s0, act = (int)more.s1;            \
    const float slope = as_float((int)more.s2);                                                    \
    const int z = (int)get_global_id(2), pairs = (int)get_global_size(2) / slices;                 \
    const int slice = z / pairs;                                                                   \
    const int share = (((K + slices - 1) / slices) + VW - 1) / VW * VW;                            \
    const int begin = (int)min((long)slice * share, (long)K), end = min(begin + share, K);         \
    const int m0 = (int)get_global_id(1) * TM, m1 = min(m0 + TM, M);                               \
    const int n0 = (int)get_global_id(0) * TN, n1 = min(n0 + TN, N);                               \
    a += numbers.s0 + (z - slice * pairs) * a_step;                                                \
    b += numbers.s1 + (z - slice * pairs) * b_step;                                                \
    bias += has_bias ? numbers.s2 : 0;                                                             \
    out += numbers.s3 + (long)z * M * N;

#define EACH(i, count) _Pragma("unroll") for (int i = 0; i < count; i++)

#ifdef KB

/* sums[i][j] = sum over k < count of a[i][k] b[j][k]. Row j of B begins at b + j * ldb. Rows beyond
 * the last read the last row again. */
INLINE void dot_tile(global const STORED(A_T) * a, int lda, int rows, global const STORED(B_T) * b,
                     long ldb, int columns, int count, float sums[MR][NR])
{
    global const STORED(A_T) * x[MR];
    global const STORED(B_T) * y[NR];
    vecf acc[UK][MR][NR];
    EACH(i, MR) x[i] = a + (long)min(i, rows - 1) * lda;
    EACH(j, NR) y[j] = b + min(j, columns - 1) * ldb;
    EACH(u, UK) EACH(i, MR) EACH(j, NR) acc[u][i][j] = (vecf)(0.0f);
    int k = 0;
#define STEP(u, WITH_X, WITH_Y)                                                                    \
    {                                                                                              \
        vecf with[NR];                                                                             \
        EACH(j, NR) with[j] = WITH_Y;                                                              \
        EACH(i, MR)                                                                                \
        {                                                                                          \
            const vecf v = WITH_X;                                                                 \
            EACH(j, NR) acc[u][i][j] = fma(v, with[j], acc[u][i][j]);                              \
        }                                                                                          \
    }
    for (; k + UK * VW <= count; k += UK * VW)
        EACH(u, UK)
            STEP(u, LOAD_AS(A_T, x[i] + k + u * VW), LOAD_AS(B_T, y[j] + k + u * VW))
#if UK > 1
    for (; k + VW <= count; k += VW)
        STEP(0, LOAD_AS(A_T, x[i] + k), LOAD_AS(B_T, y[j] + k))
#endif
    /* The remaining elements take one more step, which ends at the last element and so begins
     * before k. Elements that were already added become 0 in both operands. Multiplying them by 0
     * would be wrong, because they may be infinite. */
    if (k < count && count >= VW) {
        const int at = count - VW;
        const veci is_new = LANE_NUMBERS >= (veci)(k - at);
#define LAST(T, p) select((vecf)(0.0f), LOAD_AS(T, (p) + at), is_new)
        STEP(0, LAST(A_T, x[i]), LAST(B_T, y[j]))
        k = count;
    }
    EACH(i, MR) EACH(j, NR)
    {
        EACH(u, UK - 1) acc[0][i][j] += acc[u + 1][i][j];
        sums[i][j] = clt_sum_lanes(acc[0][i][j]);
    }
    for (; k < count; k++)
        EACH(i, MR) EACH(j, NR) sums[i][j] = fma(GET(A_T, x[i] + k), GET(B_T, y[j] + k), sums[i][j]);
}

/* Adds the bias and applies the activation to a finished tile, whose columns lie `apart`. */
static inline void finish(global float *out, int N, int rows, int columns, int apart,
                          global const float *bias, int has_bias, int bias_step, int act,
                          float slope)
{
    for (int i = 0; i < rows; i++, out += N)
        for (int j = 0; j < columns; j++) {
            const int at = j * apart;
            out[at] = clt_activate(has_bias ? out[at] + bias[at * bias_step] : out[at], act, slope);
        }
}

KERNEL void dots(PARAMETERS)
{
    PLACE
    /* Column j of a tile is column n + j * apart of the result. */
    const int apart = m1 - m0 <= MR ? (n1 - n0 + NR - 1) / NR : 1;
    const int stop = m1 - m0 <= MR ? n0 + apart : n1, next = m1 - m0 <= MR ? 1 : NR;
    for (int k0 = begin; k0 == begin || k0 < end; k0 += KB) {
        const int count = min(KB, end - k0), first = k0 == begin, last = k0 + KB >= end;
        for (int n = n0; n < stop; n += next)
            for (int m = m0; m < m1; m += MR) {
                const int rows = min(MR, m1 - m), columns = min(NR, (n1 - n - 1) / apart + 1);
                global float *to = out + (long)m * N + n;
                float sums[MR][NR];
                dot_tile(a + (long)m * a_row + k0, a_row, rows, b + (long)n * ldb + k0,
                         (long)apart * ldb, columns, count, sums);
                for (int i = 0; i < rows; i++, to += N)
                    for (int j = 0; j < columns; j++)
                        to[j * apart] = first ? sums[i][j] : to[j * apart] + sums[i][j];
                if (last && (has_bias || act != CLT_ACT_NONE))
                    finish(out + (long)m * N + n, N, rows, columns, apart, bias + n * bias_step,
                           has_bias, bias_step, act, slope);
            }
    }
}

#elif defined(KR)

/* Adds the products of COUNT rows of B to the sums of M rows of the result. The rows are `apart`
 * elements of K from each other. Each sum is loaded from local memory and stored once for COUNT
 * rows. */
#define DEFINE_ADD(name, COUNT)                                                                    \
    INLINE void name(local float *sums, global const STORED(A_T) * a, int a_row, int a_column,     \
                     int M, global const STORED(B_T) * b, int ldb, int apart, int columns)         \
    {                                                                                              \
        const int whole = columns / VW * VW;                                                       \
        float x[MR][COUNT];                                                                        \
        EACH(i, MR) EACH(r, COUNT)                                                                 \
            x[i][r] = GET(A_T, a + (long)min(i, M - 1) * a_row + (long)r * apart * a_column);      \
        for (int n = 0; n < whole; n += VW) {                                                      \
            vecf acc[MR];                                                                          \
            EACH(i, MR) acc[i] = *(local const vecf *)(sums + i * NB + n);                         \
            EACH(r, COUNT)                                                                         \
            {                                                                                      \
                const vecf y = LOAD_AS(B_T, b + (long)r * apart * ldb + n);                        \
                EACH(i, MR) acc[i] = fma((vecf)(x[i][r]), y, acc[i]);                              \
            }                                                                                      \
            EACH(i, MR) *(local vecf *)(sums + i * NB + n) = acc[i];                               \
        }                                                                                          \
        for (int n = whole; n < columns; n++)                                                      \
            EACH(i, MR)                                                                            \
            {                                                                                      \
                float sum = sums[i * NB + n];                                                      \
                EACH(r, COUNT) sum = fma(x[i][r], GET(B_T, b + (long)r * apart * ldb + n), sum);   \
                sums[i * NB + n] = sum;                                                            \
            }                                                                                      \
    }
DEFINE_ADD(add_several, KR)
DEFINE_ADD(add_one, 1)

KERNEL void rows(PARAMETERS)
{
    local float sums[MR * NB] __attribute__((aligned(64)));
    PLACE
    for (int n = n0; n < n1; n += NB) {
        const int columns = min(NB, n1 - n);
        for (int i = 0; i < MR * NB; i += VW)
            *(local vecf *)(sums + i) = (vecf)(0.0f);
        const int apart = (end - begin) / KR;
        for (int k = begin; k < begin + apart; k++)
            add_several(sums, a + (long)k * a_column, a_row, a_column, M, b + (long)k * ldb + n,
                        ldb, apart, columns);
        for (int k = begin + apart * KR; k < end; k++)
            add_one(sums, a + (long)k * a_column, a_row, a_column, M, b + (long)k * ldb + n, ldb,
                    1, columns);
        for (int i = 0; i < M; i++)
            for (int j = 0; j < columns; j += VW) {
                const vecf v = *(local const vecf *)(sums + i * NB + j);
                global float *to = out + (long)i * N + n + j;
                if (j + VW <= columns)
                    STORE(v, to);
                else
                    clt_store_part(v, to, columns - j);
            }
    }
}

#else

static inline vecf activate_vector(vecf x, int act, float slope)
{
    CLT_ACTIVATE_BODY(vecf)
}

/* out[i] = activation(sum over the slices of parts[slice][i] + bias[i % N]), for SHARE elements
 * from get_global_id(0) * SHARE on. With `adds`, this is added to out[i]. */
KERNEL void sum(global const float *parts, global const float *bias, global STORED(C_T) * out,
                long16 numbers)
{
    const int M = (int)numbers.s3, N = (int)numbers.s4, slices = (int)numbers.s5;
    const int adds = (int)numbers.s6, has_bias = (int)numbers.s7, act = (int)numbers.s8;
    const float slope = as_float((int)numbers.s9);
    const long count = (long)M * N, at = (long)get_global_id(0) * SHARE;
    const int here = (int)min((long)SHARE, count - at);
    parts += numbers.s0 + at;
    out += numbers.s2 + at;
    bias += has_bias ? numbers.s1 : 0;
    int n = (int)(at % N), i = 0;
    for (; i + VW <= here; i += VW) {
        vecf v = LOAD(parts + i);
        for (int s = 1; s < slices; s++)
            v += LOAD(parts + s * count + i);
        if (has_bias) {
            float part[VW];
            for (int l = 0; l < VW; l++, n = n + 1 < N ? n + 1 : 0)
                part[l] = bias[n];
            v += *(private vecf_anywhere *)part;
        }
        v = activate_vector(v, act, slope);
        STORE_AS(C_T, adds ? LOAD_AS(C_T, out + i) + v : v, out + i);
    }
    for (; i < here; i++, n = n + 1 < N ? n + 1 : 0) {
        float v = parts[i];
        for (int s = 1; s < slices; s++)
            v += parts[s * count + i];
        if (has_bias)
            v += bias[n];
        v = clt_activate(v, act, slope);
        PUT(C_T, adds ? GET(C_T, out + i) + v : v, out + i);
    }
}

#endif
