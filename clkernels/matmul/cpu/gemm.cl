/*
 * Matrix products on CPUs: out[M, N] = activation(op(A) op(B) + bias), row-major, for `pairs` pairs
 * of matrices. gemm_nn, gemm_nt, gemm_tn and gemm_tt differ in which operand is transposed. All
 * work-groups have one work-item.
 *
 * Work-item (x, y, z) computes TM x TN elements of pair z % pairs, over slice z / pairs of K. With
 * several slices, `out` is [slices, pairs, M, N], and `sum` of dot.cl adds them up. K is processed
 * in passes of `depth` elements, so that a panel of B stays in a cache. A register tile has MR x NV
 * vectors of accumulators: MR rows of op(A), NR = NV * VW columns of op(B).
 *
 * op(B) is read in one of two ways:
 * - From panels [K][NR] in local memory. They are copied before use, and transposed if B is stored
 *   [N, K]. What is copied next is prefetched: the next pass, or the columns of the next work-group.
 * - In place if PACK_B is 0, except for the columns beyond the last whole panel. This is faster if
 *   B stays in a cache, its rows are aligned, and the distance of rows does not make them evict
 *   each other.
 *
 * op(A) is read in place, a broadcast element at a time. If A is stored [K, M] and PACK_A is 1, NA
 * tiles at a time are copied into panels [K][MR], while the tiles before are computed. A tile
 * prefetches what the next tiles read or copy: of a matrix larger than the caches each row begins
 * in a page that the processor does not foresee. Rows and columns beyond the edge are computed but
 * not stored, so no work-item writes elements of another one. While a tile is computed, the elements
 * that it will be added to are prefetched.
 *
 * A_T, B_T and C_T are the storage types of op(A), op(B) and out (core/storage.clh). 16-bit
 * operands are widened while they are copied: the host then sets PACK_A and PACK_B to 1, and A that
 * is stored in rows is copied MR rows at a time. If out has 16 bits, sums are kept as floats in
 * `part`, which holds a register tile for each work-group. If K is longer than `depth`, a whole
 * result [slices, pairs, M, N] lies before those tiles.
 *
 * The parameters are those of a packed launch (runtime/ops/core/launch.h).
 *
 * Build options, with defaults in brackets: VW, width of a vector (4, 8 or 16 floats); MR, NV; KB,
 * the largest depth; B_FLOATS, room for panels of B; NA, PACK_A, PACK_B; A_T, B_T, C_T [f]; TAIL [0],
 * 1 if a last panel that NV - 1 vectors or fewer fill is computed a vector at a time.
 */
#ifndef TAIL
#define TAIL 0
#endif
#include "core/activation.clh"
#include "core/one_kernel.clh"
#define LANES VW
#include "core/cpu/widen.clh"
#include "core/product.clh"
#include "matmul/cpu/gemm_panels.clh"

static inline vecf activate_vector(vecf x, int act, float slope)
{
    CLT_ACTIVATE_BODY(vecf)
}

/* Adds the bias to a finished tile, whose rows are `ld` apart, applies the activation, and stores
 * the tile to `out`. */
static inline void finish(global const float *tile, int ld, global STORED(C_T) * out, int N,
                          int rows, int columns, global const float *bias, int has_bias, int act,
                          float slope)
{
    for (int i = 0; i < rows; i++, tile += ld, out += N) {
        int j = 0;
        for (; j + VW <= columns; j += VW) {
            vecf x = LOAD(tile + j);
            if (has_bias)
                x += LOAD(bias + j);
            STORE_AS(C_T, activate_vector(x, act, slope), out + j);
        }
        for (; j < columns; j++)
            PUT(C_T, clt_activate(has_bias ? tile[j] + bias[j] : tile[j], act, slope), out + j);
    }
}

/* Stores one row of a register tile at the edge. If not `first`, adds the values at `from`. */
static inline void store_row(global float *to, global const float *from, const float *row,
                             int columns, int first)
{
    int j = 0;
    for (; j + VW <= columns; j += VW) {
        const vecf v = *(private const vecf_anywhere *)(row + j);
        STORE(first ? v : v + LOAD(from + j), to + j);
    }
    if (j < columns) {
        vecf v = *(private const vecf_anywhere *)(row + j);
        if (!first)
            v += clt_load_part(from + j, columns - j, 0.0f);
        clt_store_part(v, to + j, columns - j);
    }
}

