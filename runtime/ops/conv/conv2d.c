/* conv2d: two-dimensional convolution (cross-correlation, as in PyTorch) and its gradients. */
#include <limits.h>

#include <string.h>

#include "base/error.h"
#include "ops/conv/conv2d_cpu.h"
#include "ops/conv/conv2d_gpu.h"
#include "ops/conv/conv2d_batch_blocked.h"
#include "ops/conv/conv2d_winograd.h"
#include "ops/conv/depthwise_gpu.h"
#include "ops/matmul/gemm_gpu.h"
#include "ops/core/nn.h"
#include "ops/core/ops.h"

/* The size of the result's dimension. check_padded has accepted the node. */
static int out_size(int size, int kernel, int stride, int padding, int dilation)
{
    const int64_t room = (int64_t)size + 2 * (int64_t)padding - (int64_t)dilation * (kernel - 1);
    return room < 1 ? 0 : (int)((room - 1) / stride + 1);
}

/* A gradient node takes the result's size from dy, because pooling may have cut the result. */
clt_conv2d_shape clt_conv2d_shape_of(const clt_node *node)
{
    const clt_conv2d_attr *attr = node->attr;
    const bool data = node->op == &clt_op_conv2d_data_grad;
    const bool weight = node->op == &clt_op_conv2d_weight_grad;
    const clt_type *x = data ? NULL : &node->in[0]->type;
    const clt_type *w = weight ? NULL : &node->in[1]->type;
    const clt_type *dy = data ? &node->in[0]->type : weight ? &node->in[1]->type : NULL;
    clt_conv2d_shape s = {.batch = x ? x->dims[0] : dy->dims[0], .groups = attr->groups};
    for (int i = 0; i < 2; i++) {
        s.stride[i] = attr->stride[i];
        s.padding[i] = attr->padding[i];
        s.dilation[i] = attr->dilation[i];
        s.kernel[i] = w ? (int)w->dims[2 + i] : attr->kernel[i];
    }
    s.channels = (int)(x ? x->dims[1] : w->dims[1] * attr->groups);
    s.height = (int)(x ? x->dims[2] : attr->in[0]);
    s.width = (int)(x ? x->dims[3] : attr->in[1]);
    s.out_channels = (int)(w ? w->dims[0] : dy->dims[1]);
    s.out_height = dy ? (int)dy->dims[2]
                      : out_size(s.height, s.kernel[0], s.stride[0], s.padding[0], s.dilation[0]);
    s.out_width = dy ? (int)dy->dims[3]
                     : out_size(s.width, s.kernel[1], s.stride[1], s.padding[1], s.dilation[1]);
    return s;
}

static bool is_result(const clt_conv2d_shape *s)
{
    for (int i = 0; i < 2; i++) {
        const int in = i ? s->width : s->height, out = i ? s->out_width : s->out_height;
        if (out != out_size(in, s->kernel[i], s->stride[i], s->padding[i], s->dilation[i]))
            return false;
    }
    return true;
}

/* Fails if positions in the padded image do not fit the kernels' int. */
static clt_status check_padded(const clt_conv2d_attr *attr, const clt_type *x, const char *text)
{
    for (int i = 0; i < 2; i++)
        if (x->dims[2 + i] + 2 * (int64_t)attr->padding[i] > INT_MAX)
            return clt_fail(CLT_UNSUPPORTED,
                            "conv2d: %s with padding %dx%d is larger than %d in a dimension", text,
                            attr->padding[0], attr->padding[1], INT_MAX);
    return CLT_OK;
}

