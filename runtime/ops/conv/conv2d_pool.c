#include "ops/conv/conv2d_pool.h"

#include "ops/conv/conv2d_batch_blocked.h"
#include "ops/core/ops.h"

int clt_conv2d_pool_kind(const clt_node *pool)
{
    if (pool->op != &clt_op_avg_pool2d && pool->op != &clt_op_max_pool2d)
        return 0;
    const clt_pool2d_attr *attr = pool->attr;
    for (int i = 0; i < 2; i++)
        if (attr->kernel[i] != 2 || attr->stride[i] != 2 || attr->padding[i] ||
            attr->dilation[i] != 1 || (attr->ceil_mode && attr->in[i] % 2) || attr->in[i] < 2)
            return 0;
    return pool->op == &clt_op_avg_pool2d ? CLT_POOL_AVERAGE : CLT_POOL_MAXIMUM;
}

static void describe(const clt_node *node, clt_str *text)
{
    const clt_conv2d_pool_attr *attr = node->attr;
    clt_str_add(text, "%s of 2x2", attr->pool == CLT_POOL_AVERAGE ? "average" : "maximum");
    if (node->op == &clt_op_unpool2d)
        return;
    clt_str_add(text, ", %dx%d%s", attr->conv.kernel[0], attr->conv.kernel[1],
                attr->conv.epilogue.activation == CLT_ACTIVATION_RELU ? ", relu" : "");
}

static int batch_blocked_only(const clt_node *node)
{
    (void)node;
    return CLT_BATCH_BLOCKED_WANT;
}

/* --- conv2d_pool ----------------------------------------------------------------------------- */

static clt_status infer(const clt_node *node, clt_type *out)
{
    const clt_conv2d_pool_attr *attr = node->attr;
    const clt_type *x = &node->in[0]->type, *w = &node->in[1]->type;
    for (int i = 0; i < 2; i++)
        out[i] = (clt_type){.dtype = i ? CLT_U8 : CLT_F32,
                            .rank = 4,
                            .dims = {x->dims[0], w->dims[0], attr->out[0] / 2, attr->out[1] / 2}};
    return CLT_OK;
}

static double flops(const clt_node *node, int64_t n)
{
    const clt_type *y = &node->out[0]->type, *w = &node->in[1]->type;
    return 2.0 * 4 * (double)clt_type_elements(y, n) *
           (double)(w->dims[1] * w->dims[2] * w->dims[3]);
}

static clt_conv2d_shape shape_of(const clt_node *node, const clt_type *w)
{
    const clt_conv2d_pool_attr *attr = node->attr;
    const clt_type *x = &node->in[0]->type;
    clt_conv2d_shape s = {.batch = x->dims[0],
                          .channels = (int)x->dims[1],
                          .height = (int)x->dims[2],
                          .width = (int)x->dims[3],
                          .out_channels = (int)w->dims[0],
                          .out_height = attr->out[0],
                          .out_width = attr->out[1],
                          .groups = attr->conv.groups};
    for (int i = 0; i < 2; i++) {
        s.kernel[i] = (int)w->dims[2 + i];
        s.stride[i] = attr->conv.stride[i];
        s.padding[i] = attr->conv.padding[i];
        s.dilation[i] = attr->conv.dilation[i];
    }
    return s;
}

static void emit(const clt_node *node, const clt_target *target, clt_program *program)
{
    const clt_conv2d_pool_attr *attr = node->attr;
    const clt_conv2d_shape s = shape_of(node, &node->in[1]->type);
    clt_conv2d_emit_batch_blocked(node, &s, &attr->conv.epilogue, (int)attr->pool, target, program);
}

static bool tiles(const clt_node *node, const clt_target *target, int index, char *text)
{
    const clt_conv2d_shape s = shape_of(node, &node->in[1]->type);
    return clt_conv2d_batch_blocked_choices(&s, 1, target, index, text);
}

static bool half(const clt_node *node, const clt_target *target, int index, bool output)
{
    (void)node;
    (void)target;
    (void)output;
    return index == 0;
}

/* x and dy may be stored in 16 bits. */
static bool half_weight_grad(const clt_node *node, const clt_target *target, int index, bool output)
{
    (void)node;
    (void)target;
    return !output && index < 2;
}

static const char *const pools[] = {"none", "average", "maximum", NULL};

static const clt_attribute attributes[] = {
    {CLT_ATTRIBUTE(INT, "stride", clt_conv2d_pool_attr, conv.stride, "The stride of conv2d."),
     .count = 2, .internal = 1},
    {CLT_ATTRIBUTE(INT, "padding", clt_conv2d_pool_attr, conv.padding, "The padding of conv2d."),
     .count = 2, .internal = 1},
    {CLT_ATTRIBUTE(INT, "dilation", clt_conv2d_pool_attr, conv.dilation, "The dilation of conv2d."),
     .count = 2, .internal = 1},
    {CLT_ATTRIBUTE(INT, "groups", clt_conv2d_pool_attr, conv.groups, "The groups of conv2d."),
     .internal = 1},
    {CLT_ATTRIBUTE(CHOICE, "activation", clt_conv2d_pool_attr, conv.epilogue.activation,
                   "The activation before the pooling."),
     .choices = clt_activation_names, .internal = 1},
    {CLT_ATTRIBUTE(REAL, "slope", clt_conv2d_pool_attr, conv.epilogue.slope,
                   "The slope of leaky_relu."),
     .internal = 1},
    {CLT_ATTRIBUTE(INT, "kernel", clt_conv2d_pool_attr, conv.kernel, "Size of the kernel."),
     .count = 2, .internal = 1},
    {CLT_ATTRIBUTE(FLAG, "bias", clt_conv2d_pool_attr, conv.bias, "Whether there is a bias."),
     .internal = 1, .untuned = 1},
    {CLT_ATTRIBUTE(CHOICE, "pool", clt_conv2d_pool_attr, pool, "The pooling."), .choices = pools,
     .internal = 1},
    {CLT_ATTRIBUTE(INT, "out", clt_conv2d_pool_attr, out, "Size before the pooling."), .count = 2,
     .internal = 1},
    {0},
};

