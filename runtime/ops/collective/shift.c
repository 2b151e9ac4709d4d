/* shift: each place of an axis gets the operand of a neighbour. hand_on: the same, in a fixed order
 * at all places. */
#include <string.h>

#include "ops/collective/collective.h"
#include "ops/core/ops.h"
#include <cltrain/ops.h>

static clt_status infer(const clt_node *node, clt_type *out)
{
    CLT_TRY(clt_axis_check(node));
    *out = node->in[0]->type;
    return CLT_OK;
}

/* The gradient goes back to where the value came from. */
static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    const clt_shift_attr *attr = node->attr;
    (void)wanted;
    dx[0] = clt_axis_shift(dy[0], (clt_axis)attr->common.axis, -attr->step, 0);
    return CLT_OK;
}

/* All places come to the gradient, also one whose result nothing reads. */
static clt_status hand_on_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                                   clt_value **dx)
{
    const clt_shift_attr *attr = node->attr;
    (void)wanted;
    dx[0] = clt_axis_hand_on(dy[0] ? dy[0] : clt_scale(node->out[0], 0),
                             (clt_axis)attr->common.axis, -attr->step);
    return CLT_OK;
}

static void describe(const clt_node *node, clt_str *text)
{
    const clt_shift_attr *attr = node->attr;
    clt_axis_describe(node, text);
    clt_str_add(text, ", from the place %s", attr->step > 0 ? "before" : "behind");
}

static const clt_attribute attributes[] = {
    {CLT_ATTRIBUTE(INT, "axis", clt_shift_attr, common.axis, "The axis of the mesh."),
     .most = CLT_AXES - 1, .internal = 1},
    {CLT_ATTRIBUTE(INT, "step", clt_shift_attr, step, "1: from the place before; -1: behind."),
     .least = -1, .most = 1, .default_value = 1, .internal = 1},
    {CLT_ATTRIBUTE(REAL, "fill", clt_shift_attr, fill,
                   "The result's elements at the place that has no such neighbour."),
     .internal = 1},
    {0}};

const clt_op clt_op_shift = {.name = "shift",
                             .doc = "x of a neighbour along an axis.",
                             .operands = "x *",
                             .results = "y *",
                             .infer = infer,
                             .gradient = gradient,
                             .attributes = attributes,
                             .attr_bytes = sizeof(clt_shift_attr),
                             .describe = describe,
                             .flops = clt_no_flops,
                             .collective = CLT_OP_SHIFT};

const clt_op clt_op_hand_on = {.name = "hand_on",
                               .doc = "x of a neighbour along an axis. The node stays, whether or "
                                      "not its result is read.",
                               .operands = "x *",
                               .results = "y *",
                               .infer = infer,
                               .gradient = hand_on_gradient,
                               .attributes = attributes,
                               .attr_bytes = sizeof(clt_shift_attr),
                               .describe = describe,
                               .flops = clt_no_flops,
                               .effect = true,
                               .collective = CLT_OP_SHIFT};

/* Bytes between the fields are 0, because equal attributes are compared as memory. */
static clt_value *add(const clt_op *op, clt_value *x, clt_axis axis, int step, double fill)
{
    clt_shift_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.common.axis = (int)axis;
    attr.step = step;
    attr.fill = fill;
    return clt_emit1(op, &attr, 1, x);
}

clt_value *clt_axis_shift(clt_value *x, clt_axis axis, int step, double fill)
{
    return add(&clt_op_shift, x, axis, step, fill);
}

clt_value *clt_axis_hand_on(clt_value *x, clt_axis axis, int step)
{
    return add(&clt_op_hand_on, x, axis, step, 0);
}
