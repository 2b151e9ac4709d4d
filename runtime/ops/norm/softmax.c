/* softmax (exponentials that sum to one over an axis), log_softmax (their logarithms) and the
 * gradients. The operands of the four are x, or y and dy. Operands and result have one type. */
#include <limits.h>

#include "base/error.h"
#include "ops/collective/collective.h"
#include "ops/core/nn.h"
#include "ops/core/ops.h"
#include "ops/reduce/rows_cpu.h"
#include "ops/reduce/rows_gpu.h"
#include "ops/elementwise/elementwise.h"
#include <cltrain/ops.h>

static clt_status infer(const clt_node *node, clt_type *out)
{
    const clt_softmax_attr *attr = node->attr;
    const clt_type *x = &node->in[0]->type;
    char tx[CLT_TYPE_TEXT], ty[CLT_TYPE_TEXT];
    CLT_TRY(clt_check_f32(node, 0));
    clt_operand_text(node, 0, tx);
    if (attr->axis < 0 || attr->axis >= x->rank)
        return clt_fail(CLT_INVALID_ARGUMENT, "%s: %s has no axis %d", node->op->name, tx,
                        attr->axis);
    if (x->dims[attr->axis] < 0)
        return clt_fail(CLT_UNSUPPORTED, "%s: axis %d of %s depends on the batch", node->op->name,
                        attr->axis, tx);
    if (x->dims[attr->axis] > INT_MAX || clt_dims_product(x, attr->axis + 1, x->rank) > INT_MAX)
        return clt_fail(CLT_UNSUPPORTED, "%s: %s is too large from axis %d on", node->op->name, tx,
                        attr->axis);
    if (node->n_in > 1 && !clt_type_equal(x, &node->in[1]->type))
        return clt_fail(CLT_SHAPE, "%s: %s and %s differ", node->op->name, tx,
                        clt_operand_text(node, 1, ty));
    out[0] = *x;
    return CLT_OK;
}

static void describe(const clt_node *node, clt_str *text)
{
    const clt_softmax_attr *attr = node->attr;
    clt_str_add(text, "axis %d", attr->axis);
}

/* A subtraction, an exponential, an addition and a multiplication for each element. */
static double flops(const clt_node *node, int64_t n)
{
    return 4.0 * (double)clt_type_elements(&node->in[0]->type, n);
}

static bool is_log(const clt_node *node)
{
    return node->op == &clt_op_log_softmax || node->op == &clt_op_log_softmax_grad;
}

/* Both gradients read only the result, not x. */
static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    const clt_op *op = is_log(node) ? &clt_op_log_softmax_grad : &clt_op_softmax_grad;
    if (wanted[0])
        dx[0] = clt_emit1(op, node->attr, 2, node->out[0], dy[0]);
    return clt_graph_status(node->graph);
}

/* One work-item for each vector along the axis. */
static void emit_portable(const clt_node *node, const clt_target *target, clt_program *program)
{
    const clt_softmax_attr *attr = node->attr;
    const clt_type *x = &node->in[0]->type;
    clt_type vectors = *x;
    vectors.dims[attr->axis] = 1;
    clt_launch_begin(program, "norm/portable/softmax.cl",
                     node->n_in > 1 ? "softmax_grad" : "softmax", "");
    clt_args_in(program, node->n_in);
    CLT_ARGS(program, CLT_OUT(0), CLT_LONG(clt_extent_elements(&vectors)),
             CLT_FIXED(x->dims[attr->axis]),
             CLT_INT(clt_extent_dim(clt_dims_product(x, attr->axis + 1, x->rank))),
             CLT_FIXED(is_log(node)));
    clt_range_items(program, target, clt_extent_elements(&vectors));
}

static bool accepts_rows(const clt_node *node, const clt_target *target, char *why)
{
    const clt_softmax_attr *attr = node->attr;
    return clt_rows_cpu_accepts(node, target, attr->axis, why);
}

