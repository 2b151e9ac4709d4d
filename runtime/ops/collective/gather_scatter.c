/* all_gather: the operands of all places of an axis, one behind the other. reduce_scatter: their
 * sum, of which each place gets one part. Each is the gradient of the other. */
#include "ops/collective/collective.h"
#include "ops/core/ops.h"

static clt_status infer_gather(const clt_node *node, clt_type *out)
{
    const clt_axis_attr *attr = node->attr;
    const clt_type *x = &node->in[0]->type;
    char text[CLT_TYPE_TEXT];
    CLT_TRY(clt_axis_check(node));
    if (attr->places < 1 || x->rank == CLT_MAX_RANK)
        return clt_fail(CLT_SHAPE, "all_gather: %d places cannot gather %s", attr->places,
                        clt_type_text(x, text));
    *out = (clt_type){.dtype = x->dtype, .rank = x->rank + 1, .dims = {attr->places}};
    for (int k = 0; k < x->rank; k++)
        out->dims[k + 1] = x->dims[k];
    return CLT_OK;
}

static clt_status gather_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                                  clt_value **dx)
{
    const clt_axis_attr *attr = node->attr;
    (void)wanted;
    dx[0] = clt_axis_reduce_scatter(dy[0], (clt_axis)attr->axis, attr->places);
    return CLT_OK;
}

const clt_op clt_op_all_gather = {.name = "all_gather",
                                  .doc = "x of all places of an axis.",
                                  .operands = "x *",
                                  .results = "y n*",
                                  .whole = "n",
                                  .infer = infer_gather,
                                  .gradient = gather_gradient,
                                  .collective = CLT_OP_ALL_GATHER,
                                  CLT_AXIS_OP};

clt_value *clt_axis_all_gather(clt_value *x, clt_axis axis, int places)
{
    const clt_axis_attr attr = {.axis = (int)axis, .places = places};
    return clt_emit1(&clt_op_all_gather, &attr, 1, x);
}
/* --- reduce_scatter -------------------------------------------------------------------------- */

static clt_status infer_scatter(const clt_node *node, clt_type *out)
{
    const clt_axis_attr *attr = node->attr;
    const clt_type *x = &node->in[0]->type;
    char text[CLT_TYPE_TEXT];
    CLT_TRY(clt_axis_check(node));
    if (x->rank < 1 || attr->places < 1 || x->dims[0] != attr->places)
        return clt_fail(CLT_SHAPE, "reduce_scatter: %s has no part for each of %d places",
                        clt_type_text(x, text), attr->places);
    *out = (clt_type){.dtype = x->dtype, .rank = x->rank - 1};
    for (int k = 1; k < x->rank; k++)
        out->dims[k - 1] = x->dims[k];
    return CLT_OK;
}

static clt_status scatter_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                                   clt_value **dx)
{
    const clt_axis_attr *attr = node->attr;
    (void)wanted;
    dx[0] = clt_axis_all_gather(dy[0], (clt_axis)attr->axis, attr->places);
    return CLT_OK;
}

const clt_op clt_op_reduce_scatter = {.name = "reduce_scatter",
                                      .doc = "A place's part of the sum of x over an axis.",
                                      .operands = "x n*",
                                      .results = "y *",
                                      .whole = "n",
                                      .infer = infer_scatter,
                                      .gradient = scatter_gradient,
                                      .collective = CLT_OP_REDUCE_SCATTER,
                                      CLT_AXIS_OP};

clt_value *clt_axis_reduce_scatter(clt_value *x, clt_axis axis, int places)
{
    const clt_axis_attr attr = {.axis = (int)axis, .places = places};
    return clt_emit1(&clt_op_reduce_scatter, &attr, 1, x);
}
