/* The metric `correct` for classes that are divided over the places of an axis. */
#include "ops/loss/correct_parts.h"

#include "base/error.h"
#include "ops/collective/collective.h"
#include "ops/core/ops.h"
#include "ops/loss/loss.h"

enum { LOGITS, LABELS, TARGET };

static clt_type of_labels(const clt_node *node)
{
    clt_type type = node->in[LABELS]->type;
    type.dtype = CLT_F32;
    return type;
}

static clt_status infer(const clt_node *node, clt_type *out)
{
    const clt_correct_parts_attr *attr = node->attr;
    char text[CLT_TYPE_TEXT];
    out[0] = of_labels(node);
    CLT_TRY(clt_check_labels(node, LOGITS, LABELS));
    if (attr->first < 0 || attr->first > attr->classes - clt_loss_classes(node))
        return clt_fail(CLT_SHAPE, "%s: classes %d to %d of %d", node->op->name, attr->first,
                        attr->first + clt_loss_classes(node) - 1, attr->classes);
    if (node->n_in > TARGET && !clt_type_equal(&node->in[TARGET]->type, &out[0]))
        return clt_fail(CLT_SHAPE, "%s: %s is no number for each label", node->op->name,
                        clt_operand_text(node, TARGET, text));
    return CLT_OK;
}

static clt_status infer_of_parts(const clt_node *node, clt_type *out)
{
    const clt_type before = of_labels(node);
    char text[CLT_TYPE_TEXT];
    if (!clt_type_equal(&node->in[0]->type, &before))
        return clt_fail(CLT_SHAPE, "%s: %s is no number for each label", node->op->name,
                        clt_operand_text(node, 0, text));
    out[0] = out[1] = clt_scalar_type();
    return CLT_OK;
}

static void describe(const clt_node *node, clt_str *text)
{
    const clt_correct_parts_attr *attr = node->attr;
    clt_str_add(text, "top %d, from class %d of %d, ignore %d", attr->correct.k, attr->first,
                attr->classes, attr->correct.ignore_index);
}

/* One work-item for each label. */
static void emit_rows(const clt_node *node, const clt_target *target, clt_program *p)
{
    clt_launch_begin(p, "loss/portable/loss.cl", node->op->name, "");
    clt_args_in(p, node->n_in);
    CLT_ARGS(p, CLT_OUT(0), CLT_LONG(clt_loss_positions(node, LABELS)),
             CLT_FIXED(clt_loss_classes(node)), CLT_FIXED(clt_loss_inner(node)),
             CLT_FIXED(((const clt_correct_parts_attr *)node->attr)->first));
    clt_range_items(p, target, clt_loss_positions(node, LABELS));
}

static void emit_of_parts(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_correct_parts_attr *attr = node->attr;
    const clt_extent positions = clt_loss_positions(node, LABELS);
    const int64_t parts = clt_loss_parts(target, positions);
    const int sums = clt_loss_scratch(p, parts), counts = clt_loss_scratch(p, parts);
    clt_launch_begin(p, "loss/portable/loss.cl", "correct_of_parts", "");
    CLT_ARGS(p, CLT_IN(0), CLT_IN(1), CLT_SCRATCH(sums), CLT_SCRATCH(counts), CLT_LONG(positions),
             CLT_FIXED(attr->classes), CLT_FIXED(attr->correct.k),
             CLT_FIXED(attr->correct.ignore_index), CLT_FIXED(parts));
    clt_range_items(p, target, clt_fixed(parts));
    clt_loss_total(p, target, sums, counts, parts);
}

static bool half(const clt_node *node, const clt_target *target, int index, bool output)
{
    (void)node;
    (void)target;
    return !output && index == LOGITS;
}

static const clt_attribute attributes[] = {
    {CLT_ATTRIBUTE(INT, "k", clt_correct_parts_attr, correct.k, "How many of the largest logits."),
     .least = 1, .most = INT_MAX, .default_value = 1},
    {CLT_ATTRIBUTE(INT, "ignore_index", clt_correct_parts_attr, correct.ignore_index,
                   "Labels of this value do not count."),
     .least = INT_MIN, .most = INT_MAX, .default_value = -100},
    {CLT_ATTRIBUTE(INT, "first", clt_correct_parts_attr, first, "The first class here."),
     .most = INT_MAX, .untuned = 1},
    {CLT_ATTRIBUTE(INT, "classes", clt_correct_parts_attr, classes, "The number of classes."),
     .least = 1, .most = INT_MAX, .default_value = 1, .untuned = 1},
    {0},
};

#define PARTS_OP(NAME, DOC, OPERANDS, ...)                                                         \
    const clt_op clt_op_##NAME = {.name = #NAME,                                                   \
                                  .doc = DOC,                                                      \
                                  .operands = OPERANDS,                                            \
                                  .attributes = attributes,                                        \
                                  .attr_bytes = sizeof(clt_correct_parts_attr),                    \
                                  .describe = describe,                                            \
                                  .flops = clt_flops_operand,                                      \
                                  .rounding = CLT_ROUNDS_NONE,                                     \
                                  __VA_ARGS__}

PARTS_OP(correct_target, "The logit of each label; 0 if its class is elsewhere.",
         "logits pc*, labels p* i32", .results = "target p*", .whole = "c", .infer = infer,
         .half = half, CLT_VARIANTS({"portable", clt_accepts_plain, emit_rows}));
PARTS_OP(correct_before, "How many classes here are ranked before each label.",
         "logits pc*, labels p* i32, target p*", .results = "before p*", .whole = "c",
         .infer = infer, .half = half, CLT_VARIANTS({"portable", clt_accepts_plain, emit_rows}));
PARTS_OP(correct_of_parts, "The sum and the weight of correct, from the ranks of all labels.",
         "before p*, labels p* i32", .results = "sum 1, weight 1", .infer = infer_of_parts,
         CLT_VARIANTS({"portable", clt_accepts_plain, emit_of_parts}));

clt_status clt_correct_divide(const clt_node *node, const clt_node_part *part, clt_value *const *in,
                              clt_value **stash, clt_value **out)
{
    const int classes = clt_loss_classes(node);
    (void)stash;
    if (part->label != 'c' - 'a' || part->blocks != 1)
        return clt_fail(CLT_SHAPE, "node %s: %d classes in %d blocks cannot be divided", node->name,
                        classes, part->blocks);
    const clt_correct_parts_attr attr = {
        .correct = *(const clt_correct_attr *)node->attr,
        .first = (int)clt_part_begin(classes, part->at.places, part->at.place),
        .classes = classes};
    clt_value *target = clt_emit1(&clt_op_correct_target, &attr, 2, in[LOGITS], in[LABELS]);
    target = clt_axis_all_reduce(target, part->axis, CLT_AXIS_SUM);
    clt_value *before = clt_emit1(&clt_op_correct_before, &attr, 3, in[LOGITS], in[LABELS], target);
    before = clt_axis_all_reduce(before, part->axis, CLT_AXIS_SUM);
    clt_value *const of[] = {before, in[LABELS]};
    const clt_node *sum =
        before ? clt_graph_add(before->graph, &clt_op_correct_of_parts, of, 2, &attr) : NULL;
    for (int i = 0; sum && i < 2; i++)
        out[i] = sum->out[i];
    return clt_graph_status(in[LOGITS]->graph);
}
