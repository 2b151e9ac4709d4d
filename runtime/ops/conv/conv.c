/* Shapes, gradients and portable launches of conv2d, conv3d and their gradients. */
#include "ops/conv/conv.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "ops/core/ops.h"

bool clt_is_conv3d(const clt_op *op)
{
    return op == &clt_op_conv3d || op == &clt_op_conv3d_data_grad ||
           op == &clt_op_conv3d_weight_grad;
}

bool clt_conv_is_data_grad(const clt_node *node)
{
    return node->op == &clt_op_conv2d_data_grad || node->op == &clt_op_conv3d_data_grad;
}

bool clt_conv_is_weight_grad(const clt_node *node)
{
    return node->op == &clt_op_conv2d_weight_grad || node->op == &clt_op_conv3d_weight_grad;
}

/* The members of a clt_conv2d_attr or clt_conv3d_attr. */
typedef struct attributes {
    int axes;
    int *stride, *padding, *dilation, *in, *kernel, *groups;
    clt_epilogue *epilogue;
    bool *bias;
} attributes;

static attributes attributes_of(const clt_op *op, void *attr)
{
    clt_conv2d_attr *two = attr;
    clt_conv3d_attr *three = attr;
    return clt_is_conv3d(op)
               ? (attributes){3,           three->stride, three->padding, three->dilation,
                              three->in,   three->kernel, &three->groups, &three->epilogue,
                              &three->bias}
               : (attributes){2,           two->stride,  two->padding,   two->dilation, two->in,
                              two->kernel, &two->groups, &two->epilogue, &two->bias};
}

clt_epilogue clt_conv_epilogue(const clt_node *node)
{
    return *attributes_of(node->op, node->attr).epilogue;
}

bool clt_conv_wants_bias(const clt_node *node)
{
    return *attributes_of(node->op, node->attr).bias;
}

/* The size of the result's dimension. check_padded has accepted the node. */
static int out_size(int size, int kernel, int stride, int padding, int dilation)
{
    const int64_t room = (int64_t)size + 2 * (int64_t)padding - (int64_t)dilation * (kernel - 1);
    return room < 1 ? 0 : (int)((room - 1) / stride + 1);
}

clt_conv_shape clt_conv_shape_of(const clt_node *node)
{
    const attributes attr = attributes_of(node->op, node->attr);
    const bool data = clt_conv_is_data_grad(node), weight = clt_conv_is_weight_grad(node);
    const clt_type *x = data ? NULL : &node->in[0]->type;
    const clt_type *w = weight ? NULL : &node->in[1]->type;
    const clt_type *dy = data ? &node->in[0]->type : weight ? &node->in[1]->type : NULL;
    clt_conv_shape s = {
        .axes = attr.axes, .batch = x ? x->dims[0] : dy->dims[0], .groups = *attr.groups};
    s.channels = (int)(x ? x->dims[1] : w->dims[1] * *attr.groups);
    s.out_channels = (int)(w ? w->dims[0] : dy->dims[1]);
    for (int i = 0; i < s.axes; i++) {
        s.stride[i] = attr.stride[i];
        s.padding[i] = attr.padding[i];
        s.dilation[i] = attr.dilation[i];
        s.kernel[i] = w ? (int)w->dims[2 + i] : attr.kernel[i];
        s.in[i] = (int)(x ? x->dims[2 + i] : attr.in[i]);
        s.out[i] = dy ? (int)dy->dims[2 + i]
                      : out_size(s.in[i], s.kernel[i], s.stride[i], s.padding[i], s.dilation[i]);
    }
    return s;
}

/* The 2D shape of the axes from `first` on. */
static clt_conv2d_shape plane_of(const clt_conv_shape *s, int first)
{
    clt_conv2d_shape p = {.batch = s->batch,
                          .channels = s->channels,
                          .height = s->in[first],
                          .width = s->in[first + 1],
                          .out_channels = s->out_channels,
                          .out_height = s->out[first],
                          .out_width = s->out[first + 1],
                          .groups = s->groups};
    for (int i = 0; i < 2; i++) {
        p.kernel[i] = s->kernel[first + i];
        p.stride[i] = s->stride[first + i];
        p.padding[i] = s->padding[first + i];
        p.dilation[i] = s->dilation[first + i];
    }
    return p;
}

