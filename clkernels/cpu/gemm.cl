/*
 * Matrix products on CPUs: out[M, N] = activation(op(A) op(B) + bias), row-major; work-group
 * size 1.
 *
 * A work-group computes TM x TN elements. It copies KB rows of op(B) into local memory, as panels
 * NV vectors wide (transposing them on the way if B is stored [N, K]), and multiplies every MR rows
 * of op(A) with all panels in MR x NV accumulators. A stored [K, M] is copied likewise, MR columns
 * at a time. The copies pay even where they do not transpose: rows at a power of two's distance
 * would evict each other from the caches. Panels hold zeros beyond column N; rows beyond M repeat
 * the last one; neither is stored, so neighbours never write each other's elements.
 *
 * Build options: VW (4, 8, 16: lanes of a vector), MR, NV, KB, NP (most panels).
 */
#include "activation.clh"

#define CAT2(a, b) a##b
#define CAT(a, b) CAT2(a, b)
#define VEC CAT(float, VW)
#define VLOAD CAT(vload, VW)
#define VSTORE CAT(vstore, VW)
#define NR (NV * VW)

static inline VEC activate_vector(VEC x, int act, float slope)
{
    CLT_ACTIVATE_BODY(VEC)
}

/* panel[k][0 .. NR) = op(B)[k0 + k][n0 .. n0 + NR). */
static inline void load_panel(local float *panel, global const float *b, int ldb, int kb,
                              int columns, const int trans_b)
{
    if (trans_b) {
        /* b points at row n0, column k0 of [N, K]. */
        for (int v = 0; v < NR; v += VW) {
            for (int j = 0; j < VW; j++) {
                local float *to = panel + v + j;
                if (v + j < columns) {
                    global const float *from = b + (long)(v + j) * ldb;
                    for (int k = 0; k < kb; k++)
                        to[k * NR] = from[k];
                } else {
                    for (int k = 0; k < kb; k++)
                        to[k * NR] = 0.0f;
                }
            }
        }
    } else if (columns >= NR) {
        for (int k = 0; k < kb; k++, b += ldb)
#pragma unroll
            for (int v = 0; v < NV; v++)
                VSTORE(VLOAD(v, b), k * NV + v, panel);
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
            VEC x = VLOAD(0, out + j);
            if (has_bias)
                x += VLOAD(0, bias + j);
            VSTORE(activate_vector(x, act, slope), 0, out + j);
        }
        for (; j < columns; j++)
            out[j] = clt_activate(has_bias ? out[j] + bias[j] : out[j], act, slope);
    }
}

/* strip[k][0 .. MR) = column k of `rows` rows of op(A), for A stored [K, M]: `a` points at row k0,
 * column m, `columns` columns before the end of the row. */
static inline void load_strip(local float *strip, global const float *a, int lda, int kb, int rows,
                              int columns)
{
#if VW >= MR
    /* Writes beyond MR are overwritten by the next k; the strip has room behind the last. */
    if (columns >= VW) {
        for (int k = 0; k < kb; k++, a += lda)
            VSTORE(VLOAD(0, a), 0, strip + k * MR);
        return;
    }
#endif
    for (int k = 0; k < kb; k++, a += lda)
        for (int i = 0; i < MR; i++)
            strip[k * MR + i] = a[min(i, rows - 1)];
}

/* Stores or adds one row of a register tile. */
static inline void store_row(global float *out, const VEC *acc, int columns, int first)
{
#pragma unroll
    for (int v = 0; v < NV; v++) {
        global float *to = out + v * VW;
        if (columns >= (v + 1) * VW) {
            VSTORE(first ? acc[v] : acc[v] + VLOAD(0, to), 0, to);
        } else {
            float part[VW];
            VSTORE(acc[v], 0, part);
            for (int j = 0; j < columns - v * VW; j++)
                to[j] = first ? part[j] : to[j] + part[j];
        }
    }
}

/* acc += b[0 .. NR) * x, for the MR values x of op(A) at one k. */
#define TILE_LOOP(VALUE)                                                                           \
    for (int k = 0; k < kb; k++) {                                                                 \
        VEC b[NV];                                                                                 \
        _Pragma("unroll") for (int v = 0; v < NV; v++) b[v] = VLOAD(k * NV + v, panel);            \
        _Pragma("unroll") for (int i = 0; i < MR; i++)                                             \
        {                                                                                          \
            const VEC x = (VEC)(VALUE);                                                            \
            _Pragma("unroll") for (int v = 0; v < NV; v++) acc[i][v] = fma(x, b[v], acc[i][v]);    \
        }                                                                                          \
    }

/* One register tile: rows x columns of the output are set (`first`) or added to. */
static inline void tile(global const float *a, int lda, local const float *strip,
                        local const float *panel, int kb, global float *out, int N, int rows,
                        int columns, int first, const int trans_a)
{
    VEC acc[MR][NV];
#pragma unroll
    for (int i = 0; i < MR; i++)
#pragma unroll
        for (int v = 0; v < NV; v++)
            acc[i][v] = (VEC)(0.0f);
    if (trans_a) {
        TILE_LOOP(strip[k * MR + i])
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
                           global float *out, local float *panels, local float *strip, int M, int N,
                           int K, int lda, int ldb, int TM, int TN, int has_bias, int act,
                           float slope, const int trans_a, const int trans_b)
{
    const int m0 = (int)get_global_id(1) * TM, m1 = min(m0 + TM, M);
    const int n0 = (int)get_global_id(0) * TN, n1 = min(n0 + TN, N);
    const int epilogue = has_bias || act != CLT_ACT_NONE;
    for (int k0 = 0; k0 == 0 || k0 < K; k0 += KB) {
        const int kb = min(KB, K - k0), first = k0 == 0, last = k0 + KB >= K;
        for (int n = n0; n < n1; n += NR)
            load_panel(panels + (n - n0) * KB,
                       b + (trans_b ? (long)n * ldb + k0 : (long)k0 * ldb + n), ldb, kb,
                       min(NR, N - n), trans_b);
        for (int m = m0; m < m1; m += MR) {
            const int rows = min(MR, m1 - m);
            global const float *at = a + (trans_a ? (long)k0 * lda + m : (long)m * lda + k0);
            if (trans_a)
                load_strip(strip, at, lda, kb, rows, M - m);
            for (int n = n0; n < n1; n += NR) {
                const int columns = min(NR, N - n);
                global float *to = out + (long)m * N + n;
                tile(at, lda, strip, panels + (n - n0) * KB, kb, to, N, rows, columns, first,
                     trans_a);
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
        local float strip[(trans_a) ? KB * MR + VW : 1] __attribute__((aligned(64)));              \
        product(a + a_offset, b + b_offset, bias + (has_bias ? bias_offset : 0), out + out_offset, \
                panels, strip, M, N, K, lda, ldb, TM, TN, has_bias, act, slope, trans_a, trans_b); \
    }

CLT_GEMM(gemm_nn, 0, 0)
CLT_GEMM(gemm_nt, 0, 1)
CLT_GEMM(gemm_tn, 1, 0)
CLT_GEMM(gemm_tt, 1, 1)
