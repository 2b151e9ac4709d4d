/* cross_entropy: softmax and negative log-likelihood of integer labels, and its gradient. */
#include "base/error.h"
#include "ops/loss/class_weights.h"
#include "ops/loss/cross_entropy_parts.h"
#include "ops/loss/loss.h"
#include "ops/core/ops.h"
#include "ops/reduce/rows_cpu.h"
#include "ops/reduce/rows_gpu.h"

static clt_status infer(const clt_node *node, clt_type *out)
{
    CLT_TRY(clt_check_labels(node, 0, 1));
    out[0] = out[1] = clt_scalar_type();
    return CLT_OK;
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    if (wanted[0] && dy[0])
        dx[0] =
            clt_emit1(&clt_op_cross_entropy_grad, node->attr, 3, node->in[0], node->in[1], dy[0]);
    return clt_graph_status(node->graph);
}

static void describe(const clt_node *node, clt_str *text)
{
    const clt_cross_entropy_attr *attr = node->attr;
    clt_str_add(text, "%d classes", clt_loss_classes(node));
    if (attr->label_smoothing > 0)
        clt_str_add(text, ", smoothing %g", attr->label_smoothing);
    clt_str_add(text, ", ignore %d", attr->ignore_index);
}

const clt_value *clt_loss_targets(const clt_mean *loss, int *ignored)
{
    const clt_node *node = loss->weight->producer;
    if (!node || node->op != &clt_op_cross_entropy)
        return NULL;
    const clt_value *labels = clt_value_root(node->in[1]);
    *ignored = ((const clt_cross_entropy_attr *)node->attr)->ignore_index;
    return labels->kind == CLT_VALUE_INPUT ? labels : NULL;
}

/* An exponential, a subtraction, a comparison and an addition for each logit. */
static double flops(const clt_node *node, int64_t n)
{
    return 4.0 * (double)clt_type_elements(&node->in[0]->type, n);
}

/* The attribute as arguments of the kernels. */
#define ATTR(node)                                                                                 \
    CLT_FLOAT(((const clt_cross_entropy_attr *)(node)->attr)->label_smoothing),                    \
        CLT_FIXED(((const clt_cross_entropy_attr *)(node)->attr)->ignore_index)

static void emit_portable(const clt_node *node, const clt_target *target, clt_program *program)
{
    const int64_t parts = clt_loss_parts(target, clt_loss_positions(node, 1));
    const int sums = clt_loss_scratch(program, parts), counts = clt_loss_scratch(program, parts);
    clt_launch_begin(program, "loss/portable/loss.cl", "cross_entropy", "");
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1), CLT_SCRATCH(sums), CLT_SCRATCH(counts),
             CLT_LONG(clt_loss_positions(node, 1)), CLT_FIXED(clt_loss_classes(node)),
             CLT_FIXED(clt_loss_inner(node)), ATTR(node), CLT_FIXED(parts));
    clt_range_items(program, target, clt_fixed(parts));
    clt_loss_total(program, target, sums, counts, parts);
}

static void emit_blocks(const clt_node *node, const clt_target *target, clt_program *program)
{
    const int64_t parts = clt_loss_parts_of_blocks(target);
    const int sums = clt_loss_scratch(program, parts), counts = clt_loss_scratch(program, parts);
    clt_loss_begin_blocks(program, node, target, "clt_batch_blocked_cross_entropy");
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1), CLT_SCRATCH(sums), CLT_SCRATCH(counts),
             clt_loss_samples(node), CLT_FIXED(clt_loss_classes(node)), ATTR(node),
             CLT_FIXED(parts));
    clt_range1(program, clt_fixed(parts), 1);
    clt_loss_total(program, target, sums, counts, parts);
}

static bool accepts_rows(const clt_node *node, const clt_target *target, char *why)
{
    return clt_rows_cpu_accepts(node, target, 1, why);
}

static void emit_rows(const clt_node *node, const clt_target *target, clt_program *program)
{
    const clt_extent rows = clt_loss_positions(node, 1);
    const int64_t share = clt_rows_cpu_share(target, rows, clt_loss_classes(node));
    const int64_t parts = clt_loss_parts(target, clt_extent_ceil(rows, share, 1));
    const int sums = clt_loss_scratch(program, parts), counts = clt_loss_scratch(program, parts);
    clt_rows_cpu_begin(program, target, "cross_entropy");
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1), CLT_SCRATCH(sums), CLT_SCRATCH(counts),
             CLT_LONG(clt_loss_positions(node, 1)), CLT_FIXED(clt_loss_classes(node)), ATTR(node),
             CLT_FIXED(parts));
    clt_range1(program, clt_fixed(parts), 1);
    clt_loss_total(program, target, sums, counts, parts);
}

