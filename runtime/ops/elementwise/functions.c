/* Functions of one number, powers and gates, with their gradients. Gradients pass the value that a
 * chain computes as the first operand, because fusion looks for it there. */
#include <float.h>
#include <math.h>

#include "base/error.h"
#include "ops/elementwise/elementwise.h"
#include "ops/core/ops.h"
#include "ops/core/tensor.h"
#include <cltrain/ops.h>

static const clt_elementwise_attr no_numbers;

/* A function of one operand. Its gradient is the expression DX of dy, the operand x and the result
 * y. */
#define FUNCTION(NAME, DOC, CALLABLE, DX)                                                          \
    static clt_status NAME##_gradient(const clt_node *node, clt_value *const *grad,                \
                                      const bool *wanted, clt_value **dx)                          \
    {                                                                                              \
        clt_value *dy = grad[0], *x = node->in[0], *y = node->out[0];                              \
        (void)wanted;                                                                              \
        (void)x;                                                                                   \
        (void)y;                                                                                   \
        dx[0] = DX;                                                                                \
        return CLT_OK;                                                                             \
    }                                                                                              \
    CLT_ELEMENTWISE_OP(NAME, DOC, "x *", .callable = CALLABLE, .infer = clt_elementwise_infer,     \
                       .gradient = NAME##_gradient)

static clt_value *apply(const clt_op *op, clt_value *x)
{
    return clt_emit1(op, &no_numbers, 1, x);
}

FUNCTION(exp, "e to the power of x", true, clt_mul(y, dy));
FUNCTION(log, "The natural logarithm.", true, clt_div(dy, x));
FUNCTION(sqrt, "The square root.", true, clt_scale(clt_div(dy, y), 0.5));
FUNCTION(rsqrt, "1 / sqrt(x)", true, clt_scale(clt_mul(apply(&clt_op_cube, y), dy), -0.5));
FUNCTION(abs, "The absolute value.", true, clt_emit1(&clt_op_abs_grad, &no_numbers, 2, dy, x));
FUNCTION(square, "x * x", false, clt_scale(clt_mul(dy, x), 2));
FUNCTION(cube, "x * x * x", false, clt_scale(clt_mul(apply(&clt_op_square, x), dy), 3));
FUNCTION(reciprocal, "1 / x", false, clt_scale(clt_mul(apply(&clt_op_square, y), dy), -1));
FUNCTION(silu, "x * sigmoid(x)", true, clt_emit1(&clt_op_silu_grad, &no_numbers, 2, dy, x));
CLT_ELEMENTWISE_OP(abs_grad, "The gradient of abs.", "dy *, x *", .infer = clt_elementwise_infer);
CLT_ELEMENTWISE_OP(silu_grad, "The gradient of silu.", "dy *, x *", .infer = clt_elementwise_infer);

CLT_ELEMENTWISE_UNARY(exp)
CLT_ELEMENTWISE_UNARY(sqrt)
CLT_ELEMENTWISE_UNARY(rsqrt)
CLT_ELEMENTWISE_UNARY(abs)
CLT_ELEMENTWISE_UNARY(silu)

clt_value *clt_ln(clt_value *x)
{
    return apply(&clt_op_log, x);
}

/* --- swiglu --------------------------------------------------------------------------------- */

static clt_status swiglu_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                                  clt_value **dx)
{
    clt_value *a = node->in[0], *b = node->in[1];
    if (wanted[0])
        dx[0] = clt_sum_to(clt_emit1(&clt_op_swiglu_grad, &no_numbers, 3, dy[0], a, b), &a->type);
    if (wanted[1])
        dx[1] = clt_sum_to(clt_emit1(&clt_op_swiglu, &no_numbers, 2, a, dy[0]), &b->type);
    return CLT_OK;
}

CLT_ELEMENTWISE_OP(swiglu, "silu(a) * b", "a *, b *", .infer = clt_elementwise_infer,
                   .callable = true, .gradient = swiglu_gradient);
CLT_ELEMENTWISE_OP(swiglu_grad, "The gradient of swiglu for a.", "dy *, a *, b *",
                   .infer = clt_elementwise_infer);

CLT_ELEMENTWISE_BINARY(swiglu)

/* --- powers --------------------------------------------------------------------------------- */

/* Exponent 0 has gradient 0. The formula would give 0 * infinity at x = 0. */
static clt_status power_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                                 clt_value **dx)
{
    const double exponent = (double)((const clt_elementwise_attr *)node->attr)->p[0];
    (void)wanted;
    if (exponent != 0)
        dx[0] = clt_scale(clt_mul(clt_pow_scalar(node->in[0], exponent - 1), dy[0]), exponent);
    return CLT_OK;
}

