/*
 * Steps of an LSTM or GRU and their gradients on GPUs; recurrent/recurrent.clh has layouts and
 * formulas. The host launches a kernel for each step. A kernel computes a tile of the recurrent
 * products and then its elements. A work-group has 64 work-items and a tile of 16 samples x 16
 * units; small tiles keep a whole device busy with few samples. Panels of both factors lie in local
 * memory, twice: while one pair is multiplied, the next is fetched into registers.
 *
 * Forward, a work-item computes all gates of one unit for 4 samples. Backward, it computes 4
 * samples x 4 units over a quarter of each panel's k; the quarters are then added up in order.
 *
 * Build options: FORWARD; GATES; V: 4 if float4 fits rows of H floats, else 1.
 */
#include "recurrent/cell.clh"

#define GROUP 64
#define ROWS 16
#define UNITS 16

/* Elements k .. k + 3 of a row of n elements; 0 beyond the row, and everywhere if not `there`. */
static inline float4 fetch(global const float *row, int k, int n, int there)
{
#if V == 4
    return there && k < n ? *(global const float4 *)(row + k) : (float4)(0.0f);
#else
    return (float4)(there && k < n ? row[k] : 0.0f, there && k + 1 < n ? row[k + 1] : 0.0f,
                    there && k + 2 < n ? row[k + 2] : 0.0f, there && k + 3 < n ? row[k + 3] : 0.0f);
#endif
}

/* Stores four elements to four rows of a panel, which transposes it. */
static inline void put(local float *to, int distance, float4 v)
{
    to[0] = v.x;
    to[distance] = v.y;
    to[2 * distance] = v.z;
    to[3 * distance] = v.w;
}

#if FORWARD

#define TK 16
#define LDH (ROWS + 4)
#define LDW (UNITS * 4 + 4)

/* One step forward. Columns of the weights' panel are the gates of a unit, side by side, so that a
 * work-item loads them as one float4. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
gemm_cells(global const float *x, long x_offset, global const float *w, long w_offset,
           global const float *bias, long bias_offset, global const float *h0, long h0_offset,
           global const float *c0, long c0_offset, global const int *lengths, long lengths_offset,
           global float *y, long y_offset, global float *h_n, long h_n_offset, global float *c_n,
           long c_n_offset, global float *saved, long saved_offset, int B, int T, int H, int t,
           int flags)
{
    local float hs[2 * TK * LDH] __attribute__((aligned(16)));
    local float ws[2 * TK * LDW] __attribute__((aligned(16)));
    const int lid = (int)get_local_id(0), before = step_before(t, flags);
    const int b0 = (int)get_group_id(1) * ROWS, u0 = (int)get_group_id(0) * UNITS;
    y += y_offset;
    h0 += flags & HAS_H0 ? h0_offset : 0;
    lengths += flags & HAS_LENGTHS ? lengths_offset : 0;
    /* The work-item copies four k of one sample, and four k of each gate of one unit. */
    const int one = lid / 4, k4 = lid % 4 * 4, b = b0 + one, own = min(u0 + one, H - 1);
    const int steps = b < B ? steps_of(lengths, b, T, flags) : 0;
    const int is_first = !is_step(before, steps);
    const int there = t < steps && (!is_first || flags & HAS_H0);
    global const float *h = is_first ? h0 + (long)b * H : y + ((long)b * T + before) * H;
    global const float *row = w + w_offset + (long)own * H;
    /* The first step needs no product without an initial state. */
    const int K = is_step(before, T) || flags & HAS_H0 ? H : 0;
    float4 next_h, next_w[GATES], acc[GATES];
#pragma unroll
    for (int g = 0; g < GATES; g++)
        acc[g] = (float4)(0.0f);
#define FETCH(k0)                                                                                  \
    next_h = fetch(h, (k0) + k4, H, there);                                                        \
    _Pragma("unroll") for (int g = 0; g < GATES; g++) next_w[g] =                                  \
        fetch(row + (long)g * H * H, (k0) + k4, H, 1);
