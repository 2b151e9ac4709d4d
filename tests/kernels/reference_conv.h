/* Convolution and its gradients in double on plain NCHW, with the sums of the terms' magnitudes. */
#ifndef CLT_TESTS_KERNELS_REFERENCE_CONV_H
#define CLT_TESTS_KERNELS_REFERENCE_CONV_H

#include <math.h>
#include <stdlib.h>

/* Channels are those of all groups; square or not, each of y then x. */
typedef struct conv_case {
    int n, groups, ci, ih, iw, co;
    int k[2], s[2], p[2], d[2];
    int tx, tc, gx, gc, rows; /* tiles: forward, data gradient */
    int pool, act, bias, edges;
} conv_case;

static inline int conv_out(const conv_case *c, int axis)
{
    const int size = axis ? c->iw : c->ih;
    return (size + 2 * c->p[axis] - c->d[axis] * (c->k[axis] - 1) - 1) / c->s[axis] + 1;
}

/* Calls `body` for each (image, output channel, output pixel, tap, input channel of the group) that
 * lies inside the image, with the indices of x, w and y. */
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

/* Two factors and the result with its magnitudes; `which` says which index is the result's. */
typedef struct conv_sums {
    const float *a, *b;
    double *sum, *magnitude;
    int which; /* 0: y = x w, 1: dx = dy w (a = dy), 2: dw = x dy (b = dy) */
} conv_sums;

static inline void conv_add(void *context, long x, long w, long y)
{
    const conv_sums *s = context;
    const long ia = s->which == 1 ? y : x, ib = s->which == 2 ? y : w;
    const long out = s->which == 0 ? y : s->which == 1 ? x : w;
    const double term = (double)s->a[ia] * (double)s->b[ib];
    s->sum[out] += term;
    s->magnitude[out] += fabs(term);
}

#endif
