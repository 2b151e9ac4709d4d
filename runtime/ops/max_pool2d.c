/* max_pool2d: maxima over windows, and the gradient. */
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
        dx[0] = clt_emit1(&clt_op_max_pool2d_grad, node->attr, 2, node->in[0], dy[0]);
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
    clt_launch_begin(program, "portable/pool2d.cl", "max_pool2d", "");
    clt_arg_in(program, 0);
    clt_arg_out(program, 0);
    clt_pool2d_args(node, target, program);
}

static void emit_lanes(const clt_node *node, const clt_target *target, clt_program *program)
{
    clt_pool2d_emit_lanes(node, target, "clt_lanes_max_pool", program);
}

static const clt_variant variants[] = {
    {"lanes", clt_accepts_lanes, emit_lanes},
    {"portable", clt_accepts_plain, emit_portable},
    {0},
};

const clt_op clt_op_max_pool2d = {
    .name = "max_pool2d",
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

clt_value *clt_max_pool2d(clt_value *x, const clt_pool2d_options *options)
{
    clt_pool2d_attr attr;
    if (!x || !clt_pool2d_attr_from("max_pool2d", x, options, &attr))
        return NULL;
    return clt_emit1(&clt_op_max_pool2d, &attr, 1, x);
}

/* --- max_pool2d_grad -------------------------------------------------------------------------- */

static clt_status infer_grad(const clt_node *node, clt_type *out)
{
    CLT_TRY(clt_pool2d_infer_grad(node, 1, out));
    if (!clt_type_equal(out, &node->in[0]->type)) {
        char tx[CLT_TYPE_TEXT], ty[CLT_TYPE_TEXT];
        return clt_fail(CLT_SHAPE, "max_pool2d_grad: %s is not the result of %s",
                        clt_operand_text(node, 1, ty), clt_operand_text(node, 0, tx));
    }
    return CLT_OK;
}

static double flops_grad(const clt_node *node, int64_t n)
{
    const clt_pool2d_attr *attr = node->attr;
    return (double)clt_type_elements(&node->in[1]->type, n) * attr->kernel[0] * attr->kernel[1];
}

static void emit_grad_portable(const clt_node *node, const clt_target *target, clt_program *program)
{
    clt_launch_begin(program, "portable/pool2d.cl", "max_pool2d_grad", "");
    clt_arg_in(program, 0);
    clt_arg_in(program, 1);
    clt_arg_out(program, 0);
    clt_pool2d_args(node, target, program);
}

static void emit_grad_lanes(const clt_node *node, const clt_target *target, clt_program *program)
{
    clt_pool2d_emit_lanes(node, target, "clt_lanes_max_pool_grad", program);
}

static const clt_variant grad_variants[] = {
    {"lanes", clt_accepts_lanes, emit_grad_lanes},
    {"portable", clt_accepts_plain, emit_grad_portable},
    {0},
};

const clt_op clt_op_max_pool2d_grad = {
    .name = "max_pool2d_grad",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attr_bytes = sizeof(clt_pool2d_attr),
    .infer = infer_grad,
    .describe = clt_pool2d_describe,
    .flops = flops_grad,
    .lanes = clt_pool2d_lanes,
    .variants = grad_variants,
};
