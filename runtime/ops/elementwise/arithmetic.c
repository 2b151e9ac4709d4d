/* Sums, differences, products and quotients with broadcasting, scaling and copies. */
#include "ops/elementwise/elementwise_cpu.h"
#include "ops/shape/move_gpu.h"
#include "ops/core/ops.h"
#include "ops/core/tensor.h"
#include <cltrain/ops.h>

static clt_status add_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                               clt_value **dx)
{
    for (int i = 0; i < 2; i++)
        if (wanted[i])
            dx[i] = clt_sum_to(dy[0], &node->in[i]->type);
    return CLT_OK;
}

static clt_status sub_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                               clt_value **dx)
{
    if (wanted[0])
        dx[0] = clt_sum_to(dy[0], &node->in[0]->type);
    if (wanted[1])
        dx[1] = clt_sum_to(clt_scale(dy[0], -1), &node->in[1]->type);
    return CLT_OK;
}

static clt_status mul_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                               clt_value **dx)
{
    for (int i = 0; i < 2; i++)
        if (wanted[i])
            dx[i] = clt_sum_to(clt_mul(dy[0], node->in[1 - i]), &node->in[i]->type);
    return CLT_OK;
}

/* d(a / b) = da / b - (a / b) db / b. */
static clt_status div_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                               clt_value **dx)
{
    if (wanted[0])
        dx[0] = clt_sum_to(clt_div(dy[0], node->in[1]), &node->in[0]->type);
    if (wanted[1]) {
        clt_value *product = clt_div(clt_mul(dy[0], node->out[0]), node->in[1]);
        dx[1] = clt_sum_to(clt_scale(product, -1), &node->in[1]->type);
    }
    return CLT_OK;
}

static clt_status scale_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                                 clt_value **dx)
{
    const clt_elementwise_attr attr = {{((const clt_elementwise_attr *)node->attr)->p[0], 0}};
    (void)wanted;
    dx[0] = attr.p[0] == 1 ? dy[0] : clt_emit1(&clt_op_scale, &attr, 1, dy[0]);
    return CLT_OK;
}

static void describe_scale(const clt_node *node, clt_str *text)
{
    const clt_elementwise_attr *attr = node->attr;
    clt_str_add(text, "x * %g + %g", (double)attr->p[0], (double)attr->p[1]);
}

CLT_ELEMENTWISE_OP(add, "a + b", "a *, b *", .infer = clt_elementwise_infer, .callable = true,
                   .linear = true, .gradient = add_gradient);
CLT_ELEMENTWISE_OP(sub, "a - b", "a *, b *", .infer = clt_elementwise_infer, .callable = true,
                   .linear = true, .gradient = sub_gradient);
CLT_ELEMENTWISE_OP(mul, "a * b", "a *, b *", .infer = clt_elementwise_infer, .callable = true,
                   .gradient = mul_gradient);
CLT_ELEMENTWISE_OP(div, "a / b", "a *, b *", .infer = clt_elementwise_infer, .callable = true,
                   .gradient = div_gradient);
CLT_ELEMENTWISE_OP(
    scale, "x * factor + term", "x *", .infer = clt_elementwise_infer, .callable = true,
    .attributes =
        (const clt_attribute[]){
            {CLT_ATTRIBUTE(REAL, "factor", clt_elementwise_attr, p[0], "The factor of x."),
             .default_value = 1, .required = 1},
            {CLT_ATTRIBUTE(REAL, "term", clt_elementwise_attr, p[1], "Added to the product.")},
            {0},
        },
    .gradient = scale_gradient, .describe = describe_scale);

CLT_ELEMENTWISE_BINARY(add)
CLT_ELEMENTWISE_BINARY(sub)
CLT_ELEMENTWISE_BINARY(mul)
CLT_ELEMENTWISE_BINARY(div)

clt_value *clt_scale(clt_value *x, double factor)
{
    const clt_elementwise_attr attr = {{(float)factor, 0}};
    return clt_emit1(&clt_op_scale, &attr, 1, x);
}

clt_value *clt_add_scalar(clt_value *x, double term)
{
    const clt_elementwise_attr attr = {{1, (float)term}};
    return clt_emit1(&clt_op_scale, &attr, 1, x);
}

/* --- copy ------------------------------------------------------------------------------------ */

static clt_status copy_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                                clt_value **dx)
{
    (void)node;
    (void)wanted;
    dx[0] = dy[0];
    return CLT_OK;
}

static bool accepts_f32(const clt_node *node, const clt_target *target, char *why)
{
    (void)target;
    const clt_dtype dtype = node->in[0]->type.dtype;
    return dtype == CLT_F32 || dtype == CLT_F16 || dtype == CLT_BF16 ||
           clt_decline(why, "for f32 and 16 bits");
}

static bool accepts_runs(const clt_node *node, const clt_target *target, char *why)
{
    return accepts_f32(node, target, why) && clt_elementwise_cpu_accepts(node, target, why);
}

static void emit_runs(const clt_node *node, const clt_target *target, clt_program *p)
{
    clt_elementwise_cpu_emit(node, target, p, "OUT(a)");
}

