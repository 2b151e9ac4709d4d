/*
 * Softmax, log softmax (is_log) and their gradients along an axis that is not the last, on CPUs. x
 * is [outer, C, inner]; each of the outer * inner columns of C elements, `inner` apart, is a
 * vector. All work-groups have one work-item, which computes WIDTH neighbouring columns, VW in each
 * vector. So no sum over vector lanes is needed. Global size: (ceil(inner / WIDTH), outer). Build
 * option: VW, width of a vector (4, 8 or 16). reduce/cpu/rows.cl has softmax along the last axis.
 */
#define LANES VW
#include "core/batch_blocked/math.clh"

#define VECTORS 4
#define WIDTH (VECTORS * VW)
#define FETCHED 8 /* distance of prefetches, in elements of a column */

/* Loads a whole vector, or its first `lanes` columns. */
INLINE vecf load_columns(global const float *x, int lanes)
{
    return lanes == VW ? LOAD(x) : clt_load_part(x, lanes, 0.0f);
}

INLINE void store_columns(vecf v, global float *x, int lanes)
{
    if (lanes == VW)
        STORE(v, x);
    else
        clt_store_part(v, x, lanes);
}

/* Computes `count` vectors of columns in three passes: maximum, exponentials and their sum,
 * division. `count` and `lanes` are literals in the calls that matter for speed. */
INLINE void columns(global const float *x, global float *y, int C, int inner, int is_log,
                    const int count, const int lanes)
{
    vecf most[VECTORS], sum[VECTORS], scale;
#pragma unroll
    for (int v = 0; v < count; v++) {
        most[v] = (vecf)(-INFINITY);
        sum[v] = (vecf)(0.0f);
    }
    for (int c = 0; c < C; c++)
#pragma unroll
        for (int v = 0; v < count; v++) {
            const long at = (long)c * inner + v * VW;
            const vecf value = load_columns(x + at, lanes);
            PREFETCH(x + at + (long)FETCHED * inner);
            most[v] = select(most[v], value, most[v] < value);
        }
    for (int c = 0; c < C; c++)
#pragma unroll
        for (int v = 0; v < count; v++) {
            const long at = (long)c * inner + v * VW;
            const vecf shifted = load_columns(x + at, lanes) - most[v];
            const vecf e = clt_exp_split(shifted, &scale) * scale;
            sum[v] += e;
            PREFETCH(y + at + (long)FETCHED * inner);
            store_columns(is_log ? shifted : e, y + at, lanes);
        }
#pragma unroll
    for (int v = 0; v < count; v++)
        sum[v] = is_log ? log(sum[v]) : 1.0f / sum[v];
    for (int c = 0; c < C; c++)
#pragma unroll
        for (int v = 0; v < count; v++) {
            global float *to = y + (long)c * inner + v * VW;
            const vecf before = load_columns(to, lanes);
            store_columns(is_log ? before - sum[v] : before * sum[v], to, lanes);
        }
}

/* softmax: dx = y (dy - sum of y dy). log softmax: dx = dy - exp(y) * sum of dy. */
INLINE void columns_grad(global const float *y, global const float *dy, global float *dx, int C,
                         int inner, int is_log, const int count, const int lanes)
{
    vecf sum[VECTORS];
#pragma unroll
    for (int v = 0; v < count; v++)
        sum[v] = (vecf)(0.0f);
    for (int c = 0; c < C; c++)
#pragma unroll
        for (int v = 0; v < count; v++) {
            const long at = (long)c * inner + v * VW;
            const vecf factor = is_log ? (vecf)(1.0f) : load_columns(y + at, lanes);
            PREFETCH(y + at + (long)FETCHED * inner);
            PREFETCH(dy + at + (long)FETCHED * inner);
            sum[v] = fma(load_columns(dy + at, lanes), factor, sum[v]);
        }
    for (int c = 0; c < C; c++)
#pragma unroll
        for (int v = 0; v < count; v++) {
            const long at = (long)c * inner + v * VW;
            const vecf at_y = load_columns(y + at, lanes), at_dy = load_columns(dy + at, lanes);
            PREFETCH(dx + at + (long)FETCHED * inner);
            store_columns(is_log ? fma(clt_exp(at_y), -sum[v], at_dy) : at_y * (at_dy - sum[v]),
                          dx + at, lanes);
        }
}

/* Computes WIDTH columns at once. At the end of a row, it computes the remaining columns one vector
 * at a time. */
KERNEL void softmax(global const float *x, long x_offset, global float *y, long y_offset, int C,
                    int inner, int is_log)
{
    const int column = (int)get_global_id(0) * WIDTH;
    const long first = get_global_id(1) * (long)C * inner + column;
    x += x_offset + first;
    y += y_offset + first;
    const int width = min(inner - column, WIDTH);
    if (width == WIDTH)
        columns(x, y, C, inner, is_log, VECTORS, VW);
    else
        for (int v = 0; v < width; v += VW)
            if (v + VW <= width)
                columns(x + v, y + v, C, inner, is_log, 1, VW);
            else
                columns(x + v, y + v, C, inner, is_log, 1, width - v);
}

KERNEL void softmax_grad(global const float *y, long y_offset, global const float *dy,
                         long dy_offset, global float *dx, long dx_offset, int C, int inner,
                         int is_log)
{
    const int column = (int)get_global_id(0) * WIDTH;
    const long first = get_global_id(1) * (long)C * inner + column;
    y += y_offset + first;
    dy += dy_offset + first;
    dx += dx_offset + first;
    const int width = min(inner - column, WIDTH);
    if (width == WIDTH)
        columns_grad(y, dy, dx, C, inner, is_log, VECTORS, VW);
    else
        for (int v = 0; v < width; v += VW)
            if (v + VW <= width)
                columns_grad(y + v, dy + v, dx + v, C, inner, is_log, 1, VW);
            else
                columns_grad(y + v, dy + v, dx + v, C, inner, is_log, 1, width - v);
}
