/* all_reduce: the sum or the maximum over the places of an axis, on each of them. */
#include "ops/collective/collective.h"
#include "ops/core/ops.h"
#include <cltrain/ops.h>

static clt_status infer(const clt_node *node, clt_type *out)
{
    CLT_TRY(clt_axis_check(node));
    *out = node->in[0]->type;
    return CLT_OK;
}

/* The losses of all places depend on x. Only sums have a gradient. */
static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    const clt_axis_attr *attr = node->attr;
    (void)wanted;
    if (attr->reduction != CLT_AXIS_SUM)
        return clt_fail(CLT_UNSUPPORTED, "all_reduce: a maximum has no gradient");
    dx[0] = clt_axis_all_reduce(dy[0], (clt_axis)attr->axis, CLT_AXIS_SUM);
    return CLT_OK;
}

const clt_op clt_op_all_reduce = {.name = "all_reduce",
                                  .doc = "The sum of x over all devices.",
                                  .operands = "x *",
                                  .results = "y *",
                                  .callable = true,
                                  .infer = infer,
                                  .gradient = gradient,
                                  .in_place = 1,
                                  .collective = CLT_OP_ALL_REDUCE,
                                  CLT_AXIS_OP};

clt_value *clt_axis_all_reduce(clt_value *x, clt_axis axis, clt_axis_reduction reduction)
{
    const clt_axis_attr attr = {.axis = (int)axis, .reduction = (int)reduction};
    return clt_emit1(&clt_op_all_reduce, &attr, 1, x);
}

clt_value *clt_all_reduce(clt_value *x)
{
    return clt_axis_all_reduce(x, CLT_AXIS_DATA, CLT_AXIS_SUM);
}