static clt_status infer_conv2d(const clt_node *node, clt_type *out)
{
    const clt_conv2d_attr *attr = node->attr;
    const clt_type *x = &node->in[0]->type, *w = &node->in[1]->type;
    char tx[CLT_TYPE_TEXT], tw[CLT_TYPE_TEXT], tb[CLT_TYPE_TEXT];
    CLT_TRY(clt_check_f32(node, 0));
    CLT_TRY(clt_check_f32(node, 1));
    clt_operand_text(node, 0, tx);
    clt_operand_text(node, 1, tw);
    if (x->rank != 4 || w->rank != 4)
        return clt_fail(CLT_SHAPE,
                        "conv2d: operand %s and weight %s must be [B, C, H, W] and "
                        "[O, C / groups, KH, KW]",
                        tx, tw);
    CLT_TRY(clt_check_image(node, 0, 1));
    CLT_TRY(clt_check_image(node, 1, 0));
    CLT_TRY(check_padded(attr, x, tx));
    if (w->dims[1] * attr->groups != x->dims[1] || w->dims[0] % attr->groups)
        return clt_fail(CLT_SHAPE,
                        "conv2d: the weight %s does not fit the operand %s with %d groups", tw, tx,
                        attr->groups);
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    if (s.out_height < 1 || s.out_width < 1)
        return clt_fail(CLT_SHAPE,
                        "conv2d: the kernel of %s (dilation %dx%d) is larger than %s with padding "
                        "%dx%d",
                        tw, s.dilation[0], s.dilation[1], tx, s.padding[0], s.padding[1]);
    if (node->n_in > 2 && node->in[2]) {
        const clt_type *bias = &node->in[2]->type;
        CLT_TRY(clt_check_f32(node, 2));
        if (bias->rank != 1 || bias->dims[0] != w->dims[0])
            return clt_fail(CLT_SHAPE, "conv2d: the bias %s does not fit the weight %s",
                            clt_operand_text(node, 2, tb), tw);
    }
    out[0] = (clt_type){.dtype = CLT_F32,
                        .rank = 4,
                        .dims = {x->dims[0], s.out_channels, s.out_height, s.out_width}};
    if ((double)s.out_channels * s.out_height * s.out_width > INT_MAX)
        return clt_fail(CLT_UNSUPPORTED,
                        "conv2d: the result of %s and %s has more than %d "
                        "elements an image",
                        tx, tw, INT_MAX);
    return CLT_OK;
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    clt_conv2d_attr attr = *(const clt_conv2d_attr *)node->attr;
    if (attr.epilogue.activation != CLT_ACTIVATION_NONE)
        return clt_fail(CLT_INTERNAL, "conv2d: activations are fused after the gradient");
    for (int i = 0; i < 2; i++)
        attr.kernel[i] = s.kernel[i];
    attr.in[0] = s.height;
    attr.in[1] = s.width;
    attr.bias = node->n_in > 2 && node->in[2] && wanted[2];
    if (wanted[0])
        dx[0] = clt_emit1(&clt_op_conv2d_data_grad, &attr, 2, dy[0], node->in[1]);
    if (wanted[1] || attr.bias) {
        clt_value *const in[] = {node->in[0], dy[0]};
        clt_node *added = clt_graph_add(node->graph, &clt_op_conv2d_weight_grad, in, 2, &attr);
        if (!added)
            return clt_graph_status(node->graph);
        dx[1] = added->out[0];
        if (attr.bias)
            dx[2] = added->out[1];
    }
    return clt_graph_status(node->graph);
}

static void describe(const clt_node *node, clt_str *text)
{
    const clt_conv2d_attr *attr = node->attr;
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    clt_str_add(text, "%dx%d", s.kernel[0], s.kernel[1]);
    if (s.stride[0] != 1 || s.stride[1] != 1)
        clt_str_add(text, ", stride %dx%d", s.stride[0], s.stride[1]);
    if (s.padding[0] || s.padding[1])
        clt_str_add(text, ", pad %dx%d", s.padding[0], s.padding[1]);
    if (s.dilation[0] != 1 || s.dilation[1] != 1)
        clt_str_add(text, ", dilation %dx%d", s.dilation[0], s.dilation[1]);
    if (s.groups != 1)
        clt_str_add(text, ", groups %d", s.groups);
    if (attr->epilogue.activation != CLT_ACTIVATION_NONE)
        clt_str_add(text, ", %s", clt_activation_name(attr->epilogue.activation));
    if (attr->bias)
        clt_str_add(text, ", and bias");
}

/* The forward and both gradients count the same multiplications, as is usual. Multiplications with
 * padding count too, although kernels may skip them. */
static double flops(const clt_node *node, int64_t n)
{
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    return 2.0 * (double)clt_dim(s.batch, n) * s.out_channels * s.out_height * s.out_width *
           (s.channels / s.groups) * s.kernel[0] * s.kernel[1];
}

