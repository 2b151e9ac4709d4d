/*
 * Steps of an LSTM or GRU and their gradients on any device; recurrent/recurrent.clh has layouts
 * and formulas. The host launches a kernel for each step. A work-item computes one element of the
 * state, with a dot product of length H (backward GATES * H) for each gate. Build option: GATES.
 */
#include "recurrent/cell.clh"

kernel void recurrent_step(global const float *x, long x_offset, global const float *w,
                           long w_offset, global const float *bias, long bias_offset,
                           global const float *h0, long h0_offset, global const float *c0,
                           long c0_offset, global const int *lengths, long lengths_offset,
                           global float *y, long y_offset, global float *h_n, long h_n_offset,
                           global float *c_n, long c_n_offset, global float *saved,
                           long saved_offset, int B, int T, int H, int t, int flags)
{
    const long item = get_global_id(0);
    if (item >= (long)B * H)
        return;
    const int b = (int)(item / H), u = (int)(item % H);
    y += y_offset;
    h0 += flags & HAS_H0 ? h0_offset : 0;
    lengths += flags & HAS_LENGTHS ? lengths_offset : 0;
    const int steps = steps_of(lengths, b, T, flags);
    float a[GATES];
    for (int g = 0; g < GATES; g++)
        a[g] = 0.0f;
    for (int k = 0; t < steps && k < H; k++) {
        const float h = hidden_before(y, h0, b, t, k, T, H, steps, flags);
        for (int g = 0; g < GATES; g++)
            a[g] = fma(h, w[w_offset + ((long)g * H + u) * H + k], a[g]);
    }
    cell_step(a, x + x_offset, bias + (flags & HAS_BIAS ? bias_offset : 0), h0,
              c0 + (flags & HAS_C0 ? c0_offset : 0), lengths, y, h_n + h_n_offset, c_n + c_n_offset,
              saved + saved_offset, b, t, u, T, H, flags);
}

/* The gradient that unit u's hidden state gets through the gates of step t: dgates w. */
static inline float product(global const float *w, global const float *dgates, int b, int t, int u,
                            int T, int H)
{
    global const float *row = dgates + ((long)b * T + t) * GATES * H;
    float sum = 0.0f;
    for (int k = 0; k < GATES * H; k++)
        sum = fma(row[k], w[(long)k * H + u], sum);
    return sum;
}

/* The gradient of step t. For an LSTM, dgates is dx. */
kernel void recurrent_step_grad(
    global const float *w, long w_offset, global const float *saved, long saved_offset,
    global const float *y, long y_offset, global const float *dy, long dy_offset,
    global const float *dh_n, long dh_n_offset, global const float *dc_n, long dc_n_offset,
    global const float *h0, long h0_offset, global const float *c0, long c0_offset,
    global const int *lengths, long lengths_offset, global float *dx, long dx_offset,
    global float *dgates, long dgates_offset, global float *carry, long carry_offset,
    global float *before, long before_offset, int B, int T, int H, int t, int flags)
{
    const long item = get_global_id(0);
    if (item >= (long)B * H)
        return;
    const int b = (int)(item / H), u = (int)(item % H), next = step_after(t, flags);
    dgates += dgates_offset;
    lengths += flags & HAS_LENGTHS ? lengths_offset : 0;
    const float back = is_step(next, steps_of(lengths, b, T, flags))
                           ? product(w + w_offset, dgates, b, next, u, T, H)
                           : 0.0f;
    cell_step_grad(back, saved + saved_offset, y + y_offset, dy + (flags & HAS_DY ? dy_offset : 0),
                   dh_n + (flags & HAS_DH ? dh_n_offset : 0),
                   dc_n + (flags & HAS_DC ? dc_n_offset : 0), h0 + (flags & HAS_H0 ? h0_offset : 0),
                   c0 + (flags & HAS_C0 ? c0_offset : 0), lengths, dx + dx_offset, dgates,
                   carry + carry_offset, before + before_offset, b, t, u, T, H, flags);
}

/* The gradients of the initial states; runs after the gradients of all steps. */
kernel void recurrent_start_grad(global const float *w, long w_offset, global const float *dh_n,
                                 long dh_n_offset, global const float *dc_n, long dc_n_offset,
                                 global const int *lengths, long lengths_offset,
                                 global const float *dgates, long dgates_offset, global float *dh0,
                                 long dh0_offset, global float *dc0, long dc0_offset, int B, int T,
                                 int H, int flags)
{
    const long item = get_global_id(0);
    if (item >= (long)B * H)
        return;
    const int b = (int)(item / H), u = (int)(item % H);
    lengths += flags & HAS_LENGTHS ? lengths_offset : 0;
    const int steps = steps_of(lengths, b, T, flags);
    const float back = steps > 0 ? product(w + w_offset, dgates + dgates_offset, b,
                                           flags & REVERSE ? steps - 1 : 0, u, T, H)
                                 : 0.0f;
    cell_start_grad(back, dh_n + (flags & HAS_DH ? dh_n_offset : 0),
                    dc_n + (flags & HAS_DC ? dc_n_offset : 0), lengths, dh0 + dh0_offset,
                    dc0 + dc0_offset, b, u, T, H, flags);
}
