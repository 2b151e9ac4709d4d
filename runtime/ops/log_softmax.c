/* log_softmax: the logarithm of the softmax over an axis, and the gradient. */
#include "ops/ops.h"
#include "ops/softmax.h"

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    if (wanted[0])
        dx[0] = clt_emit1(&clt_op_log_softmax_grad, node->attr, 2, node->out[0], dy[0]);
    return clt_graph_status(node->graph);
}

static void emit_portable(const clt_node *node, const clt_target *target, clt_program *program)
{
    clt_softmax_portable(node, "softmax", 1, target, program);
}

static void emit_grad_portable(const clt_node *node, const clt_target *target, clt_program *program)
{
    clt_softmax_portable(node, "softmax_grad", 1, target, program);
}

static const clt_variant variants[] = {
    {"portable", NULL, emit_portable},
    {0},
};

static const clt_variant grad_variants[] = {
    {"portable", NULL, emit_grad_portable},
    {0},
};

const clt_op clt_op_log_softmax = {
    .name = "log_softmax",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_bytes = sizeof(clt_softmax_attr),
    .infer = clt_softmax_infer,
    .gradient = gradient,
    .describe = clt_softmax_describe,
    .flops = clt_softmax_flops,
    .variants = variants,
};

const clt_op clt_op_log_softmax_grad = {
    .name = "log_softmax_grad",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attr_bytes = sizeof(clt_softmax_attr),
    .infer = clt_softmax_infer,
    .describe = clt_softmax_describe,
    .flops = clt_softmax_flops,
    .variants = grad_variants,
};

clt_value *clt_log_softmax(clt_value *x, int axis)
{
    const clt_softmax_attr attr = {x && axis < 0 ? axis + x->type.rank : axis};
    return clt_emit1(&clt_op_log_softmax, &attr, 1, x);
}
