/*
 * Matrix products on CPUs: out[M, N] = activation(op(A) op(B) + bias), row-major, for `pairs` pairs
 * of matrices. gemm_nn, gemm_nt, gemm_tn and gemm_tt differ in which operand is transposed. All
 * work-groups have one work-item.
 *
 * Work-item (x, y, z) computes TM x TN elements of pair z % pairs, over slice z / pairs of K. With
 * several slices, `out` is [slices, pairs, M, N], and `sum` of dot.cl adds them up. A work-item takes
 * its columns in chunks, and K in passes of `depth` elements, so that panels of B stay in a cache: a
 * chunk's pass is a stage. A register tile has MR x NV vectors of accumulators: MR rows of op(A),
 * NR = NV * VW columns of op(B).
 *
 * op(B) is read in one of two ways:
 * - From panels [K][NR] in local memory. They are copied before use, and transposed if B is stored
 *   [N, K]. What is copied next is prefetched: the next stage, or the columns of the next work-group.
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
#include "matmul/cpu/gemm_tile.clh"

/* With fewer rows there are too few tiles to copy B in. With more, copying takes little of the time,
 * and smaller chunks cost more than that (runtime/ops/matmul/gemm_cpu.c). */
#define LEAST_ROWS_AHEAD 32
#define MOST_ROWS_AHEAD 1000

/* What a work-item computes: rows [m0, m1) and columns [n0, n1). */
typedef struct job {
    global const STORED(A_T) * a;
    global const STORED(B_T) * b;
    global const float *bias;
    global STORED(C_T) * out;
#if WIDENS(C_T)
    global float *part, *tile;
#endif
    int M, N, K, lda, ldb, depth, m0, m1, n0, n1;
    int adds, has_bias, act;
    float slope;
} job;

/* Columns [c0, c1) and rows [k0, k0 + kb) of op(B). `columns` is the size of chunks, and with `copies`
 * the tiles copy what the next stage reads. */
typedef struct stage {
    int c0, c1, k0, kb, columns, first, last, copies;
} stage;

/* Copies a stage's columns of op(B), as far as they are read from panels. */
INLINE void load_panels(local float *panels, job j, stage s, const int trans_b)
{
    global const STORED(B_T) *b = j.b + (trans_b ? s.k0 : (long)s.k0 * j.ldb);
    for (int n = s.c0; n < s.c1; n += NR) {
        local float *panel = panels + (n - s.c0) * j.depth;
        if (trans_b)
            load_panel_transposed(panel, b + (long)n * j.ldb, j.ldb, s.kb, j.N - n);
        else if (PACK_B || j.N - n < NR)
            load_panel(panel, b + n, j.ldb, s.kb, j.N - n, (long)(j.K - s.k0) * j.ldb - n);
    }
}

/* The lines of B that are copied after a stage: those of the next one, or of the next work-group. With
 * `copies` so many tiles copy all of them. */
static inline lines lines_of_next(job j, stage s, int tiles, int trans_b)
{
    const int n = s.last ? s.c1 : s.c0, k = s.last ? 0 : s.k0 + j.depth;
    const int end = s.copies ? j.n1 : j.N, rows = min(j.depth, j.K - k);
    const int columns = min(s.last ? s.columns : s.c1 - s.c0, end - n);
    if (s.copies) {
        const int across = (columns + NR - 1) / NR * NV, parts = max(tiles / across, 1);
        return lines_of(j.b + (long)k * j.ldb + n, j.ldb, rows, across * VW,
                        (rows + parts - 1) / parts, VW);
    }
    return lines_of(j.b + (trans_b ? (long)n * j.ldb + k : (long)k * j.ldb + n), j.ldb,
                    trans_b ? columns : rows, trans_b ? rows : columns, s.kb / UNROLLED,
                    64 / (int)sizeof(STORED(B_T)));
}

/* What a tile copies of the lines, which has time for so many vectors. */
static inline vectors vectors_of(lines l, local float *panels, int depth, int there, int most)
{
    const int k = l.part * l.rows, n = l.column;
    return (vectors){l.b + (long)k * l.step + n, panels + n / NR * NR * depth + n % NR + k * NR,
                     l.step, l.step && n + VW <= there ? min(min(l.rows, l.count - k), most) : 0};
}

/* What a row of tiles copies of the block of A after theirs: rows from `row` on, `share` in each tile;
 * 0: nothing. */
typedef struct copying {
    block from;
    int row, share;
} copying;

/* For the tiles that begin at row m and have place `slot` in their block. */
static inline copying copying_of(job j, stage s, int m, int slot, int panels)
{
    const int next = m + (NA - slot) * MR, share = (s.kb + NA * panels - 1) / (NA * panels);
    return (copying){block_at(j.a + (long)s.k0 * j.lda + next, j.lda, s.kb,
                              min(j.m1 - next, NA * MR), (long)(j.K - s.k0) * j.lda - next),
                     slot * panels * share, next < j.m1 ? share : 0};
}

