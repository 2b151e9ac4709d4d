/* State of each sample: copies the rows of the batch out of the array of all samples, and back. */
#include <limits.h>

#include "base/error.h"
#include "ops/core/nn.h"
#include "ops/core/ops.h"
#include <cltrain/ops.h>

static clt_status check(const clt_node *node)
{
    const clt_type *all = &node->in[0]->type;
    char text[CLT_TYPE_TEXT];
    CLT_TRY(clt_check_f32(node, 0));
    if (all->rank < 1 || clt_type_has_batch(all) || clt_dims_product(all, 1, all->rank) > INT_MAX)
        return clt_fail(CLT_SHAPE, "%s: %s must be [N, ..], constant, for the largest batch N",
                        node->op->name, clt_operand_text(node, 0, text));
    return CLT_OK;
}

static clt_status infer(const clt_node *node, clt_type *out)
{
    CLT_TRY(check(node));
    *out = node->in[0]->type;
    out->dims[0] = CLT_BATCH;
    return CLT_OK;
}

static clt_status infer_put(const clt_node *node, clt_type *out)
{
    char all[CLT_TYPE_TEXT], rows[CLT_TYPE_TEXT];
    CLT_TRY(check(node));
    clt_type wanted = node->in[0]->type;
    wanted.dims[0] = CLT_BATCH;
    if (!clt_type_equal(&wanted, &node->in[1]->type))
        return clt_fail(CLT_SHAPE, "batch_rows_put: %s has no rows for %s",
                        clt_operand_text(node, 0, all), clt_operand_text(node, 1, rows));
    *out = node->in[0]->type;
    return CLT_OK;
}

static void emit(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_type *all = &node->in[0]->type;
    const int64_t row = clt_dims_product(all, 1, all->rank), v = row % 4 == 0 ? 4 : 1;
    const clt_extent count = clt_times_batch(row / v),
                     all_count = clt_fixed(all->dims[0] * row / v);
    clt_launch_begin(p, "index/portable/batch_rows.cl", node->op->name, "-DV=%d", (int)v);
    clt_args_in(p, node->n_in);
    CLT_ARGS(p, CLT_OUT(0), CLT_LONG(count), CLT_LONG(all_count), CLT_FIXED(row / v),
             CLT_RUN(CLT_RUN_SAMPLE));
    clt_range_items(p, target, node->n_in > 1 ? all_count : count);
}

static const clt_variant variants[] = {
    {"portable", NULL, emit},
    {0},
};

const clt_op clt_op_batch_rows = {
    .name = "batch_rows",
    .doc = "The rows of this batch's samples, by their position in the global batch.",
    .operands = "all n*",
    .results = "rows b*",
    .whole = "nb",
    .callable = true,
    .infer = infer,
    .flops = clt_no_flops,
    .variants = variants};

const clt_op clt_op_batch_rows_put = {
    .name = "batch_rows_put",
    .doc = "The tensor `all`, with the rows of this batch's samples replaced.",
    .operands = "all n*, rows b*",
    .results = "y n*",
    .whole = "nb",
    .callable = true,
    .infer = infer_put,
    .flops = clt_no_flops,
    .in_place = 1,
    .variants = variants};

clt_value *clt_batch_rows(clt_value *all)
{
    return clt_emit1(&clt_op_batch_rows, NULL, 1, all);
}

clt_value *clt_batch_rows_put(clt_value *all, clt_value *rows)
{
    return clt_emit1(&clt_op_batch_rows_put, NULL, 2, all, rows);
}