/* So many steps of a tile are one of its loop's. Their multiplications hide the loop's own
 * instructions, which matter where another thread shares the core: without, a tile of 6 x 2 vectors
 * took up to 7 % longer. */
#define UNROLLED (96 / (MR * NV) > 1 ? 96 / (MR * NV) : 1)

/* A of more elements does not stay in a core's caches, so its rows are prefetched. With fewer the
 * prefetches' own instructions cost 2 to 4 %. */
#define FAR (1 << 18)

/* Rows 0 to `last` of A, ld apart, which a tile prefetches; last -1: none. */
typedef struct rows_of_a {
    global const STORED(A_T) * at;
    long ld;
    int last;
} rows_of_a;

/* Two rows of the next tile, which begins at `next`; `tile` counts the tiles beside each other. */
static inline rows_of_a two_rows(global const STORED(A_T) * next, int lda, int tile)
{
    const int row = min(2 * tile, MR - 1);
    return (rows_of_a){next + (long)row * lda, row + 1 < MR ? lda : 0, 1};
}

/* Rows [begin, end) of the block that is copied next. Those for which the tile has no time are
 * prefetched here. */
static inline rows_of_a rows_of_block(block next, int lda, int kb, int begin, int end)
{
    prefetch_rows(next, lda, min(begin + kb / (4 * UNROLLED), end), end);
    return (rows_of_a){next.a + (long)begin * lda, lda, max(end - begin - 1, 0)};
}

/* Element k of op(A)'s rows times row k of op(B)'s columns. */
#define CLT_STEP(A_VALUE, B_VECTOR, B_AHEAD)                                                       \
    vecf y[NV];                                                                                    \
    B_AHEAD;                                                                                       \
    EACH_VECTOR y[v] = B_VECTOR;                                                                   \
    EACH_ROW                                                                                       \
    {                                                                                              \
        const vecf x = (vecf)(A_VALUE);                                                            \
        EACH_VECTOR acc[i][v] = fma(x, y[v], acc[i][v]);                                           \
    }

/* Defines a function for one register tile: rows x columns elements at `to` become the product,
 * plus the values at `from` if not `first`. Rows are `ld_to` and `ld` apart. The functions differ
 * in where they read op(A): rows in place, columns in place, or a panel; and op(B): in place
 * (only if columns == NR) or a panel. `vectors` of NV are computed. Distances within panels are
 * literals. If `step` is not 0, the tile prefetches kb / UNROLLED cache lines `step` elements
 * apart, the first at `ahead`. A_AHEAD prefetches op(A) for the next tiles. */
#define CLT_TILE(name, A_SPACE, A_POINTERS, A_AHEAD, A_VALUE, B_SPACE, B_VECTOR, B_AHEAD)          \
    INLINE void name(A_SPACE const float *a, int lda, B_SPACE const float *b, int ldb,             \
                     int kb, global float *to, int ld_to, global const float *from, int ld,        \
                     int rows, int columns, int first, global const STORED(B_T) * ahead,           \
                     int step, rows_of_a next, const int vectors)                                  \
    {                                                                                              \
        vecf acc[MR][NV];                                                                          \
        EACH_ROW EACH_VECTOR acc[i][v] = (vecf)(0.0f);                                             \
        A_POINTERS                                                                                 \
        EACH_ROW EACH_VECTOR PREFETCH(FROM);                                                       \
        int done = 0;                                                                              \
        for (; done + UNROLLED <= kb; done += UNROLLED) {                                          \
            if (step)                                                                              \
                PREFETCH(ahead);                                                                   \
            ahead += step;                                                                         \
            A_AHEAD                                                                                \
            _Pragma("unroll") for (int k = done; k < done + UNROLLED; k++)                         \
            {                                                                                      \
                CLT_STEP(A_VALUE, B_VECTOR, B_AHEAD)                                               \
            }                                                                                      \
        }                                                                                          \
        for (int k = done; k < kb; k++) {                                                          \
            CLT_STEP(A_VALUE, B_VECTOR, B_AHEAD)                                                   \
        }                                                                                          \
        if (rows == MR && columns == vectors * VW) {                                               \
            EACH_ROW EACH_VECTOR STORE(first ? acc[i][v] : acc[i][v] + LOAD(FROM), TO);            \
            return;                                                                                \
        }                                                                                          \
        float edge[MR * NR];                                                                       \
        EACH_ROW EACH_VECTOR *(private vecf_anywhere *)(edge + i * NR + v * VW) = acc[i][v];       \
        for (int i = 0; i < rows; i++)                                                             \
            store_row(to + (long)i * ld_to, from + (long)i * ld, edge + i * NR, columns, first);   \
    }
