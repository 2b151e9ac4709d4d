/* Cross entropy of classes that are divided over the places of an axis. */
#include "ops/loss/cross_entropy_parts.h"

#include "base/error.h"
#include "ops/collective/collective.h"
#include "ops/core/ops.h"
#include "ops/loss/loss.h"
#include "ops/reduce/rows_cpu.h"
#include "ops/reduce/rows_gpu.h"
#include <cltrain/ops.h>

enum { LOGITS, LABELS, LARGEST, PARTS, UPSTREAM };

static int kinds_of(const clt_cross_entropy_parts_attr *attr)
{
    return attr->loss.label_smoothing > 0 ? 3 : 2;
}

/* --- checks ---------------------------------------------------------------------------------- */

/* The labels' dimensions, then the numbers of each label. */
static clt_type parts_type(const clt_node *node, int labels)
{
    clt_type type = node->in[labels]->type;
    type.dtype = CLT_F32;
    type.dims[type.rank++] = kinds_of(node->attr);
    return type;
}

static clt_status check_type(const clt_node *node, int operand, const clt_type *type)
{
    char is[CLT_TYPE_TEXT], must[CLT_TYPE_TEXT];
    if (clt_type_equal(&node->in[operand]->type, type))
        return CLT_OK;
    return clt_fail(CLT_SHAPE, "%s: operand %d is %s, not %s", node->op->name, operand,
                    clt_operand_text(node, operand, is), clt_type_text(type, must));
}

static clt_status check_classes(const clt_node *node)
{
    const clt_cross_entropy_parts_attr *attr = node->attr;
    clt_type largest = node->in[LABELS]->type;
    largest.dtype = CLT_F32;
    CLT_TRY(clt_check_labels(node, LOGITS, LABELS));
    if (attr->first < 0 || attr->first > attr->classes - clt_loss_classes(node))
        return clt_fail(CLT_SHAPE, "%s: classes %d to %d of %d", node->op->name, attr->first,
                        attr->first + clt_loss_classes(node) - 1, attr->classes);
    return check_type(node, LARGEST, &largest);
}

static clt_status infer(const clt_node *node, clt_type *out)
{
    CLT_TRY(check_classes(node));
    out[0] = parts_type(node, LABELS);
    return CLT_OK;
}

static clt_status infer_grad(const clt_node *node, clt_type *out)
{
    const clt_type parts = parts_type(node, LABELS), scalar = clt_scalar_type();
    CLT_TRY(check_classes(node));
    CLT_TRY(check_type(node, PARTS, &parts));
    CLT_TRY(check_type(node, UPSTREAM, &scalar));
    out[0] = node->in[LOGITS]->type;
    return CLT_OK;
}

static clt_status infer_of_parts(const clt_node *node, clt_type *out)
{
    const clt_type parts = parts_type(node, 1);
    CLT_TRY(check_type(node, 0, &parts));
    out[0] = out[1] = clt_scalar_type();
    return CLT_OK;
}

static void describe(const clt_node *node, clt_str *text)
{
    const clt_cross_entropy_parts_attr *attr = node->attr;
    clt_str_add(text, "from class %d of %d", attr->first, attr->classes);
    if (attr->loss.label_smoothing > 0)
        clt_str_add(text, ", smoothing %g", attr->loss.label_smoothing);
    clt_str_add(text, ", ignore %d", attr->loss.ignore_index);
}

/* A subtraction, an exponential and an addition for each logit. */
static double flops(const clt_node *node, int64_t n)
{
    return 3.0 * (double)clt_type_elements(&node->in[LOGITS]->type, n);
}

/* --- launches -------------------------------------------------------------------------------- */

static void arg_classes(clt_program *p, const clt_node *node)
{
    const clt_cross_entropy_parts_attr *attr = node->attr;
    CLT_ARGS(p, CLT_FIXED(attr->first), CLT_FIXED(attr->classes));
}

static void arg_loss(clt_program *p, const clt_node *node)
{
    const clt_cross_entropy_parts_attr *attr = node->attr;
    CLT_ARGS(p, CLT_FLOAT(attr->loss.label_smoothing), CLT_FIXED(attr->loss.ignore_index));
}

/* Adds the operands, the result, and rows, C and inner. `inner`: kernels of other strides too. */
static void arg_rows(clt_program *p, const clt_node *node, bool inner)
{
    clt_args_in(p, node->n_in);
    CLT_ARGS(p, CLT_OUT(0), CLT_LONG(clt_loss_positions(node, LABELS)),
             CLT_FIXED(clt_loss_classes(node)));
    if (inner)
        CLT_ARGS(p, CLT_FIXED(clt_loss_inner(node)));
}

static void emit_portable(const clt_node *node, const clt_target *target, clt_program *p)
{
    clt_launch_begin(p, "loss/portable/loss.cl", "cross_entropy_parts", "");
    arg_rows(p, node, true);
    CLT_ARGS(p, CLT_FIXED(((const clt_cross_entropy_parts_attr *)node->attr)->first),
             CLT_FIXED(kinds_of(node->attr)));
    clt_range_items(p, target, clt_loss_positions(node, LABELS));
}

