/* conv3d: three-dimensional convolution (cross-correlation, as in PyTorch) and its gradients. */
#include "ops/conv/conv3d.h"

#include <limits.h>
#include <string.h>

#include "base/error.h"
#include "ops/conv/conv2d_cpu.h"
#include "ops/core/ops.h"
#include <cltrain/ops.h>

bool clt_is_conv3d(const clt_op *op)
{
    return op == &clt_op_conv3d || op == &clt_op_conv3d_data_grad ||
           op == &clt_op_conv3d_weight_grad;
}

/* The size of the result's dimension. check_padded has accepted the node. */
static int out_size(int size, int kernel, int stride, int padding, int dilation)
{
    const int64_t room = (int64_t)size + 2 * (int64_t)padding - (int64_t)dilation * (kernel - 1);
    return room < 1 ? 0 : (int)((room - 1) / stride + 1);
}

clt_conv3d_shape clt_conv3d_shape_of(const clt_node *node)
{
    const clt_conv3d_attr *attr = node->attr;
    const bool data = node->op == &clt_op_conv3d_data_grad;
    const bool weight = node->op == &clt_op_conv3d_weight_grad;
    const clt_type *x = data ? NULL : &node->in[0]->type;
    const clt_type *w = weight ? NULL : &node->in[1]->type;
    const clt_type *dy = data ? &node->in[0]->type : weight ? &node->in[1]->type : NULL;
    clt_conv3d_shape s = {.batch = x ? x->dims[0] : dy->dims[0], .groups = attr->groups};
    s.channels = (int)(x ? x->dims[1] : w->dims[1] * attr->groups);
    s.out_channels = (int)(w ? w->dims[0] : dy->dims[1]);
    for (int i = 0; i < 3; i++) {
        s.stride[i] = attr->stride[i];
        s.padding[i] = attr->padding[i];
        s.dilation[i] = attr->dilation[i];
        s.kernel[i] = w ? (int)w->dims[2 + i] : attr->kernel[i];
        s.in[i] = (int)(x ? x->dims[2 + i] : attr->in[i]);
        s.out[i] = dy ? (int)dy->dims[2 + i]
                      : out_size(s.in[i], s.kernel[i], s.stride[i], s.padding[i], s.dilation[i]);
    }
    return s;
}

clt_conv2d_shape clt_conv3d_planes(const clt_node *node)
{
    const clt_conv3d_shape s = clt_conv3d_shape_of(node);
    const bool data = node->op == &clt_op_conv3d_data_grad;
    clt_conv2d_shape p = {.batch = s.batch * (data ? s.in[0] : s.out[0]),
                          .channels = s.channels * (data ? 1 : s.kernel[0]),
                          .height = s.in[1],
                          .width = s.in[2],
                          .out_channels = s.out_channels * (data ? s.kernel[0] : 1),
                          .out_height = s.out[1],
                          .out_width = s.out[2],
                          .groups = s.groups};
    for (int i = 0; i < 2; i++) {
        p.kernel[i] = s.kernel[1 + i];
        p.stride[i] = s.stride[1 + i];
        p.padding[i] = s.padding[1 + i];
        p.dilation[i] = s.dilation[1 + i];
    }
    return p;
}

/* --- conv3d ------------------------------------------------------------------------------------
 */

/* Fails if positions in the padded volume do not fit the kernels' int. */
static clt_status check_padded(const clt_conv3d_attr *a, const clt_type *x, const char *text)
{
    for (int i = 0; i < 3; i++)
        if (x->dims[2 + i] + 2 * (int64_t)a->padding[i] > INT_MAX)
            return clt_fail(CLT_UNSUPPORTED,
                            "conv3d: %s with padding %dx%dx%d is larger than %d in a dimension",
                            text, a->padding[0], a->padding[1], a->padding[2], INT_MAX);
    return CLT_OK;
}