clt_conv2d_shape clt_conv2d_shape_of(const clt_node *node)
{
    const clt_conv_shape s = clt_conv_shape_of(node);
    return plane_of(&s, 0);
}

clt_conv2d_shape clt_conv3d_planes(const clt_node *node)
{
    const clt_conv_shape s = clt_conv_shape_of(node);
    const bool data = clt_conv_is_data_grad(node);
    clt_conv2d_shape p = plane_of(&s, 1);
    p.batch *= data ? s.in[0] : s.out[0];
    p.channels *= data ? 1 : s.kernel[0];
    p.out_channels *= data ? s.kernel[0] : 1;
    return p;
}

/* --- shapes ---------------------------------------------------------------------------------- */

/* Numbers of all axes, such as 3x3. */
typedef struct numbers {
    char text[40];
} numbers;

static numbers by(int axes, const int *n)
{
    numbers out;
    if (axes == 2)
        snprintf(out.text, sizeof out.text, "%dx%d", n[0], n[1]);
    else
        snprintf(out.text, sizeof out.text, "%dx%dx%d", n[0], n[1], n[2]);
    return out;
}

static clt_type type_of(const clt_conv_shape *s, int64_t a, int64_t b, const int *sizes)
{
    clt_type type = {.dtype = CLT_F32, .rank = 2 + s->axes, .dims = {a, b}};
    for (int i = 0; i < s->axes; i++)
        type.dims[2 + i] = sizes[i];
    return type;
}

/* Fails if positions in the padded image do not fit the kernels' int. */
static clt_status check_padded(const clt_node *node, const attributes *attr, const char *text)
{
    for (int i = 0; i < attr->axes; i++)
        if (node->in[0]->type.dims[2 + i] + 2 * (int64_t)attr->padding[i] > INT_MAX)
            return clt_fail(CLT_UNSUPPORTED,
                            "%s: %s with padding %s is larger than %d in a dimension",
                            node->op->name, text, by(attr->axes, attr->padding).text, INT_MAX);
    return CLT_OK;
}

clt_status clt_conv_infer(const clt_node *node, clt_type *out)
{
    const attributes of = attributes_of(node->op, node->attr), *attr = &of;
    const clt_type *x = &node->in[0]->type, *w = &node->in[1]->type;
    const char *op = node->op->name;
    char tx[CLT_TYPE_TEXT], tw[CLT_TYPE_TEXT];
    CLT_TRY(clt_check_f32(node, 0));
    CLT_TRY(clt_check_f32(node, 1));
    clt_operand_text(node, 0, tx);
    clt_operand_text(node, 1, tw);
    if (x->rank != 2 + attr->axes || w->rank != 2 + attr->axes)
        return clt_fail(CLT_SHAPE,
                        "%s: operand %s and weight %s must be [B, C, %sH, W] and [O, C / groups, "
                        "%sKH, KW]",
                        op, tx, tw, attr->axes == 3 ? "D, " : "", attr->axes == 3 ? "KD, " : "");
    CLT_TRY(clt_check_image(node, 0, 1));
    CLT_TRY(clt_check_image(node, 1, 0));
    CLT_TRY(check_padded(node, attr, tx));
    if (w->dims[1] * *attr->groups != x->dims[1] || w->dims[0] % *attr->groups)
        return clt_fail(CLT_SHAPE, "%s: the weight %s does not fit the operand %s with %d groups",
                        op, tw, tx, *attr->groups);
    const clt_conv_shape s = clt_conv_shape_of(node);
    double elements = s.out_channels;
    for (int i = 0; i < s.axes; i++) {
        if (s.out[i] < 1)
            return clt_fail(CLT_SHAPE,
                            "%s: the kernel of %s (dilation %s) is larger than %s with padding %s",
                            op, tw, by(s.axes, s.dilation).text, tx, by(s.axes, s.padding).text);
        elements *= s.out[i];
    }
    CLT_TRY(clt_check_bias(node));
    if (elements > INT_MAX)
        return clt_fail(CLT_UNSUPPORTED,
                        "%s: the result of %s and %s has more than %d elements an image", op, tx,
                        tw, INT_MAX);
    out[0] = type_of(&s, x->dims[0], s.out_channels, s.out);
    return CLT_OK;
}