static void emit_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    clt_rows_cpu_begin(p, target, "cross_entropy_parts");
    arg_rows(p, node, false);
    CLT_ARGS(p, CLT_FIXED(((const clt_cross_entropy_parts_attr *)node->attr)->first),
             CLT_FIXED(kinds_of(node->attr)));
    clt_rows_cpu_range(p, target, clt_loss_positions(node, LABELS), clt_loss_classes(node));
}

static void emit_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_rows_gpu rows = clt_rows_gpu_of(node, target, 1);
    clt_rows_gpu_begin(p, &rows, "loss/gpu/loss.cl", "cross_entropy_parts", "");
    clt_args_in(p, node->n_in);
    CLT_ARGS(p, CLT_OUT(0));
    clt_rows_gpu_args(p, &rows);
    CLT_ARGS(p, CLT_FIXED(((const clt_cross_entropy_parts_attr *)node->attr)->first),
             CLT_FIXED(kinds_of(node->attr)));
    clt_rows_gpu_range(p, &rows);
}

static void emit_grad_portable(const clt_node *node, const clt_target *target, clt_program *p)
{
    clt_launch_begin(p, "loss/portable/loss.cl", "cross_entropy_parts_grad", "");
    arg_rows(p, node, true);
    arg_classes(p, node);
    CLT_ARGS(p, CLT_FIXED(kinds_of(node->attr)));
    arg_loss(p, node);
    clt_range_items(p, target, clt_loss_positions(node, LABELS));
}

static void emit_grad_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    clt_rows_cpu_begin(p, target, "cross_entropy_parts_grad");
    arg_rows(p, node, false);
    arg_classes(p, node);
    CLT_ARGS(p, CLT_FIXED(kinds_of(node->attr)));
    arg_loss(p, node);
    clt_rows_cpu_range(p, target, clt_loss_positions(node, LABELS), clt_loss_classes(node));
}

static void emit_grad_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_rows_gpu rows = clt_rows_gpu_of(node, target, 1);
    clt_rows_gpu_begin(p, &rows, "loss/gpu/loss.cl", "cross_entropy_parts_grad", "");
    clt_args_in(p, node->n_in);
    CLT_ARGS(p, CLT_OUT(0));
    clt_rows_gpu_args(p, &rows);
    arg_classes(p, node);
    CLT_ARGS(p, CLT_FIXED(kinds_of(node->attr)));
    arg_loss(p, node);
    clt_rows_gpu_range(p, &rows);
}

static void emit_of_parts(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_cross_entropy_parts_attr *attr = node->attr;
    const clt_extent positions = clt_loss_positions(node, 1);
    const int64_t parts = clt_loss_parts(target, positions);
    const int sums = clt_loss_scratch(p, parts), counts = clt_loss_scratch(p, parts);
    clt_launch_begin(p, "loss/portable/loss.cl", "cross_entropy_of_parts", "");
    CLT_ARGS(p, CLT_IN(0), CLT_IN(1), CLT_SCRATCH(sums), CLT_SCRATCH(counts), CLT_LONG(positions),
             CLT_FIXED(attr->classes), CLT_FIXED(kinds_of(attr)));
    arg_loss(p, node);
    CLT_ARGS(p, CLT_FIXED(parts));
    clt_range_items(p, target, clt_fixed(parts));
    clt_loss_total(p, target, sums, counts, parts);
}

static bool accepts_cpu(const clt_node *node, const clt_target *target, char *why)
{
    return clt_rows_cpu_accepts(node, target, 1, why);
}

static bool accepts_gpu(const clt_node *node, const clt_target *target, char *why)
{
    return clt_rows_gpu_accepts(node, target, 1, why);
}

/* Only logits and their gradient may be stored in 16 bits. */
static bool half(const clt_node *node, const clt_target *target, int index, bool output)
{
    (void)target;
    return output ? node->op == &clt_op_cross_entropy_parts_grad : index == LOGITS;
}

static const clt_attribute attributes[] = {
    {CLT_ATTRIBUTE(REAL, "label_smoothing", clt_cross_entropy_parts_attr, loss.label_smoothing,
                   "The part of the target that is spread evenly over all classes."),
     .most = 1},
    {CLT_ATTRIBUTE(INT, "ignore_index", clt_cross_entropy_parts_attr, loss.ignore_index,
                   "Labels of this value do not count."),
     .least = INT_MIN, .most = INT_MAX, .default_value = -100},
    {CLT_ATTRIBUTE(INT, "first", clt_cross_entropy_parts_attr, first, "The first class here."),
     .most = INT_MAX, .untuned = 1},
    {CLT_ATTRIBUTE(INT, "classes", clt_cross_entropy_parts_attr, classes, "The number of classes."),
     .least = 1, .most = INT_MAX, .default_value = 1, .untuned = 1},
    {0},
};