static bool accepts_gpu(const clt_node *node, const clt_target *target, char *why)
{
    return clt_rows_gpu_accepts(node, target, 1, why);
}

static bool accepts_subgroups(const clt_node *node, const clt_target *target, char *why)
{
    return clt_rows_gpu_subgroups_accepts(node, target, 1, why);
}

static void emit_rows_gpu(const clt_node *node, const clt_target *target, clt_program *program,
                          bool subgroups)
{
    clt_rows_gpu rows = clt_rows_gpu_of(node, target, 1);
    rows.subgroups = subgroups;
    const int64_t parts = clt_rows_gpu_parts(&rows, target);
    const int sums = clt_loss_scratch(program, parts), counts = clt_loss_scratch(program, parts);
    clt_rows_gpu_begin(program, &rows, "loss/gpu/loss.cl", "cross_entropy", "");
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1), CLT_SCRATCH(sums), CLT_SCRATCH(counts));
    clt_rows_gpu_args(program, &rows);
    CLT_ARGS(program, ATTR(node));
    clt_range1(program, clt_fixed(parts * rows.group), rows.group);
    clt_loss_total_gpu(program, sums, counts, parts);
}

static void emit_gpu(const clt_node *node, const clt_target *target, clt_program *program)
{
    emit_rows_gpu(node, target, program, false);
}

static void emit_subgroups(const clt_node *node, const clt_target *target, clt_program *program)
{
    emit_rows_gpu(node, target, program, true);
}

static const clt_attribute attributes[] = {
    {CLT_ATTRIBUTE(REAL, "label_smoothing", clt_cross_entropy_attr, label_smoothing,
                   "The part of the target that is spread evenly over all classes."),
     .most = 1},
    {CLT_ATTRIBUTE(INT, "ignore_index", clt_cross_entropy_attr, ignore_index,
                   "Labels of this value do not count."),
     .least = INT_MIN, .most = INT_MAX, .default_value = -100},
    {0},
};

const clt_op clt_op_cross_entropy = {
    .name = "cross_entropy",
    .doc = "Sum of the cross entropies of softmax(logits) over axis 1 and the labels; weight: the "
           "number of labels that are not ignored.",
    .operands = "logits pc*, labels p* i32",
    .results = "sum 1, weight 1",
    .whole = "c",
    .callable = true,
    .attributes = attributes,
    .attr_bytes = sizeof(clt_cross_entropy_attr),
    .infer = infer,
    .gradient = gradient,
    .divide = clt_cross_entropy_divide,
    .describe = describe,
    .flops = flops,
    .batch_blocked = clt_loss_batch_blocked,
    .half = clt_half_all,
    CLT_VARIANTS({"batch_blocked", clt_accepts_batch_blocked, emit_blocks, NULL, CLT_BATCH_BLOCKED},
                 {"few_classes_cpu", clt_loss_accepts_few_classes, emit_blocks},
                 {"rows_cpu", accepts_rows, emit_rows}, {"rows_gpu", accepts_gpu, emit_gpu},
                 {"rows_gpu_subgroups", accepts_subgroups, emit_subgroups},
                 {"portable", clt_accepts_plain, emit_portable}),
};

void clt_cross_entropy_options_init(clt_cross_entropy_options *options)
{
    clt_cross_entropy_attr attr;
    clt_attributes_init(&clt_op_cross_entropy, &attr);
    *options =
        (clt_cross_entropy_options){sizeof *options, attr.label_smoothing, attr.ignore_index, NULL};
}

clt_status clt_cross_entropy(clt_value *logits, clt_value *labels,
                             const clt_cross_entropy_options *options, clt_value **sum,
                             clt_value **weight)
{
    clt_cross_entropy_options own;
    *sum = *weight = NULL;
    clt_cross_entropy_options_init(&own);
    const clt_status status = clt_options_read("cross_entropy", &own, sizeof own, options);
    if (status != CLT_OK) {
        clt_graph_failed(logits ? logits->graph : NULL, status);
        return status;
    }
    if (own.class_weights && logits && labels)
        return clt_cross_entropy_weighted(logits, labels, &own, sum, weight);
    const clt_cross_entropy_attr attr = {.label_smoothing = own.label_smoothing,
                                         .ignore_index = own.ignore_index};
    return clt_loss_emit(&clt_op_cross_entropy, &attr, logits, labels, sum, weight);
}