static clt_status infer(const clt_node *node, clt_type *out)
{
    const clt_conv3d_attr *attr = node->attr;
    const clt_type *x = &node->in[0]->type, *w = &node->in[1]->type;
    char tx[CLT_TYPE_TEXT], tw[CLT_TYPE_TEXT], tb[CLT_TYPE_TEXT];
    CLT_TRY(clt_check_f32(node, 0));
    CLT_TRY(clt_check_f32(node, 1));
    clt_operand_text(node, 0, tx);
    clt_operand_text(node, 1, tw);
    if (x->rank != 5 || w->rank != 5)
        return clt_fail(CLT_SHAPE,
                        "conv3d: operand %s and weight %s must be [B, C, D, H, W] and "
                        "[O, C / groups, KD, KH, KW]",
                        tx, tw);
    CLT_TRY(clt_check_image(node, 0, 1));
    CLT_TRY(clt_check_image(node, 1, 0));
    CLT_TRY(check_padded(attr, x, tx));
    if (w->dims[1] * attr->groups != x->dims[1] || w->dims[0] % attr->groups)
        return clt_fail(CLT_SHAPE,
                        "conv3d: the weight %s does not fit the operand %s with %d groups", tw, tx,
                        attr->groups);
    const clt_conv3d_shape s = clt_conv3d_shape_of(node);
    if (s.out[0] < 1 || s.out[1] < 1 || s.out[2] < 1)
        return clt_fail(CLT_SHAPE,
                        "conv3d: the kernel of %s (dilation %dx%dx%d) is larger than %s with "
                        "padding %dx%dx%d",
                        tw, s.dilation[0], s.dilation[1], s.dilation[2], tx, s.padding[0],
                        s.padding[1], s.padding[2]);
    if (node->n_in > 2 && node->in[2]) {
        const clt_type *bias = &node->in[2]->type;
        CLT_TRY(clt_check_f32(node, 2));
        if (bias->rank != 1 || bias->dims[0] != w->dims[0])
            return clt_fail(CLT_SHAPE, "conv3d: the bias %s does not fit the weight %s",
                            clt_operand_text(node, 2, tb), tw);
    }
    if ((double)s.out_channels * s.out[0] * s.out[1] * s.out[2] > INT_MAX)
        return clt_fail(CLT_UNSUPPORTED,
                        "conv3d: the result of %s and %s has more than %d elements an image", tx,
                        tw, INT_MAX);
    out[0] = (clt_type){.dtype = CLT_F32,
                        .rank = 5,
                        .dims = {x->dims[0], s.out_channels, s.out[0], s.out[1], s.out[2]}};
    return CLT_OK;
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    const clt_conv3d_shape s = clt_conv3d_shape_of(node);
    clt_conv3d_attr attr = *(const clt_conv3d_attr *)node->attr;
    if (attr.epilogue.activation != CLT_ACTIVATION_NONE)
        return clt_fail(CLT_INTERNAL, "conv3d: activations are fused after the gradient");
    for (int i = 0; i < 3; i++) {
        attr.kernel[i] = s.kernel[i];
        attr.in[i] = s.in[i];
    }
    attr.bias = node->n_in > 2 && node->in[2] && wanted[2];
    if (wanted[0])
        dx[0] = clt_emit1(&clt_op_conv3d_data_grad, &attr, 2, dy[0], node->in[1]);
    if (wanted[1] || attr.bias) {
        clt_value *const in[] = {node->in[0], dy[0]};
        clt_node *added = clt_graph_add(node->graph, &clt_op_conv3d_weight_grad, in, 2, &attr);
        if (!added)
            return clt_graph_status(node->graph);
        dx[1] = added->out[0];
        if (attr.bias)
            dx[2] = added->out[1];
    }
    return clt_graph_status(node->graph);
}

static void triple(clt_str *text, const char *what, const int *n, int usual)
{
    if (n[0] != usual || n[1] != usual || n[2] != usual)
        clt_str_add(text, "%s%dx%dx%d", what, n[0], n[1], n[2]);
}