/* --- operators ------------------------------------------------------------------------------- */

const clt_op clt_op_cross_entropy_parts = {
    .name = "cross_entropy_parts",
    .doc = "For each label, what the classes here add to its cross entropy.",
    .operands = "logits pc*, labels p* i32, largest p*",
    .results = "parts p*k",
    .whole = "ck",
    .attributes = attributes,
    .attr_bytes = sizeof(clt_cross_entropy_parts_attr),
    .infer = infer,
    .describe = describe,
    .flops = flops,
    .rounding = CLT_ROUNDS_NONE,
    .half = half,
    CLT_VARIANTS({"rows_cpu", accepts_cpu, emit_cpu}, {"rows_gpu", accepts_gpu, emit_gpu},
                 {"portable", clt_accepts_plain, emit_portable}),
};

const clt_op clt_op_cross_entropy_of_parts = {
    .name = "cross_entropy_of_parts",
    .doc = "The sum and the weight of cross_entropy, from the parts of all classes.",
    .operands = "parts p*k, labels p* i32",
    .results = "sum 1, weight 1",
    .whole = "k",
    .attributes = attributes,
    .attr_bytes = sizeof(clt_cross_entropy_parts_attr),
    .infer = infer_of_parts,
    .describe = describe,
    .flops = clt_flops_operand,
    .rounding = CLT_ROUNDS_NONE,
    CLT_VARIANTS({"portable", clt_accepts_plain, emit_of_parts}),
};

const clt_op clt_op_cross_entropy_parts_grad = {
    .name = "cross_entropy_parts_grad",
    .doc = "The gradient of cross_entropy for the classes here.",
    .operands = "logits pc*, labels p* i32, largest p*, parts p*k, upstream 1",
    .results = "dlogits pc*",
    .whole = "ck",
    .attributes = attributes,
    .attr_bytes = sizeof(clt_cross_entropy_parts_attr),
    .infer = infer_grad,
    .describe = describe,
    .flops = flops,
    .in_place = 1u, /* a logit is read before it is overwritten, the label's one before all */
    .half = half,
    CLT_VARIANTS({"rows_cpu", accepts_cpu, emit_grad_cpu}, {"rows_gpu", accepts_gpu, emit_grad_gpu},
                 {"portable", clt_accepts_plain, emit_grad_portable}),
};

/* --- division -------------------------------------------------------------------------------- */

enum { STASH_LARGEST, STASH_PARTS };

/* `node` has all classes. */
static clt_status attr_of(const clt_node *node, const clt_node_part *part,
                          clt_cross_entropy_parts_attr *attr)
{
    const int classes = clt_loss_classes(node);
    if (part->label != 'c' - 'a' || part->blocks != 1)
        return clt_fail(CLT_SHAPE, "node %s: %d classes in %d blocks cannot be divided", node->name,
                        classes, part->blocks);
    *attr = (clt_cross_entropy_parts_attr){
        .loss = *(const clt_cross_entropy_attr *)node->attr,
        .first = (int)clt_part_begin(classes, part->at.places, part->at.place),
        .classes = classes};
    return CLT_OK;
}

clt_status clt_cross_entropy_divide(const clt_node *node, const clt_node_part *part,
                                    clt_value *const *in, clt_value **stash, clt_value **out)
{
    const int axis = 1;
    clt_cross_entropy_parts_attr attr;
    CLT_TRY(attr_of(node, part, &attr));
    clt_value *largest = clt_reduce_max(in[LOGITS], &axis, 1, 0);
    largest = clt_axis_all_reduce(largest, part->axis, CLT_AXIS_MAX);
    clt_value *parts =
        clt_emit1(&clt_op_cross_entropy_parts, &attr, 3, in[LOGITS], in[LABELS], largest);
    parts = clt_axis_all_reduce(parts, part->axis, CLT_AXIS_SUM);
    stash[STASH_LARGEST] = largest;
    stash[STASH_PARTS] = parts;
    clt_value *const of[] = {parts, in[LABELS]};
    const clt_node *sum =
        parts ? clt_graph_add(parts->graph, &clt_op_cross_entropy_of_parts, of, 2, &attr) : NULL;
    for (int i = 0; sum && i < 2; i++)
        out[i] = sum->out[i];
    return clt_graph_status(in[LOGITS]->graph);
}

clt_status clt_cross_entropy_grad_divide(const clt_node *node, const clt_node_part *part,
                                         clt_value *const *in, clt_value **stash, clt_value **out)
{
    clt_cross_entropy_parts_attr attr;
    CLT_TRY(attr_of(node, part, &attr));
    if (!stash[STASH_PARTS])
        return clt_fail(CLT_INTERNAL, "node %s: its loss was not divided", node->name);
    out[0] = clt_emit1(&clt_op_cross_entropy_parts_grad, &attr, 5, in[0], in[1],
                       stash[STASH_LARGEST], stash[STASH_PARTS], in[2]);
    return clt_graph_status(in[0]->graph);
}
