#include "ops/pool2d.h"

#include "base/error.h"

int64_t clt_pool2d_size(const clt_pool2d_attr *attr, int axis, int64_t size)
{
    const int64_t stride = attr->stride[axis], padding = attr->padding[axis];
    const int64_t span = (int64_t)attr->dilation[axis] * (attr->kernel[axis] - 1) + 1;
    const int64_t room = size + 2 * padding - span;
    if (room < 0 && !(attr->ceil_mode && room + stride - 1 >= 0))
        return 0;
    int64_t out = (room + (attr->ceil_mode ? stride - 1 : 0)) / stride + 1;
    /* A window may hang over the right edge, but must start inside the input or its left padding.
     */
    if (attr->ceil_mode && (out - 1) * stride >= size + padding)
        out--;
    return out;
}

void clt_pool2d_options_init(clt_pool2d_options *options)
{
    *options = (clt_pool2d_options){.struct_size = sizeof *options,
                                    .kernel = {2, 2},
                                    .dilation = {1, 1},
                                    .count_include_pad = 1};
}

static clt_status check(const char *op, const clt_value *x, const clt_pool2d_attr *attr)
{
    char text[CLT_TYPE_TEXT];
    if (x->type.rank != 4 || x->type.dims[2] < 0 || x->type.dims[3] < 0)
        return clt_fail(CLT_SHAPE, "%s: the operand %s must be [B, C, H, W] with constant H and W",
                        op, clt_type_text(&x->type, text));
    for (int i = 0; i < 2; i++) {
        if (attr->kernel[i] < 1 || attr->stride[i] < 1 || attr->dilation[i] < 1)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "%s: kernel %dx%d, stride %dx%d and dilation %dx%d must be at least 1",
                            op, attr->kernel[0], attr->kernel[1], attr->stride[0], attr->stride[1],
                            attr->dilation[0], attr->dilation[1]);
        if (attr->padding[i] < 0 || attr->padding[i] > attr->kernel[i] / 2)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "%s: padding %dx%d must be between 0 and half of the kernel %dx%d", op,
                            attr->padding[0], attr->padding[1], attr->kernel[0], attr->kernel[1]);
        if (clt_pool2d_size(attr, i, x->type.dims[2 + i]) < 1)
            return clt_fail(CLT_SHAPE,
                            "%s: the window %dx%d (dilation %dx%d) is larger than %s with padding "
                            "%dx%d",
                            op, attr->kernel[0], attr->kernel[1], attr->dilation[0],
                            attr->dilation[1], clt_type_text(&x->type, text), attr->padding[0],
                            attr->padding[1]);
    }
    return CLT_OK;
}

bool clt_pool2d_attr_from(const char *op, const clt_value *x, const clt_pool2d_options *options,
                          clt_pool2d_attr *attr)
{
    clt_pool2d_options own;
    clt_pool2d_options_init(&own);
    clt_status status = clt_options_read(op, &own, sizeof own, options);
    if (status == CLT_OK) {
        *attr = (clt_pool2d_attr){.ceil_mode = own.ceil_mode != 0,
                                  .count_include_pad = own.count_include_pad != 0};
        for (int i = 0; i < 2; i++) {
            attr->kernel[i] = own.kernel[i];
            attr->stride[i] = own.stride[i] ? own.stride[i] : own.kernel[i];
            attr->padding[i] = own.padding[i];
            attr->dilation[i] = own.dilation[i];
        }
        status = check(op, x, attr);
    }
    if (status != CLT_OK) {
        clt_graph_failed(x->graph, status);
        return false;
    }
    attr->in[0] = (int)x->type.dims[2];
    attr->in[1] = (int)x->type.dims[3];
    return true;
}

clt_status clt_pool2d_infer(const clt_node *node, int x, clt_type *out)
{
    const clt_pool2d_attr *attr = node->attr;
    CLT_TRY(clt_check_f32(node, x));
    CLT_TRY(clt_check_image(node, x, 1));
    *out = node->in[x]->type;
    for (int i = 0; i < 2; i++)
        out->dims[2 + i] = clt_pool2d_size(attr, i, attr->in[i]);
    return CLT_OK;
}