static void describe(const clt_node *node, clt_str *text)
{
    const clt_conv3d_attr *attr = node->attr;
    const clt_conv3d_shape s = clt_conv3d_shape_of(node);
    triple(text, "", s.kernel, 0);
    triple(text, ", stride ", s.stride, 1);
    triple(text, ", pad ", s.padding, 0);
    triple(text, ", dilation ", s.dilation, 1);
    if (s.groups != 1)
        clt_str_add(text, ", groups %d", s.groups);
    if (attr->epilogue.activation != CLT_ACTIVATION_NONE)
        clt_str_add(text, ", %s", clt_activation_name(attr->epilogue.activation));
    if (attr->bias)
        clt_str_add(text, ", and bias");
}

/* Counts multiplications with padding too, like conv2d. */
static double flops(const clt_node *node, int64_t n)
{
    const clt_conv3d_shape s = clt_conv3d_shape_of(node);
    double products = (double)clt_dim(s.batch, n) * s.out_channels * (s.channels / s.groups);
    for (int i = 0; i < 3; i++)
        products *= (double)s.out[i] * s.kernel[i];
    return 2 * products;
}

static bool absorb(clt_node *node, const clt_node *next)
{
    clt_conv3d_attr *attr = node->attr;
    if (next->op != &clt_op_relu || attr->epilogue.activation != CLT_ACTIVATION_NONE)
        return false;
    attr->epilogue.activation = CLT_ACTIVATION_RELU;
    return true;
}

/* Adds the arguments CLT_SHAPE of clkernels/conv/portable/conv3d.cl. */
static void arg_shape(clt_program *p, const clt_conv3d_shape *s)
{
    clt_arg_int(p, clt_extent_dim(s->batch));
    clt_arg_int(p, clt_fixed(s->channels));
    clt_arg_int(p, clt_fixed(s->out_channels));
    clt_arg_int(p, clt_fixed(s->groups));
    const int *const triples[] = {s->in, s->out, s->kernel, s->stride, s->padding, s->dilation};
    for (int k = 0; k < 6; k++)
        for (int i = 0; i < 3; i++)
            clt_arg_int(p, clt_fixed(triples[k][i]));
}

static void emit_portable(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_conv3d_attr *attr = node->attr;
    const clt_conv3d_shape s = clt_conv3d_shape_of(node);
    const bool bias = node->n_in > 2 && node->in[2];
    clt_launch_begin(p, "conv/portable/conv3d.cl", "conv3d", "%s", "");
    clt_arg_in(p, 0);
    clt_arg_in(p, 1);
    clt_arg_in(p, bias ? 2 : 1);
    clt_arg_out(p, 0);
    arg_shape(p, &s);
    clt_arg_int(p, clt_fixed(bias));
    clt_arg_epilogue(p, &attr->epilogue);
    clt_range_items(p, target, clt_extent_elements(&node->out[0]->type));
}

static void emit_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_conv3d_attr *attr = node->attr;
    clt_conv2d_cpu_convolve(node, target, &attr->epilogue, p);
}

static const clt_variant variants[] = {
    {"planes_gpu", clt_conv3d_gpu_accepts, clt_conv3d_gpu},
    {"implicit_gemm_cpu", clt_conv2d_cpu_accepts, emit_cpu, clt_conv2d_cpu_tiles},
    {"portable", clt_accepts_plain, emit_portable},
    {0},
};

static const clt_attribute attributes[] = {
    {CLT_ATTRIBUTE(INT, "stride", clt_conv3d_attr, stride, "Step of the kernel."), .count = 3,
     .least = 1, .most = INT_MAX, .otherwise = 1},
    {CLT_ATTRIBUTE(INT, "padding", clt_conv3d_attr, padding, "Zeros on each side."), .count = 3,
     .most = INT_MAX},
    {CLT_ATTRIBUTE(INT, "dilation", clt_conv3d_attr, dilation,
                   "Distance between the elements of the kernel."),
     .count = 3, .least = 1, .most = INT_MAX, .otherwise = 1},
    {CLT_ATTRIBUTE(INT, "groups", clt_conv3d_attr, groups,
                   "The number of groups of channels, which are convolved separately."),
     .least = 1, .most = INT_MAX, .otherwise = 1},
    {CLT_ATTRIBUTE(CHOICE, "activation", clt_conv3d_attr, epilogue.activation,
                   "The activation of the result. The fusion pass sets it."),
     .choices = clt_activation_names, .internal = 1},
    {CLT_ATTRIBUTE(REAL, "slope", clt_conv3d_attr, epilogue.slope, "Slope of leaky_relu."),
     .internal = 1},
    {CLT_ATTRIBUTE(INT, "in", clt_conv3d_attr, in, "Gradient of x: size of dx."), .count = 3,
     .internal = 1},
    {CLT_ATTRIBUTE(INT, "kernel", clt_conv3d_attr, kernel, "Weight gradient: kernel size."),
     .count = 3, .internal = 1},
    {CLT_ATTRIBUTE(FLAG, "bias", clt_conv3d_attr, bias, "Weight gradient: computes dbias."),
     .internal = 1},
    {0},
};

