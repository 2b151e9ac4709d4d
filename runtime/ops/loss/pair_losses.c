/* Gradients and builders of binary cross entropy with logits, Huber, smooth L1 and Kullback-Leibler
 * divergence. The expressions of the losses are in terms.c. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "ops/core/ops.h"
#include "ops/loss/terms.h"
#include <cltrain/ops.h>

static const clt_elementwise_attr no_numbers;

/* --- binary cross entropy ------------------------------------------------------------------- */

static clt_status bce_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                               clt_value **dx)
{
    clt_value *x = node->in[0], *t = node->in[1], *w = node->n_in > 2 ? node->in[2] : NULL;
    if (!dy[0])
        return CLT_OK;
    if (w && wanted[2])
        return clt_fail(CLT_UNSUPPORTED, "bce_with_logits: pos_weight has no gradient");
    if (wanted[0])
        dx[0] = w ? clt_emit1(&clt_op_bce_with_logits_weighted_grad, &no_numbers, 4, x, t, dy[0], w)
                  : clt_emit1(&clt_op_bce_with_logits_grad, &no_numbers, 3, x, t, dy[0]);
    if (wanted[1])
        dx[1] = w ? clt_emit1(&clt_op_bce_with_logits_target_grad, &no_numbers, 3, x, dy[0], w)
                  : clt_scale(clt_mul(x, dy[0]), -1);
    return CLT_OK;
}

static const clt_attribute no_number_attributes[] = {
    {CLT_ATTRIBUTE(FLAG, "per_row", clt_terms_attr, per_row,
                   "The weight is the size of dimension 0."),
     .internal = 1},
    {0},
};

static const char in_bce[] = "logits *, target *, pos_weight *?", in_pair[] = "x *, target *";

static void build_bce(const clt_op_call *c)
{
    clt_bce_with_logits(c->in[0], c->in[1], c->in[2], &c->out[0], &c->out[1]);
}

CLT_TERMS_OP(bce_with_logits,
             "Sum of the binary cross entropies of sigmoid(logits) and the target; weight: the "
             "number of elements.",
             in_bce, bce_gradient, NULL, .callable = true, .build = build_bce,
             .attributes = no_number_attributes);
CLT_ELEMENTWISE_OP(bce_with_logits_grad, "The gradient of bce_with_logits for the logits.",
                   "x *, target *, upstream *", .infer = clt_elementwise_infer);
CLT_ELEMENTWISE_OP(bce_with_logits_weighted_grad,
                   "The gradient of bce_with_logits with pos_weight.",
                   "x *, target *, upstream *, pos_weight *", .infer = clt_elementwise_infer);
CLT_ELEMENTWISE_OP(bce_with_logits_target_grad,
                   "The gradient of bce_with_logits with pos_weight for the target.",
                   "x *, upstream *, pos_weight *", .infer = clt_elementwise_infer);

clt_status clt_bce_with_logits(clt_value *logits, clt_value *target, clt_value *pos_weight,
                               clt_value **sum, clt_value **weight)
{
    static const clt_terms_attr attr;
    return clt_terms_emit(&clt_op_bce_with_logits, &attr, logits, target, pos_weight, sum, weight);
}

/* --- Huber ---------------------------------------------------------------------------------- */

/* p0: the difference where the squared part ends; p1: its factor; p2: the slope beyond it. */
static clt_status huber_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                                 clt_value **dx)
{
    const clt_terms_attr *attr = node->attr;
    for (int i = 0; i < 2; i++)
        if (wanted[i] && dy[0])
            dx[i] = clt_emit1(&clt_op_huber_grad, &attr->numbers, 3, node->in[i], node->in[1 - i],
                              dy[0]);
    return CLT_OK;
}

static void describe_huber(const clt_node *node, clt_str *text)
{
    const float *p = ((const clt_elementwise_attr *)node->attr)->p;
    clt_str_add(text, "%g d^2 below %g, slope %g", (double)p[1], (double)p[0], (double)p[2]);
}

static const clt_attribute huber_attributes[] = {
    {CLT_ATTRIBUTE(FLAG, "per_row", clt_terms_attr, per_row,
                   "The weight is the size of dimension 0."),
     .internal = 1},
    {CLT_ATTRIBUTE(REAL, "end", clt_terms_attr, numbers.p[0],
                   "The distance at which the square changes to a line."),
     .internal = 1},
    {CLT_ATTRIBUTE(REAL, "factor", clt_terms_attr, numbers.p[1], "Factor of the square."),
     .internal = 1},
    {CLT_ATTRIBUTE(REAL, "slope", clt_terms_attr, numbers.p[2], "Slope beyond the quadratic part."),
     .internal = 1},
    {0},
};

CLT_TERMS_OP(huber,
             "Sum of the squares of small distances and the size of large ones; weight: the number "
             "of elements.",
             in_pair, huber_gradient, describe_huber, .attributes = huber_attributes);
CLT_ELEMENTWISE_OP(huber_grad, "The gradient of huber for x.", "x *, target *, upstream *",
                   .attributes = huber_attributes + 1, .infer = clt_elementwise_infer,
                   .describe = describe_huber);

static clt_status fail_number(clt_value *x, const char *what, double number, clt_value **sum,
                              clt_value **weight)
{
    const clt_status status = clt_fail(CLT_INVALID_ARGUMENT, what, number);
    *sum = *weight = NULL;
    if (x)
        clt_graph_failed(x->graph, status);
    return status;
}

