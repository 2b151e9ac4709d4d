#include "ops/shape/convert_layout.h"

#include "ops/core/ops.h"

typedef struct layout_attr {
    clt_layout to;
} layout_attr;

static const char *const layouts[] = {"plain", "batch_blocked", NULL};

static void describe(const clt_node *node, clt_str *text)
{
    const layout_attr *attr = node->attr;
    clt_str_add(text, "to %s", layouts[attr->to]);
}

/* One work-item for each batch block and 64 elements of a sample. */
static void emit(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { CHUNK = 64 };
    const layout_attr *attr = node->attr;
    const int64_t rest = clt_type_coefficient(&node->in[0]->type);
    clt_launch_begin(p, "shape/batch_blocked/layout.cl",
                     attr->to == CLT_LAYOUT_BATCH_BLOCKED ? "plain_to_batch_blocked"
                                                          : "batch_blocked_to_plain",
                     "-DLANES=%d", target->lanes);
    CLT_ARGS(p, CLT_IN(0), CLT_OUT(0), CLT_FIXED(rest), CLT_RUN(CLT_RUN_COUNT));
    clt_range3(p, clt_fixed((rest + CHUNK - 1) / CHUNK), (clt_extent){1, 1, target->lanes, 0},
               clt_fixed(1), 1, 1, 1);
}

static const clt_variant variants[] = {{"batch_blocked", NULL, emit, NULL, CLT_BATCH_BLOCKED}, {0}};

const clt_op clt_op_layout = {
    .name = "layout",
    .doc = "x in another memory layout. The layout pass inserts this node.",
    .operands = "x * any",
    .results = "y * any",
    CLT_ATTRIBUTES(layout_attr,
                   {CLT_ATTRIBUTE(CHOICE, "to", layout_attr, to, "The layout of the result."),
                    .choices = layouts, .internal = 1}),
    .infer = clt_infer_same,
    .describe = describe,
    .flops = clt_no_flops,
    .rounding = CLT_ROUNDS_MOVES,
    .variants = variants,
};

clt_value *clt_layout_convert(clt_value *value, clt_layout layout)
{
    const layout_attr attr = {.to = layout};
    clt_value *twin = clt_emit1(&clt_op_layout, &attr, 1, value);
    if (twin)
        twin->layout = layout;
    return twin;
}