const clt_op clt_op_conv2d_pool = {
    .name = "conv2d_pool",
    .doc =
        "A convolution, its activation and 2 x 2 pooling in one. The fusion pass makes this node.",
    .operands = "x bchw, weight ocij, bias o?",
    .results = "y bohw, mask bohw u8",
    .halo = "hw",
    .whole = "cij",
    .attributes = attributes,
    .attr_bytes = sizeof(clt_conv2d_pool_attr),
    .infer = infer,
    .describe = describe,
    .flops = flops,
    .half = half,
    .batch_blocked = batch_blocked_only,
    CLT_VARIANTS({"batch_blocked", clt_accepts_batch_blocked, emit, tiles, CLT_BATCH_BLOCKED}),
};

/* --- unpool2d -------------------------------------------------------------------------------- */

static clt_status infer_unpool(const clt_node *node, clt_type *out)
{
    *out = node->in[0]->type;
    out->dims[2] *= 2;
    out->dims[3] *= 2;
    return CLT_OK;
}

static void emit_unpool(const clt_node *node, const clt_target *target, clt_program *program)
{
    const clt_conv2d_pool_attr *attr = node->attr;
    const clt_type *z = &node->out[0]->type;
    clt_launch_begin(program, "pool/batch_blocked/pool.cl", "clt_batch_blocked_unpool",
                     "-DLANES=%d", target->lanes);
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1), CLT_OUT(0), CLT_FIXED(z->dims[2]),
             CLT_FIXED(z->dims[3]), CLT_FLOAT(attr->pool == CLT_POOL_AVERAGE ? 0.25 : 1));
    clt_range1(program, (clt_extent){z->dims[1], 1, target->lanes, 0}, 1);
}

const clt_op clt_op_unpool2d = {
    .name = "unpool2d",
    .doc = "The gradient of the pooling of conv2d_pool.",
    .operands = "dy bchw, mask bchw u8",
    .results = "dx bchw",
    .halo = "hw",
    .attributes = attributes,
    .attr_bytes = sizeof(clt_conv2d_pool_attr),
    .infer = infer_unpool,
    .describe = describe,
    .batch_blocked = batch_blocked_only,
    .half = clt_half_all,
    CLT_VARIANTS(
        {"batch_blocked", clt_accepts_batch_blocked, emit_unpool, NULL, CLT_BATCH_BLOCKED}),
};

/* --- conv2d_pool_weight_grad ----------------------------------------------------------------- */

static clt_status infer_weight_grad(const clt_node *node, clt_type *out)
{
    const clt_conv2d_pool_attr *attr = node->attr;
    const int64_t channels = node->in[0]->type.dims[1], out_channels = node->in[1]->type.dims[1];
    out[0] = (clt_type){.dtype = CLT_F32,
                        .rank = 4,
                        .dims = {out_channels, channels / attr->conv.groups, attr->conv.kernel[0],
                                 attr->conv.kernel[1]}};
    out[1] = (clt_type){.dtype = CLT_F32, .rank = 1, .dims = {attr->conv.bias ? out_channels : 1}};
    return CLT_OK;
}

static double flops_weight_grad(const clt_node *node, int64_t n)
{
    const clt_type *dy = &node->in[1]->type, *w = &node->out[0]->type;
    return 2.0 * 4 * (double)clt_type_elements(dy, n) *
           (double)(w->dims[1] * w->dims[2] * w->dims[3]);
}

static void emit_weight_grad(const clt_node *node, const clt_target *target, clt_program *program)
{
    const clt_conv2d_pool_attr *attr = node->attr;
    const clt_conv2d_shape s = shape_of(node, &node->out[0]->type);
    clt_conv2d_emit_weight_grad_batch_blocked(node, &s, attr->conv.bias, (int)attr->pool, target,
                                              program);
}

static bool weight_grad_tiles(const clt_node *node, const clt_target *target, int index, char *text)
{
    const clt_conv2d_shape s = shape_of(node, &node->out[0]->type);
    return clt_conv2d_weight_grad_choices(&s, target, index, text);
}

const clt_op clt_op_conv2d_pool_weight_grad = {
    .name = "conv2d_pool_weight_grad",
    .doc = "The gradients of conv2d_pool for weight and bias.",
    .operands = "x bchw, dy bohw, mask bohw u8",
    .results = "dweight ocij, dbias o",
    .halo = "hw",
    .whole = "cij",
    .attributes = attributes,
    .attr_bytes = sizeof(clt_conv2d_pool_attr),
    .infer = infer_weight_grad,
    .describe = describe,
    .flops = flops_weight_grad,
    .half = half_weight_grad,
    .batch_blocked = batch_blocked_only,
    CLT_VARIANTS({"batch_blocked", clt_accepts_batch_blocked, emit_weight_grad, weight_grad_tiles,
                  CLT_BATCH_BLOCKED}),
};
