/*
 * Matrix products on CPUs: out[M, N] = activation(op(A) op(B) + bias), row-major; work-group
 * size 1.
 *
 * A work-group computes TM x TN elements. It copies KB rows of op(B) into local memory, as panels
 * NV vectors wide (transposing them on the way if B is stored [N, K]), and multiplies every MR rows
 * of op(A), read where they are, with all panels in MR x NV accumulators. The copies pay even where
 * they do not transpose: rows at a power of two's distance would evict each other from the caches. Panels hold zeros beyond column N; rows beyond M repeat
 * the last one; neither is stored, so neighbours never write each other's elements.
 *
 * Build options: VW (4, 8, 16: lanes of a vector), MR, NV, KB, NP (most panels).
 */
#include "activation.clh"
#define LANES VW
#include "lanes/transpose.clh"

#define NR (NV * VW)

static inline vecf activate_vector(vecf x, int act, float slope)
{
    CLT_ACTIVATE_BODY(vecf)
}

/* As load_panel, for B stored [N, K] and b at row n0, column k0: blocks of VW x VW are transposed in
 * registers. */
static inline void load_panel_transposed(local float *panel, global const float *b, int ldb,
                                         int kb, int columns)
{
    for (int v = 0; v < NV; v++) {
        const int there = min(columns - v * VW, VW);
        local float *to = panel + v * VW;
        global const float *from = b + (long)v * VW * ldb;
        int k = 0;
        for (; there == VW && k + VW <= kb; k += VW) {
            vecf x[VW], y[VW];
#define GET_ROW(j, r, s) x[j] = LOAD(from + (long)(j)*ldb + k);
            FOR_A(VW, GET_ROW, 0, 0)
            CLT_TRANSPOSE(x, y)
#define PUT_ROW(j, r, s) *(local vecf *)(to + (k + j) * NR) = x[j];
            FOR_A(VW, PUT_ROW, 0, 0)
        }
        for (int j = 0; j < VW; j++)
            for (int rest = k; rest < kb; rest++)
                to[rest * NR + j] = j < there ? from[(long)j * ldb + rest] : 0.0f;
    }
}

/* panel[k][0 .. NR) = op(B)[k0 + k][n0 .. n0 + NR), for b at row k0, column n0. */
static inline void load_panel(local float *panel, global const float *b, int ldb, int kb,
                              int columns)
{
    if (columns >= NR) {
        for (int k = 0; k < kb; k++, b += ldb)
#pragma unroll
            for (int v = 0; v < NV; v++)
                ((local vecf *)panel)[k * NV + v] = LOAD(b + v * VW);
    } else {
        for (int k = 0; k < kb; k++, b += ldb)
            for (int j = 0; j < NR; j++)
                panel[k * NR + j] = j < columns ? b[j] : 0.0f;
    }
}

/* Adds the bias and applies the activation to a finished tile. */
static inline void finish(global float *out, int N, int rows, int columns, global const float *bias,
                          int has_bias, int act, float slope)
{
    for (int i = 0; i < rows; i++, out += N) {
        int j = 0;
        for (; j + VW <= columns; j += VW) {
            vecf x = LOAD(out + j);
            if (has_bias)
                x += LOAD(bias + j);
            STORE(activate_vector(x, act, slope), out + j);
        }
        for (; j < columns; j++)
            out[j] = clt_activate(has_bias ? out[j] + bias[j] : out[j], act, slope);
    }
}

/* Stores or adds one row of a register tile. */
static inline void store_row(global float *out, const vecf *acc, int columns, int first)
{
#pragma unroll
    for (int v = 0; v < NV; v++) {
        global float *to = out + v * VW;
        if (columns >= (v + 1) * VW) {
            STORE(first ? acc[v] : acc[v] + LOAD(to), to);
        } else {
            float part[VW];
            *(private vecf_anywhere *)part = acc[v];
            for (int j = 0; j < columns - v * VW; j++)
                to[j] = first ? part[j] : to[j] + part[j];
        }
    }
}