void clt_arg_conv2d_shape(clt_program *program, const clt_conv2d_shape *s)
{
    const int values[] = {s->channels,    s->height,      s->width,      s->out_channels,
                          s->out_height,  s->out_width,   s->kernel[0],  s->kernel[1],
                          s->stride[0],   s->stride[1],   s->padding[0], s->padding[1],
                          s->dilation[0], s->dilation[1], s->groups};
    clt_arg_int(program, clt_extent_dim(s->batch));
    for (int i = 0; i < (int)(sizeof values / sizeof *values); i++)
        clt_arg_int(program, clt_fixed(values[i]));
}

/* In the batch-blocked layout, the sums of the weights' gradient are on the stack: a vector for
 * each tap of each pair of channels in a register tile. A tile has fewer pairs if a row has more
 * taps. */
static bool sums_fit_stack(const clt_conv2d_attr *attr)
{
    enum { MOST_BYTES = 4 << 20, VECTOR_BYTES = 64, CELLS = 32, MOST_COLUMNS = 8 };
    const int columns = attr->kernel[1] < MOST_COLUMNS ? attr->kernel[1] : MOST_COLUMNS;
    const int64_t taps = (int64_t)attr->kernel[0] * attr->kernel[1];
    return taps <= MOST_BYTES / VECTOR_BYTES / (CELLS / columns);
}

/* In the batch-blocked layout samples fill every vector, whatever the number of channels. */
static int wants_batch_blocked(const clt_node *node)
{
    const clt_conv2d_attr *attr = node->attr;
    const bool weight = node->op == &clt_op_conv2d_weight_grad;
    return attr->epilogue.activation <= CLT_ACTIVATION_RELU &&
                   clt_value_leads_with_batch(node->in[0]) &&
                   (!weight || (clt_value_leads_with_batch(node->in[1]) && sums_fit_stack(attr)))
               ? CLT_BATCH_BLOCKED_WANT
               : CLT_BATCH_BLOCKED_NO;
}

static bool absorb(clt_node *node, const clt_node *next)
{
    clt_conv2d_attr *attr = node->attr;
    if (next->op != &clt_op_relu || attr->epilogue.activation != CLT_ACTIVATION_NONE)
        return false;
    attr->epilogue.activation = CLT_ACTIVATION_RELU;
    return true;
}

static void emit_portable(const clt_node *node, const clt_target *target, clt_program *program)
{
    const clt_conv2d_attr *attr = node->attr;
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    const bool bias = node->n_in > 2 && node->in[2];
    clt_launch_begin(program, "conv/portable/conv2d.cl", "conv2d", "");
    clt_arg_in(program, 0);
    clt_arg_in(program, 1);
    clt_arg_in(program, bias ? 2 : 1);
    clt_arg_out(program, 0);
    clt_arg_conv2d_shape(program, &s);
    clt_arg_int(program, clt_fixed(bias));
    clt_arg_epilogue(program, &attr->epilogue);
    clt_range_items(program, target, clt_extent_elements(&node->out[0]->type));
}

static const clt_variant variants[] = {
    {"batch_blocked_winograd", clt_conv2d_winograd_accepts, clt_conv2d_winograd,
     clt_conv2d_winograd_tiles, CLT_BATCH_BLOCKED},
    {"batch_blocked", clt_accepts_batch_blocked, clt_conv2d_batch_blocked,
     clt_conv2d_batch_blocked_tiles, CLT_BATCH_BLOCKED},
    {"depthwise", clt_depthwise_gpu_accepts, clt_depthwise_gpu, clt_depthwise_gpu_tiles},
    {"implicit_gemm", clt_conv2d_gpu_accepts, clt_conv2d_gpu, clt_gpu_tiles},
    {"implicit_gemm_cpu", clt_conv2d_cpu_accepts, clt_conv2d_cpu, clt_conv2d_cpu_tiles},
    {"portable", clt_accepts_plain, emit_portable},
    {0},
};

/* 16 bits are possible in the batch-blocked layout, for the direct kernels only. The data
 * gradient's kernels add to their output, so it stays f32. */
static bool half(const clt_node *node, const clt_target *target, int index, bool output)
{
    char why[CLT_WHY];
    return node->in[0]->layout == CLT_LAYOUT_BATCH_BLOCKED &&
           !clt_conv2d_winograd_fits(node, target, why) && index == 0 &&
           (!output || node->op == &clt_op_conv2d);
}

static bool half_weight_grad(const clt_node *node, const clt_target *target, int index, bool output)
{
    char why[CLT_WHY];
    (void)index;
    return !output && node->in[0]->layout == CLT_LAYOUT_BATCH_BLOCKED &&
           node->in[1]->layout == CLT_LAYOUT_BATCH_BLOCKED &&
           !clt_conv2d_winograd_weight_fits(node, target, why);
}

