/* avg_pool2d: means over windows, and its gradient. */
#include "base/error.h"
#include "ops/core/ops.h"
#include "ops/pool/pool2d.h"

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    if (wanted[0])
        dx[0] = clt_emit1(&clt_op_avg_pool2d_grad, node->attr, 1, dy[0]);
    return clt_graph_status(node->graph);
}

static void build(const clt_op_call *c)
{
    const clt_pool2d_options options = clt_pool2d_options_of(c->attr);
    c->out[0] = clt_avg_pool2d(c->in[0], &options);
}

const clt_op clt_op_avg_pool2d = {
    .name = "avg_pool2d",
    .doc = "The mean of each window.",
    .operands = "x bchw",
    .results = "y bchw",
    .callable = true,
    .build = build,
    .infer = clt_pool2d_infer,
    .gradient = gradient,
    .reach = clt_avg_pool2d_reach,
    .within = clt_pool2d_within,
    .flops = clt_pool2d_flops,
    .attributes = clt_avg_pool2d_attributes,
    CLT_POOL2D_MEMBERS,
};

clt_value *clt_avg_pool2d(clt_value *x, const clt_pool2d_options *options)
{
    clt_pool2d_attr attr;
    if (!x || !clt_pool2d_attr_from("avg_pool2d", x, options, &attr))
        return NULL;
    if (attr.dilation[0] != 1 || attr.dilation[1] != 1)
        return clt_graph_failed(x->graph, clt_fail(CLT_INVALID_ARGUMENT,
                                                   "avg_pool2d: dilation %dx%d is not 1x1",
                                                   attr.dilation[0], attr.dilation[1]));
    return clt_emit1(&clt_op_avg_pool2d, &attr, 1, x);
}

/* --- avg_pool2d_grad -------------------------------------------------------------------------- */

const clt_op clt_op_avg_pool2d_grad = {
    .name = "avg_pool2d_grad",
    .doc = "The gradient of avg_pool2d.",
    .operands = "dy bchw",
    .results = "dx bchw",
    .infer = clt_pool2d_infer_grad,
    .flops = clt_pool2d_flops_grad,
    .attributes = clt_avg_pool2d_attributes,
    CLT_POOL2D_MEMBERS,
};
