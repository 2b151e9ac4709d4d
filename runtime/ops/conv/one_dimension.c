/* Operators on [B, C, L], computed as operators on images of one row. Reshaping costs nothing. */
#include "base/error.h"
#include "ops/conv/conv.h"
#include "ops/core/ops.h"
#include <cltrain/ops.h>

/* The value as an image of one row. Fails and returns NULL if its rank is not 3. */
static clt_value *as_image(const char *op, const char *what, clt_value *value)
{
    const clt_type *type = &value->type;
    char text[CLT_TYPE_TEXT];
    if (type->rank != 3 || type->dims[2] < 0)
        return clt_graph_failed(value->graph, clt_fail(CLT_SHAPE,
                                                       "%s: the %s %s must have 3 dimensions, the "
                                                       "last of which is constant",
                                                       op, what, clt_type_text(type, text)));
    const int64_t dims[4] = {type->dims[0], type->dims[1], 1, type->dims[2]};
    return clt_reshape(value, 4, dims);
}

/* The reverse of as_image. */
static clt_value *as_row(clt_value *image)
{
    if (!image)
        return NULL;
    const int64_t *d = image->type.dims, dims[3] = {d[0], d[1], d[3]};
    return clt_reshape(image, 3, dims);
}

/* --- convolution -------------------------------------------------------------------------------
 */

void clt_conv1d_options_init(clt_conv1d_options *options)
{
    clt_options_init(&clt_call_conv1d, options);
}

clt_value *clt_conv1d(clt_value *x, clt_value *weight, clt_value *bias,
                      const clt_conv1d_options *options)
{
    clt_conv1d_options own;
    clt_conv1d_options_init(&own);
    if (!x || !weight || !clt_options_given("conv1d", x, &own, sizeof own, options))
        return NULL;
    clt_conv2d_options o;
    clt_conv2d_options_init(&o);
    o.stride[1] = own.stride;
    o.padding[1] = own.padding;
    o.dilation[1] = own.dilation;
    o.groups = own.groups;
    clt_value *image = as_image("conv1d", "operand", x);
    clt_value *kernel = image ? as_image("conv1d", "weight", weight) : NULL;
    return as_row(kernel ? clt_conv2d(image, kernel, bias, &o) : NULL);
}

void clt_conv_transpose1d_options_init(clt_conv_transpose1d_options *options)
{
    clt_options_init(&clt_call_conv_transpose1d, options);
}

clt_value *clt_conv_transpose1d(clt_value *x, clt_value *weight, clt_value *bias,
                                const clt_conv_transpose1d_options *options)
{
    clt_conv_transpose1d_options own;
    clt_conv_transpose1d_options_init(&own);
    if (!x || !weight || !clt_options_given("conv_transpose1d", x, &own, sizeof own, options))
        return NULL;
    clt_conv_transpose2d_options o;
    clt_conv_transpose2d_options_init(&o);
    o.stride[1] = own.stride;
    o.padding[1] = own.padding;
    o.output_padding[1] = own.output_padding;
    o.dilation[1] = own.dilation;
    o.groups = own.groups;
    clt_value *image = as_image("conv_transpose1d", "operand", x);
    clt_value *kernel = image ? as_image("conv_transpose1d", "weight", weight) : NULL;
    return as_row(kernel ? clt_conv_transpose2d(image, kernel, bias, &o) : NULL);
}

/* --- pooling -----------------------------------------------------------------------------------
 */

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
    clt_value *image = as_image(op, "operand", x);
    return as_row(image ? pool2d(image, &o) : NULL);
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
    clt_value *image = x ? as_image("adaptive_avg_pool1d", "operand", x) : NULL;
    return as_row(image ? clt_adaptive_avg_pool2d(image, 1, length) : NULL);
}

CLT_CALLABLE_OPTIONS(
    conv1d, clt_conv1d_options, c->out[0] = clt_conv1d(c->in[0], c->in[1], c->in[2], a),
    .doc = "Convolution of x with the kernels of the weight.",
    .operands = "x bcl, weight ock, bias o?!", .results = "y bol",
    CLT_ATTRIBUTES(clt_conv1d_options,
                   {CLT_CONV_STRIDE(clt_conv1d_options, 0, "Step of the kernel.")},
                   {CLT_CONV_PADDING(clt_conv1d_options, 0, "Zeros on each side.")},
                   {CLT_CONV_DILATION(clt_conv1d_options, 0)},
                   {CLT_CONV_GROUPS(clt_conv1d_options)}),
    .whole = "k", .halo = "l");

CLT_CALLABLE_OPTIONS(
    conv_transpose1d, clt_conv_transpose1d_options,
    c->out[0] = clt_conv_transpose1d(c->in[0], c->in[1], c->in[2], a),
    .doc = "Transposed convolution of x: the gradient of a convolution for its input.",
    .operands = "x bcl, weight cok, bias o?!", .results = "y bol",
    CLT_ATTRIBUTES(clt_conv_transpose1d_options,
                   CLT_CONV_TRANSPOSE_ATTRIBUTES(clt_conv_transpose1d_options, 0)),
    .whole = "k", .halo = "l");

#define POOL_CALL(NAME, MAXIMUM, DOC)                                                              \
    CLT_CALLABLE_OPTIONS(                                                                          \
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