static void emit_rows(const clt_node *node, const clt_target *target, clt_program *program)
{
    const clt_softmax_attr *attr = node->attr;
    const clt_type *x = &node->in[0]->type;
    const int64_t columns = x->dims[attr->axis];
    clt_rows_cpu_begin(program, target, node->n_in > 1 ? "softmax_grad" : "softmax");
    clt_args_in(program, node->n_in);
    CLT_ARGS(program, CLT_OUT(0));
    const clt_extent rows = clt_extent_dim(clt_dims_product(x, 0, attr->axis));
    CLT_ARGS(program, CLT_LONG(rows), CLT_FIXED(columns), CLT_FIXED(is_log(node)));
    clt_rows_cpu_range(program, target, rows, columns);
}

/* For an axis whose elements are not neighbours, but where vectors of several rows are. */
static bool accepts_columns(const clt_node *node, const clt_target *target, char *why)
{
    const clt_softmax_attr *attr = node->attr;
    const clt_type *x = &node->in[0]->type;
    const int width = target->caps->vector_width;
    const int64_t inner = clt_dim(clt_dims_product(x, attr->axis + 1, x->rank), target->max_batch);
    if (!clt_accepts_cpu_vectors(node, target, why) || !clt_accepts_f32(node, why))
        return false;
    if (inner < width)
        return clt_decline(why, "%lld neighbours", (long long)inner);
    return true;
}

static void emit_columns(const clt_node *node, const clt_target *target, clt_program *program)
{
    enum { VECTORS = 4 }; /* vectors of a work-item, as in the kernel file */
    const clt_softmax_attr *attr = node->attr;
    const clt_type *x = &node->in[0]->type;
    const clt_extent inner = clt_extent_dim(clt_dims_product(x, attr->axis + 1, x->rank));
    const int width = target->caps->vector_width;
    clt_launch_begin(program, "norm/cpu/softmax.cl", node->n_in > 1 ? "softmax_grad" : "softmax",
                     "-DVW=%d", width);
    clt_args_in(program, node->n_in);
    CLT_ARGS(program, CLT_OUT(0), CLT_FIXED(x->dims[attr->axis]), CLT_INT(inner),
             CLT_FIXED(is_log(node)));
    clt_range3(program, clt_extent_ceil(inner, VECTORS * width, 1),
               clt_extent_dim(clt_dims_product(x, 0, attr->axis)), clt_fixed(1), 1, 1, 1);
}

static bool accepts_gpu(const clt_node *node, const clt_target *target, char *why)
{
    const clt_softmax_attr *attr = node->attr;
    return clt_rows_gpu_accepts(node, target, attr->axis, why);
}

static bool accepts_subgroups(const clt_node *node, const clt_target *target, char *why)
{
    const clt_softmax_attr *attr = node->attr;
    return clt_rows_gpu_subgroups_accepts(node, target, attr->axis, why);
}

static void emit_rows_gpu(const clt_node *node, const clt_target *target, clt_program *program,
                          bool subgroups)
{
    const clt_softmax_attr *attr = node->attr;
    clt_rows_gpu rows = clt_rows_gpu_of(node, target, attr->axis);
    rows.subgroups = subgroups;
    clt_rows_gpu_begin(program, &rows, "norm/gpu/softmax.cl",
                       node->n_in > 1 ? "softmax_grad" : "softmax",
                       is_log(node) ? "-DLOG=1 " : "-DLOG=0 ");
    clt_args_in(program, node->n_in);
    CLT_ARGS(program, CLT_OUT(0));
    clt_rows_gpu_args(program, &rows);
    clt_rows_gpu_range(program, &rows);
}

static void emit_gpu(const clt_node *node, const clt_target *target, clt_program *program)
{
    emit_rows_gpu(node, target, program, false);
}

static void emit_subgroups(const clt_node *node, const clt_target *target, clt_program *program)
{
    emit_rows_gpu(node, target, program, true);
}

static const clt_variant variants[] = {
    {"rows_cpu", accepts_rows, emit_rows},
    {"columns_cpu", accepts_columns, emit_columns},
    {"rows_gpu", accepts_gpu, emit_gpu},
    {"rows_gpu_subgroups", accepts_subgroups, emit_subgroups},
    {"portable", NULL, emit_portable},
    {0},
};

static clt_value *build(const clt_op *op, clt_value *x, int axis)
{
    const clt_softmax_attr attr = {x && axis < 0 ? axis + x->type.rank : axis};
    return clt_emit1(op, &attr, 1, x);
}

static void apply(const clt_op_call *c)
{
    c->out[0] = build(c->op, c->in[0], ((const clt_softmax_attr *)c->attr)->axis);
}

