/* Binary cross entropy with logits, Huber and smooth L1, Kullback-Leibler divergence: their rules
 * and builders; what they compute is in terms.c. */
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

CLT_TERMS_OP(bce_with_logits, 3, bce_gradient, NULL);
CLT_ELEMENTWISE_OP(bce_with_logits_grad, 3, NULL, NULL);
CLT_ELEMENTWISE_OP(bce_with_logits_weighted_grad, 4, NULL, NULL);
CLT_ELEMENTWISE_OP(bce_with_logits_target_grad, 3, NULL, NULL);

clt_status clt_bce_with_logits(clt_value *logits, clt_value *target, clt_value *pos_weight,
                               clt_value **sum, clt_value **weight)
{
    static const clt_terms_attr attr;
    return clt_terms_emit(&clt_op_bce_with_logits, &attr, logits, target, pos_weight, sum, weight);
}

/* --- Huber ---------------------------------------------------------------------------------- */

/* p0: where the square ends, p1: its factor, p2: the slope beyond. */
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

CLT_TERMS_OP(huber, 2, huber_gradient, describe_huber);
CLT_ELEMENTWISE_OP(huber_grad, 3, NULL, describe_huber);

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

CLT_TERMS_OP(kl_div, 2, kl_gradient, describe_kl);
CLT_TERMS_OP(kl_div_log, 2, kl_gradient, describe_kl);
CLT_ELEMENTWISE_OP(kl_div_target_grad, 3, NULL, NULL);
CLT_ELEMENTWISE_OP(kl_div_log_target_grad, 3, NULL, NULL);

void clt_kl_div_options_init(clt_kl_div_options *options)
{
    *options = (clt_kl_div_options){.struct_size = sizeof *options};
}

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
