/* Cosine similarity, built from elementwise operators and sums. The squares are clamped from below,
 * so that the gradient of zero vectors is finite. */
#include <math.h>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/core/ops.h"
#include <cltrain/ops.h>

static clt_status check(const clt_value *a, const clt_value *b, int axis, double eps)
{
    char ta[CLT_TYPE_TEXT], tb[CLT_TYPE_TEXT];
    const int own_a = axis < 0 ? axis + a->type.rank : axis;
    const int own_b = own_a + b->type.rank - a->type.rank;
    clt_type_text(&a->type, ta);
    clt_type_text(&b->type, tb);
    if (!(eps >= 1e-15 && eps <= 1e15))
        return clt_fail(CLT_INVALID_ARGUMENT, "cosine_similarity: eps is %g, not in 1e-15 .. 1e15",
                        eps);
    if (own_a < 0 || own_a >= a->type.rank)
        return clt_fail(CLT_SHAPE, "cosine_similarity: %s has no axis %d", ta, axis);
    if (own_b < 0 || a->type.dims[own_a] != b->type.dims[own_b] || a->type.dims[own_a] < 0)
        return clt_fail(CLT_SHAPE,
                        "cosine_similarity: axis %d of %s and %s is not one size without the batch",
                        axis, ta, tb);
    return CLT_OK;
}

/* 1 / max(|x|, eps) along the axis. */
static clt_value *inverse_length(clt_value *x, int axis, double eps)
{
    clt_value *squares = clt_reduce_sum(clt_pow_scalar(x, 2), &axis, 1, 0);
    return clt_rsqrt(clt_clamp(squares, eps * eps, INFINITY));
}

clt_value *clt_cosine_similarity(clt_value *a, clt_value *b, int axis, double eps)
{
    if (!a || !b)
        return NULL;
    const clt_status status = check(a, b, axis, eps);
    if (status != CLT_OK)
        return clt_graph_failed(a->graph, status);
    const int last = axis < 0 ? axis : axis - a->type.rank; /* counted from the end, for both */
    clt_value *dot = clt_reduce_sum(clt_mul(a, b), &last, 1, 0);
    return clt_mul(clt_mul(inverse_length(a, last, eps), inverse_length(b, last, eps)), dot);
}

typedef struct cosine_call {
    int axis;
    double eps;
} cosine_call;

CLT_CALLABLE(cosine_similarity, cosine_call,
             c->out[0] = clt_cosine_similarity(c->in[0], c->in[1], a->axis, a->eps),
             .doc = "The cosine of the angle between vectors along an axis.",
             .operands = "a *, b *", .results = "y *",
             CLT_ATTRIBUTES(cosine_call,
                            {CLT_ATTRIBUTE(INT, "axis", cosine_call, axis,
                                           "The axis; negative ones count from the end."),
                             .least = -CLT_MAX_RANK, .most = CLT_MAX_RANK - 1, .default_value = 1},
                            {CLT_ATTRIBUTE(REAL, "eps", cosine_call, eps,
                                           "Lower limit of a vector's length in the division."),
                             .least = 1e-15, .most = 1e15, .default_value = 1e-8}),
             .whole = "*");
