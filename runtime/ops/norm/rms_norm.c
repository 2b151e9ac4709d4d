/* RMS norm: layer norm without subtraction of the mean and without bias. */
#include "ops/norm/norm_rows.h"
#include "ops/core/ops.h"
#include <cltrain/ops/norm.h>

static const clt_attribute attributes[] = {
    {CLT_ATTRIBUTE(INT, "axes", clt_norm_rows_attr, axes,
                   "How many of the last axes are normalised."),
     .least = 1, .most = CLT_MAX_RANK, .default_value = 1},
    {CLT_ATTRIBUTE(REAL, "eps", clt_norm_rows_attr, eps, "Added to the mean square."),
     .most = INFINITY, .default_value = CLT_RMS_NORM_EPS},
    {0},
};

const clt_op clt_op_rms_norm = {
    .name = "rms_norm",
    .doc = "x / sqrt(mean of squares + eps) * weight over the last axes.",
    .operands = "x *, weight *?",
    .results = "y *, rstd *",
    CLT_NORM_ROWS_MEMBERS,
    .callable = true,
    .attributes = attributes,
    .infer = clt_norm_rows_infer,
    .gradient = clt_norm_rows_gradient,
    .variants = clt_norm_rows_variants,
};

const clt_op clt_op_rms_norm_grad = {
    .name = "rms_norm_grad",
    .doc = "The gradient of rms_norm.",
    .operands = "x *, dy *, rstd *, mean *?, weight *?",
    .results = "dx *, dweight *",
    CLT_NORM_ROWS_MEMBERS,
    .attributes = clt_norm_rows_grad_attributes,
    .infer = clt_norm_rows_infer_grad,
    .variants = clt_norm_rows_grad_variants,
};

clt_value *clt_rms_norm(clt_value *x, int axes, clt_value *weight, double eps)
{
    const clt_norm_rows_attr attr = {.eps = eps, .axes = axes};
    return clt_emit1(&clt_op_rms_norm, &attr, 2, x, weight);
}
