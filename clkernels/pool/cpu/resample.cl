/*
 * Weighted sums of windows of images by tables, and the gradient of the means of whole planes, for
 * values in plain order, on CPUs. pool/portable/resample.cl has the formula and the tables. All
 * work-groups have one work-item. The rows of a window are added up first, in vectors along the
 * row, to a row in local memory. Then vectors of results add up their columns, whose elements are
 * gathered from there. If a row of y has the same window as the row before (nearest upsampling),
 * the row is copied.
 *
 * Build options: VW, width of a vector (4, 8 or 16); for resample2d TX, the most columns of a
 * window, and ROOM, the floats of the row in local memory.
 */
#define LANES VW
#include "core/batch_blocked/common.clh"

#ifdef TX

#define LOAD_INTS(p) (*(global const veci_anywhere *)(p))
typedef veci veci_anywhere __attribute__((aligned(4)));

/* row[i] = sum over k < rows of weights[k * step] x[k][i], for i < W. */
static inline void add_rows(local float *row, global const float *x, int rows,
                            global const float *weights, int step, int W)
{
    int i = 0;
    for (; i + VW <= W; i += VW) {
        vecf sum = 0.0f;
        for (int k = 0; k < rows; k++)
            sum = fma((vecf)(weights[(long)k * step]), LOAD(x + (long)k * W + i), sum);
        *(local vecf_anywhere *)(row + i) = sum;
    }
    for (; i < W; i++) {
        float sum = 0.0f;
        for (int k = 0; k < rows; k++)
            sum = fma(weights[(long)k * step], x[(long)k * W + i], sum);
        row[i] = sum;
    }
}

static inline vecf gather(local const float *row, veci at)
{
    int index[VW];
    float value[VW];
    *(private veci *)index = at;
#pragma unroll
    for (int l = 0; l < VW; l++)
        value[l] = row[index[l]];
    return *(private vecf_anywhere *)value;
}

/* y[i] = sum over t < counts[i] of weights[t][i] row[begins[i] + t], for i < OW. Lanes with fewer
 * taps read beyond their window and leave the product out. */
static inline void add_columns(global float *y, local const float *row, global const int *begins,
                               global const int *counts, global const float *weights, int OW)
{
    int i = 0;
    for (; i + VW <= OW; i += VW) {
        const veci at = LOAD_INTS(begins + i), count = LOAD_INTS(counts + i);
        vecf sum = 0.0f;
#pragma unroll
        for (int t = 0; t < TX; t++) {
            const vecf v = gather(row, at + t);
            sum = select(sum, fma(LOAD(weights + (long)t * OW + i), v, sum), (veci)(t) < count);
        }
        STORE(sum, y + i);
    }
    for (; i < OW; i++) {
        float sum = 0.0f;
        for (int t = 0; t < counts[i]; t++)
            sum = fma(weights[(long)t * OW + i], row[begins[i] + t], sum);
        y[i] = sum;
    }
}

/* Work-item (i, j) computes `band` rows of y from i * band on, of `share` planes from j * share
 * on. */
KERNEL void resample2d(global const float *x, long x_offset, global const int *ints,
                       long ints_offset, global const float *weights, long weights_offset,
                       global float *y, long y_offset, int H, int W, int OH, int OW, int TY,
                       int planes, int share, int band)
{
    local float row[ROOM] __attribute__((aligned(64)));
    const int first = (int)get_global_id(0) * band, end = min(first + band, OH);
    const long from = (long)get_global_id(1) * share, behind = min(from + share, (long)planes);
    ints += ints_offset;
    weights += weights_offset;
    global const int *row_counts = ints + OH + OW;
    for (int i = 0; i < ROOM; i++)
        row[i] = 0.0f;
    for (long plane = from; plane < behind; plane++) {
        global const float *image = x + x_offset + plane * H * W;
        global float *to = y + y_offset + (plane * OH + first) * OW;
        for (int oy = first; oy < end; oy++, to += OW) {
            const int same = TY == 1 && oy > first && ints[oy] == ints[oy - 1] &&
                             row_counts[oy] == row_counts[oy - 1] &&
                             weights[oy] == weights[oy - 1];
            if (same) {
                int i = 0;
                for (; i + VW <= OW; i += VW)
                    STORE(LOAD(to - OW + i), to + i);
                for (; i < OW; i++)
                    to[i] = to[i - OW];
                continue;
            }
            add_rows(row, image + (long)ints[oy] * W, row_counts[oy], weights + oy, OH, W);
            add_columns(to, row, ints + OH, row_counts + OH, weights + (long)TY * OH, OW);
        }
    }
}

#else

/* dx = dy / count in all elements of a plane. Work-item i computes `share` planes from i * share
 * on. */
KERNEL void global_avg_pool2d_grad(global const float *dy, long dy_offset, global float *dx,
                                   long dx_offset, int planes, int count, int share)
{
    const long from = (long)get_global_id(0) * share, behind = min(from + share, (long)planes);
    for (long plane = from; plane < behind; plane++) {
        const float each = dy[dy_offset + plane] / (float)count;
        global float *to = dx + dx_offset + plane * count;
        int i = 0;
        for (; i + VW <= count; i += VW)
            STORE((vecf)(each), to + i);
        for (; i < count; i++)
            to[i] = each;
    }
}

#endif