static const clt_attribute attributes[] = {
    {CLT_ATTRIBUTE(INT, "stride", clt_conv2d_attr, stride, "Step of the kernel."), .count = 2,
     .least = 1, .most = INT_MAX, .otherwise = 1},
    {CLT_ATTRIBUTE(INT, "padding", clt_conv2d_attr, padding, "Zeros on each side."), .count = 2,
     .most = INT_MAX},
    {CLT_ATTRIBUTE(INT, "dilation", clt_conv2d_attr, dilation,
                   "Distance between the elements of the kernel."),
     .count = 2, .least = 1, .most = INT_MAX, .otherwise = 1},
    {CLT_ATTRIBUTE(INT, "groups", clt_conv2d_attr, groups,
                   "The number of groups of channels, which are convolved separately."),
     .least = 1, .most = INT_MAX, .otherwise = 1},
    {CLT_ATTRIBUTE(CHOICE, "activation", clt_conv2d_attr, epilogue.activation,
                   "The activation of the result. The fusion pass sets it."),
     .choices = clt_activation_names, .internal = 1},
    {CLT_ATTRIBUTE(REAL, "slope", clt_conv2d_attr, epilogue.slope, "Slope of leaky_relu."),
     .internal = 1},
    {CLT_ATTRIBUTE(INT, "in", clt_conv2d_attr, in, "Gradient of x: size of dx."), .count = 2,
     .internal = 1},
    {CLT_ATTRIBUTE(INT, "kernel", clt_conv2d_attr, kernel, "Weight gradient: kernel size."),
     .count = 2, .internal = 1},
    {CLT_ATTRIBUTE(FLAG, "bias", clt_conv2d_attr, bias, "Weight gradient: computes dbias."),
     .internal = 1},
    {0},
};

/* Groups share no channels, so channels stay whole. They also stay whole before an activation. */
static void dims_of(const clt_node *node, clt_node_dims *dims)
{
    const clt_conv2d_attr *attr = node->attr;
    if (attr->groups > 1)
        dims->behaviour['c' - 'a'] = dims->behaviour['o' - 'a'] = CLT_DIM_WHOLE;
    if (attr->epilogue.activation != CLT_ACTIVATION_NONE)
        clt_dims_not_summed(dims);
}

const clt_op clt_op_conv2d = {
    .name = "conv2d",
    .doc = "Convolution of x with the kernels of the weight.",
    .operands = "x bchw, weight ocij, bias o?!",
    .results = "y bohw",
    .halo = "hw",
    .whole = "ij",
    .dims = dims_of,
    .callable = true,
    .attributes = attributes,
    .attr_bytes = sizeof(clt_conv2d_attr),
    .infer = infer_conv2d,
    .gradient = gradient,
    .describe = describe,
    .flops = flops,
    .half = half,
    .batch_blocked = wants_batch_blocked,
    .absorb = absorb,
    .variants = variants,
};

void clt_conv2d_options_init(clt_conv2d_options *options)
{
    clt_conv2d_attr attr;
    clt_attributes_init(&clt_op_conv2d, &attr);
    *options = (clt_conv2d_options){.struct_size = sizeof *options, .groups = attr.groups};
    memcpy(options->stride, attr.stride, sizeof attr.stride);
    memcpy(options->padding, attr.padding, sizeof attr.padding);
    memcpy(options->dilation, attr.dilation, sizeof attr.dilation);
}

clt_value *clt_conv2d(clt_value *x, clt_value *weight, clt_value *bias,
                      const clt_conv2d_options *options)
{
    clt_conv2d_options own;
    if (!x || !weight)
        return NULL;
    clt_conv2d_options_init(&own);
    const clt_status status = clt_options_read("conv2d", &own, sizeof own, options);
    if (status != CLT_OK) {
        clt_graph_failed(x->graph, status);
        return NULL;
    }
    clt_conv2d_attr attr = {.groups = own.groups};
    for (int i = 0; i < 2; i++) {
        attr.stride[i] = own.stride[i];
        attr.padding[i] = own.padding[i];
        attr.dilation[i] = own.dilation[i];
    }
    return clt_emit1(&clt_op_conv2d, &attr, 3, x, weight, bias);
}