/* acc += b[0 .. NR) * x, for the MR values x of op(A) at one k. */
#define TILE_LOOP(VALUE)                                                                           \
    for (int k = 0; k < kb; k++) {                                                                 \
        vecf b[NV];                                                                                 \
        _Pragma("unroll") for (int v = 0; v < NV; v++) b[v] = ((local const vecf *)panel)[k * NV + v];            \
        _Pragma("unroll") for (int i = 0; i < MR; i++)                                             \
        {                                                                                          \
            const vecf x = (vecf)(VALUE);                                                            \
            _Pragma("unroll") for (int v = 0; v < NV; v++) acc[i][v] = fma(x, b[v], acc[i][v]);    \
        }                                                                                          \
    }

/* One register tile: rows x columns of the output are set (`first`) or added to. */
static inline void tile(global const float *a, int lda, local const float *panel, int kb, global float *out, int N, int rows,
                        int columns, int first, const int trans_a)
{
    vecf acc[MR][NV];
#pragma unroll
    for (int i = 0; i < MR; i++)
#pragma unroll
        for (int v = 0; v < NV; v++)
            acc[i][v] = (vecf)(0.0f);
    if (trans_a) {
        /* Literal distances where the tile is whole. */
        if (rows == MR) {
            TILE_LOOP(a[(long)k * lda + i])
        } else {
            TILE_LOOP(a[(long)k * lda + min(i, rows - 1)])
        }
    } else {
        global const float *row[MR];
#pragma unroll
        for (int i = 0; i < MR; i++)
            row[i] = a + (long)min(i, rows - 1) * lda;
        TILE_LOOP(row[i][k])
    }
#pragma unroll
    for (int i = 0; i < MR; i++)
        if (i < rows)
            store_row(out + (long)i * N, acc[i], columns, first);
}

static inline void product(global const float *a, global const float *b, global const float *bias,
                           global float *out, local float *panels, int M, int N,
                           int K, int lda, int ldb, int TM, int TN, int has_bias, int act,
                           float slope, const int trans_a, const int trans_b)
{
    const int m0 = (int)get_global_id(1) * TM, m1 = min(m0 + TM, M);
    const int n0 = (int)get_global_id(0) * TN, n1 = min(n0 + TN, N);
    const int epilogue = has_bias || act != CLT_ACT_NONE;
    for (int k0 = 0; k0 == 0 || k0 < K; k0 += KB) {
        const int kb = min(KB, K - k0), first = k0 == 0, last = k0 + KB >= K;
        for (int n = n0; n < n1; n += NR) {
            local float *panel = panels + (n - n0) * KB;
            if (trans_b)
                load_panel_transposed(panel, b + (long)n * ldb + k0, ldb, kb, N - n);
            else
                load_panel(panel, b + (long)k0 * ldb + n, ldb, kb, N - n);
        }
        for (int m = m0; m < m1; m += MR) {
            const int rows = min(MR, m1 - m);
            global const float *at = a + (trans_a ? (long)k0 * lda + m : (long)m * lda + k0);
            for (int n = n0; n < n1; n += NR) {
                const int columns = min(NR, N - n);
                global float *to = out + (long)m * N + n;
                tile(at, lda, panels + (n - n0) * KB, kb, to, N, rows, columns, first, trans_a);
                if (last && epilogue)
                    finish(to, N, rows, columns, bias + n, has_bias, act, slope);
            }
        }
    }
}

#define CLT_GEMM(name, trans_a, trans_b)                                                           \
    kernel __attribute__((reqd_work_group_size(1, 1, 1))) void name(                               \
        global const float *a, long a_offset, global const float *b, long b_offset,                \
        global const float *bias, long bias_offset, global float *out, long out_offset, int M,     \
        int N, int K, int lda, int ldb, int TM, int TN, int has_bias, int act, float slope)        \
    {                                                                                              \
        local float panels[NP * NR * KB] __attribute__((aligned(64)));                             \
        product(a + a_offset, b + b_offset, bias + (has_bias ? bias_offset : 0), out + out_offset, \
                panels, M, N, K, lda, ldb, TM, TN, has_bias, act, slope, trans_a, trans_b); \
    }

CLT_GEMM(gemm_nn, 0, 0)
CLT_GEMM(gemm_nt, 0, 1)
CLT_GEMM(gemm_tn, 1, 0)
CLT_GEMM(gemm_tt, 1, 1)
