/* Layer norm. Its kernels and the code shared with RMS norm are in norm_rows.c. */
#include "ops/norm/norm_rows.h"
#include "ops/core/ops.h"
#include <cltrain/ops/norm.h>

static const clt_attribute attributes[] = {
    {CLT_ATTRIBUTE(INT, "axes", clt_norm_rows_attr, axes,
                   "How many of the last axes are normalised."),
     .least = 1, .most = CLT_MAX_RANK, .default_value = 1},
    {CLT_ATTRIBUTE(REAL, "eps", clt_norm_rows_attr, eps, "Added to the variance."),
     .most = INFINITY, .default_value = CLT_NORM_EPS},
    {0},
};

const clt_op clt_op_layer_norm = {
    .name = "layer_norm",
    .doc = "(x - mean) / sqrt(variance + eps) * weight + bias over the last axes.",
    .operands = "x *, weight *?, bias *?",
    .results = "y *, rstd *, mean *",
    CLT_NORM_ROWS_MEMBERS,
    .callable = true,
    .attributes = attributes,
    .infer = clt_norm_rows_infer,
    .gradient = clt_norm_rows_gradient,
    .variants = clt_norm_rows_variants,
};

const clt_op clt_op_layer_norm_grad = {
    .name = "layer_norm_grad",
    .doc = "The gradient of layer_norm.",
    .operands = "x *, dy *, rstd *, mean *, weight *?",
    .results = "dx *, dweight *, dbias *",
    CLT_NORM_ROWS_MEMBERS,
    .attributes = clt_norm_rows_grad_attributes,
    .infer = clt_norm_rows_infer_grad,
    .variants = clt_norm_rows_grad_variants,
};

clt_value *clt_layer_norm(clt_value *x, int axes, clt_value *weight, clt_value *bias, double eps)
{
    const clt_norm_rows_attr attr = {.eps = eps, .axes = axes};
    return clt_emit1(&clt_op_layer_norm, &attr, 3, x, weight, bias);
}