static bool is_result(const clt_conv_shape *s)
{
    for (int i = 0; i < s->axes; i++)
        if (s->out[i] !=
            out_size(s->in[i], s->kernel[i], s->stride[i], s->padding[i], s->dilation[i]))
            return false;
    return true;
}

clt_status clt_conv_infer_data_grad(const clt_node *node, clt_type *out)
{
    const int rank = clt_is_conv3d(node->op) ? 5 : 4;
    const clt_type *dy = &node->in[0]->type, *w = &node->in[1]->type;
    char ty[CLT_TYPE_TEXT], tw[CLT_TYPE_TEXT];
    if (dy->rank != rank || w->rank != rank || dy->dims[1] != w->dims[0])
        return clt_fail(CLT_SHAPE, "%s: %s does not fit the weight %s", node->op->name,
                        clt_operand_text(node, 0, ty), clt_operand_text(node, 1, tw));
    const clt_conv_shape s = clt_conv_shape_of(node);
    if (!is_result(&s))
        return clt_fail(CLT_SHAPE, "%s: %s is not the result of an operand of %s", node->op->name,
                        clt_operand_text(node, 0, ty), by(s.axes, s.in).text);
    out[0] = type_of(&s, s.batch, s.channels, s.in);
    return CLT_OK;
}

clt_status clt_conv_infer_weight_grad(const clt_node *node, clt_type *out)
{
    const int rank = clt_is_conv3d(node->op) ? 5 : 4;
    const clt_type *x = &node->in[0]->type, *dy = &node->in[1]->type;
    char tx[CLT_TYPE_TEXT], ty[CLT_TYPE_TEXT];
    if (x->rank != rank || dy->rank != rank || x->dims[0] != dy->dims[0])
        return clt_fail(CLT_SHAPE, "%s: %s and %s differ in their batch", node->op->name,
                        clt_operand_text(node, 0, tx), clt_operand_text(node, 1, ty));
    const clt_conv_shape s = clt_conv_shape_of(node);
    if (!is_result(&s))
        return clt_fail(CLT_SHAPE, "%s: %s is not the result of %s", node->op->name,
                        clt_operand_text(node, 1, ty), clt_operand_text(node, 0, tx));
    out[0] = type_of(&s, s.out_channels, s.channels / s.groups, s.kernel);
    out[1] = (clt_type){
        .dtype = CLT_F32, .rank = 1, .dims = {clt_conv_wants_bias(node) ? s.out_channels : 1}};
    return CLT_OK;
}

/* --- other members --------------------------------------------------------------------------- */

clt_status clt_conv_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                             clt_value **dx)
{
    const bool three = clt_is_conv3d(node->op);
    const clt_conv_shape s = clt_conv_shape_of(node);
    union {
        clt_conv2d_attr two;
        clt_conv3d_attr three;
    } copy;
    memcpy(&copy, node->attr, node->op->attr_bytes);
    const attributes attr = attributes_of(node->op, &copy);
    if (attr.epilogue->activation != CLT_ACTIVATION_NONE)
        return clt_fail(CLT_INTERNAL, "%s: activations are fused after the gradient",
                        node->op->name);
    for (int i = 0; i < s.axes; i++) {
        attr.kernel[i] = s.kernel[i];
        attr.in[i] = s.in[i];
    }
    *attr.bias = node->n_in > 2 && node->in[2] && wanted[2];
    if (wanted[0])
        dx[0] = clt_emit1(three ? &clt_op_conv3d_data_grad : &clt_op_conv2d_data_grad, &copy, 2,
                          dy[0], node->in[1]);
    if (wanted[1] || *attr.bias) {
        clt_value *const in[] = {node->in[0], dy[0]};
        clt_node *added = clt_graph_add(
            node->graph, three ? &clt_op_conv3d_weight_grad : &clt_op_conv2d_weight_grad, in, 2,
            &copy);
        if (!added)
            return clt_graph_status(node->graph);
        dx[1] = added->out[0];
        if (*attr.bias)
            dx[2] = added->out[1];
    }
    return clt_graph_status(node->graph);
}

