/* conv_transpose2d: conv2d's data gradient as a layer. Its gradients are conv2d and conv2d's weight
 * gradient. */
#include <limits.h>

#include "base/error.h"
#include "ops/conv/conv.h"
#include "ops/core/ops.h"
#include <cltrain/ops.h>

static clt_status check_options(const clt_conv_transpose2d_options *o)
{
    for (int i = 0; i < 2; i++) {
        if (o->stride[i] < 1 || o->dilation[i] < 1 || o->padding[i] < 0)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "conv_transpose2d: stride %dx%d and dilation %dx%d must be at least 1, "
                            "padding %dx%d at least 0",
                            o->stride[0], o->stride[1], o->dilation[0], o->dilation[1],
                            o->padding[0], o->padding[1]);
        if (o->output_padding[i] < 0 || o->output_padding[i] >= o->stride[i])
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "conv_transpose2d: output_padding %dx%d must be at least 0 and less "
                            "than the stride %dx%d",
                            o->output_padding[0], o->output_padding[1], o->stride[0], o->stride[1]);
    }
    if (o->groups < 1)
        return clt_fail(CLT_INVALID_ARGUMENT, "conv_transpose2d: groups is %d, not at least 1",
                        o->groups);
    return CLT_OK;
}

static clt_status check_shapes(const clt_type *x, const clt_type *w, const clt_type *bias,
                               const clt_conv_transpose2d_options *o)
{
    char tx[CLT_TYPE_TEXT], tw[CLT_TYPE_TEXT], tb[CLT_TYPE_TEXT];
    clt_type_text(x, tx);
    clt_type_text(w, tw);
    if (x->dtype != CLT_F32 || w->dtype != CLT_F32 || (bias && bias->dtype != CLT_F32))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "conv_transpose2d: operand %s, weight %s and bias must be f32", tx, tw);
    if (x->rank != 4 || w->rank != 4)
        return clt_fail(CLT_SHAPE,
                        "conv_transpose2d: operand %s and weight %s must be [B, C, H, W] and "
                        "[C, O / groups, KH, KW]",
                        tx, tw);
    for (int i = 0; i < 4; i++)
        if (w->dims[i] < 1 || (i && x->dims[i] < 1))
            return clt_fail(CLT_SHAPE,
                            "conv_transpose2d: dimensions of operand %s and weight %s but the "
                            "first must be constant and not 0",
                            tx, tw);
    if (w->dims[0] != x->dims[1] || x->dims[1] % o->groups)
        return clt_fail(CLT_SHAPE,
                        "conv_transpose2d: the weight %s does not fit the operand %s with %d "
                        "groups",
                        tw, tx, o->groups);
    if (bias && (bias->rank != 1 || bias->dims[0] != w->dims[1] * o->groups))
        return clt_fail(CLT_SHAPE,
                        "conv_transpose2d: the bias %s does not fit the weight %s with %d groups",
                        clt_type_text(bias, tb), tw, o->groups);
    return CLT_OK;
}

/* Sets the result's size. With padding it must fit an int, because the data gradient's kernels
 * count in int. */
static clt_status set_size(const clt_type *x, const clt_type *w,
                           const clt_conv_transpose2d_options *o, int size[2])
{
    char tx[CLT_TYPE_TEXT], tw[CLT_TYPE_TEXT];
    for (int i = 0; i < 2; i++) {
        /* Check in double as well, because double does not overflow. */
        const double about = (double)(x->dims[2 + i] - 1) * o->stride[i] +
                             (double)o->dilation[i] * (double)(w->dims[2 + i] - 1) +
                             o->output_padding[i] + 1;
        if (about > INT_MAX)
            return clt_fail(CLT_UNSUPPORTED,
                            "conv_transpose2d: the result of %s and %s is larger than %d in a "
                            "dimension",
                            clt_type_text(x, tx), clt_type_text(w, tw), INT_MAX);
        const int64_t out = (int64_t)about - 2 * (int64_t)o->padding[i];
        if (out < 1)
            return clt_fail(CLT_SHAPE,
                            "conv_transpose2d: nothing is left of the result of %s and %s without "
                            "padding %dx%d",
                            clt_type_text(x, tx), clt_type_text(w, tw), o->padding[0],
                            o->padding[1]);
        size[i] = (int)out;
    }
    if ((double)w->dims[1] * o->groups * size[0] * size[1] > INT_MAX)
        return clt_fail(CLT_UNSUPPORTED,
                        "conv_transpose2d: the result of %s and %s has more than %d elements an "
                        "image",
                        clt_type_text(x, tx), clt_type_text(w, tw), INT_MAX);
    return CLT_OK;
}

clt_value *clt_conv_transpose2d(clt_value *x, clt_value *weight, clt_value *bias,
                                const clt_conv_transpose2d_options *options)
{
    clt_conv_transpose2d_options own;
    if (!x || !weight)
        return NULL;
    clt_conv_transpose2d_options_init(&own);
    clt_conv2d_attr attr = {.groups = 0};
    clt_status status = clt_options_read("conv_transpose2d", &own, sizeof own, options);
    CLT_NEXT(status, check_options(&own));
    CLT_NEXT(status, check_shapes(&x->type, &weight->type, bias ? &bias->type : NULL, &own));
    CLT_NEXT(status, set_size(&x->type, &weight->type, &own, attr.in));
    if (status != CLT_OK)
        return clt_graph_failed(x->graph, status);
    attr.groups = own.groups;
    for (int i = 0; i < 2; i++) {
        attr.stride[i] = own.stride[i];
        attr.padding[i] = own.padding[i];
        attr.dilation[i] = own.dilation[i];
    }
    clt_value *y = clt_emit1(&clt_op_conv2d_data_grad, &attr, 2, x, weight);
    if (!y || !bias)
        return y;
    const int64_t channels[4] = {1, bias->type.dims[0], 1, 1};
    return clt_add(y, clt_reshape(bias, 4, channels));
}

CLT_CALLABLE_OPTIONS(
    conv_transpose2d, clt_conv_transpose2d_options,
    c->out[0] = clt_conv_transpose2d(c->in[0], c->in[1], c->in[2], a),
    .doc = "Transposed convolution of x: the gradient of a convolution for its input.",
    .operands = "x bchw, weight coij, bias o?!", .results = "y bohw",
    CLT_ATTRIBUTES(clt_conv_transpose2d_options,
                   CLT_CONV_TRANSPOSE_ATTRIBUTES(clt_conv_transpose2d_options, 2)),
    .whole = "ij", .halo = "hw");
