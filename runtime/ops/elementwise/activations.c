/* Activations and their gradients. A gradient reads the activation's result instead of its operand
 * where the result suffices, so that fusion can merge the activation into the node before. */
#include "ops/elementwise/elementwise.h"
#include "ops/core/ops.h"
#include <cltrain/ops.h>

/* The gradient operator takes dy and OF: the result, or the operand. */
#define GRADIENT(NAME, OF)                                                                         \
    static clt_status NAME##_gradient(const clt_node *node, clt_value *const *dy,                  \
                                      const bool *wanted, clt_value **dx)                          \
    {                                                                                              \
        (void)wanted;                                                                              \
        dx[0] = clt_emit1(&clt_op_##NAME##_grad, node->attr, 2, dy[0], node->OF[0]);               \
        return CLT_OK;                                                                             \
    }

GRADIENT(relu, out)
GRADIENT(sigmoid, out)
GRADIENT(tanh, out)
GRADIENT(gelu, in)
GRADIENT(gelu_tanh, in)

/* With a positive slope, the result has the operand's sign, so the gradient can read the result. */
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

static const clt_attribute slope_attribute[] = {
    {CLT_ATTRIBUTE(REAL, "slope", clt_elementwise_attr, p[0], "The factor of negative x."),
     .default_value = 0.01},
    {0},
};

CLT_ELEMENTWISE_OP(relu, "max(x, 0)", "x *", .infer = clt_elementwise_infer, .callable = true,
                   .gradient = relu_gradient);
CLT_ELEMENTWISE_OP(relu_grad, "The gradient of relu.", "dy *, y *", .infer = clt_elementwise_infer);
CLT_ELEMENTWISE_OP(leaky_relu, "x if x > 0, else slope * x", "x *", .infer = clt_elementwise_infer,
                   .callable = true, .gradient = leaky_relu_gradient, .attributes = slope_attribute,
                   .describe = describe_slope);
CLT_ELEMENTWISE_OP(leaky_relu_grad, "The gradient of leaky_relu.", "dy *, y *",
                   .attributes = slope_attribute, .infer = clt_elementwise_infer,
                   .describe = describe_slope);
CLT_ELEMENTWISE_OP(sigmoid, "1 / (1 + exp(-x))", "x *", .infer = clt_elementwise_infer,
                   .callable = true, .gradient = sigmoid_gradient);
CLT_ELEMENTWISE_OP(sigmoid_grad, "The gradient of sigmoid.", "dy *, y *",
                   .infer = clt_elementwise_infer);
CLT_ELEMENTWISE_OP(tanh, "The hyperbolic tangent.", "x *", .infer = clt_elementwise_infer,
                   .callable = true, .gradient = tanh_gradient);
CLT_ELEMENTWISE_OP(tanh_grad, "The gradient of tanh.", "dy *, y *", .infer = clt_elementwise_infer);
CLT_ELEMENTWISE_OP(gelu, "x times the probability of a standard normal number below x.", "x *",
                   .infer = clt_elementwise_infer, .callable = true, .gradient = gelu_gradient);
CLT_ELEMENTWISE_OP(gelu_grad, "The gradient of gelu.", "dy *, x *", .infer = clt_elementwise_infer);
CLT_ELEMENTWISE_OP(gelu_tanh, "The approximation of gelu by tanh.", "x *",
                   .infer = clt_elementwise_infer, .callable = true,
                   .gradient = gelu_tanh_gradient);
CLT_ELEMENTWISE_OP(gelu_tanh_grad, "The gradient of gelu_tanh.", "dy *, x *",
                   .infer = clt_elementwise_infer);

CLT_ELEMENTWISE_UNARY(relu)
CLT_ELEMENTWISE_UNARY(sigmoid)
CLT_ELEMENTWISE_UNARY(tanh)
CLT_ELEMENTWISE_UNARY(gelu)
CLT_ELEMENTWISE_UNARY(gelu_tanh)

clt_value *clt_leaky_relu(clt_value *x, double slope)
{
    const clt_elementwise_attr attr = {{(float)slope}};
    return clt_emit1(&clt_op_leaky_relu, &attr, 1, x);
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
            *epilogue =
                (clt_epilogue){.activation = table[i].activation, .slope = (double)attr->p[0]};
            return true;
        }
    return false;
}
