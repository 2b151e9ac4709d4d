/* Convolution and its gradients in double on plain NCHW, with the sums of the terms' magnitudes. */
#ifndef CLT_TESTS_KERNELS_REFERENCE_CONV_H
#define CLT_TESTS_KERNELS_REFERENCE_CONV_H

#include <math.h>
#include <stdlib.h>

/* Channels count all groups. Pairs are y, then x. */
typedef struct conv_case {
    int n, groups, ci, ih, iw, co;
    int k[2], s[2], p[2], d[2];
    int tx, tc, gx, gc, rows;           /* tiles of forward and data gradient */
    int to, ti, tr, tk, ci_block, band; /* tiles of the weight gradient; tr 0: 1 */
    int pool, act, bias, edges;
} conv_case;

/* The arguments of a kernel that takes the window of a convolution (core/batch_blocked/window.clh).
 */
#define CONV_WINDOW(c)                                                                             \
    (c)->k[0], (c)->k[1], (c)->s[0], (c)->s[1], (c)->d[0], (c)->d[1], (c)->p[0], (c)->p[1]

static inline int conv_out(const conv_case *c, int axis)
{
    const int size = axis ? c->iw : c->ih;
    return (size + 2 * c->p[axis] - c->d[axis] * (c->k[axis] - 1) - 1) / c->s[axis] + 1;
}

/* Calls `body` with the indices of x, w and y for each (image, output channel, output pixel, tap,
 * input channel of the group) inside the image. */
typedef void conv_body(void *context, long x, long w, long y);

static inline void conv_each(const conv_case *c, conv_body *body, void *context)
{
    const int oh = conv_out(c, 0), ow = conv_out(c, 1);
    const int cig = c->ci / c->groups, cog = c->co / c->groups;
    for (int b = 0; b < c->n; b++)
        for (int o = 0; o < c->co; o++)
            for (int y = 0; y < oh; y++)
                for (int x = 0; x < ow; x++)
                    for (int i = 0; i < cig; i++)
                        for (int ky = 0; ky < c->k[0]; ky++)
                            for (int kx = 0; kx < c->k[1]; kx++) {
                                const int iy = y * c->s[0] + ky * c->d[0] - c->p[0];
                                const int ix = x * c->s[1] + kx * c->d[1] - c->p[1];
                                if (iy < 0 || iy >= c->ih || ix < 0 || ix >= c->iw)
                                    continue;
                                const int channel = o / cog * cig + i;
                                body(context,
                                     ((b * (long)c->ci + channel) * c->ih + iy) * c->iw + ix,
                                     ((o * (long)cig + i) * c->k[0] + ky) * c->k[1] + kx,
                                     ((b * (long)c->co + o) * oh + y) * ow + x);
                            }
}

/* Two factors, and the result with its magnitudes. `which` selects the index of the result. */
typedef struct conv_sums {
    const float *a, *b;
    double *sum, *magnitude;
    int which;    /* 0: y = x w, 1: dx = dy w (a = dy), 2: dw = x dy (b = dy) */
    float *plain; /* the result by one sequence of f32 multiply-adds, or NULL */
} conv_sums;

static inline void conv_add(void *context, long x, long w, long y)
{
    const conv_sums *s = context;
    const long ia = s->which == 1 ? y : x, ib = s->which == 2 ? y : w;
    const long out = s->which == 0 ? y : s->which == 1 ? x : w;
    const double term = (double)s->a[ia] * (double)s->b[ib];
    s->sum[out] += term;
    s->magnitude[out] += fabs(term);
    if (s->plain)
        s->plain[out] = fmaf(s->a[ia], s->b[ib], s->plain[out]);
}

/* Returns the root of the mean squared error of `got`, relative to that of `plain`. */
static inline double conv_error_ratio(const float *got, const float *plain, const double *sum,
                                      long count)
{
    double of_got = 0.0, of_plain = 0.0;
    for (long i = 0; i < count; i++) {
        of_got += ((double)got[i] - sum[i]) * ((double)got[i] - sum[i]);
        of_plain += ((double)plain[i] - sum[i]) * ((double)plain[i] - sum[i]);
    }
    return sqrt(of_got / of_plain);
}