/* Groups share no channels, so channels stay whole. They also stay whole before an activation. */
static void dims_of(const clt_node *node, clt_node_dims *dims)
{
    const clt_conv3d_attr *attr = node->attr;
    if (attr->groups > 1)
        dims->behaviour['c' - 'a'] = dims->behaviour['o' - 'a'] = CLT_DIM_WHOLE;
    if (attr->epilogue.activation != CLT_ACTIVATION_NONE)
        clt_dims_not_summed(dims);
}

const clt_op clt_op_conv3d = {
    .name = "conv3d",
    .doc = "Convolution of x with the kernels of the weight.",
    .operands = "x bcdhw, weight ocijk, bias o?!",
    .results = "y bodhw",
    .halo = "dhw",
    .whole = "ijk",
    .dims = dims_of,
    .callable = true,
    .attributes = attributes,
    .attr_bytes = sizeof(clt_conv3d_attr),
    .infer = infer,
    .gradient = gradient,
    .describe = describe,
    .flops = flops,
    .absorb = absorb,
    .variants = variants,
};

void clt_conv3d_options_init(clt_conv3d_options *options)
{
    clt_conv3d_attr attr;
    clt_attributes_init(&clt_op_conv3d, &attr);
    *options = (clt_conv3d_options){.struct_size = sizeof *options, .groups = attr.groups};
    memcpy(options->stride, attr.stride, sizeof attr.stride);
    memcpy(options->padding, attr.padding, sizeof attr.padding);
    memcpy(options->dilation, attr.dilation, sizeof attr.dilation);
}

clt_value *clt_conv3d(clt_value *x, clt_value *weight, clt_value *bias,
                      const clt_conv3d_options *options)
{
    clt_conv3d_options own;
    if (!x || !weight)
        return NULL;
    clt_conv3d_options_init(&own);
    const clt_status status = clt_options_read("conv3d", &own, sizeof own, options);
    if (status != CLT_OK) {
        clt_graph_failed(x->graph, status);
        return NULL;
    }
    clt_conv3d_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.groups = own.groups;
    for (int i = 0; i < 3; i++) {
        attr.stride[i] = own.stride[i];
        attr.padding[i] = own.padding[i];
        attr.dilation[i] = own.dilation[i];
    }
    return clt_emit1(&clt_op_conv3d, &attr, 3, x, weight, bias);
}

/* --- conv3d_data_grad --------------------------------------------------------------------------
 */

static clt_status infer_data_grad(const clt_node *node, clt_type *out)
{
    const clt_conv3d_shape s = clt_conv3d_shape_of(node);
    out[0] = (clt_type){
        .dtype = CLT_F32, .rank = 5, .dims = {s.batch, s.channels, s.in[0], s.in[1], s.in[2]}};
    return CLT_OK;
}

static void emit_data_grad_portable(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_conv3d_shape s = clt_conv3d_shape_of(node);
    clt_launch_begin(p, "conv/portable/conv3d.cl", "conv3d_data_grad", "%s", "");
    clt_arg_in(p, 0);
    clt_arg_in(p, 1);
    clt_arg_out(p, 0);
    arg_shape(p, &s);
    clt_range_items(p, target, clt_extent_elements(&node->out[0]->type));
}