#define EACH_ROW _Pragma("unroll") for (int i = 0; i < MR; i++)
#define EACH_VECTOR _Pragma("unroll") for (int v = 0; v < NV; v++) if (v < vectors)
#define ROW_POINTERS                                                                               \
    global const float *row[MR];                                                                   \
    EACH_ROW row[i] = a + (long)min(i, rows - 1) * lda;
#define ROWS_AHEAD                                                                                 \
    if (next.last >= 0) {                                                                          \
        PREFETCH2(next.at + done);                                                                 \
        PREFETCH2(next.at + next.ld + done);                                                       \
    }
/* A block has at most four cache lines of a row. */
#define BLOCK_AHEAD                                                                                \
    if (next.last >= 0)                                                                            \
        PREFETCH2(next.at + min(done / (4 * UNROLLED), next.last) * next.ld + done / UNROLLED % 4 * 16);
#define FROM (from + (long)i * ld + v * VW)
#define TO (to + (long)i * ld_to + v * VW)
#define IN_PANEL ((local const vecf *)b)[k * NV + v]
/* A panel of B and the rows of A do not both fit into the first cache of processors with short
 * vectors. They mostly have 32 KiB. */
#define PANEL_AHEAD                                                                                \
    if (VW <= 8)                                                                                   \
    PREFETCH(b + (long)(k + 8) * NR)
#define IN_PLACE LOAD(b + (long)k * ldb + v * VW)
#if !WIDENS(A_T)
CLT_TILE(tile_rows_panel, global, ROW_POINTERS, ROWS_AHEAD, row[i][k], local, IN_PANEL, PANEL_AHEAD)
CLT_TILE(tile_columns_panel, global, , , a[(long)k * lda + i], local, IN_PANEL, PANEL_AHEAD)
#if !WIDENS(B_T)
CLT_TILE(tile_rows_place, global, ROW_POINTERS, ROWS_AHEAD, row[i][k], global, IN_PLACE, )
CLT_TILE(tile_columns_place, global, , , a[(long)k * lda + i], global, IN_PLACE, )
#endif
#else
CLT_TILE(tile_wide_panel, local, , ROWS_AHEAD, a[i * A_ROW + k], local, IN_PANEL, PANEL_AHEAD)
#if !WIDENS(B_T)
CLT_TILE(tile_wide_place, local, , ROWS_AHEAD, a[i * A_ROW + k], global, IN_PLACE, )
#endif
#endif
CLT_TILE(tile_panel_panel, local, , BLOCK_AHEAD, a[k * MR + i], local, IN_PANEL, PANEL_AHEAD)
#if !WIDENS(B_T)
CLT_TILE(tile_panel_place, local, , BLOCK_AHEAD, a[k * MR + i], global, IN_PLACE, )
#endif

#define TILE(AS, A, BS, B, vectors)                                                                \
    tile_##AS##_##BS(A, lda, B, ldb, kb, to, ld_to, from, ld, rows, columns, first,                \
                     line_at(next_b), next_b.step, next_a, vectors)
#if WIDENS(A_T)
#define TILE_OF_A(BS, B, vectors)                                                                  \
    if (trans_a)                                                                                   \
        TILE(panel, a_panel, BS, B, vectors);                                                      \
    else                                                                                           \
        TILE(wide, a_panels, BS, B, vectors);
#else
#define TILE_OF_A(BS, B, vectors)                                                                  \
    if (!trans_a)                                                                                  \
        TILE(rows, a_at, BS, B, vectors);                                                          \
    else if (pack_a)                                                                               \
        TILE(panel, a_panel, BS, B, vectors);                                                      \
    else                                                                                           \
        TILE(columns, a_at, BS, B, vectors);
#endif

/* Copies columns [n0, n1) of op(B), as far as they are read from panels, which have room for `depth`
 * rows. b is at the first of `left` rows, of which kb are copied. */
INLINE void load_panels(local float *panels, global const STORED(B_T) * b, int ldb, int kb, int n0,
                        int n1, int N, int left, int depth, const int trans_b)
{
    for (int n = n0; n < n1; n += NR) {
        local float *panel = panels + (n - n0) * depth;
        if (trans_b)
            load_panel_transposed(panel, b + (long)n * ldb, ldb, kb, N - n);
        else if (PACK_B || N - n < NR)
            load_panel(panel, b + n, ldb, kb, N - n, (long)left * ldb - n);
    }
}