#define PUT(side)                                                                                  \
    put(hs + ((side)*TK + k4) * LDH + one, LDH, next_h);                                           \
    _Pragma("unroll") for (int g = 0; g < GATES; g++)                                              \
        put(ws + ((side)*TK + k4) * LDW + one * 4 + g, LDW, next_w[g]);
    if (K > 0) {
        FETCH(0)
        PUT(0)
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k0 = 0, side = 0; k0 < K; k0 += TK, side ^= 1) {
        local const float *ha = hs + side * TK * LDH + lid / UNITS * 4;
        local const float *wa = ws + side * TK * LDW + lid % UNITS * 4;
        FETCH(k0 + TK)
#pragma unroll
        for (int k = 0; k < TK; k++) {
            const float4 a = *(local const float4 *)(ha + k * LDH);
            const float4 v = *(local const float4 *)(wa + k * LDW);
            acc[0] = fma(a, (float4)(v.x), acc[0]);
            acc[1] = fma(a, (float4)(v.y), acc[1]);
            acc[2] = fma(a, (float4)(v.z), acc[2]);
#if GATES == 4
            acc[3] = fma(a, (float4)(v.w), acc[3]);
#endif
        }
        PUT(side ^ 1)
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    const int u = u0 + lid % UNITS, first = b0 + lid / UNITS * 4;
    for (int i = 0; i < 4; i++) {
        float a[GATES];
#pragma unroll
        for (int g = 0; g < GATES; g++) {
            a[g] = acc[g].x;
            acc[g] = acc[g].yzwx;
        }
        if (first + i < B && u < H)
            cell_step(a, x + x_offset, bias + (flags & HAS_BIAS ? bias_offset : 0), h0,
                      c0 + (flags & HAS_C0 ? c0_offset : 0), lengths, y, h_n + h_n_offset,
                      c_n + c_n_offset, saved + saved_offset, first + i, t, u, T, H, flags);
    }
}

#else

#define TK 32
#define PART (TK / 4) /* a quarter of a panel, for 16 work-items */
#define LD (ROWS + 4)

/* Computes the gradient that 16 units of 16 samples get through the gates' gradients:
 * sums[r * UNITS + u] = dgates w. The work-item copies the row of `sample` at step `time`, or zeros
 * if `time` is -1. The panels `as` and `bs` have 2 * TK * LD floats each. */
