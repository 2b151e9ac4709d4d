/* Group norm. The elements of a group are contiguous, so it is computed as layer norm of another
 * shape. */
#include "base/error.h"
#include "graph/graph.h"
#include "ops/core/ops.h"
#include <cltrain/ops/norm.h>
#include <cltrain/ops/tensor.h>

static clt_status check_channels(const char *op, const clt_value *x, const clt_value *operand,
                                 const char *what)
{
    char a[CLT_TYPE_TEXT], b[CLT_TYPE_TEXT];
    if (!operand || (operand->type.rank == 1 && operand->type.dims[0] == x->type.dims[1]))
        return CLT_OK;
    return clt_fail(CLT_SHAPE, "%s: the %s %s does not have the %lld channels of %s", op, what,
                    clt_type_text(&operand->type, a), (long long)x->type.dims[1],
                    clt_type_text(&x->type, b));
}

static clt_status check(const char *op, const clt_value *x, int64_t groups, const clt_value *weight,
                        const clt_value *bias)
{
    char text[CLT_TYPE_TEXT];
    if (x->type.rank < 2 || x->type.dims[1] < 1)
        return clt_fail(CLT_SHAPE, "%s: the operand %s must be [B, C, d..]", op,
                        clt_type_text(&x->type, text));
    if (groups < 1 || x->type.dims[1] % groups)
        return clt_fail(CLT_INVALID_ARGUMENT, "%s: %lld groups do not divide the channels of %s",
                        op, (long long)groups, clt_type_text(&x->type, text));
    CLT_TRY(check_channels(op, x, weight, "weight"));
    return check_channels(op, x, bias, "bias");
}

/* Returns an operand [C] as [C, 1..], which broadcasts to x. */
static clt_value *by_channel(const clt_value *x, clt_value *operand)
{
    int64_t dims[CLT_MAX_RANK];
    for (int i = 1; i < x->type.rank; i++)
        dims[i - 1] = i == 1 ? x->type.dims[1] : 1;
    return clt_reshape(operand, x->type.rank - 1, dims);
}

static clt_value *build(const char *op, clt_value *x, int64_t groups, clt_value *weight,
                        clt_value *bias, double eps)
{
    if (!x || clt_graph_status(x->graph) != CLT_OK)
        return NULL;
    const clt_status status = check(op, x, groups, weight, bias);
    if (status != CLT_OK)
        return clt_graph_failed(x->graph, status);
    int64_t length = x->type.dims[1] / groups;
    for (int i = 2; i < x->type.rank; i++)
        length *= x->type.dims[i];
    const int64_t rows[] = {x->type.dims[0], groups, length};
    clt_value *y = clt_layer_norm(clt_reshape(x, 3, rows), 1, NULL, NULL, eps);
    y = clt_reshape(y, x->type.rank, x->type.dims);
    if (weight)
        y = clt_mul(y, by_channel(x, weight));
    return bias ? clt_add(y, by_channel(x, bias)) : y;
}

clt_value *clt_group_norm(clt_value *x, int groups, clt_value *weight, clt_value *bias, double eps)
{
    return build("group_norm", x, groups, weight, bias, eps);
}

clt_value *clt_instance_norm(clt_value *x, clt_value *weight, clt_value *bias, double eps)
{
    return build("instance_norm", x, x && x->type.rank > 1 ? x->type.dims[1] : 1, weight, bias,
                 eps);
}

typedef struct norm_call {
    int groups;
    double eps;
} norm_call;

CLT_CALLABLE(group_norm, norm_call,
             c->out[0] = clt_group_norm(c->in[0], a->groups, c->in[1], c->in[2], a->eps),
             .doc = "(x - mean) / sqrt(variance + eps) * weight + bias over groups of channels.",
             .operands = "x bc*, weight c?, bias c?", .results = "y bc*",
             CLT_ATTRIBUTES(norm_call,
                            {CLT_ATTRIBUTE(INT, "groups", norm_call, groups,
                                           "The number of groups of channels."),
                             .least = 1, .most = INT_MAX, .required = 1, .default_value = 1},
                            {CLT_ATTRIBUTE(REAL, "eps", norm_call, eps, "Added to the variance."),
                             .most = INFINITY, .default_value = CLT_NORM_EPS}),
             .whole = "c*");

CLT_CALLABLE(instance_norm, norm_call,
             c->out[0] = clt_instance_norm(c->in[0], c->in[1], c->in[2], a->eps),
             .doc = "group_norm with one group for each channel.",
             .operands = "x bc*, weight c?, bias c?", .results = "y bc*",
             CLT_ATTRIBUTES(norm_call,
                            {CLT_ATTRIBUTE(REAL, "eps", norm_call, eps, "Added to the variance."),
                             .most = INFINITY, .default_value = CLT_NORM_EPS}),
             .whole = "*");