#define TILE(AS, A, BS, B, nv)                                                                     \
    tile_##AS##_##BS(A, j.lda, B, j.ldb, s.kb, to, ld_to, from, ld, rows, columns, s.first,        \
                     line_at(next_b), next_b.step, copy, next_a, nv)
#if WIDENS(A_T)
#define TILE_OF_A(BS, B, nv)                                                                       \
    if (trans_a)                                                                                   \
        TILE(panel, a_panel, BS, B, nv);                                                           \
    else                                                                                           \
        TILE(wide, a_panels, BS, B, nv);
#else
#define TILE_OF_A(BS, B, nv)                                                                       \
    if (!trans_a)                                                                                  \
        TILE(rows, a_at, BS, B, nv);                                                               \
    else if (pack_a)                                                                               \
        TILE(panel, a_panel, BS, B, nv);                                                           \
    else                                                                                           \
        TILE(columns, a_at, BS, B, nv);
#endif

/* Computes a stage, whose panels of op(B) are in `b_now`. Those of the next one are copied to
 * `b_next`. */
INLINE void compute(job j, stage s, local float *a_panels, local const float *b_now,
                    local float *b_next, const int trans_a, const int trans_b)
{
    const int far = (long)j.M * j.K > FAR, panels = (s.c1 - s.c0 + NR - 1) / NR;
    const int epilogue = WIDENS(C_T) || j.has_bias || j.act != CLT_ACT_NONE;
    lines next_b = no_lines(), ready = next_b; /* `ready` was prefetched by the tile before */
    if (PACK_B || trans_b)
        next_b = lines_of_next(j, s, (j.m1 - j.m0 + MR - 1) / MR * panels, trans_b);
    const int there = j.N - (s.last ? s.c1 : s.c0);
    const long behind = (long)j.K * j.ldb - (next_b.b - j.b);
    for (int m = j.m0; m < j.m1; m += MR) {
        const int rows = min(MR, j.m1 - m), tile_number = (m - j.m0) / MR;
        const int slot = PACK_A ? tile_number % NA : 0;
        const int pack_a = trans_a && (PACK_A || rows < MR);
        /* Two blocks have room. While the tiles of one are computed, each loads a share of the
         * rows of the next, and prefetches the share of the tile after it. */
        local float *const a_block = a_panels + (PACK_A ? tile_number / NA % 2 * A_BLOCK : 0);
        local float *const next_block = a_panels + (A_BLOCK - (a_block - a_panels));
        copying next;
        if (PACK_A && trans_a)
            next = copying_of(j, s, m, slot, panels);
        if (pack_a && (!PACK_A || m == j.m0)) {
            const block here = block_at(j.a + (long)s.k0 * j.lda + m, j.lda, s.kb,
                                        PACK_A ? min(j.m1 - m, NA * MR) : rows,
                                        (long)(j.K - s.k0) * j.lda - m);
            load_rows(a_block, here, j.lda, 0, s.kb);
        }
#if WIDENS(A_T)
        if (!trans_a)
            widen_rows(a_panels, j.a + (long)m * j.lda + s.k0, j.lda, s.kb, rows);
#else
        global const float *a_at = j.a + (trans_a ? (long)s.k0 * j.lda + m : (long)m * j.lda + s.k0);
#endif
        local const float *a_panel = a_block + slot * A_PANEL;
        /* Where the next tile's rows begin: below, or at the next pass. */
        global const STORED(A_T) *ahead_a =
            m + MR < j.m1 ? j.a + (long)(m + MR) * j.lda + s.k0
                          : j.a + (long)j.m0 * j.lda + (s.last ? s.k0 : s.k0 + j.depth);
        rows_of_a next_a = {j.a, 0, -1};
        for (int n = s.c0, columns; n < s.c1; n += columns) {
            const int narrow = TAIL && j.N - n <= NR - VW; /* a vector of the last panel */
            const int panel = (n - s.c0) / NR * NR;
            local const float *b_panel = b_now + panel * j.depth + (n - s.c0 - panel);
            const long at = (long)m * j.N + n;
            columns = min(narrow ? VW : NR, j.N - n);
            if (PACK_A && trans_a && next.share) {
                const int row = min(next.row, s.kb), end = min(row + next.share, s.kb);
                const int after = min(end + next.share, s.kb);
                load_rows(next_block, next.from, j.lda, row, end);
                next.row = end;
                if (far)
                    next_a = rows_of_block(next.from, j.lda, s.kb, end, after);
                else
                    prefetch_rows(next.from, j.lda, end, after);
            }
            if (!trans_a && far)
                next_a = two_rows(ahead_a, j.lda, panel / NR);
            vectors copy = {j.b, b_next, 0, 0};
            if (s.copies)
                copy = vectors_of(ready, b_next, j.depth, there, s.kb / UNROLLED);
#if WIDENS(C_T)
            global float *to = s.last ? j.tile : j.part + at;
            global const float *from = s.first ? to : j.part + at;
            const int ld_to = s.last ? NR : j.N, ld = s.first ? ld_to : j.N;
#else
            global float *to = j.out + at;
            global const float *from = to;
            const int ld_to = j.N, ld = j.N;
#endif
#if !WIDENS(B_T)
            global const float *b_at = j.b + (long)s.k0 * j.ldb + n;
            if (!trans_b && !PACK_B && columns == NR) {
                TILE_OF_A(place, b_at, NV)
            } else
#endif
            if (narrow) {
                TILE_OF_A(panel, b_panel, 1)
            } else {
                TILE_OF_A(panel, b_panel, NV)
            }
            if (s.copies && ready.step)
                copy_lines(b_next, ready, copy.count, j.depth, there, behind);
            ready = next_b;
            next_b = next_lines(next_b);
            if (s.last && epilogue)
                finish(to, ld_to, j.out + at, j.N, rows, columns, j.bias + n, j.has_bias, j.act,
                       j.slope);
        }
    }
    for (; s.copies && ready.step; ready = next_b, next_b = next_lines(next_b))
        copy_lines(b_next, ready, 0, j.depth, there, behind);
}