/* Cases: tiles that fit, tiles with tails, padding, strides, dilation, groups, sizes of 1. */
static const conv_case conv_cases[] = {
    {.n = 5,
     .groups = 1,
     .ci = 3,
     .ih = 9,
     .iw = 11,
     .co = 7,
     .k = {3, 3},
     .s = {1, 1},
     .d = {1, 1},
     .tx = 4,
     .tc = 3,
     .gx = 4,
     .gc = 2,
     .rows = 2,
     .to = 2,
     .ti = 1,
     .tk = 3,
     .ci_block = 2,
     .band = 2,
     .bias = 1},
    {.n = 17,
     .groups = 1,
     .ci = 2,
     .ih = 8,
     .iw = 10,
     .co = 4,
     .k = {3, 5},
     .s = {1, 1},
     .p = {1, 2},
     .d = {1, 1},
     .tx = 3,
     .tc = 4,
     .gx = 3,
     .gc = 1,
     .rows = 3,
     .to = 4,
     .ti = 1,
     .tk = 3,
     .ci_block = 2,
     .band = 4,
     .bias = 1,
     .act = 1},
    {.n = 8,
     .groups = 1,
     .ci = 5,
     .ih = 13,
     .iw = 13,
     .co = 5,
     .k = {5, 5},
     .s = {1, 1},
     .d = {1, 1},
     .tx = 4,
     .tc = 3,
     .gx = 2,
     .gc = 2,
     .rows = 4,
     .to = 2,
     .ti = 1,
     .tk = 5,
     .ci_block = 3,
     .band = 2,
     .bias = 1,
     .act = 1,
     .pool = 1},
    {.n = 9,
     .groups = 1,
     .ci = 1,
     .ih = 14,
     .iw = 17,
     .co = 6,
     .k = {3, 3},
     .s = {1, 1},
     .p = {1, 1},
     .d = {1, 1},
     .tx = 4,
     .tc = 3,
     .gx = 4,
     .gc = 1,
     .rows = 1,
     .to = 4,
     .ti = 1,
     .tk = 3,
     .ci_block = 1,
     .band = 6,
     .bias = 1,
     .act = 1,
     .pool = 2},
    {.n = 3,
     .groups = 2,
     .ci = 4,
     .ih = 11,
     .iw = 9,
     .co = 6,
     .k = {3, 2},
     .s = {2, 3},
     .p = {1, 1},
     .d = {2, 1},
     .tx = 2,
     .tc = 2,
     .gx = 2,
     .gc = 2,
     .rows = 5,
     .to = 2,
     .ti = 2,
     .tk = 1,
     .ci_block = 2,
     .band = 2},
    {.n = 1,
     .groups = 1,
     .ci = 1,
     .ih = 1,
     .iw = 1,
     .co = 1,
     .k = {1, 1},
     .s = {1, 1},
     .d = {1, 1},
     .tx = 3,
     .tc = 4,
     .gx = 1,
     .gc = 1,
     .rows = 1,
     .to = 4,
     .ti = 3,
     .tk = 1,
     .ci_block = 3,
     .band = 2,
     .bias = 1},
    {.n = 2,
     .groups = 3,
     .ci = 3,
     .ih = 7,
     .iw = 7,
     .co = 3,
     .k = {7, 7},
     .s = {1, 1},
     .p = {3, 3},
     .d = {1, 1},
     .tx = 6,
     .tc = 2,
     .gx = 2,
     .gc = 1,
     .rows = 7,
     .to = 1,
     .ti = 1,
     .tk = 3,
     .ci_block = 1,
     .band = 2,
     .bias = 1},
    {.n = 6,
     .groups = 1,
     .ci = 4,
     .ih = 8,
     .iw = 8,
     .co = 5,
     .k = {3, 3},
     .s = {1, 1},
     .p = {2, 2},
     .d = {2, 2},
     .tx = 4,
     .tc = 3,
     .gx = 4,
     .gc = 3,
     .rows = 8,
     .to = 3,
     .ti = 2,
     .tk = 2,
     .ci_block = 4,
     .band = 2,
     .edges = 1,
     .act = 1,
     .bias = 1},
    {.n = 4,
     .groups = 1,
     .ci = 2,
     .ih = 9,
     .iw = 6,
     .co = 9,
     .k = {3, 3},
     .s = {2, 1},
     .p = {1, 1},
     .d = {1, 1},
     .tx = 4,
     .tc = 3,
     .gx = 5,
     .gc = 2,
     .rows = 8,
     .to = 5,
     .ti = 1,
     .tk = 3,
     .ci_block = 1,
     .band = 2},
    {.n = 18,
     .groups = 5,
     .ci = 5,
     .ih = 7,
     .iw = 6,
     .co = 5,
     .k = {3, 3},
     .s = {1, 1},
     .p = {1, 1},
     .d = {1, 1},
     .tx = 4,
     .tc = 1,
     .gx = 4,
     .gc = 1,
     .rows = 4,
     .to = 1,
     .ti = 1,
     .tr = 3,
     .tk = 3,
     .ci_block = 1,
     .band = 2,
     .bias = 1},
    {.n = 5,
     .groups = 2,
     .ci = 4,
     .ih = 10,
     .iw = 9,
     .co = 6,
     .k = {5, 5},
     .s = {2, 2},
     .p = {3, 4},
     .d = {1, 1},
     .tx = 3,
     .tc = 2,
     .gx = 3,
     .gc = 2,
     .rows = 2,
     .to = 2,
     .ti = 1,
     .tr = 2,
     .tk = 3,
     .ci_block = 2,
     .band = 2,
     .bias = 1},
    {.n = 9,
     .groups = 3,
     .ci = 3,
     .ih = 11,
     .iw = 8,
     .co = 6,
     .k = {3, 3},
     .s = {1, 1},
     .p = {2, 0},
     .d = {2, 1},
     .tx = 2,
     .tc = 2,
     .gx = 3,
     .gc = 1,
     .rows = 3,
     .to = 2,
     .ti = 1,
     .tr = 3,
     .tk = 3,
     .ci_block = 1,
     .band = 4,
     .bias = 1,
     .pool = 1},
    {.n = 2,
     .groups = 1,
     .ci = 1,
     .ih = 1,
     .iw = 2,
     .co = 1,
     .k = {5, 3},
     .s = {1, 1},
     .p = {2, 3},
     .d = {1, 1},
     .tx = 2,
     .tc = 1,
     .gx = 2,
     .gc = 1,
     .rows = 1,
     .to = 1,
     .ti = 1,
     .tr = 5,
     .tk = 3,
     .ci_block = 1,
     .band = 2},
};

static inline size_t up(int value, int by)
{
    return (size_t)((value + by - 1) / by);
}

#endif
