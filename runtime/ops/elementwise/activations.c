/* Activations and their gradients. Those whose gradient needs the result alone use that, so that
 * they can be fused into the node before. */
#include "ops/elementwise/elementwise.h"
#include "ops/core/ops.h"
#include <cltrain/ops.h>

/* The gradient operator takes dy and the result. */
#define GRADIENT_FROM_Y(NAME)                                                                      \
    static clt_status NAME##_gradient(const clt_node *node, clt_value *const *dy,                  \
                                      const bool *wanted, clt_value **dx)                          \
    {                                                                                              \
        (void)wanted;                                                                              \
        dx[0] = clt_emit1(&clt_op_##NAME##_grad, node->attr, 2, dy[0], node->out[0]);              \
        return CLT_OK;                                                                             \
    }

/* The gradient operator takes dy and the operand. */
#define GRADIENT_FROM_X(NAME)                                                                      \
    static clt_status NAME##_gradient(const clt_node *node, clt_value *const *dy,                  \
                                      const bool *wanted, clt_value **dx)                          \
    {                                                                                              \
        (void)wanted;                                                                              \
        dx[0] = clt_emit1(&clt_op_##NAME##_grad, node->attr, 2, dy[0], node->in[0]);               \
        return CLT_OK;                                                                             \
    }

GRADIENT_FROM_Y(relu)
GRADIENT_FROM_Y(sigmoid)
GRADIENT_FROM_Y(tanh)
GRADIENT_FROM_X(gelu)
GRADIENT_FROM_X(gelu_tanh)

/* With a positive slope, the result has the operand's sign. */
static clt_status leaky_relu_gradient(const clt_node *node, clt_value *const *dy,
                                      const bool *wanted, clt_value **dx)
{
    const clt_elementwise_attr *attr = node->attr;
    (void)wanted;
    dx[0] = clt_emit1(&clt_op_leaky_relu_grad, attr, 2, dy[0],
                      attr->p[0] > 0 ? node->out[0] : node->in[0]);
    return CLT_OK;
}

static void describe_slope(const clt_node *node, clt_str *text)
{
    clt_str_add(text, "slope %g", (double)((const clt_elementwise_attr *)node->attr)->p[0]);
}

CLT_ELEMENTWISE_OP(relu, 1, relu_gradient, NULL);
CLT_ELEMENTWISE_OP(relu_grad, 2, NULL, NULL);
CLT_ELEMENTWISE_OP(leaky_relu, 1, leaky_relu_gradient, describe_slope);
CLT_ELEMENTWISE_OP(leaky_relu_grad, 2, NULL, describe_slope);
CLT_ELEMENTWISE_OP(sigmoid, 1, sigmoid_gradient, NULL);
CLT_ELEMENTWISE_OP(sigmoid_grad, 2, NULL, NULL);
CLT_ELEMENTWISE_OP(tanh, 1, tanh_gradient, NULL);
CLT_ELEMENTWISE_OP(tanh_grad, 2, NULL, NULL);
CLT_ELEMENTWISE_OP(gelu, 1, gelu_gradient, NULL);
CLT_ELEMENTWISE_OP(gelu_grad, 2, NULL, NULL);
CLT_ELEMENTWISE_OP(gelu_tanh, 1, gelu_tanh_gradient, NULL);
CLT_ELEMENTWISE_OP(gelu_tanh_grad, 2, NULL, NULL);

static const clt_elementwise_attr no_numbers;

clt_value *clt_relu(clt_value *x)
{
    return clt_emit1(&clt_op_relu, &no_numbers, 1, x);
}

clt_value *clt_leaky_relu(clt_value *x, double slope)
{
    const clt_elementwise_attr attr = {{(float)slope}};
    return clt_emit1(&clt_op_leaky_relu, &attr, 1, x);
}

clt_value *clt_sigmoid(clt_value *x)
{
    return clt_emit1(&clt_op_sigmoid, &no_numbers, 1, x);
}

clt_value *clt_tanh(clt_value *x)
{
    return clt_emit1(&clt_op_tanh, &no_numbers, 1, x);
}

clt_value *clt_gelu(clt_value *x)
{
    return clt_emit1(&clt_op_gelu, &no_numbers, 1, x);
}

clt_value *clt_gelu_tanh(clt_value *x)
{
    return clt_emit1(&clt_op_gelu_tanh, &no_numbers, 1, x);
}

bool clt_activation_of(const clt_node *node, clt_epilogue *epilogue)
{
    static const struct {
        const clt_op *op;
        clt_activation activation;
    } table[] = {
        {&clt_op_relu, CLT_ACTIVATION_RELU},       {&clt_op_leaky_relu, CLT_ACTIVATION_LEAKY_RELU},
        {&clt_op_sigmoid, CLT_ACTIVATION_SIGMOID}, {&clt_op_tanh, CLT_ACTIVATION_TANH},
        {&clt_op_gelu, CLT_ACTIVATION_GELU_EXACT}, {&clt_op_gelu_tanh, CLT_ACTIVATION_GELU_TANH},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].op == node->op) {
            const clt_elementwise_attr *attr = node->attr;
            *epilogue = (clt_epilogue){table[i].activation, (double)attr->p[0]};
            return true;
        }
    return false;
}