static const clt_variant data_grad_variants[] = {
    {"planes_gpu", clt_conv3d_gpu_accepts, clt_conv3d_data_grad_gpu},
    {"implicit_gemm_cpu", clt_conv2d_cpu_accepts, clt_conv2d_data_grad_cpu, clt_conv2d_cpu_tiles},
    {"portable", clt_accepts_plain, emit_data_grad_portable},
    {0},
};

const clt_op clt_op_conv3d_data_grad = {
    .name = "conv3d_data_grad",
    .doc = "The gradient of conv3d for x, a transposed convolution.",
    .operands = "dy bodhw, weight ocijk",
    .results = "dx bcdhw",
    .halo = "dhw",
    .whole = "ijk",
    .dims = dims_of,
    .attributes = attributes,
    .attr_bytes = sizeof(clt_conv3d_attr),
    .infer = infer_data_grad,
    .describe = describe,
    .flops = flops,
    .variants = data_grad_variants,
};

/* --- conv3d_weight_grad ------------------------------------------------------------------------
 */

static clt_status infer_weight_grad(const clt_node *node, clt_type *out)
{
    const clt_conv3d_attr *attr = node->attr;
    const clt_conv3d_shape s = clt_conv3d_shape_of(node);
    out[0] = (clt_type){
        .dtype = CLT_F32,
        .rank = 5,
        .dims = {s.out_channels, s.channels / s.groups, s.kernel[0], s.kernel[1], s.kernel[2]}};
    out[1] = (clt_type){.dtype = CLT_F32, .rank = 1, .dims = {attr->bias ? s.out_channels : 1}};
    return CLT_OK;
}

/* Sums the batch in slices, like conv2d. */
static void emit_weight_grad_portable(const clt_node *node, const clt_target *target,
                                      clt_program *p)
{
    const clt_conv3d_attr *attr = node->attr;
    const clt_conv3d_shape s = clt_conv3d_shape_of(node);
    const int64_t weights = clt_type_elements(&node->out[0]->type, 0);
    const int64_t sums = weights + (attr->bias ? s.out_channels : 0);
    const int64_t batch = clt_dim(s.batch, target->max_batch);
    int64_t slices = (1 << 16) / sums;
    slices = slices > batch ? batch : slices;
    slices = slices > 64 ? 64 : slices < 1 ? 1 : slices;

    const int block = clt_scratch_add(p, clt_fixed(slices * sums * (int64_t)sizeof(float)));
    clt_launch_begin(p, "conv/portable/conv3d.cl", "conv3d_weight_grad", "%s", "");
    clt_arg_in(p, 0);
    clt_arg_in(p, 1);
    clt_arg_scratch(p, block);
    arg_shape(p, &s);
    clt_arg_int(p, clt_fixed(sums));
    clt_arg_int(p, clt_fixed(slices));
    clt_range_items(p, target, clt_fixed(slices * sums));

    clt_launch_begin(p, "conv/portable/conv2d.cl", "conv2d_weight_sum", "%s", "");
    clt_arg_scratch(p, block);
    clt_arg_out(p, 0);
    clt_arg_out(p, 1);
    clt_arg_int(p, clt_fixed(weights));
    clt_arg_int(p, clt_fixed(sums));
    clt_arg_int(p, clt_fixed(slices));
    clt_range_items(p, target, clt_fixed(sums));
}

static const clt_variant weight_grad_variants[] = {
    {"planes_gpu", clt_conv3d_gpu_accepts, clt_conv3d_weight_grad_gpu},
    {"implicit_gemm_cpu", clt_conv2d_cpu_accepts, clt_conv2d_weight_grad_cpu},
    {"portable", clt_accepts_plain, emit_weight_grad_portable},
    {0},
};

const clt_op clt_op_conv3d_weight_grad = {
    .name = "conv3d_weight_grad",
    .doc = "The gradients of conv3d for weight and bias.",
    .operands = "x bcdhw, dy bodhw",
    .results = "dweight ocijk, dbias o",
    .halo = "dhw",
    .whole = "ijk",
    .dims = dims_of,
    .attributes = attributes,
    .attr_bytes = sizeof(clt_conv3d_attr),
    .infer = infer_weight_grad,
    .describe = describe,
    .flops = flops,
    .variants = weight_grad_variants,
};