/* The lines of B that are copied after pass k0: those of the next pass, or of the next work-group. */
static inline lines lines_of_next(global const STORED(B_T) * b, int ldb, int N, int K, int n0,
                                  int n1, int k0, int kb, int depth, int trans_b)
{
    const int last = k0 + depth >= K, n = last ? n1 : n0, k = last ? 0 : k0 + depth;
    const int columns = min(n1 - n0, N - n), rows = min(depth, K - k);
    return lines_of(b + (trans_b ? (long)n * ldb + k : (long)k * ldb + n), ldb,
                    trans_b ? columns : rows, trans_b ? rows : columns, kb / UNROLLED);
}

INLINE void product(global const STORED(A_T) * a, global const STORED(B_T) * b,
                    global const float *bias, global STORED(C_T) * out,
#if WIDENS(C_T)
                    global float *part,
#endif
                    local float *a_panels, local float *b_panels, int M, int N, int K,
                    int lda, int ldb, int TM, int TN, int depth, int adds, int has_bias,
                    int act, float slope, const int trans_a, const int trans_b)
{
    const int m0 = (int)get_global_id(1) * TM, m1 = min(m0 + TM, M);
    const int n0 = (int)get_global_id(0) * TN, n1 = min(n0 + TN, N);
    const int far = (long)M * K > FAR, epilogue = WIDENS(C_T) || has_bias || act != CLT_ACT_NONE;
#if WIDENS(C_T)
    const long group = (get_global_id(2) * get_global_size(1) + get_global_id(1)) *
                           get_global_size(0) + get_global_id(0);
    global float *tile = part + group * (MR * NR);
    if (K > depth) {
        tile += (long)get_global_size(2) * M * N;
        part += (long)get_global_id(2) * M * N;
    }
#endif
    for (int k0 = 0; k0 == 0 || k0 < K; k0 += depth) {
        const int kb = min(depth, K - k0), first = k0 == 0 && !adds, last = k0 + depth >= K;
        load_panels(b_panels, b + (trans_b ? k0 : (long)k0 * ldb), ldb, kb, n0, n1, N, K - k0,
                    depth, trans_b);
        lines next_b = lines_of(b, 0, 0, 0, 0);
        if (PACK_B || trans_b)
            next_b = lines_of_next(b, ldb, N, K, n0, n1, k0, kb, depth, trans_b);
        for (int m = m0; m < m1; m += MR) {
            const int rows = min(MR, m1 - m), tile_number = (m - m0) / MR;
            const int slot = PACK_A ? tile_number % NA : 0;
            const int pack_a = trans_a && (PACK_A || rows < MR);
            /* Two blocks have room. While the tiles of one are computed, each loads a share of the
             * rows of the next, and prefetches the share of the tile after it. */
            local float *const a_block = a_panels + (PACK_A ? tile_number / NA % 2 * A_BLOCK : 0);
            local float *const next_block = a_panels + (A_BLOCK - (a_block - a_panels));
            const int next = m + (NA - slot) * MR;
            const int loads_ahead = PACK_A && trans_a && next < m1;
            block ahead;
            int row = 0, share = 0;
            if (loads_ahead) {
                const int panels = (n1 - n0 + NR - 1) / NR;
                ahead = block_at(a + (long)k0 * lda + next, lda, kb, min(m1 - next, NA * MR),
                                 (long)(K - k0) * lda - next);
                share = (kb + NA * panels - 1) / (NA * panels);
                row = slot * panels * share;
            }
            if (pack_a && (!PACK_A || m == m0)) {
                const block here =
                    block_at(a + (long)k0 * lda + m, lda, kb, PACK_A ? min(m1 - m, NA * MR) : rows,
                             (long)(K - k0) * lda - m);
                load_rows(a_block, here, lda, 0, kb);
            }
#if WIDENS(A_T)
            if (!trans_a)
                widen_rows(a_panels, a + (long)m * lda + k0, lda, kb, rows);
#else
            global const float *a_at = a + (trans_a ? (long)k0 * lda + m : (long)m * lda + k0);
#endif
            local const float *a_panel = a_block + slot * A_PANEL;
            /* Where the next tile's rows begin: below, or at the next pass. */
            global const STORED(A_T) *ahead_a =
                m + MR < m1 ? a + (long)(m + MR) * lda + k0
                            : a + (long)m0 * lda + (last ? k0 : k0 + depth);
            rows_of_a next_a = {a, 0, -1};
            for (int n = n0, columns; n < n1; n += columns) {
                const int narrow = TAIL && N - n <= NR - VW; /* a vector of the last panel */
                columns = min(narrow ? VW : NR, N - n);
                if (PACK_A && loads_ahead) {
                    load_rows(next_block, ahead, lda, min(row, kb), min(row + share, kb));
                    row = min(row + share, kb);
                    if (far)
                        next_a = rows_of_block(ahead, lda, kb, row, min(row + share, kb));
                    else
                        prefetch_rows(ahead, lda, row, min(row + share, kb));
                }
                if (!trans_a && far)
                    next_a = two_rows(ahead_a, lda, (n - n0) / NR);
                const int panel = (n - n0) / NR * NR;
                local const float *b_panel = b_panels + panel * depth + (n - n0 - panel);
                const long at = (long)m * N + n;
#if WIDENS(C_T)
                global float *to = last ? tile : part + at;
                global const float *from = first ? to : part + at;
                const int ld_to = last ? NR : N, ld = first ? ld_to : N;
#else
                global float *to = out + at;
                global const float *from = to;
                const int ld_to = N, ld = N;
#endif
#if !WIDENS(B_T)
                global const float *b_at = b + (long)k0 * ldb + n;
                if (!trans_b && !PACK_B && columns == NR) {
                    TILE_OF_A(place, b_at, NV)
                } else
#endif
                if (narrow) {
                    TILE_OF_A(panel, b_panel, 1)
                } else {
                    TILE_OF_A(panel, b_panel, NV)
                }
                next_b = next_lines(next_b);
                if (last && epilogue)
                    finish(to, ld_to, out + at, N, rows, columns, bias + n, has_bias, act, slope);
            }
        }
    }
}