/* Computes all stages. If B is copied and A is not, there is room for the panels of two stages, and the
 * tiles of one copy those of the next: otherwise copying takes 4 to 8 % of products of 256 rows whose
 * B is in no cache. Transposing does not gain by that. Copies of A serve all columns: one chunk. With
 * fewer rows than the host divided for, as in a smaller batch, the columns need not fit at once. */
INLINE void product(job j, local float *a_panels, local float *b_panels, const int trans_a,
                    const int trans_b)
{
    const int padded = (j.n1 - j.n0 + NR - 1) / NR * NR, fits = padded <= B_FLOATS / j.depth;
    const int pays = j.M >= LEAST_ROWS_AHEAD && j.M <= MOST_ROWS_AHEAD && j.K > j.depth &&
                     B_FLOATS / 2 >= j.depth * NR;
    const int ahead = PACK_B && !trans_b && !(trans_a && PACK_A) && (pays || !fits);
    const int columns = ahead ? B_FLOATS / 2 / (j.depth * NR) * NR : j.n1 - j.n0;
    int odd = 0;
    for (int c0 = j.n0; c0 < j.n1; c0 += columns)
        for (int k0 = 0; k0 == 0 || k0 < j.K; k0 += j.depth, odd = !odd) {
            const int c1 = min(c0 + columns, j.n1), last = k0 + j.depth >= j.K;
            const stage s = {c0,      c1,
                             k0,      min(j.depth, j.K - k0),
                             columns, k0 == 0 && !j.adds,
                             last,    ahead && !(last && c1 == j.n1)};
            local float *const now = b_panels + (ahead && odd ? B_FLOATS / 2 : 0);
            if (!ahead || (c0 == j.n0 && k0 == 0))
                load_panels(now, j, s, trans_b);
            compute(j, s, a_panels, now, b_panels + (odd ? 0 : B_FLOATS / 2), trans_a, trans_b);
        }
}

#if WIDENS(C_T)
#define PART global float *part,
#define SET_PART(from)                                                                             \
    const long group = (get_global_id(2) * get_global_size(1) + get_global_id(1)) *                \
                           get_global_size(0) + get_global_id(0);                                  \
    const long whole = j.K > j.depth ? (long)j.M * j.N : 0;                                        \
    j.part = from + (long)get_global_id(2) * whole;                                                \
    j.tile = from + (long)get_global_size(2) * whole + group * (MR * NR);
#else
#define PART
#define SET_PART(from)
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
        const int slices = (int)n.se, z = (int)get_global_id(2);                                   \
        const int pairs = (int)get_global_size(2) / slices, slice = z / pairs;                     \
        job j = {.M = (int)n.s4, .N = (int)n.s5, .lda = (int)n.s7, .ldb = (int)n.s8};              \
        const int K = (int)n.s6, share = ((K + slices - 1) / slices + 15) / 16 * 16;               \
        const long pair = z - slice * pairs, begin = min((long)slice * share, (long)K);            \
        j.K = min(share, K - (int)begin);                                                          \
        j.depth = (int)n.sd;                                                                       \
        j.m0 = (int)get_global_id(1) * (int)n.sb;                                                  \
        j.m1 = min(j.m0 + (int)n.sb, j.M);                                                         \
        j.n0 = (int)get_global_id(0) * (int)n.sc;                                                  \
        j.n1 = min(j.n0 + (int)n.sc, j.N);                                                         \
        j.adds = (int)n.sf;                                                                        \
        j.has_bias = (int)more.s0;                                                                 \
        j.act = (int)more.s1;                                                                      \
        j.slope = as_float((int)more.s2);                                                          \
        j.a = a + n.s0 + pair * n.s9 + begin * (trans_a ? j.lda : 1);                              \
        j.b = b + n.s1 + pair * n.sa + begin * (trans_b ? 1 : j.ldb);                              \
        j.bias = bias + (j.has_bias ? n.s2 : 0);                                                   \
        j.out = out + n.s3 + (long)z * j.M * j.N;                                                  \
        SET_PART(part + more.s3)                                                                   \
        product(j, a_panels, b_panels, trans_a, trans_b);                                          \
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
