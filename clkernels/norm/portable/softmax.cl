/*
 * Softmax, log softmax (is_log) and their gradients on any device, one vector of C elements a
 * work-item. The elements are `inner` apart; vector i begins at (i / inner) * C * inner + i %
 * inner. The largest element is subtracted first, so that no exponential overflows.
 */
#include "core/storage.clh"

kernel void softmax(global const STORED(IN0) *x, long x_offset, global STORED(OUT0) *y, long y_offset,
                    long vectors, int C, int inner, int is_log)
{
    const long item = get_global_id(0);
    if (item >= vectors)
        return;
    const long first = item / inner * C * inner + item % inner;
    x += x_offset + first;
    y += y_offset + first;
    float largest = -INFINITY, sum = 0.0f;
    for (int c = 0; c < C; c++)
        largest = fmax(largest, GET(IN0, x + (long)c * inner));
    for (int c = 0; c < C; c++)
        sum += exp(GET(IN0, x + (long)c * inner) - largest);
    if (is_log) {
        const float log_sum = log(sum);
        for (int c = 0; c < C; c++)
            PUT(OUT0, GET(IN0, x + (long)c * inner) - largest - log_sum, y + (long)c * inner);
    } else {
        const float inverse = 1.0f / sum;
        for (int c = 0; c < C; c++)
            PUT(OUT0, exp(GET(IN0, x + (long)c * inner) - largest) * inverse, y + (long)c * inner);
    }
}

/* softmax: dx = y (dy - sum of y dy). log softmax: dx = dy - exp(y) * sum of dy. */
kernel void softmax_grad(global const STORED(IN0) *y, long y_offset, global const STORED(IN1) *dy,
                         long dy_offset, global STORED(OUT0) *dx, long dx_offset, long vectors, int C,
                         int inner, int is_log)
{
    const long item = get_global_id(0);
    if (item >= vectors)
        return;
    const long first = item / inner * C * inner + item % inner;
    y += y_offset + first;
    dy += dy_offset + first;
    dx += dx_offset + first;
    float sum = 0.0f;
    for (int c = 0; c < C; c++)
        sum += GET(IN1, dy + (long)c * inner) * (is_log ? 1.0f : GET(IN0, y + (long)c * inner));
    for (int c = 0; c < C; c++) {
        const float at_y = GET(IN0, y + (long)c * inner), at_dy = GET(IN1, dy + (long)c * inner);
        PUT(OUT0, is_log ? at_dy - exp(at_y) * sum : at_y * (at_dy - sum), dx + (long)c * inner);
    }
}