#if WIDENS(C_T)
#define PART global float *part,
#define PART_AT part + more.s3,
#else
#define PART
#define PART_AT
#endif
#define A_FLOATS(trans_a) (trans_a ? (1 + PACK_A) * A_BLOCK : WIDENS(A_T) ? MR * A_ROW : 1)

/* The offsets of a, b, bias and out are numbers 0 to 3. */
#define CLT_GEMM(name, trans_a, trans_b)                                                           \
    KERNEL void name(global const STORED(A_T) * a, global const STORED(B_T) * b,                   \
                     global const float *bias, global STORED(C_T) * out, PART long16 n,            \
                     long16 more)                                                                  \
    {                                                                                              \
        local float a_panels[A_FLOATS(trans_a)] __attribute__((aligned(64)));                      \
        local float b_panels[B_FLOATS] __attribute__((aligned(64)));                               \
        const int M = (int)n.s4, N = (int)n.s5, K = (int)n.s6, lda = (int)n.s7, ldb = (int)n.s8;   \
        const long a_step = n.s9, b_step = n.sa;                                                   \
        const int TM = (int)n.sb, TN = (int)n.sc, depth = (int)n.sd, slices = (int)n.se;           \
        const int adds = (int)n.sf, has_bias = (int)more.s0, act = (int)more.s1;                   \
        const int z = (int)get_global_id(2), pairs = (int)get_global_size(2) / slices;             \
        const int slice = z / pairs, share = ((K + slices - 1) / slices + 15) / 16 * 16;           \
        const long pair = z - slice * pairs, begin = min((long)slice * share, (long)K);            \
        product(a + n.s0 + pair * a_step + begin * (trans_a ? lda : 1),                            \
                b + n.s1 + pair * b_step + begin * (trans_b ? 1 : ldb),                            \
                bias + (has_bias ? n.s2 : 0), out + n.s3 + (long)z * M * N, PART_AT a_panels,      \
                b_panels, M, N, min(share, K - (int)begin), lda, ldb, TM, TN, depth, adds,         \
                has_bias, act, as_float((int)more.s2), trans_a, trans_b);                          \
    }

#if CLT_HAS(gemm_nn)
CLT_GEMM(gemm_nn, 0, 0)
#endif
#if CLT_HAS(gemm_nt)
CLT_GEMM(gemm_nt, 0, 1)
#endif
#if CLT_HAS(gemm_tn)
CLT_GEMM(gemm_tn, 1, 0)
#endif
#if CLT_HAS(gemm_tt)
CLT_GEMM(gemm_tt, 1, 1)
#endif