/* Adds the numbers, unless all are the usual one. */
static void describe_numbers(clt_str *text, const char *what, int axes, const int *n, int usual)
{
    bool usually = true;
    for (int i = 0; i < axes; i++)
        usually = usually && n[i] == usual;
    if (!usually)
        clt_str_add(text, "%s%s", what, by(axes, n).text);
}

void clt_conv_describe(const clt_node *node, clt_str *text)
{
    const attributes attr = attributes_of(node->op, node->attr);
    const clt_conv_shape s = clt_conv_shape_of(node);
    describe_numbers(text, "", s.axes, s.kernel, 0);
    describe_numbers(text, ", stride ", s.axes, s.stride, 1);
    describe_numbers(text, ", pad ", s.axes, s.padding, 0);
    describe_numbers(text, ", dilation ", s.axes, s.dilation, 1);
    if (s.groups != 1)
        clt_str_add(text, ", groups %d", s.groups);
    if (attr.epilogue->activation != CLT_ACTIVATION_NONE)
        clt_str_add(text, ", %s", clt_activation_name(attr.epilogue->activation));
    if (*attr.bias)
        clt_str_add(text, ", and bias");
}

/* The forward and both gradients count the same multiplications, as is usual. Multiplications with
 * padding count too, although kernels may skip them. */
double clt_conv_flops(const clt_node *node, int64_t n)
{
    const clt_conv_shape s = clt_conv_shape_of(node);
    double products = (double)clt_dim(s.batch, n) * s.out_channels * (s.channels / s.groups);
    for (int i = 0; i < s.axes; i++)
        products *= (double)s.out[i] * s.kernel[i];
    return 2 * products;
}

bool clt_conv_absorb(clt_node *node, const clt_node *next)
{
    const attributes attr = attributes_of(node->op, node->attr);
    if (next->op != &clt_op_relu || attr.epilogue->activation != CLT_ACTIVATION_NONE)
        return false;
    attr.epilogue->activation = CLT_ACTIVATION_RELU;
    return true;
}

/* Channels of groups have one label: a part of the groups has a part of all channels. The weight's
 * dimension of the channels of one group has none. */
static void label_groups(const clt_node *node, int groups, clt_node_dims *dims)
{
    enum { C = 'c' - 'a', O = 'o' - 'a' };
    for (int i = 0; i < node->n_in + node->n_out; i++) {
        signed char *labels = i < node->n_in ? dims->in[i] : dims->out[i - node->n_in];
        const bool is_weight = labels[0] == O;
        if (labels[1] == C || (is_weight && labels[1] >= 0))
            labels[1] = is_weight ? -1 : O;
    }
    dims->behaviour[O] = CLT_DIM_PARALLEL;
    dims->units[O] = groups;
}

void clt_conv_dims(const clt_node *node, clt_node_dims *dims)
{
    const attributes attr = attributes_of(node->op, node->attr);
    if (*attr.groups > 1)
        label_groups(node, *attr.groups, dims);
    if (attr.epilogue->activation != CLT_ACTIVATION_NONE)
        clt_dims_not_summed(dims);
}

clt_status clt_conv_localise(const clt_node *node, const clt_node_part *part, void *copy)
{
    const attributes attr = attributes_of(node->op, copy);
    clt_type type;
    if (part->label != 'o' - 'a' || *attr.groups == 1)
        return CLT_OK;
    CLT_TRY(clt_part_of_result(node, part, &type));
    *attr.groups /= part->at.places;
    return CLT_OK;
}

/* --- portable launches ----------------------------------------------------------------------- */

