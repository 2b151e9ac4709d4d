/* Convolutions of images that are the same in both dimensions. */
#ifndef CLT_TESTS_SUPPORT_CONVOLUTION_H
#define CLT_TESTS_SUPPORT_CONVOLUTION_H

#include <stdio.h>

#include <cltrain/ops.h>

#include "graph/graph.h"

typedef struct square {
    int kernel, stride, padding, dilation;
} square;

/* Convolves [B, C, H, W] with the new parameter `name`. Adds `name`.bias, zeros, if `biased`. */
static inline clt_value *square_conv(clt_value *x, const char *name, int64_t out, square s,
                                     bool biased, clt_init init)
{
    const int64_t dims[] = {out, clt_value_dim(x, 1), s.kernel, s.kernel};
    char bias[64];
    clt_conv2d_options o;
    clt_conv2d_options_init(&o);
    for (int i = 0; i < 2; i++) {
        o.stride[i] = s.stride;
        o.padding[i] = s.padding;
        o.dilation[i] = s.dilation;
    }
    snprintf(bias, sizeof bias, "%s.bias", name);
    clt_value *w = clt_parameter(x->graph, name, 4, dims, init);
    return clt_conv2d(
        x, w,
        biased ? clt_parameter(x->graph, bias, 1, &out, (clt_init){CLT_INIT_ZERO, 0, 0}) : NULL,
        &o);
}

#endif