clt_status clt_huber(clt_value *x, clt_value *target, double delta, clt_value **sum,
                     clt_value **weight)
{
    clt_terms_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.numbers = (clt_elementwise_attr){{(float)delta, 0.5f, (float)delta}};
    if (!(delta > 0) || !isfinite((double)(float)delta))
        return fail_number(x, "huber: delta is %g, not a finite number above 0", delta, sum,
                           weight);
    return clt_terms_emit(&clt_op_huber, &attr, x, target, NULL, sum, weight);
}

clt_status clt_smooth_l1(clt_value *x, clt_value *target, double beta, clt_value **sum,
                         clt_value **weight)
{
    clt_terms_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.numbers = (clt_elementwise_attr){{(float)beta, beta > 0 ? (float)(0.5 / beta) : 0, 1}};
    if (!(beta >= 0) || !isfinite((double)(float)beta))
        return fail_number(x, "smooth_l1: beta is %g, not a finite number of at least 0", beta, sum,
                           weight);
    return clt_terms_emit(&clt_op_huber, &attr, x, target, NULL, sum, weight);
}

/* --- Kullback-Leibler divergence ------------------------------------------------------------ */

static clt_status kl_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                              clt_value **dx)
{
    const bool logs = node->op == &clt_op_kl_div_log;
    clt_value *x = node->in[0], *t = node->in[1];
    if (!dy[0])
        return CLT_OK;
    if (wanted[0])
        dx[0] = clt_scale(clt_mul(logs ? clt_exp(t) : t, dy[0]), -1);
    if (wanted[1])
        dx[1] = clt_emit1(logs ? &clt_op_kl_div_log_target_grad : &clt_op_kl_div_target_grad,
                          &no_numbers, 3, x, t, dy[0]);
    return CLT_OK;
}

static void describe_kl(const clt_node *node, clt_str *text)
{
    if (((const clt_terms_attr *)node->attr)->per_row)
        clt_str_add(text, "batchmean");
}

CLT_TERMS_OP(kl_div,
             "Sum of target (log(target) - x), the Kullback-Leibler divergence of a target from "
             "logarithms x; weight: the number of elements.",
             in_pair, kl_gradient, describe_kl, .attributes = no_number_attributes,
             .dims = clt_terms_dims);
CLT_TERMS_OP(kl_div_log, "kl_div of a target that holds logarithms.", in_pair, kl_gradient,
             describe_kl, .attributes = no_number_attributes, .dims = clt_terms_dims);
CLT_ELEMENTWISE_OP(kl_div_target_grad, "The gradient of kl_div for the target.",
                   "x *, target *, upstream *", .infer = clt_elementwise_infer);
CLT_ELEMENTWISE_OP(kl_div_log_target_grad, "The gradient of kl_div_log for the target.",
                   "x *, target *, upstream *", .infer = clt_elementwise_infer);

clt_status clt_kl_div(clt_value *x, clt_value *target, const clt_kl_div_options *options,
                      clt_value **sum, clt_value **weight)
{
    clt_kl_div_options own;
    clt_terms_attr attr;
    clt_kl_div_options_init(&own);
    *sum = *weight = NULL;
    const clt_status status = clt_options_read("kl_div", &own, sizeof own, options);
    if (status != CLT_OK) {
        if (x)
            clt_graph_failed(x->graph, status);
        return status;
    }
    memset(&attr, 0, sizeof attr);
    attr.per_row = own.batchmean != 0;
    return clt_terms_emit(own.log_target ? &clt_op_kl_div_log : &clt_op_kl_div, &attr, x, target,
                          NULL, sum, weight);
}

typedef struct huber_call {
    double bound;
} huber_call;

CLT_CALLABLE(
    huber, huber_call, clt_huber(c->in[0], c->in[1], a->bound, &c->out[0], &c->out[1]),
    .doc = "Sum of d^2 / 2 where |d| < delta, else delta (|d| - delta / 2), with d = x - target; "
           "weight: the number of elements.",
    .operands = "x *, target *", .results = "sum 1, weight 1",
    CLT_ATTRIBUTES(huber_call,
                   {CLT_ATTRIBUTE(REAL, "delta", huber_call, bound,
                                  "The distance at which the square changes to a line."),
                    .most = FLT_MAX, .above = 1, .default_value = 1}));

CLT_CALLABLE(
    smooth_l1, huber_call, clt_smooth_l1(c->in[0], c->in[1], a->bound, &c->out[0], &c->out[1]),
    .doc = "Sum of huber with delta = beta, divided by beta; weight: the number of elements.",
    .operands = "x *, target *", .results = "sum 1, weight 1",
    CLT_ATTRIBUTES(huber_call,
                   {CLT_ATTRIBUTE(REAL, "beta", huber_call, bound,
                                  "The distance at which the square changes to a line."),
                    .most = FLT_MAX, .default_value = 1}));

CLT_CALLABLE_OPTIONS(
    kl_div, clt_kl_div_options, clt_kl_div(c->in[0], c->in[1], a, &c->out[0], &c->out[1]),
    .doc = "Sum of target (log(target) - x), the Kullback-Leibler divergence of a target from "
           "logarithms x; weight: the number of elements.",
    .operands = "x *, target *", .results = "sum 1, weight 1",
    CLT_ATTRIBUTES(
        clt_kl_div_options,
        {CLT_ATTRIBUTE(FLAG, "log_target", clt_kl_div_options, log_target,
                       "The target holds logarithms.")},
        {CLT_ATTRIBUTE(FLAG, "batchmean", clt_kl_div_options, batchmean,
                       "The weight is the size of dimension 0, not the number of elements.")}));