/* --- conv2d_data_grad ----------------------------------------------------------------------- */

static clt_status infer_data_grad(const clt_node *node, clt_type *out)
{
    const clt_type *dy = &node->in[0]->type, *w = &node->in[1]->type;
    char ty[CLT_TYPE_TEXT], tw[CLT_TYPE_TEXT];
    if (dy->rank != 4 || w->rank != 4 || dy->dims[1] != w->dims[0])
        return clt_fail(CLT_SHAPE, "conv2d_data_grad: %s does not fit the weight %s",
                        clt_operand_text(node, 0, ty), clt_operand_text(node, 1, tw));
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    if (!is_result(&s))
        return clt_fail(CLT_SHAPE, "conv2d_data_grad: %s is not the result of an operand of %dx%d",
                        clt_operand_text(node, 0, ty), s.height, s.width);
    out[0] = (clt_type){
        .dtype = CLT_F32, .rank = 4, .dims = {dy->dims[0], s.channels, s.height, s.width}};
    return CLT_OK;
}

/* The gradient of a transposed convolution. It is a convolution of dy with the same weight, and a
 * weight gradient with operand and dy exchanged. */
static clt_status data_grad_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                                     clt_value **dx)
{
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    clt_conv2d_attr attr = *(const clt_conv2d_attr *)node->attr;
    for (int i = 0; i < 2; i++) {
        attr.in[i] = 0;
        attr.kernel[i] = 0;
    }
    attr.bias = false;
    if (wanted[0])
        dx[0] = clt_emit1(&clt_op_conv2d, &attr, 3, dy[0], node->in[1], NULL);
    if (wanted[1]) {
        clt_value *const in[] = {dy[0], node->in[0]};
        for (int i = 0; i < 2; i++)
            attr.kernel[i] = s.kernel[i];
        clt_node *added = clt_graph_add(node->graph, &clt_op_conv2d_weight_grad, in, 2, &attr);
        dx[1] = added ? added->out[0] : NULL;
    }
    return clt_graph_status(node->graph);
}

static void emit_data_grad_portable(const clt_node *node, const clt_target *target,
                                    clt_program *program)
{
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    clt_launch_begin(program, "conv/portable/conv2d.cl", "conv2d_data_grad", "");
    clt_arg_in(program, 0);
    clt_arg_in(program, 1);
    clt_arg_out(program, 0);
    clt_arg_conv2d_shape(program, &s);
    clt_range_items(program, target, clt_extent_elements(&node->out[0]->type));
}

static const clt_variant data_grad_variants[] = {
    {"batch_blocked_winograd", clt_conv2d_winograd_accepts, clt_conv2d_winograd,
     clt_conv2d_winograd_tiles, CLT_BATCH_BLOCKED},
    {"batch_blocked", clt_accepts_batch_blocked, clt_conv2d_data_grad_batch_blocked,
     clt_conv2d_data_grad_tiles, CLT_BATCH_BLOCKED},
    {"depthwise", clt_depthwise_gpu_accepts, clt_depthwise_data_grad_gpu, clt_depthwise_gpu_tiles},
    {"implicit_gemm", clt_conv2d_gpu_accepts, clt_conv2d_data_grad_gpu, clt_gpu_tiles},
    {"implicit_gemm_cpu", clt_conv2d_cpu_accepts, clt_conv2d_data_grad_cpu, clt_conv2d_cpu_tiles},
    {"portable", clt_accepts_plain, emit_data_grad_portable},
    {0},
};

const clt_op clt_op_conv2d_data_grad = {
    .name = "conv2d_data_grad",
    .doc = "The gradient of conv2d for x, a transposed convolution.",
    .operands = "dy bohw, weight ocij",
    .results = "dx bchw",
    .halo = "hw",
    .whole = "ij",
    .dims = dims_of,
    .attributes = attributes,
    .attr_bytes = sizeof(clt_conv2d_attr),
    .infer = infer_data_grad,
    .gradient = data_grad_gradient,
    .describe = describe,
    .flops = flops,
    .half = half,
    .batch_blocked = wants_batch_blocked,
    .variants = data_grad_variants,
};

/* --- conv2d_weight_grad --------------------------------------------------------------------- */