static void describe_power(const clt_node *node, clt_str *text)
{
    clt_str_add(text, "exponent %g", (double)((const clt_elementwise_attr *)node->attr)->p[0]);
}

CLT_ELEMENTWISE_OP(pow_scalar, "x to the power of a number.", "x *", .infer = clt_elementwise_infer,
                   .callable = true,
                   .attributes =
                       (const clt_attribute[]){
                           {CLT_ATTRIBUTE(REAL, "exponent", clt_elementwise_attr, p[0],
                                          "The exponent."),
                            .least = -FLT_MAX, .most = FLT_MAX, .required = 1, .default_value = 1},
                           {0},
                       },
                   .gradient = power_gradient, .describe = describe_power);

clt_value *clt_pow_scalar(clt_value *x, double exponent)
{
    static const struct {
        double exponent;
        const clt_op *op;
    } others[] = {{2, &clt_op_square},
                  {3, &clt_op_cube},
                  {0.5, &clt_op_sqrt},
                  {-0.5, &clt_op_rsqrt},
                  {-1, &clt_op_reciprocal}};
    const clt_elementwise_attr attr = {{(float)exponent}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].exponent == exponent)
            return apply(others[i].op, x);
    return clt_emit1(&clt_op_pow_scalar, &attr, 1, x);
}

static clt_status pow_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                               clt_value **dx)
{
    clt_value *a = node->in[0], *b = node->in[1], *y = node->out[0];
    if (wanted[0])
        dx[0] = clt_sum_to(clt_emit1(&clt_op_pow_grad, &no_numbers, 3, dy[0], a, b), &a->type);
    if (wanted[1])
        dx[1] = clt_sum_to(clt_emit1(&clt_op_pow_exponent_grad, &no_numbers, 4, dy[0], a, b, y),
                           &b->type);
    return CLT_OK;
}

CLT_ELEMENTWISE_OP(pow, "a to the power of b.", "a *, b *", .infer = clt_elementwise_infer,
                   .callable = true, .gradient = pow_gradient);
CLT_ELEMENTWISE_OP(pow_grad, "The gradient of pow for a.", "dy *, a *, b *",
                   .infer = clt_elementwise_infer);
CLT_ELEMENTWISE_OP(pow_exponent_grad, "The gradient of pow for b.", "dy *, a *, b *, y *",
                   .infer = clt_elementwise_infer);

CLT_ELEMENTWISE_BINARY(pow)

/* --- clamp ---------------------------------------------------------------------------------- */

static clt_status infer_clamp(const clt_node *node, clt_type *out)
{
    const float *p = ((const clt_elementwise_attr *)node->attr)->p;
    if (!(p[0] <= p[1]))
        return clt_fail(CLT_INVALID_ARGUMENT, "clamp: %g to %g is no range", (double)p[0],
                        (double)p[1]);
    return clt_elementwise_infer(node, out);
}

static clt_status clamp_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                                 clt_value **dx)
{
    (void)wanted;
    dx[0] = clt_emit1(&clt_op_clamp_grad, node->attr, 2, dy[0], node->in[0]);
    return CLT_OK;
}

static void describe_clamp(const clt_node *node, clt_str *text)
{
    const float *p = ((const clt_elementwise_attr *)node->attr)->p;
    clt_str_add(text, "%g to %g", (double)p[0], (double)p[1]);
}

static const clt_attribute bounds[] = {
    {CLT_ATTRIBUTE(REAL, "min", clt_elementwise_attr, p[0], "The minimum."), .least = -INFINITY,
     .most = INFINITY, .default_value = -INFINITY},
    {CLT_ATTRIBUTE(REAL, "max", clt_elementwise_attr, p[1], "The maximum; at least min."),
     .least = -INFINITY, .most = INFINITY, .default_value = INFINITY},
    {0},
};

CLT_ELEMENTWISE_OP(clamp, "x limited to the range min to max.", "x *", .attributes = bounds,
                   .infer = infer_clamp, .callable = true, .gradient = clamp_gradient,
                   .describe = describe_clamp);
CLT_ELEMENTWISE_OP(clamp_grad, "The gradient of clamp.", "dy *, x *", .attributes = bounds,
                   .infer = clt_elementwise_infer, .describe = describe_clamp);

clt_value *clt_clamp(clt_value *x, double least, double most)
{
    const clt_elementwise_attr attr = {{(float)least, (float)most}};
    return clt_emit1(&clt_op_clamp, &attr, 1, x);
}
