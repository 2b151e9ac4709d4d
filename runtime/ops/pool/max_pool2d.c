/* max_pool2d: maxima over windows, and its gradient. */
#include "base/error.h"
#include "ops/core/ops.h"
#include "ops/pool/pool2d.h"

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    if (wanted[0])
        dx[0] = clt_emit1(&clt_op_max_pool2d_grad, node->attr, 2, node->in[0], dy[0]);
    return clt_graph_status(node->graph);
}

static void build(const clt_op_call *c)
{
    const clt_pool2d_options options = clt_pool2d_options_of(c->attr);
    c->out[0] = clt_max_pool2d(c->in[0], &options);
}

const clt_op clt_op_max_pool2d = {
    .name = "max_pool2d",
    .doc = "The maximum of each window. Padding does not count.",
    .operands = "x bchw",
    .results = "y bchw",
    .callable = true,
    .build = build,
    .infer = clt_pool2d_infer,
    .gradient = gradient,
    .reach = clt_max_pool2d_reach,
    .within = clt_pool2d_within,
    .flops = clt_pool2d_flops,
    .attributes = clt_max_pool2d_attributes,
    CLT_POOL2D_MEMBERS,
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
    CLT_TRY(clt_pool2d_infer_grad(node, out));
    if (!clt_type_equal(out, &node->in[0]->type)) {
        char tx[CLT_TYPE_TEXT], ty[CLT_TYPE_TEXT];
        return clt_fail(CLT_SHAPE, "max_pool2d_grad: %s is not the result of %s",
                        clt_operand_text(node, 1, ty), clt_operand_text(node, 0, tx));
    }
    return CLT_OK;
}

const clt_op clt_op_max_pool2d_grad = {
    .name = "max_pool2d_grad",
    .doc = "The gradient of max_pool2d.",
    .operands = "x bchw, dy bchw",
    .results = "dx bchw",
    .infer = infer_grad,
    .flops = clt_pool2d_flops_grad,
    .attributes = clt_max_pool2d_attributes,
    CLT_POOL2D_MEMBERS,
};