static inline void products(global const float *w, global const float *dgates, local float *as,
                            local float *bs, local float *sums, int time, int sample, int u0, int T,
                            int H, int K)
{
    const int lid = (int)get_local_id(0), part = lid / 16, row4 = lid % 16 / 4 * 4;
    const int unit4 = lid % 4 * 4;
    /* The work-item copies eight k of one sample, and four units of two k. */
    const int one = lid / 4, k8 = lid % 4 * 8;
    global const float *row = dgates + ((long)sample * T + max(time, 0)) * GATES * H;
    float4 next_a[2], next_b[2], acc[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        acc[i] = (float4)(0.0f);
#define FETCH(k0)                                                                                  \
    _Pragma("unroll") for (int i = 0; i < 2; i++)                                                  \
    {                                                                                              \
        const int k = (k0) + i * 16 + one;                                                         \
        next_a[i] = fetch(row, (k0) + k8 + i * 4, K, time >= 0);                                   \
        next_b[i] = fetch(w + (long)k * H, u0 + unit4, H, k < K);                                  \
    }
#define PUT(side)                                                                                  \
    _Pragma("unroll") for (int i = 0; i < 2; i++)                                                  \
    {                                                                                              \
        put(as + ((side)*TK + k8 + i * 4) * LD + one, LD, next_a[i]);                              \
        *(local float4 *)(bs + ((side)*TK + i * 16 + one) * LD + unit4) = next_b[i];               \
    }
    if (K > 0) {
        FETCH(0)
        PUT(0)
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k0 = 0, side = 0; k0 < K; k0 += TK, side ^= 1) {
        local const float *a = as + (side * TK + part * PART) * LD + row4;
        local const float *b = bs + (side * TK + part * PART) * LD + unit4;
        FETCH(k0 + TK)
#pragma unroll
        for (int k = 0; k < PART; k++) {
            const float4 v = *(local const float4 *)(a + k * LD);
            const float4 q = *(local const float4 *)(b + k * LD);
            acc[0] = fma((float4)(v.x), q, acc[0]);
            acc[1] = fma((float4)(v.y), q, acc[1]);
            acc[2] = fma((float4)(v.z), q, acc[2]);
            acc[3] = fma((float4)(v.w), q, acc[3]);
        }
        PUT(side ^ 1)
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (int p = 0; p < 4; p++) {
        if (part == p)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                local float4 *to = (local float4 *)(sums + (row4 + i) * UNITS + unit4);
                *to = p ? *to + acc[i] : acc[i];
            }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

#define PANELS                                                                                     \
    local float as[2 * TK * LD] __attribute__((aligned(16)));                                      \
    local float bs[2 * TK * LD] __attribute__((aligned(16)));                                      \
    local float sums[ROWS * UNITS] __attribute__((aligned(16)));                                   \
    const int lid = (int)get_local_id(0), b0 = (int)get_group_id(1) * ROWS;                        \
    const int u0 = (int)get_group_id(0) * UNITS, copied = b0 + lid / 4;

/* The gradient of step t. For an LSTM, dgates is dx. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void gemm_cells_grad(
    global const float *w, long w_offset, global const float *saved, long saved_offset,
    global const float *y, long y_offset, global const float *dy, long dy_offset,
    global const float *dh_n, long dh_n_offset, global const float *dc_n, long dc_n_offset,
    global const float *h0, long h0_offset, global const float *c0, long c0_offset,
    global const int *lengths, long lengths_offset, global float *dx, long dx_offset,
    global float *dgates, long dgates_offset, global float *carry, long carry_offset,
    global float *before, long before_offset, int B, int T, int H, int t, int flags)
{
    PANELS
    const int next = step_after(t, flags);
    dgates += dgates_offset;
    lengths += flags & HAS_LENGTHS ? lengths_offset : 0;
    const int follows = copied < B && is_step(next, steps_of(lengths, copied, T, flags));
    products(w + w_offset, dgates, as, bs, sums, follows ? next : -1, min(copied, B - 1), u0, T, H,
             is_step(next, T) ? GATES * H : 0);
    for (int e = lid; e < ROWS * UNITS; e += GROUP) {
        const int b = b0 + e / UNITS, u = u0 + e % UNITS;
        if (b < B && u < H)
            cell_step_grad(sums[e], saved + saved_offset, y + y_offset,
                           dy + (flags & HAS_DY ? dy_offset : 0),
                           dh_n + (flags & HAS_DH ? dh_n_offset : 0),
                           dc_n + (flags & HAS_DC ? dc_n_offset : 0),
                           h0 + (flags & HAS_H0 ? h0_offset : 0),
                           c0 + (flags & HAS_C0 ? c0_offset : 0), lengths, dx + dx_offset, dgates,
                           carry + carry_offset, before + before_offset, b, t, u, T, H, flags);
    }
}

/* The gradients of the initial states; runs after the gradients of all steps. */
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
gemm_start_grad(global const float *w, long w_offset, global const float *dh_n, long dh_n_offset,
                global const float *dc_n, long dc_n_offset, global const int *lengths,
                long lengths_offset, global const float *dgates, long dgates_offset,
                global float *dh0, long dh0_offset, global float *dc0, long dc0_offset, int B,
                int T, int H, int flags)
{
    PANELS
    lengths += flags & HAS_LENGTHS ? lengths_offset : 0;
    const int steps = copied < B ? steps_of(lengths, copied, T, flags) : 0;
    products(w + w_offset, dgates + dgates_offset, as, bs, sums,
             flags & REVERSE ? steps - 1 : min(steps, 1) - 1, min(copied, B - 1), u0, T, H,
             GATES * H);
    for (int e = lid; e < ROWS * UNITS; e += GROUP) {
        const int b = b0 + e / UNITS, u = u0 + e % UNITS;
        if (b < B && u < H)
            cell_start_grad(sums[e], dh_n + (flags & HAS_DH ? dh_n_offset : 0),
                            dc_n + (flags & HAS_DC ? dc_n_offset : 0), lengths, dh0 + dh0_offset,
                            dc0 + dc0_offset, b, u, T, H, flags);
    }
}

#endif