clt_status clt_pool2d_infer_grad(const clt_node *node, int dy, clt_type *out)
{
    const clt_pool2d_attr *attr = node->attr;
    const clt_type *type = &node->in[dy]->type;
    char text[CLT_TYPE_TEXT];
    if (type->rank != 4 || type->dims[2] != clt_pool2d_size(attr, 0, attr->in[0]) ||
        type->dims[3] != clt_pool2d_size(attr, 1, attr->in[1]))
        return clt_fail(CLT_SHAPE, "%s: %s is not the result of an operand of %dx%d",
                        node->op->name, clt_type_text(type, text), attr->in[0], attr->in[1]);
    *out = *type;
    out->dims[2] = attr->in[0];
    out->dims[3] = attr->in[1];
    return CLT_OK;
}

void clt_pool2d_describe(const clt_node *node, clt_str *text)
{
    const clt_pool2d_attr *attr = node->attr;
    clt_str_add(text, "%dx%d, stride %dx%d", attr->kernel[0], attr->kernel[1], attr->stride[0],
                attr->stride[1]);
    if (attr->padding[0] || attr->padding[1])
        clt_str_add(text, ", pad %dx%d", attr->padding[0], attr->padding[1]);
    if (attr->dilation[0] != 1 || attr->dilation[1] != 1)
        clt_str_add(text, ", dilation %dx%d", attr->dilation[0], attr->dilation[1]);
    if (attr->ceil_mode)
        clt_str_add(text, ", ceil");
    if (!attr->count_include_pad)
        clt_str_add(text, ", padding not counted");
}

enum { POOL2D_NUMBERS = 13 };

static void numbers_of(const clt_pool2d_attr *attr, int numbers[POOL2D_NUMBERS])
{
    const int values[POOL2D_NUMBERS] = {attr->in[0],
                                        attr->in[1],
                                        (int)clt_pool2d_size(attr, 0, attr->in[0]),
                                        (int)clt_pool2d_size(attr, 1, attr->in[1]),
                                        attr->kernel[0],
                                        attr->kernel[1],
                                        attr->stride[0],
                                        attr->stride[1],
                                        attr->padding[0],
                                        attr->padding[1],
                                        attr->dilation[0],
                                        attr->dilation[1],
                                        attr->count_include_pad};
    for (int i = 0; i < POOL2D_NUMBERS; i++)
        numbers[i] = values[i];
}

int clt_pool2d_lanes(const clt_node *node)
{
    return clt_value_leads_with_batch(node->in[0]) ? CLT_LANES_WANT : CLT_LANES_NO;
}

void clt_pool2d_emit_lanes(const clt_node *node, const clt_target *target, const char *kernel,
                           clt_program *program)
{
    int numbers[POOL2D_NUMBERS];
    numbers_of(node->attr, numbers);
    clt_launch_begin(program, "lanes/pool.cl", kernel, "-DLANES=%d", target->lanes);
    for (int i = 0; i < node->n_in; i++)
        clt_arg_in(program, i);
    clt_arg_out(program, 0);
    for (int i = 0; i < POOL2D_NUMBERS; i++)
        clt_arg_int(program, clt_fixed(numbers[i]));
    clt_range1(program, (clt_extent){node->out[0]->type.dims[1], 1, target->lanes, 0}, 1);
}

void clt_pool2d_args(const clt_node *node, const clt_target *target, clt_program *program)
{
    int numbers[POOL2D_NUMBERS];
    numbers_of(node->attr, numbers);
    const clt_extent planes =
        clt_extent_dim(clt_dims_product(&node->out[0]->type, 0, 2)); /* images x channels */
    clt_arg_int(program, planes);
    for (int i = 0; i < POOL2D_NUMBERS; i++)
        clt_arg_int(program, clt_fixed(numbers[i]));
    clt_range_items(program, target, clt_extent_elements(&node->out[0]->type));
}
