/*
 * Matrix products on matrix units: out[M, N] = activation(op(A) op(B) + bias), row-major, for
 * `pairs` pairs of matrices. A and B are in 16 bits, or floats that are rounded to 16 bits; sums
 * are f32.
 *
 * Work-group (x, y, z) computes tile (y, x) of core/gpu/matrix_tile.clh, of pair z % pairs over
 * slice z / pairs of K. While one pair of panels is multiplied, the next is fetched into registers
 * and then stored to the other pair, so one barrier a pass is enough. With several slices, `out` is
 * [slices, pairs, M, N] in f32, and gemm_sum of matmul/gpu/gemm.cl adds them up in order. Rows and
 * columns beyond the edge read valid elements and are not stored. Elements of K beyond the slice
 * count as 0.
 *
 * Build options: those of core/gpu/matrix_tile.clh; TRANS_A, TRANS_B; VA, VB: 8 if eight elements
 * of the stored rows of A and B can be read as a vector, else 1; A_T, B_T, C_T: storage types
 * (core/product.clh).
 */
#include "core/gpu/matrix_tile.clh"
#include "core/gpu/rectify.clh"
#include "core/product.clh"

/* Eight elements as they are stored: RAW8(w) holds them in registers. */
#define RAW8_f float8
#define RAW8_h ushort8
#define RAW8_w ushort8
#define RAW8(kind) CLT_STORAGE(RAW8, kind)
/* Values begin at multiples of 16 bytes, which is less than a float8. */
#define READ8_f(p) ((float8)(*(global const float4 *)(p), *(global const float4 *)((p) + 4)))
#define READ8_h(p) (*(global const ushort8 *)(p))
#define READ8_w(p) READ8_h(p)
#define READ8(kind, p) CLT_STORAGE(READ8, kind)(p)
#define NARROW8_f(v) unit_narrow8(v)
#define NARROW8_h(v) (v)
#define NARROW8_w(v) (v)
#define NARROW8(kind, v) CLT_STORAGE(NARROW8, kind)(v)

/* How many loads of eight a work-item does for a panel of T rows. Where the stored rows lie along
 * the tile, it loads them in pairs of neighbouring k, which local memory gets as one word. */
#define LOADS(T, along_k)                                                                          \
    ((along_k) ? (TK * T / 8 + THREADS - 1) / THREADS : 2 * ((TK * T / 16 + THREADS - 1) / THREADS))

/* Defines two functions for the panel of an operand. fetch_NAME loads elements first .. first + T -
 * 1 of K k0 .. k0 + TK - 1 into registers: x[i * ld + k] if `along_k`, else x[k * ld + i].
 * put_NAME stores those registers to a panel. */
