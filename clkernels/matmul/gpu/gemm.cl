/*
 * Matrix products on GPUs: out[M, N] = activation(op(A) op(B) + bias), row-major, for `pairs` pairs
 * of matrices.
 *
 * Work-group (x, y, z) computes tile (y, x), TM x TN elements, of pair z % pairs over slice
 * z / pairs of K. A work-item has RM x RN accumulators in registers (core/gpu/tile.clh). Panels of
 * TK elements of K lie in local memory, twice: while one pair of panels is multiplied, the next is
 * fetched into registers and then stored to the other pair, so one barrier a pass is enough. With
 * several slices, `out` is [slices, pairs, M, N], and gemm_sum adds them up in order. Rows and
 * columns beyond the edge read valid elements and are not stored; elements of K beyond the slice
 * count as 0.
 *
 * Without TM, the file has gemm_sum and column_sums instead.
 *
 * Build options, with defaults in brackets: TM, TN, TK, RM, RN (core/gpu/tile.clh); TRANS_A,
 * TRANS_B; VA, VB: 4 if float4 fits the stored rows of A and B, else 1; V: the same for out; A_T
 * (also the type of x), B_T, C_T [f]: storage types (core/storage.clh).
 */
#include "core/activation.clh"
#include "core/gpu/halves.clh"
#include "core/product.clh"

#ifdef TM
#include "core/gpu/rectify.clh"
#include "core/gpu/tile.clh"

/* Slot s of a work-item's share of a panel: W elements that begin at (i, k). Neighbouring
 * work-items read neighbouring elements: along K if `along_k`, else along the rows or columns of
 * the tile. */
#define SLOT(T, W, along_k)                                                                        \
    const int e = s * THREADS + lid;                                                               \
    const int k = along_k ? e % (TK / W) * W : e / (T / W);                                        \
    const int i = along_k ? e / (TK / W) : e % (T / W) * W;

/* Defines two functions. fetch_NAME loads elements first .. first + T - 1 of K k0 .. k0 + TK - 1
 * into registers: x[i * ld + k] if `along_k`, else x[k * ld + i]. put_NAME stores those registers
 * to a panel. They are macros, because compilers reliably unroll only loops whose ends are
 * literals. */
