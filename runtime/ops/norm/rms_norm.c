/* RMS norm: layer norm that takes no mean off, and has no bias. */
#include "ops/norm/norm_rows.h"
#include "ops/core/ops.h"
#include <cltrain/ops_norm.h>

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    return clt_norm_rows_gradient(node, &clt_op_rms_norm_grad, dy, wanted, dx);
}

const clt_op clt_op_rms_norm = {
    .name = "rms_norm",
    .min_in = 1,
    .max_in = 2,
    .n_out = 2,
    .attr_bytes = sizeof(clt_norm_rows_attr),
    .infer = clt_norm_rows_infer,
    .gradient = gradient,
    .describe = clt_norm_rows_describe,
    .flops = clt_norm_rows_flops,
    .half = clt_half_rows,
    .variants = clt_norm_rows_variants,
};

const clt_op clt_op_rms_norm_grad = {
    .name = "rms_norm_grad",
    .min_in = 3,
    .max_in = 5,
    .n_out = 2,
    .attr_bytes = sizeof(clt_norm_rows_attr),
    .infer = clt_norm_rows_infer_grad,
    .describe = clt_norm_rows_describe,
    .flops = clt_norm_rows_flops,
    .half = clt_half_rows,
    .variants = clt_norm_rows_grad_variants,
};

clt_value *clt_rms_norm(clt_value *x, int axes, clt_value *weight, double eps)
{
    const clt_norm_rows_attr attr = {.eps = eps, .axes = axes};
    return clt_emit1(&clt_op_rms_norm, &attr, 2, x, weight);
}
