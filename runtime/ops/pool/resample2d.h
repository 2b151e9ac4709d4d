/*
 * resample2d(x [B, C, H, W], ints, weights) -> [B, C, OH, OW]: along each axis, element i of the
 * result is a weighted sum of the `count` elements of x from `begin` on. Adaptive means, upsampling
 * and their gradients use this operator with different tables, which are constants:
 *
 *   ints     i32 [2 (OH + OW)]: begin of every row, of every column; count of every row, column
 *   weights  f32 [TY OH + TX OW]: of rows, then of columns; tap t of element i of an axis of n
 *            is at t n + i
 */
#ifndef CLT_OPS_POOL_RESAMPLE2D_H
#define CLT_OPS_POOL_RESAMPLE2D_H

#include "ops/core/launch.h"

typedef enum clt_resample_kind {
    CLT_RESAMPLE_ADAPTIVE_AVG,
    CLT_RESAMPLE_NEAREST,
    CLT_RESAMPLE_BILINEAR
} clt_resample_kind;

typedef struct clt_resample2d_attr {
    int in[2], out[2];
    int taps[2]; /* TY, TX: the most taps of an element */
    clt_resample_kind kind;
    bool gradient; /* the node is the gradient of that kind of resampling */
    char unused[3];
} clt_resample2d_attr;

/* One axis: the elements and weights that make each of the `out` elements. */
typedef struct clt_resample_axis {
    int in, out, taps;
    int *begin, *count;
    float *weight; /* tap t of element i is at [t * out + i] */
} clt_resample_axis;

/* Adds the operator with the tables of both axes (y, x). The caller keeps the ownership of the
 * tables. */
clt_value *clt_resample2d(clt_value *x, clt_resample_kind kind, bool gradient,
                          const clt_resample_axis axes[2]);

/* Allocates an axis with weights of 0. On failure it sets the pointers to NULL and returns an
 * error. */
clt_status clt_resample_axis_create(int in, int out, int taps, clt_resample_axis *axis);
void clt_resample_axis_free(clt_resample_axis *axis);

/* The largest result of an axis, which limits the memory of the tables. */
enum { CLT_RESAMPLE_MOST = 1 << 24 };

/* Returns whether x is [B, C, H, W] with H and W in range; otherwise fails the graph. */
bool clt_resample_accepts(const char *op, const clt_value *x);

/* Returns the mean of every plane of x [B, C, H, W] as [B, C, 1, 1]; H and W must be constant. */
clt_value *clt_global_avg_pool2d(clt_value *x);

#endif