#define DEFINE_COPY(name, KIND, T, W, along_k)                                                     \
    static inline void fetch_##name(float *to, global const STORED(KIND) * x, int ld, int lid,     \
                                    int first, int size, int k0, int begin, int end)               \
    {                                                                                              \
        const int from_k = k0 < end ? k0 : begin;                                                  \
        x += along_k ? (long)first * ld + from_k : (long)from_k * ld + first;                      \
        _Pragma("unroll") for (int s = 0; s < TK * T / THREADS / W; s++)                           \
        {                                                                                          \
            SLOT(T, W, along_k)                                                                    \
            const int inside = k0 + k < end, at_k = inside ? k : 0;                                \
            const int at_i = min(i, size - first - (along_k ? 1 : W));                             \
            global const STORED(KIND) *from =                                                      \
                x + (uint)(along_k ? at_i * ld + at_k : at_k * ld + at_i);                         \
            if (W == 4) {                                                                          \
                const float4 v = GET4(KIND, from);                                                 \
                to[W * s] = inside ? v.x : 0.0f;                                                   \
                to[W * s + W / 4] = inside ? v.y : 0.0f;                                           \
                to[W * s + W / 2] = inside ? v.z : 0.0f;                                           \
                to[W * s + W - 1] = inside ? v.w : 0.0f;                                           \
            } else {                                                                               \
                const float v = GET(KIND, from);                                                   \
                to[s] = inside ? v : 0.0f;                                                         \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static inline void put_##name(local float *panel, const float *from, int lid)                  \
    {                                                                                              \
        _Pragma("unroll") for (int s = 0; s < TK * T / THREADS / W; s++)                           \
        {                                                                                          \
            SLOT(T, W, along_k)                                                                    \
            local float *to = panel + k * (T + 4) + i;                                             \
            if (W == 4 && !along_k)                                                                \
                *(local float4 *)to = (float4)(from[W * s], from[W * s + W / 4],                   \
                                               from[W * s + W / 2], from[W * s + W - 1]);          \
            else                                                                                   \
                _Pragma("unroll") for (int j = 0; j < W; j++) to[j * (T + 4)] = from[W * s + j];   \
        }                                                                                          \
    }

DEFINE_COPY(a, A_T, TM, VA, (!TRANS_A))
DEFINE_COPY(b, B_T, TN, VB, TRANS_B)

static inline void store(global STORED(C_T) * out, float4 (*acc)[NQ], int m, int n, int M, int N,
                         global const float *bias, int has_bias, int act, float slope)
{
#pragma unroll
    for (int j = 0; j < NQ; j++) {
        const int c = n + COLUMN_OF(j);
        float b[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int l = 0; l < 4; l++)
            if (has_bias && c + l < N)
                b[l] = bias[c + l];
#pragma unroll
        for (int i = 0; i < RM; i++) {
            const int r = m + ROW_OF(i);
            float x[4];
            *(float4 *)x = acc[i][j];
#pragma unroll
            for (int l = 0; l < 4; l++)
                x[l] = rectify(x[l] + b[l], act, slope);
            global STORED(C_T) *to = out + (long)r * N + c;
            if (V == 4) {
                if (r < M && c < N)
                    PUT4(C_T, (float4)(x[0], x[1], x[2], x[3]), to);
            } else {
#pragma unroll
                for (int l = 0; l < 4; l++)
                    if (r < M && c + l < N)
                        PUT(C_T, x[l], to + l);
            }
        }
    }
}

kernel __attribute__((reqd_work_group_size(THREADS, 1, 1))) void
gemm(global const STORED(A_T) * a, long a_offset, global const STORED(B_T) * b, long b_offset,
     global const float *bias, long bias_offset, global STORED(C_T) * out, long out_offset, int M,
     int N, int K, int lda, int ldb, long a_step, long b_step, int slices, int has_bias, int act, float slope)
{
    local float as[2 * TK * LDM] __attribute__((aligned(16)));
    local float bs[2 * TK * LDN] __attribute__((aligned(16)));
    const int lid = (int)get_local_id(0), pairs = (int)get_num_groups(2) / slices;
    const int slice = (int)get_group_id(2) / pairs, pair = (int)get_group_id(2) % pairs;
    const int m0 = (int)get_group_id(1) * TM, n0 = (int)get_group_id(0) * TN;
    const int share = (K + slices * TK - 1) / (slices * TK) * TK;
    const int begin = min(slice * share, K), end = min(begin + share, K);
    const int row = TILE_ROW(lid), column = TILE_COLUMN(lid);
    float pa[TK * TM / THREADS], pb[TK * TN / THREADS];
    float4 acc[RM][NQ];
    a += a_offset + pair * a_step;
    b += b_offset + pair * b_step;
    clear(acc);
    if (begin < end) {
        fetch_a(pa, a, lda, lid, m0, M, begin, begin, end);
        fetch_b(pb, b, ldb, lid, n0, N, begin, begin, end);
        put_a(as, pa, lid);
        put_b(bs, pb, lid);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    int side = 0;
    for (int k0 = begin; k0 < end; k0 += TK) {
        fetch_a(pa, a, lda, lid, m0, M, k0 + TK, begin, end);
        fetch_b(pb, b, ldb, lid, n0, N, k0 + TK, begin, end);
        multiply(as + side * (TK * LDM) + row, bs + side * (TK * LDN) + column, acc);
        side ^= 1;
        put_a(as + side * (TK * LDM), pa, lid);
        put_b(bs + side * (TK * LDN), pb, lid);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    store(out + out_offset + (long)get_group_id(2) * M * N, acc, m0 + row, n0 + column, M, N,
          bias + (has_bias ? bias_offset : 0), has_bias, act, slope);
}

#else

#if V == 4
#define VEC float4
#define GETV(T, p) GET4(T, p)
#define PUTV(T, v, p) PUT4(T, v, p)
#else
#define VEC float
#define GETV(T, p) GET(T, p)
#define PUTV(T, v, p) PUT(T, v, p)
#endif

static inline VEC activate(VEC x, int act, float slope)
{
    CLT_ACTIVATE_BODY(VEC)
}

/* out[i] = activation(sum over the slices of parts[slice][i] + bias[i % N]), V elements a
 * work-item. N and count are multiples of V. `parts` may be `out` itself if out holds floats. */
kernel void gemm_sum(global const float *parts, long parts_offset, global const float *bias,
                     long bias_offset, global STORED(C_T) * out, long out_offset, int M, int N,
                     int slices, int has_bias, int act, float slope)
{
    const long count = (long)M * N, at = (long)get_global_id(0) * V;
    if (at >= count)
        return;
    VEC sum = *(global const VEC *)(parts + parts_offset + at);
    for (int s = 1; s < slices; s++)
        sum += *(global const VEC *)(parts + parts_offset + s * count + at);
    if (has_bias)
        sum += *(global const VEC *)(bias + bias_offset +
                                     (count <= INT_MAX ? (int)at % N : (int)(at % N)));
    PUTV(C_T, activate(sum, act, slope), out + out_offset + at);
}

/* out[slice][j] = sum over the slice's rows of x[rows, columns]. A group has LANES work-items side
 * by side, with V columns each, and ROWS such rows of work-items, which share the rows of x. */
#define LANES 16
#define ROWS 4
kernel __attribute__((reqd_work_group_size(LANES * ROWS, 1, 1))) void
column_sums(global const STORED(A_T) * x, long x_offset, global float *out, long out_offset, int rows,
            int columns, int slices)
{
    local VEC sums[LANES * ROWS];
    const int lid = (int)get_local_id(0), lane = lid % LANES, slice = (int)get_group_id(1);
    const int column = ((int)get_group_id(0) * LANES + lane) * V;
    const int share = (rows + slices - 1) / slices;
    const int end = min((slice + 1) * share, rows);
    VEC sum = 0.0f;
    if (column < columns)
        for (int r = slice * share + lid / LANES; r < end; r += ROWS)
            sum += GETV(A_T, x + x_offset + (long)r * columns + column);
    sums[lid] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lid < LANES && column < columns) {
        for (int r = 1; r < ROWS; r++)
            sum += sums[r * LANES + lane];
        *(global VEC *)(out + out_offset + (long)slice * columns + column) = sum;
    }
}

#endif
