/* Activations and their gradients. Those whose gradient needs the result alone use that, so that
 * they can be fused into the node before. */
#include "ops/elementwise.h"
#include "ops/nn.h"
#include "ops/ops.h"
#include <cltrain/ops.h>

#define DEFINE(NAME, N_IN, EXPRESSION, GRADIENT, DESCRIBE)                                         \
    static void emit_##NAME(const clt_node *node, const clt_target *target, clt_program *p)        \
    {                                                                                              \
        clt_elementwise_emit(node, target, p, EXPRESSION);                                         \
    }                                                                                              \
    static const clt_variant variants_##NAME[] = {{"elementwise", NULL, emit_##NAME}, {0}};        \
    const clt_op clt_op_##NAME = {.name = #NAME,                                                   \
                                  .min_in = N_IN,                                                  \
                                  .max_in = N_IN,                                                  \
                                  .n_out = 1,                                                      \
                                  .attr_bytes = sizeof(clt_elementwise_attr),                      \
                                  .infer = clt_elementwise_infer,                                  \
                                  .gradient = GRADIENT,                                            \
                                  .describe = DESCRIBE,                                            \
                                  .lanes = clt_elementwise_lanes,                                  \
                                  .in_place = 3,                                                   \
                                  .variants = variants_##NAME};

static clt_status relu_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                                clt_value **dx)
{
    (void)wanted;
    dx[0] = clt_emit1(&clt_op_relu_grad, node->attr, 2, dy[0], node->out[0]);
    return CLT_OK;
}

DEFINE(relu, 1, "fmax(a,(T)0)", relu_gradient, NULL)
DEFINE(relu_grad, 2, "(b>(T)0?a:(T)0)", NULL, NULL)

clt_value *clt_relu(clt_value *x)
{
    const clt_elementwise_attr attr = {{0, 0}};
    return clt_emit1(&clt_op_relu, &attr, 1, x);
}