static clt_status infer_weight_grad(const clt_node *node, clt_type *out)
{
    const clt_conv2d_attr *attr = node->attr;
    const clt_type *x = &node->in[0]->type, *dy = &node->in[1]->type;
    char tx[CLT_TYPE_TEXT], ty[CLT_TYPE_TEXT];
    if (x->rank != 4 || dy->rank != 4 || x->dims[0] != dy->dims[0])
        return clt_fail(CLT_SHAPE, "conv2d_weight_grad: %s and %s differ in their batch",
                        clt_operand_text(node, 0, tx), clt_operand_text(node, 1, ty));
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    if (!is_result(&s))
        return clt_fail(CLT_SHAPE, "conv2d_weight_grad: %s is not the result of %s",
                        clt_operand_text(node, 1, ty), clt_operand_text(node, 0, tx));
    out[0] = (clt_type){.dtype = CLT_F32,
                        .rank = 4,
                        .dims = {s.out_channels, s.channels / s.groups, s.kernel[0], s.kernel[1]}};
    out[1] = (clt_type){.dtype = CLT_F32, .rank = 1, .dims = {attr->bias ? s.out_channels : 1}};
    return CLT_OK;
}

/*
 * The batch is summed in slices. One work-item for each weight and slice writes a partial sum, and
 * a second kernel adds the slices in order. The bias counts as one more weight of each channel.
 */
static void emit_weight_grad_portable(const clt_node *node, const clt_target *target,
                                      clt_program *program)
{
    const clt_conv2d_attr *attr = node->attr;
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    const int64_t weights = clt_type_elements(&node->out[0]->type, 0);
    const int64_t sums = weights + (attr->bias ? s.out_channels : 0);
    const int64_t batch = clt_dim(s.batch, target->max_batch);
    int64_t slices = (1 << 16) / sums;
    slices = slices > batch ? batch : slices;
    slices = slices > 64 ? 64 : slices < 1 ? 1 : slices;

    const int block = clt_scratch_add(program, clt_fixed(slices * sums * (int64_t)sizeof(float)));
    clt_launch_begin(program, "conv/portable/conv2d.cl", "conv2d_weight_grad", "");
    clt_arg_in(program, 0);
    clt_arg_in(program, 1);
    clt_arg_scratch(program, block);
    clt_arg_conv2d_shape(program, &s);
    clt_arg_int(program, clt_fixed(sums));
    clt_arg_int(program, clt_fixed(slices));
    clt_range_items(program, target, clt_fixed(slices * sums));

    clt_launch_begin(program, "conv/portable/conv2d.cl", "conv2d_weight_sum", "");
    clt_arg_scratch(program, block);
    clt_arg_out(program, 0);
    clt_arg_out(program, 1);
    clt_arg_int(program, clt_fixed(weights));
    clt_arg_int(program, clt_fixed(sums));
    clt_arg_int(program, clt_fixed(slices));
    clt_range_items(program, target, clt_fixed(sums));
}

static const clt_variant weight_grad_variants[] = {
    {"batch_blocked_winograd", clt_conv2d_winograd_weight_accepts, clt_conv2d_winograd_weight,
     clt_conv2d_winograd_weight_tiles, CLT_BATCH_BLOCKED},
    {"batch_blocked", clt_accepts_batch_blocked, clt_conv2d_weight_grad_batch_blocked,
     clt_conv2d_weight_grad_tiles, CLT_BATCH_BLOCKED},
    {"depthwise", clt_depthwise_gpu_accepts, clt_depthwise_weight_grad_gpu,
     clt_depthwise_gpu_tiles},
    {"implicit_gemm", clt_conv2d_gpu_accepts, clt_conv2d_weight_grad_gpu, clt_gpu_tiles},
    {"implicit_gemm_cpu", clt_conv2d_cpu_accepts, clt_conv2d_weight_grad_cpu},
    {"portable", clt_accepts_plain, emit_weight_grad_portable},
    {0},
};

const clt_op clt_op_conv2d_weight_grad = {
    .name = "conv2d_weight_grad",
    .doc = "The gradients of conv2d for weight and bias.",
    .operands = "x bchw, dy bohw",
    .results = "dweight ocij, dbias o",
    .halo = "hw",
    .whole = "ij",
    .dims = dims_of,
    .attributes = attributes,
    .attr_bytes = sizeof(clt_conv2d_attr),
    .infer = infer_weight_grad,
    .describe = describe,
    .flops = flops,
    .half = half_weight_grad,
    .batch_blocked = wants_batch_blocked,
    .variants = weight_grad_variants,
};