void clt_arg_conv2d_shape(clt_program *program, const clt_conv2d_shape *s)
{
    const int values[] = {s->channels,    s->height,      s->width,      s->out_channels,
                          s->out_height,  s->out_width,   s->kernel[0],  s->kernel[1],
                          s->stride[0],   s->stride[1],   s->padding[0], s->padding[1],
                          s->dilation[0], s->dilation[1], s->groups};
    CLT_ARGS(program, CLT_INT(clt_extent_dim(s->batch)));
    for (int i = 0; i < (int)(sizeof values / sizeof *values); i++)
        CLT_ARGS(program, CLT_FIXED(values[i]));
}

/* Adds the arguments CLT_SHAPE of clkernels/conv/portable/conv2d.cl or conv3d.cl. */
static void arg_shape(clt_program *p, const clt_node *node)
{
    const clt_conv_shape s = clt_conv_shape_of(node);
    if (s.axes == 2) {
        const clt_conv2d_shape plane = plane_of(&s, 0);
        clt_arg_conv2d_shape(p, &plane);
        return;
    }
    CLT_ARGS(p, CLT_INT(clt_extent_dim(s.batch)), CLT_FIXED(s.channels), CLT_FIXED(s.out_channels),
             CLT_FIXED(s.groups));
    const int *const triples[] = {s.in, s.out, s.kernel, s.stride, s.padding, s.dilation};
    for (int k = 0; k < 6; k++)
        CLT_ARGS(p, CLT_FIXED(triples[k][0]), CLT_FIXED(triples[k][1]), CLT_FIXED(triples[k][2]));
}

/* The kernel has the operator's name. */
static void begin_portable(clt_program *p, const clt_node *node)
{
    clt_launch_begin(
        p, clt_is_conv3d(node->op) ? "conv/portable/conv3d.cl" : "conv/portable/conv2d.cl",
        node->op->name, "%s", "");
    CLT_ARGS(p, CLT_IN(0), CLT_IN(1));
}

void clt_conv_portable(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_epilogue epilogue = clt_conv_epilogue(node);
    const bool data = clt_conv_is_data_grad(node), bias = node->n_in > 2 && node->in[2];
    begin_portable(p, node);
    if (!data)
        CLT_ARGS(p, CLT_IN(bias ? 2 : 1));
    CLT_ARGS(p, CLT_OUT(0));
    arg_shape(p, node);
    if (!data) {
        CLT_ARGS(p, CLT_FIXED(bias), CLT_EPILOGUE(&epilogue));
    }
    clt_range_items(p, target, clt_extent_elements(&node->out[0]->type));
}

/*
 * The batch is summed in slices. One work-item for each weight and slice writes a partial sum, and
 * a second kernel adds the slices in order. The bias counts as one more weight of each channel.
 */
void clt_conv_weight_grad_portable(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_conv_shape s = clt_conv_shape_of(node);
    const int64_t weights = clt_type_elements(&node->out[0]->type, 0);
    const int64_t sums = weights + (clt_conv_wants_bias(node) ? s.out_channels : 0);
    const int64_t batch = clt_dim(s.batch, target->max_batch);
    int64_t slices = (1 << 16) / sums;
    slices = slices > batch ? batch : slices;
    slices = slices > 64 ? 64 : slices < 1 ? 1 : slices;

    const int block = clt_scratch_add(p, clt_fixed(slices * sums * (int64_t)sizeof(float)));
    begin_portable(p, node);
    CLT_ARGS(p, CLT_SCRATCH(block));
    arg_shape(p, node);
    CLT_ARGS(p, CLT_FIXED(sums), CLT_FIXED(slices));
    clt_range_items(p, target, clt_fixed(slices * sums));

    clt_launch_begin(p, "conv/portable/conv2d.cl", "conv2d_weight_sum", "%s", "");
    CLT_ARGS(p, CLT_SCRATCH(block), CLT_OUT(0), CLT_OUT(1), CLT_FIXED(weights), CLT_FIXED(sums),
             CLT_FIXED(slices));
    clt_range_items(p, target, clt_fixed(sums));
}
