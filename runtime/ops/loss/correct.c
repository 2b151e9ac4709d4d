/* correct: counts the labels that are among the k largest logits. It is a metric without a
 * gradient. */
#include "base/error.h"
#include "ops/loss/correct_parts.h"
#include "ops/loss/loss.h"
#include "ops/core/ops.h"
#include "ops/reduce/rows_gpu.h"

static clt_status infer(const clt_node *node, clt_type *out)
{
    const clt_correct_attr *attr = node->attr;
    CLT_TRY(clt_check_labels(node, 0, 1));
    if (attr->k < 1 || attr->k > clt_loss_classes(node))
        return clt_fail(CLT_INVALID_ARGUMENT, "correct: k is %d, not between 1 and the %d classes",
                        attr->k, clt_loss_classes(node));
    out[0] = out[1] = clt_scalar_type();
    return CLT_OK;
}

static void describe(const clt_node *node, clt_str *text)
{
    const clt_correct_attr *attr = node->attr;
    clt_str_add(text, "top %d of %d, ignore %d", attr->k, clt_loss_classes(node),
                attr->ignore_index);
}

static void emit_portable(const clt_node *node, const clt_target *target, clt_program *program)
{
    const clt_correct_attr *attr = node->attr;
    const int64_t parts = clt_loss_parts(target, clt_loss_positions(node, 1));
    const int sums = clt_loss_scratch(program, parts), counts = clt_loss_scratch(program, parts);
    clt_launch_begin(program, "loss/portable/loss.cl", "correct", "");
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1), CLT_SCRATCH(sums), CLT_SCRATCH(counts),
             CLT_LONG(clt_loss_positions(node, 1)), CLT_FIXED(clt_loss_classes(node)),
             CLT_FIXED(clt_loss_inner(node)), CLT_FIXED(attr->k), CLT_FIXED(attr->ignore_index),
             CLT_FIXED(parts));
    clt_range_items(program, target, clt_fixed(parts));
    clt_loss_total(program, target, sums, counts, parts);
}

static void emit_blocks(const clt_node *node, const clt_target *target, clt_program *program)
{
    const clt_correct_attr *attr = node->attr;
    const int64_t parts = clt_loss_parts_of_blocks(target);
    const int sums = clt_loss_scratch(program, parts), counts = clt_loss_scratch(program, parts);
    clt_loss_begin_blocks(program, node, target, "clt_batch_blocked_correct");
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1), CLT_SCRATCH(sums), CLT_SCRATCH(counts),
             clt_loss_samples(node), CLT_FIXED(clt_loss_classes(node)), CLT_FIXED(attr->k),
             CLT_FIXED(attr->ignore_index), CLT_FIXED(parts));
    clt_range1(program, clt_fixed(parts), 1);
    clt_loss_total(program, target, sums, counts, parts);
}

static bool accepts_gpu(const clt_node *node, const clt_target *target, char *why)
{
    return clt_rows_gpu_accepts(node, target, 1, why);
}

static void emit_gpu(const clt_node *node, const clt_target *target, clt_program *program)
{
    const clt_correct_attr *attr = node->attr;
    const clt_rows_gpu rows = clt_rows_gpu_of(node, target, 1);
    const int64_t parts = clt_rows_gpu_parts(&rows, target);
    const int sums = clt_loss_scratch(program, parts), counts = clt_loss_scratch(program, parts);
    clt_rows_gpu_begin(program, &rows, "loss/gpu/loss.cl", "correct", "");
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1), CLT_SCRATCH(sums), CLT_SCRATCH(counts));
    clt_rows_gpu_args(program, &rows);
    CLT_ARGS(program, CLT_FIXED(attr->k), CLT_FIXED(attr->ignore_index));
    clt_range1(program, clt_fixed(parts * rows.group), rows.group);
    clt_loss_total_gpu(program, sums, counts, parts);
}

const clt_op clt_op_correct = {
    .name = "correct",
    .doc = "Sum: how many labels are among the k largest logits; weight: how many labels are not "
           "ignored.",
    .operands = "logits pc*, labels p* i32",
    .results = "sum 1, weight 1",
    .whole = "c",
    .callable = true,
    CLT_ATTRIBUTES(clt_correct_attr,
                   {CLT_ATTRIBUTE(INT, "k", clt_correct_attr, k, "How many of the largest logits."),
                    .least = 1, .most = INT_MAX, .default_value = 1},
                   {CLT_ATTRIBUTE(INT, "ignore_index", clt_correct_attr, ignore_index,
                                  "Labels of this value do not count."),
                    .least = INT_MIN, .most = INT_MAX, .default_value = -100}),
    .infer = infer,
    .divide = clt_correct_divide,
    .describe = describe,
    .flops = clt_flops_operand,
    .batch_blocked = clt_loss_batch_blocked,
    .half = clt_half_all,
    CLT_VARIANTS({"batch_blocked", clt_accepts_batch_blocked, emit_blocks, NULL, CLT_BATCH_BLOCKED},
                 {"few_classes_cpu", clt_loss_accepts_few_classes, emit_blocks},
                 {"rows_gpu", accepts_gpu, emit_gpu},
                 {"portable", clt_accepts_plain, emit_portable}),
};

clt_status clt_correct(clt_value *logits, clt_value *labels, int k, int ignore_index,
                       clt_value **sum, clt_value **weight)
{
    const clt_correct_attr attr = {k, ignore_index};
    return clt_loss_emit(&clt_op_correct, &attr, logits, labels, sum, weight);
}
