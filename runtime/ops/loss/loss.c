#include "ops/loss/loss.h"

#include <limits.h>

#include "base/error.h"
#include "ops/core/group_gpu.h"
#include "ops/reduce/rows_cpu.h"

clt_status clt_check_labels(const clt_node *node, int logits, int labels)
{
    const clt_type *x = &node->in[logits]->type, *y = &node->in[labels]->type;
    char tx[CLT_TYPE_TEXT], ty[CLT_TYPE_TEXT];
    clt_operand_text(node, logits, tx);
    clt_operand_text(node, labels, ty);
    CLT_TRY(clt_check_f32(node, logits));
    if (y->dtype != CLT_I32)
        return clt_fail(CLT_INVALID_ARGUMENT, "%s: the labels must be i32, not %s", node->op->name,
                        ty);
    bool fits = x->rank >= 2 && y->rank == x->rank - 1 && x->dims[0] == y->dims[0];
    for (int i = 1; fits && i < y->rank; i++)
        fits = y->dims[i] == x->dims[i + 1];
    if (!fits)
        return clt_fail(CLT_SHAPE,
                        "%s: the labels %s do not fit the logits %s: [P, d..] for [P, C, d..]%s",
                        node->op->name, ty, tx,
                        x->rank > y->rank + 1 && x->dims[0] == y->dims[0]
                            ? ": a flatten is missing before the last linear layer, or before "
                              "this loss"
                            : "");
    return clt_check_image(node, logits, 1);
}

clt_type clt_scalar_type(void)
{
    return (clt_type){.dtype = CLT_F32, .rank = 1, .dims = {1}};
}

int clt_loss_classes(const clt_node *node)
{
    return (int)node->in[0]->type.dims[1];
}

int64_t clt_loss_inner(const clt_node *node)
{
    return clt_dims_product(&node->in[0]->type, 2, node->in[0]->type.rank);
}

clt_extent clt_loss_positions(const clt_node *node, int labels)
{
    return clt_extent_elements(&node->in[labels]->type);
}

int64_t clt_loss_parts(const clt_target *target, clt_extent elements)
{
    const int64_t most = clt_extent_at(elements, target->max_batch);
    return most > 4096 ? 4096 : most < 1 ? 1 : most;
}

int clt_loss_batch_blocked(const clt_node *node)
{
    const clt_value *logits = node->in[0];
    return logits->type.rank == 2 && clt_value_leads_with_batch(logits) ? CLT_BATCH_BLOCKED_FOLLOW
                                                                        : CLT_BATCH_BLOCKED_NO;
}

static bool is_batch_blocked(const clt_node *node)
{
    return node->in[0]->layout == CLT_LAYOUT_BATCH_BLOCKED;
}

bool clt_loss_accepts_few_classes(const clt_node *node, const clt_target *target, char *why)
{
    enum { FEW = 32 };
    if (!clt_rows_cpu_accepts(node, target, 1, why))
        return false;
    if (clt_loss_classes(node) > FEW)
        return clt_decline(why, "%d classes, more than %d", clt_loss_classes(node), FEW);
    if (clt_extent_at(clt_loss_positions(node, 1), target->max_batch) > INT_MAX)
        return clt_decline(why, "more labels than an int can count");
    return true;
}

void clt_loss_begin_blocks(clt_program *program, const clt_node *node, const clt_target *target,
                           const char *kernel)
{
    const char *file = "loss/batch_blocked/loss.cl";
    if (is_batch_blocked(node))
        clt_launch_begin(program, file, kernel, "-DLANES=%d", target->lanes);
    else
        clt_launch_begin(program, file, kernel, "-DLANES=%d -DCLASSES=%d",
                         target->caps->vector_width, clt_loss_classes(node));
}

clt_arg clt_loss_samples(const clt_node *node)
{
    return is_batch_blocked(node) ? CLT_RUN(CLT_RUN_COUNT) : CLT_INT(clt_loss_positions(node, 1));
}

clt_extent clt_loss_blocks(const clt_node *node, const clt_target *target)
{
    return is_batch_blocked(node)
               ? clt_extent_blocks(target)
               : clt_extent_ceil(clt_loss_positions(node, 1), target->caps->vector_width, 1);
}

int64_t clt_loss_parts_of_blocks(const clt_target *target)
{
    return 2 * (int64_t)target->caps->compute_units;
}

int clt_loss_scratch(clt_program *program, int64_t parts)
{
    return clt_scratch_add(program, clt_fixed(parts * (int64_t)sizeof(float)));
}

void clt_loss_total(clt_program *program, const clt_target *target, int sums, int counts,
                    int64_t parts)
{
    clt_launch_begin(program, "loss/portable/loss.cl", "loss_total", "");
    CLT_ARGS(program, CLT_SCRATCH(sums), CLT_SCRATCH(counts), CLT_OUT(0), CLT_OUT(1),
             CLT_FIXED(parts));
    clt_range_items(program, target, clt_fixed(1));
}

void clt_loss_total_gpu(clt_program *program, int sums, int counts, int64_t parts)
{
    clt_launch_begin(program, "loss/gpu/total.cl", "loss_total", "-DGROUP=%d -DV=1", CLT_GPU_GROUP);
    CLT_ARGS(program, CLT_SCRATCH(sums), CLT_SCRATCH(counts), CLT_OUT(0), CLT_OUT(1),
             CLT_FIXED(parts));
    clt_range1(program, clt_fixed(CLT_GPU_GROUP), CLT_GPU_GROUP);
}

clt_status clt_loss_emit(const clt_op *op, const void *attr, clt_value *a, clt_value *b,
                         clt_value **sum, clt_value **weight)
{
    clt_value *const in[] = {a, b};
    *sum = *weight = NULL;
    if (!a || !b) {
        clt_graph *graph = a ? a->graph : b ? b->graph : NULL;
        if (graph && graph->status != CLT_OK)
            return clt_graph_status(graph);
        return clt_fail(CLT_INVALID_ARGUMENT, "%s: an operand is NULL", op->name);
    }
    clt_node *node = clt_graph_add(a->graph, op, in, 2, attr);
    if (!node)
        return clt_graph_status(a->graph);
    *sum = node->out[0];
    *weight = node->out[1];
    return CLT_OK;
}