/* --- division along the axis ----------------------------------------------------------------- */

static clt_value *sum_of(clt_value *x, int axis, const clt_node_part *part)
{
    return clt_axis_all_reduce(clt_reduce_sum(x, &axis, 1, 1), part->axis, CLT_AXIS_SUM);
}

/* The places exchange the largest element and the sum of exponentials of each vector. */
static clt_status divide(const clt_node *node, const clt_node_part *part, clt_value *const *in,
                         clt_value **stash, clt_value **out)
{
    const int axis = ((const clt_softmax_attr *)node->attr)->axis;
    clt_value *largest = clt_reduce_max(in[0], &axis, 1, 1);
    (void)stash;
    largest = clt_axis_all_reduce(largest, part->axis, CLT_AXIS_MAX);
    clt_value *x = clt_sub(in[0], largest), *exps = clt_exp(x);
    clt_value *sum = sum_of(exps, axis, part);
    out[0] = is_log(node) ? clt_sub(x, clt_ln(sum)) : clt_div(exps, sum);
    return clt_graph_status(in[0]->graph);
}

/* softmax: y (dy - sum of y dy). log softmax: dy - exp(y) * sum of dy. */
static clt_status divide_grad(const clt_node *node, const clt_node_part *part, clt_value *const *in,
                              clt_value **stash, clt_value **out)
{
    const int axis = ((const clt_softmax_attr *)node->attr)->axis;
    clt_value *y = in[0], *dy = in[1];
    (void)stash;
    if (is_log(node))
        out[0] = clt_sub(dy, clt_mul(clt_exp(y), sum_of(dy, axis, part)));
    else
        out[0] = clt_mul(y, clt_sub(dy, sum_of(clt_mul(y, dy), axis, part)));
    return clt_graph_status(y->graph);
}

static const clt_attribute attributes[] = {
    {CLT_ATTRIBUTE(INT, "axis", clt_softmax_attr, axis,
                   "The axis; negative ones count from the end."),
     .least = -CLT_MAX_RANK, .most = CLT_MAX_RANK - 1, .default_value = -1},
    {0},
};
static const char in_x[] = "x *", in_y_dy[] = "y *, dy *";

#define SOFTMAX_OP(NAME, DOC, OPERANDS, RESULT, CALLABLE, GRADIENT, ROUNDING, DIVIDE)              \
    const clt_op clt_op_##NAME = {                                                                 \
        .name = #NAME,                                                                             \
        .doc = DOC,                                                                                \
        .operands = OPERANDS,                                                                      \
        .results = RESULT,                                                                         \
        .attributes = attributes,                                                                  \
        .by_node = "*",                                                                            \
        .dims = clt_dims_axis,                                                                     \
        .callable = CALLABLE,                                                                      \
        .build = CALLABLE ? apply : NULL,                                                          \
                                                                                                   \
        .attr_bytes = sizeof(clt_softmax_attr),                                                    \
        .infer = infer,                                                                            \
        .gradient = GRADIENT,                                                                      \
        .divide = DIVIDE,                                                                          \
        .describe = describe,                                                                      \
        .flops = flops,                                                                            \
        .rounding = ROUNDING,                                                                      \
        .half = clt_half_all,                                                                      \
        .variants = variants,                                                                      \
    }

SOFTMAX_OP(softmax, "exp(x) / the sum of exp(x) over an axis.", in_x, "y *", true, gradient,
           CLT_ROUNDS_FIRST, divide);
SOFTMAX_OP(softmax_grad, "The gradient of softmax.", in_y_dy, "y *", false, NULL, CLT_ROUNDS_FIRST,
           divide_grad);
SOFTMAX_OP(log_softmax, "The logarithm of softmax.", in_x, "y *", true, gradient, CLT_ROUNDS_NONE,
           divide);
SOFTMAX_OP(log_softmax_grad, "The gradient of log_softmax.", in_y_dy, "y *", false, NULL,
           CLT_ROUNDS_FIRST, divide_grad);

clt_value *clt_softmax(clt_value *x, int axis)
{
    return build(&clt_op_softmax, x, axis);
}

clt_value *clt_log_softmax(clt_value *x, int axis)
{
    return build(&clt_op_log_softmax, x, axis);
}