static void emit_elementwise(const clt_node *node, const clt_target *target, clt_program *p)
{
    clt_elementwise_emit(node, target, p, "OUT(a)");
}

static void emit_move(const clt_node *node, const clt_target *target, clt_program *p)
{
    clt_move move = clt_move_of(&node->in[0]->type, &node->out[0]->type);
    clt_move_emit(&move, 0, target, p);
}

static void emit_vectors(const clt_node *node, const clt_target *target, clt_program *p)
{
    clt_move move = clt_move_of(&node->in[0]->type, &node->out[0]->type);
    (void)target;
    clt_move_gpu_emit(node, &move, 0, p);
}

const clt_op clt_op_copy = {.name = "copy",
                            .doc = "A copy of x in its own memory.",
                            .operands = "x * any",
                            .results = "y * any",
                            .callable = true,
                            .attr_bytes = sizeof(clt_elementwise_attr),
                            .infer = clt_infer_same,
                            .gradient = copy_gradient,
                            .batch_blocked = clt_elementwise_batch_blocked,
                            .rounding = CLT_ROUNDS_MOVES,
                            CLT_VARIANTS({"runs_cpu", accepts_runs, emit_runs},
                                         {"vectors_gpu", clt_gpu_elements_accepts, emit_vectors},
                                         {"elementwise", accepts_f32, emit_elementwise},
                                         {"move", NULL, emit_move})};

CLT_ELEMENTWISE_UNARY(copy)

/* --- expand ---------------------------------------------------------------------------------- */

typedef struct expand_attr {
    clt_elementwise_attr numbers;
    clt_type to;
} expand_attr;

static clt_status infer_expand(const clt_node *node, clt_type *out)
{
    const expand_attr *attr = node->attr;
    const clt_type *in = &node->in[0]->type;
    char a[CLT_TYPE_TEXT], b[CLT_TYPE_TEXT];
    bool fits = in->dtype == CLT_F32 && attr->to.dtype == CLT_F32 && in->rank <= attr->to.rank;
    for (int k = 0; fits && k < in->rank; k++)
        fits = in->dims[k] == 1 || in->dims[k] == attr->to.dims[k + attr->to.rank - in->rank];
    if (!fits)
        return clt_fail(CLT_SHAPE, "%s: %s does not broadcast to %s", node->op->name,
                        clt_type_text(in, a), clt_type_text(&attr->to, b));
    *out = attr->to;
    return CLT_OK;
}

static clt_status expand_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                                  clt_value **dx)
{
    (void)wanted;
    dx[0] = clt_sum_to(dy[0], &node->in[0]->type);
    return CLT_OK;
}

static const clt_attribute to_attributes[] = {
    {CLT_ATTRIBUTE(TYPE, "to", expand_attr, to, "The type of the result."), .internal = 1},
    {CLT_ATTRIBUTE(REAL, "fixed", expand_attr, numbers.p[0],
                   "For mean_grad: the constant part of the divisor."),
     .internal = 1},
    {CLT_ATTRIBUTE(REAL, "per_image", expand_attr, numbers.p[1],
                   "For mean_grad: what each sample adds to the divisor."),
     .internal = 1},
    {0},
};

#define EXPAND_OP(NAME, DOC, OPERANDS, GRADIENT)                                                   \
    const clt_op clt_op_##NAME = {.name = #NAME,                                                   \
                                  .doc = DOC,                                                      \
                                  .operands = OPERANDS,                                            \
                                  .results = "y *",                                                \
                                  .attributes = to_attributes,                                     \
                                  .attr_bytes = sizeof(expand_attr),                               \
                                  .localise = clt_localise_type,                                   \
                                  .infer = infer_expand,                                           \
                                  .gradient = GRADIENT,                                            \
                                  .batch_blocked = clt_elementwise_batch_blocked,                  \
                                  .half = clt_half_all,                                            \
                                  .absorb = clt_elementwise_absorb,                                \
                                  .variants = clt_elementwise_variants}

EXPAND_OP(expand, "x broadcast to another type.", "x *", expand_gradient);
EXPAND_OP(mean_grad, "The gradient of mean.", "dy *", NULL);

clt_value *clt_expand_to(clt_value *x, const clt_type *to)
{
    expand_attr attr = {.numbers = {{0}}};
    attr.to = *to;
    return clt_emit1(&clt_op_expand, &attr, 1, x);
}

clt_value *clt_mean_grad(clt_value *dy, const clt_type *to, double fixed, double per_image)
{
    expand_attr attr = {.numbers = {{(float)fixed, (float)per_image}}};
    attr.to = *to;
    return clt_emit1(&clt_op_mean_grad, &attr, 1, dy);
}

CLT_CALLABLE(add_scalar, clt_elementwise_attr,
             c->out[0] = clt_add_scalar(c->in[0], (double)a->p[0]), .doc = "x + term",
             .operands = "x *", .results = "y *",
             CLT_ATTRIBUTES(clt_elementwise_attr, {CLT_ATTRIBUTE(REAL, "term", clt_elementwise_attr,
                                                                 p[0], "The number that is added."),
                                                   .required = 1}));
