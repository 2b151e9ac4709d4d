/* What the operators of this folder share. */
#include "ops/collective/collective.h"

#include "base/error.h"
#include "graph/mesh.h"

static const char *const reductions[] = {"sum", "max", NULL};
static const char *const axes[] = {"dp", "tp", "pp", "space", "time", NULL};

const clt_attribute clt_axis_attributes[] = {
    {CLT_ATTRIBUTE(CHOICE, "axis", clt_axis_attr, axis, "The axis of the mesh."), .choices = axes,
     .internal = 1},
    {CLT_ATTRIBUTE(CHOICE, "reduction", clt_axis_attr, reduction, "The sum or the maximum."),
     .choices = reductions, .internal = 1},
    {CLT_ATTRIBUTE(INT, "places", clt_axis_attr, places, "Places of the axis."), .least = 0,
     .most = 1 << 20, .internal = 1},
    {0}};

clt_status clt_axis_check(const clt_node *node)
{
    const clt_axis_attr *attr = node->attr;
    const clt_type *x = &node->in[0]->type;
    char text[CLT_TYPE_TEXT];
    if (x->dtype != CLT_F32)
        return clt_fail(CLT_UNSUPPORTED, "%s: the operand is %s; cast it to f32 first",
                        node->op->name, clt_type_text(x, text));
    if (attr->axis == CLT_AXIS_DATA && clt_type_has_batch(x))
        return clt_fail(CLT_SHAPE,
                        "%s: the operand is %s, but devices have different images: reduce it over "
                        "the batch first",
                        node->op->name, clt_type_text(x, text));
    return CLT_OK;
}

void clt_axis_describe(const clt_node *node, clt_str *text)
{
    const clt_axis_attr *attr = node->attr;
    clt_str_add(text, "axis %s", clt_axis_name((clt_axis)attr->axis));
    if (attr->reduction == CLT_AXIS_MAX)
        clt_str_add(text, ", max");
}