/* --- cross_entropy_grad --------------------------------------------------------------------- */

static clt_status infer_grad(const clt_node *node, clt_type *out)
{
    CLT_TRY(clt_check_labels(node, 0, 1));
    char text[CLT_TYPE_TEXT];
    const clt_type scalar = clt_scalar_type();
    if (!clt_type_equal(&node->in[2]->type, &scalar))
        return clt_fail(CLT_SHAPE, "cross_entropy_grad: the upstream gradient is %s, not f32[1]",
                        clt_operand_text(node, 2, text));
    out[0] = node->in[0]->type;
    return CLT_OK;
}

static void emit_grad_portable(const clt_node *node, const clt_target *target, clt_program *program)
{
    clt_launch_begin(program, "loss/portable/loss.cl", "cross_entropy_grad", "");
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1), CLT_IN(2), CLT_OUT(0),
             CLT_LONG(clt_loss_positions(node, 1)), CLT_FIXED(clt_loss_classes(node)),
             CLT_FIXED(clt_loss_inner(node)), ATTR(node));
    clt_range_items(program, target, clt_loss_positions(node, 1));
}

static void emit_grad_blocks(const clt_node *node, const clt_target *target, clt_program *program)
{
    clt_loss_begin_blocks(program, node, target, "clt_batch_blocked_cross_entropy_grad");
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1), CLT_IN(2), CLT_OUT(0), clt_loss_samples(node),
             CLT_FIXED(clt_loss_classes(node)), ATTR(node));
    clt_range1(program, clt_loss_blocks(node, target), 1);
}

static void emit_grad_rows(const clt_node *node, const clt_target *target, clt_program *program)
{
    clt_rows_cpu_begin(program, target, "cross_entropy_grad");
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1), CLT_IN(2), CLT_OUT(0),
             CLT_LONG(clt_loss_positions(node, 1)), CLT_FIXED(clt_loss_classes(node)), ATTR(node));
    clt_rows_cpu_range(program, target, clt_loss_positions(node, 1), clt_loss_classes(node));
}

static void emit_grad_rows_gpu(const clt_node *node, const clt_target *target, clt_program *program,
                               bool subgroups)
{
    clt_rows_gpu rows = clt_rows_gpu_of(node, target, 1);
    rows.subgroups = subgroups;
    clt_rows_gpu_begin(program, &rows, "loss/gpu/loss.cl", "cross_entropy_grad", "");
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1), CLT_IN(2), CLT_OUT(0));
    clt_rows_gpu_args(program, &rows);
    CLT_ARGS(program, ATTR(node));
    clt_rows_gpu_range(program, &rows);
}

static void emit_grad_gpu(const clt_node *node, const clt_target *target, clt_program *program)
{
    emit_grad_rows_gpu(node, target, program, false);
}

static void emit_grad_subgroups(const clt_node *node, const clt_target *target,
                                clt_program *program)
{
    emit_grad_rows_gpu(node, target, program, true);
}

const clt_op clt_op_cross_entropy_grad = {
    .name = "cross_entropy_grad",
    .doc = "The gradient of cross_entropy.",
    .operands = "logits pc*, labels p* i32, upstream 1",
    .results = "dlogits pc*",
    .whole = "c",
    .attributes = attributes,
    .attr_bytes = sizeof(clt_cross_entropy_attr),
    .infer = infer_grad,
    .divide = clt_cross_entropy_grad_divide,
    .describe = describe,
    .flops = flops,
    .batch_blocked = clt_loss_batch_blocked,
    .in_place = 1u, /* a row is read completely before its first element is written */
    .half = clt_half_all,
    CLT_VARIANTS(
        {"batch_blocked", clt_accepts_batch_blocked, emit_grad_blocks, NULL, CLT_BATCH_BLOCKED},
        {"few_classes_cpu", clt_loss_accepts_few_classes, emit_grad_blocks},
        {"rows_cpu", accepts_rows, emit_grad_rows}, {"rows_gpu", accepts_gpu, emit_grad_gpu},
        {"rows_gpu_subgroups", accepts_subgroups, emit_grad_subgroups},
        {"portable", clt_accepts_plain, emit_grad_portable}),
};
