/* detach: a value that stops the gradient. No kernel runs. */
#include "ops/core/ops.h"
#include <cltrain/ops.h>

static clt_status infer(const clt_node *node, clt_type *out)
{
    *out = node->in[0]->type;
    return CLT_OK;
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    (void)node;
    (void)dy;
    (void)wanted;
    (void)dx; /* the gradient is zero */
    return CLT_OK;
}

static int wants_batch_blocked(const clt_node *node)
{
    return clt_value_leads_with_batch(node->in[0]) ? CLT_BATCH_BLOCKED_FOLLOW
                                                   : CLT_BATCH_BLOCKED_NO;
}

static double no_flops(const clt_node *node, int64_t n)
{
    (void)node;
    (void)n;
    return 0;
}

const clt_op clt_op_detach = {.name = "detach",
                              .doc = "x. No gradient flows back through this node.",
                              .operands = "x * any",
                              .results = "y * any",
                              .callable = true,
                              .infer = infer,
                              .gradient = gradient,
                              .flops = no_flops,
                              .batch_blocked = wants_batch_blocked,
                              .view = true};

clt_value *clt_detach(clt_value *x)
{
    return clt_emit1(&clt_op_detach, NULL, 1, x);
}