#define DEFINE_PANEL(name, KIND, T, W, along_k)                                                    \
    UNIT_INLINE RAW8(KIND)                                                                         \
        read_##name(global const STORED(KIND) * x, int ld, int i, int k, int size, int end)        \
    {                                                                                              \
        RAW8(KIND) v = (RAW8(KIND))(0);                                                            \
        if (W == 8) {                                                                              \
            if (k < end)                                                                           \
                v = READ8(KIND, x + (along_k ? (long)min(i, size - 1) * ld + k                     \
                                             : (long)k * ld + min(i, size - 8)));                  \
        } else {                                                                                   \
            STORED(KIND) e[8];                                                                     \
            _Pragma("unroll") for (int j = 0; j < 8; j++)                                          \
            {                                                                                      \
                const int at_k = along_k ? k + j : k, at_i = min(along_k ? i : i + j, size - 1);   \
                e[j] = 0;                                                                          \
                if (at_k < end)                                                                    \
                    e[j] = x[along_k ? (long)at_i * ld + at_k : (long)at_k * ld + at_i];           \
            }                                                                                      \
            v = (RAW8(KIND))(e[0], e[1], e[2], e[3], e[4], e[5], e[6], e[7]);                      \
        }                                                                                          \
        return v;                                                                                  \
    }                                                                                              \
    UNIT_INLINE void fetch_##name(RAW8(KIND) * to, global const STORED(KIND) * x, int ld, int lid, \
                                  int first, int size, int k0, int end)                            \
    {                                                                                              \
        _Pragma("unroll") for (int s = 0; s < LOADS(T, along_k); s += along_k ? 1 : 2)             \
        {                                                                                          \
            const int e = (along_k ? s : s / 2) * THREADS + lid;                                   \
            if (along_k) {                                                                         \
                if (TK * T / 8 % THREADS == 0 || e < TK * T / 8)                                   \
                    to[s] = read_##name(x, ld, first + e / (TK / 8), k0 + e % (TK / 8) * 8, size,  \
                                        end);                                                      \
            } else if (TK * T / 16 % THREADS == 0 || e < TK * T / 16) {                            \
                const int i = first + e / (TK / 2) * 8, k = k0 + e % (TK / 2) * 2;                 \
                to[s] = read_##name(x, ld, i, k, size, end);                                       \
                to[s + !(along_k)] = read_##name(x, ld, i, k + 1, size, end);                      \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    UNIT_INLINE void put_##name(local ushort *panel, const RAW8(KIND) * from, int lid)             \
    {                                                                                              \
        _Pragma("unroll") for (int s = 0; s < LOADS(T, along_k); s += along_k ? 1 : 2)             \
        {                                                                                          \
            const int e = (along_k ? s : s / 2) * THREADS + lid;                                   \
            if (along_k) {                                                                         \
                if (TK * T / 8 % THREADS == 0 || e < TK * T / 8)                                   \
                    *(local ushort8 *)(panel + e / (TK / 8) * LDK + e % (TK / 8) * 8) =            \
                        NARROW8(KIND, from[s]);                                                    \
            } else if (TK * T / 16 % THREADS == 0 || e < TK * T / 16) {                            \
                const uint8 even = convert_uint8(NARROW8(KIND, from[s]));                          \
                const uint8 odd = convert_uint8(NARROW8(KIND, from[s + !(along_k)]));              \
                uint pair[8] __attribute__((aligned(32)));                                         \
                *(uint8 *)pair = even | odd << 16;                                                 \
                local uint *to = (local uint *)(panel + e / (TK / 2) * 8 * LDK) + e % (TK / 2);    \
                _Pragma("unroll") for (int j = 0; j < 8; j++) to[j * (LDK / 2)] = pair[j];         \
            }                                                                                      \
        }                                                                                          \
    }

DEFINE_PANEL(a, A_T, TM, VA, (!TRANS_A))
DEFINE_PANEL(b, B_T, TN, VB, TRANS_B)

kernel __attribute__((reqd_work_group_size(THREADS, 1, 1))) void
gemm_matrix(global const STORED(A_T) * a, long a_offset, global const STORED(B_T) * b,
            long b_offset, global const float *bias, long bias_offset, global STORED(C_T) * out,
            long out_offset, int M, int N, int K, int lda, int ldb, long a_step, long b_step,
            int slices, int has_bias, int act, float slope)
{
    local ushort as[2 * TM * LDK] __attribute__((aligned(16)));
    local ushort bs[2 * TN * LDK] __attribute__((aligned(16)));
    UNIT_SCRATCH(WARPS)
    const int lid = (int)get_local_id(0), lane = lid % UNIT_LANES;
    const int pairs = (int)get_num_groups(2) / slices;
    const int slice = (int)get_group_id(2) / pairs, pair = (int)get_group_id(2) % pairs;
    const int m0 = (int)get_group_id(1) * TM, n0 = (int)get_group_id(0) * TN;
    const int share = (K + slices * TK - 1) / (slices * TK) * TK;
    const int begin = min(slice * share, K), end = min(begin + share, K);
    RAW8(A_T) pa[LOADS(TM, (!TRANS_A))];
    RAW8(B_T) pb[LOADS(TN, TRANS_B)];
    unit_c acc[DEEP][WIDE];
    a += a_offset + pair * a_step;
    b += b_offset + pair * b_step;
    clear_tile(acc);
    fetch_a(pa, a, lda, lid, m0, M, begin, end);
    fetch_b(pb, b, ldb, lid, n0, N, begin, end);
    put_a(as, pa, lid);
    put_b(bs, pb, lid);
    barrier(CLK_LOCAL_MEM_FENCE);
    int side = 0;
    for (int k0 = begin; k0 < end; k0 += TK) {
        fetch_a(pa, a, lda, lid, m0, M, k0 + TK, end);
        fetch_b(pb, b, ldb, lid, n0, N, k0 + TK, end);
        multiply_panels(as + (side * TM + WARP_ROW(lid)) * LDK,
                        bs + (side * TN + WARP_COLUMN(lid)) * LDK, acc, lane, UNIT_SCRATCH_OF(lid));
        side ^= 1;
        put_a(as + side * TM * LDK, pa, lid);
        put_b(bs + side * TN * LDK, pb, lid);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    out += out_offset + (long)get_group_id(2) * M * N;
    UNIT_UNROLL for (int j = 0; j < WIDE; j++) UNIT_UNROLL for (int e = 0; e < UNIT_SUMS; e++)
    {
        const int c = n0 + WARP_COLUMN(lid) + j * UNIT_N + UNIT_COLUMN(lane, e);
        const float add = has_bias && c < N ? bias[bias_offset + c] : 0.0f;
        UNIT_UNROLL for (int i = 0; i < DEEP; i++)
        {
            const int r = m0 + WARP_ROW(lid) + i * UNIT_M + UNIT_ROW(lane, e);
            if (r < M && c < N)
                UNIT_PUT(C_T, rectify(UNIT_GET(acc[i][j], e) + add, act, slope),
                         out + (long)r * N + c);
        }
    }
}
