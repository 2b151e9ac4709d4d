/* avg_pool2d: means over windows, and the gradient. */
#include "base/error.h"
#include "ops/ops.h"
#include "ops/pool2d.h"

static clt_status infer(const clt_node *node, clt_type *out)
{
    return clt_pool2d_infer(node, 0, out);
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    if (wanted[0])
        dx[0] = clt_emit1(&clt_op_avg_pool2d_grad, node->attr, 1, dy[0]);
    return clt_graph_status(node->graph);
}

static double flops(const clt_node *node, int64_t n)
{
    const clt_pool2d_attr *attr = node->attr;
    const clt_type *pooled = &node->out[0]->type;
    return (double)clt_type_elements(pooled, n) * attr->kernel[0] * attr->kernel[1];
}

static void emit_portable(const clt_node *node, const clt_target *target, clt_program *program)
{
    clt_launch_begin(program, "portable/pool2d.cl", "avg_pool2d", "");
    clt_arg_in(program, 0);
    clt_arg_out(program, 0);
    clt_pool2d_args(node, target, program);
}

static void emit_lanes(const clt_node *node, const clt_target *target, clt_program *program)
{
    clt_pool2d_emit_lanes(node, target, "clt_lanes_avg_pool", program);
}

static const clt_variant variants[] = {
    {"lanes", clt_accepts_lanes, emit_lanes},
    {"portable", clt_accepts_plain, emit_portable},
    {0},
};

const clt_op clt_op_avg_pool2d = {
    .name = "avg_pool2d",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_bytes = sizeof(clt_pool2d_attr),
    .infer = infer,
    .gradient = gradient,
    .describe = clt_pool2d_describe,
    .flops = flops,
    .lanes = clt_pool2d_lanes,
    .variants = variants,
};

clt_value *clt_avg_pool2d(clt_value *x, const clt_pool2d_options *options)
{
    clt_pool2d_attr attr;
    if (!x || !clt_pool2d_attr_from("avg_pool2d", x, options, &attr))
        return NULL;
    if (attr.dilation[0] != 1 || attr.dilation[1] != 1) {
        clt_graph_failed(x->graph,
                         clt_fail(CLT_INVALID_ARGUMENT, "avg_pool2d: dilation %dx%d is not 1x1",
                                  attr.dilation[0], attr.dilation[1]));
        return NULL;
    }
    return clt_emit1(&clt_op_avg_pool2d, &attr, 1, x);
}

/* --- avg_pool2d_grad -------------------------------------------------------------------------- */

static clt_status infer_grad(const clt_node *node, clt_type *out)
{
    return clt_pool2d_infer_grad(node, 0, out);
}

static double flops_grad(const clt_node *node, int64_t n)
{
    const clt_pool2d_attr *attr = node->attr;
    return (double)clt_type_elements(&node->in[0]->type, n) * attr->kernel[0] * attr->kernel[1];
}

static void emit_grad_portable(const clt_node *node, const clt_target *target, clt_program *program)
{
    clt_launch_begin(program, "portable/pool2d.cl", "avg_pool2d_grad", "");
    clt_arg_in(program, 0);
    clt_arg_out(program, 0);
    clt_pool2d_args(node, target, program);
}

static void emit_grad_lanes(const clt_node *node, const clt_target *target, clt_program *program)
{
    clt_pool2d_emit_lanes(node, target, "clt_lanes_avg_pool_grad", program);
}

static const clt_variant grad_variants[] = {
    {"lanes", clt_accepts_lanes, emit_grad_lanes},
    {"portable", clt_accepts_plain, emit_grad_portable},
    {0},
};

const clt_op clt_op_avg_pool2d_grad = {
    .name = "avg_pool2d_grad",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_bytes = sizeof(clt_pool2d_attr),
    .infer = infer_grad,
    .describe = clt_pool2d_describe,
    .flops = flops_grad,
    .lanes = clt_pool2d_lanes,
    .variants = grad_variants,
};
