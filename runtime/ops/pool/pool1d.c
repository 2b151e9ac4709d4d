/* Pooling of [B, C, L], computed as pooling of images of one row. */
#include "ops/core/nn.h"
#include "ops/core/ops.h"
#include <cltrain/ops.h>

void clt_pool1d_options_init(clt_pool1d_options *options)
{
    clt_options_init(&clt_call_max_pool1d, options);
}

static clt_value *pool(const char *op,
                       clt_value *(*pool2d)(clt_value *x, const clt_pool2d_options *options),
                       clt_value *x, const clt_pool1d_options *options)
{
    clt_pool1d_options own;
    clt_pool1d_options_init(&own);
    if (!x || !clt_options_given(op, x, &own, sizeof own, options))
        return NULL;
    clt_pool2d_options o;
    clt_pool2d_options_init(&o);
    o.kernel[0] = o.stride[0] = 1;
    o.kernel[1] = own.kernel;
    o.stride[1] = own.stride;
    o.padding[1] = own.padding;
    o.dilation[1] = own.dilation;
    o.ceil_mode = own.ceil_mode;
    o.count_include_pad = own.count_include_pad;
    clt_value *image = clt_row_as_image(op, "operand", x);
    return clt_image_as_row(image ? pool2d(image, &o) : NULL);
}

clt_value *clt_avg_pool1d(clt_value *x, const clt_pool1d_options *options)
{
    return pool("avg_pool1d", clt_avg_pool2d, x, options);
}

clt_value *clt_max_pool1d(clt_value *x, const clt_pool1d_options *options)
{
    return pool("max_pool1d", clt_max_pool2d, x, options);
}

clt_value *clt_adaptive_avg_pool1d(clt_value *x, int length)
{
    clt_value *image = x ? clt_row_as_image("adaptive_avg_pool1d", "operand", x) : NULL;
    return clt_image_as_row(image ? clt_adaptive_avg_pool2d(image, 1, length) : NULL);
}

#define POOL_CALL(NAME, MAXIMUM, DOC)                                                              \
    CLT_CALLABLE_SHARED(                                                                           \
        NAME, clt_pool1d_options, c->out[0] = clt_##NAME(c->in[0], a), .doc = DOC,                 \
        .operands = "x bcl", .results = "y bcl",                                                   \
        CLT_ATTRIBUTES(                                                                            \
            clt_pool1d_options,                                                                    \
            {CLT_ATTRIBUTE(INT, "kernel", clt_pool1d_options, kernel, "Size of the window."),      \
             .least = 1, .most = INT_MAX, .default_value = 2},                                     \
            {CLT_ATTRIBUTE(INT, "stride", clt_pool1d_options, stride,                              \
                           "Distance between windows; 0: the size of a window."),                  \
             .most = INT_MAX},                                                                     \
            {CLT_ATTRIBUTE(INT, "padding", clt_pool1d_options, padding,                            \
                           "Padding on each side, at most half of the window."),                   \
             .most = INT_MAX},                                                                     \
            {CLT_ATTRIBUTE(INT, "dilation", clt_pool1d_options, dilation,                          \
                           "Distance between the elements of a window."),                          \
             .least = 1, .most = (MAXIMUM) ? INT_MAX : 1, .default_value = 1,                      \
             .internal = !(MAXIMUM)},                                                              \
            {CLT_ATTRIBUTE(FLAG, "ceil_mode", clt_pool1d_options, ceil_mode,                       \
                           "Windows may extend beyond the end.")},                                 \
            {CLT_ATTRIBUTE(FLAG, "count_include_pad", clt_pool1d_options, count_include_pad,       \
                           "Means count the padding."),                                            \
             .default_value = 1, .internal = (MAXIMUM)}),                                          \
        .halo = "l")

/* Users give a dilation to maxima only, and count_include_pad to means only. */
POOL_CALL(avg_pool1d, 0, "The mean of each window.");
POOL_CALL(max_pool1d, 1, "The maximum of each window. Padding does not count.");

typedef struct size_call {
    int size;
} size_call;

CLT_CALLABLE(adaptive_avg_pool1d, size_call, c->out[0] = clt_adaptive_avg_pool1d(c->in[0], a->size),
             .doc = "The mean of each window. The windows divide x evenly.", .operands = "x bcl",
             .results = "y bck",
             CLT_ATTRIBUTES(size_call,
                            {CLT_ATTRIBUTE(INT, "size", size_call, size, "Size of the result."),
                             .least = 1, .most = 1 << 24, .default_value = 1}),
             .whole = "kl");
