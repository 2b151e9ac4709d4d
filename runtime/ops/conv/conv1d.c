/* Convolutions of [B, C, L], computed as convolutions of images of one row. */
#include "ops/conv/conv.h"
#include "ops/core/ops.h"
#include <cltrain/ops.h>

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
    clt_value *image = clt_row_as_image("conv1d", "operand", x);
    clt_value *kernel = image ? clt_row_as_image("conv1d", "weight", weight) : NULL;
    return clt_image_as_row(kernel ? clt_conv2d(image, kernel, bias, &o) : NULL);
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
    clt_value *image = clt_row_as_image("conv_transpose1d", "operand", x);
    clt_value *kernel = image ? clt_row_as_image("conv_transpose1d", "weight", weight) : NULL;
    return clt_image_as_row(kernel ? clt_conv_transpose2d(image, kernel, bias, &o) : NULL);
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
