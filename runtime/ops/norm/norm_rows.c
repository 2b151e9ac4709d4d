#include "ops/norm/norm_rows.h"

#include "base/error.h"
#include "ops/core/group_gpu.h"
#include "ops/core/nn.h"
#include "ops/core/ops.h"
#include "ops/reduce/rows_cpu.h"
#include "ops/reduce/rows_gpu.h"

/* Operands of a gradient. */
enum { X, DY, RSTD, MEAN, WEIGHT };

static bool is_rms(const clt_node *node)
{
    return node->op == &clt_op_rms_norm || node->op == &clt_op_rms_norm_grad;
}

static bool is_gradient(const clt_node *node)
{
    return node->op == &clt_op_layer_norm_grad || node->op == &clt_op_rms_norm_grad;
}

static bool has(const clt_node *node, int operand)
{
    return operand < node->n_in && node->in[operand];
}

static int first_axis(const clt_node *node)
{
    const clt_norm_rows_attr *attr = node->attr;
    return node->in[0]->type.rank - attr->axes;
}

static int64_t columns_of(const clt_node *node)
{
    const clt_type *x = &node->in[0]->type;
    return clt_dims_product(x, first_axis(node), x->rank);
}

static clt_extent rows_of(const clt_node *node)
{
    return clt_extent_dim(clt_dims_product(&node->in[0]->type, 0, first_axis(node)));
}

/* --- shapes --------------------------------------------------------------------------------- */

static clt_type rows_type(const clt_node *node)
{
    clt_type rows = node->in[0]->type;
    rows.rank = first_axis(node);
    if (!rows.rank) {
        rows.rank = 1;
        rows.dims[0] = 1;
    }
    return rows;
}

/* The type of weight and bias. */
static clt_type columns_type(const clt_node *node)
{
    const clt_type *x = &node->in[0]->type;
    clt_type columns = {.dtype = CLT_F32, .rank = x->rank - first_axis(node)};
    for (int i = 0; i < columns.rank; i++)
        columns.dims[i] = x->dims[first_axis(node) + i];
    return columns;
}

static clt_status check_affine(const clt_node *node, int operand, const char *what)
{
    char a[CLT_TYPE_TEXT], b[CLT_TYPE_TEXT], c[CLT_TYPE_TEXT];
    const clt_type wanted = columns_type(node);
    if (!has(node, operand) || clt_type_equal(&node->in[operand]->type, &wanted))
        return CLT_OK;
    return clt_fail(CLT_SHAPE, "%s: the %s %s does not fit %s: %s is needed", node->op->name, what,
                    clt_operand_text(node, operand, a), clt_operand_text(node, 0, b),
                    clt_type_text(&wanted, c));
}

clt_status clt_norm_rows_infer(const clt_node *node, clt_type *out)
{
    const clt_norm_rows_attr *attr = node->attr;
    const clt_type *x = &node->in[0]->type;
    char text[CLT_TYPE_TEXT];
    CLT_TRY(clt_check_f32(node, 0));
    if (attr->axes < 1 || attr->axes > x->rank)
        return clt_fail(CLT_INVALID_ARGUMENT, "%s: %s has no last %d axes", node->op->name,
                        clt_type_text(x, text), attr->axes);
    CLT_TRY(clt_check_image(node, 0, first_axis(node)));
    if (columns_of(node) < 1)
        return clt_fail(CLT_SHAPE, "%s: %s has no elements to normalise", node->op->name,
                        clt_type_text(x, text));
    CLT_TRY(check_affine(node, 1, "weight"));
    CLT_TRY(check_affine(node, 2, "bias"));
    out[0] = *x;
    out[1] = rows_type(node);
    if (!is_rms(node))
        out[2] = rows_type(node);
    return CLT_OK;
}

clt_status clt_norm_rows_infer_grad(const clt_node *node, clt_type *out)
{
    const clt_norm_rows_attr *attr = node->attr;
    const clt_type one = {.dtype = CLT_F32, .rank = 1, .dims = {1}};
    char a[CLT_TYPE_TEXT], b[CLT_TYPE_TEXT];
    if (!clt_type_equal(&node->in[X]->type, &node->in[DY]->type))
        return clt_fail(CLT_SHAPE, "%s: %s and %s differ", node->op->name,
                        clt_operand_text(node, X, a), clt_operand_text(node, DY, b));
    out[0] = node->in[X]->type;
    out[1] = attr->weight ? columns_type(node) : one;
    if (!is_rms(node))
        out[2] = attr->bias ? columns_type(node) : one;
    return CLT_OK;
}

clt_status clt_norm_rows_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                                  clt_value **dx)
{
    const clt_op *op = is_rms(node) ? &clt_op_rms_norm_grad : &clt_op_layer_norm_grad;
    clt_norm_rows_attr attr = *(const clt_norm_rows_attr *)node->attr;
    if (!dy[0])
        return CLT_OK;
    attr.weight = has(node, 1) && wanted[1];
    attr.bias = has(node, 2) && wanted[2];
    clt_value *const in[] = {node->in[0], dy[0], node->out[1], is_rms(node) ? NULL : node->out[2],
                             has(node, 1) ? node->in[1] : NULL};
    const clt_node *grad = clt_graph_add(node->graph, op, in, 5, &attr);
    if (!grad)
        return clt_graph_status(node->graph);
    dx[0] = grad->out[0];
    if (attr.weight)
        dx[1] = grad->out[1];
    if (attr.bias)
        dx[2] = grad->out[2];
    return CLT_OK;
}

void clt_norm_rows_describe(const clt_node *node, clt_str *text)
{
    const clt_norm_rows_attr *attr = node->attr;
    clt_str_add(text, "last %d, eps %g", attr->axes, attr->eps);
    if (is_gradient(node) && !attr->weight && !attr->bias)
        clt_str_add(text, ", dx only");
}

/* The forward computes the mean, squares and result. A gradient computes two sums, dx, and the sums
 * for weight and bias. */
double clt_norm_rows_flops(const clt_node *node, int64_t n)
{
    const double each = (is_gradient(node) ? 13 : 8) - (is_rms(node) ? 3 : 0);
    return each * (double)clt_type_elements(&node->in[0]->type, n);
}

/* --- launches ------------------------------------------------------------------------------- */

static void begin(clt_program *p, const clt_node *node, const char *file, const char *kernel,
                  const char *more)
{
    const clt_norm_rows_attr *attr = node->attr;
    clt_launch_begin(p, file, kernel, "%s-DRMS=%d -DWEIGHT=%d -DBIAS=%d -DDW=%d -DDB=%d", more,
                     is_rms(node), has(node, is_gradient(node) ? WEIGHT : 1),
                     !is_gradient(node) && has(node, 2), attr->weight, attr->bias);
}

static void arg_operands(clt_program *p, const clt_node *node, int last)
{
    for (int i = 0; i <= last; i++)
        if (has(node, i))
            CLT_ARGS(p, CLT_IN(i));
}

#define SIZES(node) CLT_LONG(rows_of(node)), CLT_FIXED(columns_of(node))

/* Adds operands and results of the forward's kernels, which are the same in all files. */
static void arg_forward(clt_program *p, const clt_node *node)
{
    const clt_norm_rows_attr *attr = node->attr;
    arg_operands(p, node, 2);
    for (int i = 0; i < node->n_out; i++)
        CLT_ARGS(p, CLT_OUT(i));
    CLT_ARGS(p, SIZES(node), CLT_FLOAT(attr->eps));
}

void clt_norm_sum_parts(clt_program *p, const clt_target *target, int block, int out, int64_t count,
                        int64_t stride, int64_t first, int64_t parts)
{
    clt_launch_begin(p, "norm/portable/norm.cl", "norm_sum_parts", "");
    CLT_ARGS(p, CLT_SCRATCH(block), CLT_OUT(out), CLT_FIXED(count), CLT_FIXED(stride),
             CLT_FIXED(first), CLT_FIXED(parts));
    clt_range_items(p, target, clt_fixed(count));
}

/* Adds scratch memory for partial sums. Each part has the sums for weight, then those for bias. */
static int add_parts(clt_program *p, const clt_node *node, int64_t parts)
{
    return clt_scratch_add(p, clt_fixed(parts * 2 * columns_of(node) * (int64_t)sizeof(float)));
}

static void sum_parts(clt_program *p, const clt_node *node, const clt_target *target, int block,
                      int64_t parts)
{
    const clt_norm_rows_attr *attr = node->attr;
    const int64_t columns = columns_of(node);
    if (attr->weight)
        clt_norm_sum_parts(p, target, block, 1, columns, 2 * columns, 0, parts);
    if (attr->bias)
        clt_norm_sum_parts(p, target, block, 2, columns, 2 * columns, columns, parts);
}

static bool wants_sums(const clt_node *node)
{
    const clt_norm_rows_attr *attr = node->attr;
    return attr->weight || attr->bias;
}

/* Number of shares of the rows: `wanted`, but at most one for each row. */
static int64_t parts_of(const clt_node *node, const clt_target *target, int64_t wanted)
{
    const int64_t rows = clt_extent_at(rows_of(node), target->max_batch);
    return rows < 1 ? 1 : rows < wanted ? rows : wanted;
}

/* --- portable ------------------------------------------------------------------------------- */

static void emit_portable(const clt_node *node, const clt_target *target, clt_program *p)
{
    begin(p, node, "norm/portable/norm.cl", "norm_rows", "");
    arg_forward(p, node);
    clt_range_items(p, target, rows_of(node));
}

static void emit_grad_portable(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { PARTS = 32 };
    const int64_t parts = parts_of(node, target, PARTS);
    begin(p, node, "norm/portable/norm.cl", "norm_rows_grad", "");
    arg_operands(p, node, WEIGHT);
    CLT_ARGS(p, CLT_OUT(0), SIZES(node));
    clt_range_items(p, target, rows_of(node));
    if (!wants_sums(node))
        return;
    const int block = add_parts(p, node, parts);
    begin(p, node, "norm/portable/norm.cl", "norm_columns_grad", "");
    arg_operands(p, node, MEAN);
    CLT_ARGS(p, CLT_SCRATCH(block), SIZES(node), CLT_FIXED(parts));
    clt_range_items(p, target, clt_fixed(parts * columns_of(node)));
    sum_parts(p, node, target, block, parts);
}

/* --- CPUs ----------------------------------------------------------------------------------- */

/* clt_accepts_cpu_vectors allows these widths only. */
static const char *vectors(const clt_target *target)
{
    const int width = target->caps->vector_width;
    return width == 4 ? "-DVW=4 " : width == 8 ? "-DVW=8 " : "-DVW=16 ";
}

static void emit_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    begin(p, node, "norm/cpu/norm.cl", "norm_rows", vectors(target));
    arg_forward(p, node);
    clt_rows_cpu_range(p, target, rows_of(node), columns_of(node));
}

static void emit_grad_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { ITEMS_A_UNIT = 4 };
    const int64_t units = target->caps->compute_units > 0 ? target->caps->compute_units : 1;
    const int64_t parts = parts_of(node, target, ITEMS_A_UNIT * units);
    const int block = wants_sums(node) ? add_parts(p, node, parts) : 0;
    begin(p, node, "norm/cpu/norm.cl", "norm_rows_grad", vectors(target));
    arg_operands(p, node, WEIGHT);
    CLT_ARGS(p, CLT_OUT(0));
    if (wants_sums(node))
        CLT_ARGS(p, CLT_SCRATCH(block));
    CLT_ARGS(p, SIZES(node), CLT_FIXED(parts));
    clt_range1(p, clt_fixed(parts), 1);
    if (wants_sums(node))
        sum_parts(p, node, target, block, parts);
}

/* --- GPUs ----------------------------------------------------------------------------------- */

static bool accepts_gpu(const clt_node *node, const clt_target *target, char *why)
{
    enum { MOST = 1 << 30 };
    if (!clt_gpu_group_accepts(node, target, why))
        return false;
    if (clt_extent_at(rows_of(node), target->max_batch) > MOST || columns_of(node) > MOST)
        return clt_decline(why, "more than %d rows or elements of one", MOST);
    return true;
}

static void begin_rows_gpu(clt_program *p, const clt_node *node, const clt_rows_gpu *rows,
                           const char *kernel)
{
    const clt_norm_rows_attr *attr = node->attr;
    clt_str more = {0};
    clt_str_add(&more, "-DRMS=%d -DWEIGHT=%d -DBIAS=%d -DDW=%d -DDB=%d ", is_rms(node),
                has(node, is_gradient(node) ? WEIGHT : 1), !is_gradient(node) && has(node, 2),
                attr->weight, attr->bias);
    clt_rows_gpu_begin(p, rows, "norm/gpu/norm.cl", kernel, clt_str_text(&more));
    clt_str_free(&more);
}

static void emit_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_rows_gpu rows = clt_rows_gpu_contiguous(rows_of(node), columns_of(node));
    (void)target;
    begin_rows_gpu(p, node, &rows, "norm_rows");
    arg_forward(p, node);
    clt_rows_gpu_range(p, &rows);
}

/* Work-groups have 32 columns x 8 rows. Each sums a share of the rows. */
static void emit_columns_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { COLUMNS = 32, LEAST_ROWS = 64 };
    const int64_t columns = columns_of(node), blocks = (columns + COLUMNS - 1) / COLUMNS;
    const int64_t rows = clt_extent_at(rows_of(node), target->max_batch);
    const int64_t wanted = (2 * clt_gpu_groups(target) + blocks - 1) / blocks;
    const int64_t most = (rows + LEAST_ROWS - 1) / LEAST_ROWS;
    const int64_t parts = most < 1 ? 1 : most < wanted ? most : wanted;
    const int block = add_parts(p, node, parts);
    begin(p, node, "norm/gpu/norm_columns.cl", "norm_columns_grad", "");
    arg_operands(p, node, MEAN);
    CLT_ARGS(p, CLT_SCRATCH(block), SIZES(node), CLT_FIXED(parts));
    clt_range3(p, clt_fixed(blocks * CLT_GPU_GROUP), clt_fixed(parts), clt_fixed(1), CLT_GPU_GROUP,
               1, 1);
    sum_parts(p, node, target, block, parts);
}

static void emit_grad_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_rows_gpu rows = clt_rows_gpu_contiguous(rows_of(node), columns_of(node));
    begin_rows_gpu(p, node, &rows, "norm_rows_grad");
    arg_operands(p, node, WEIGHT);
    CLT_ARGS(p, CLT_OUT(0), SIZES(node));
    clt_rows_gpu_range(p, &rows);
    if (wants_sums(node))
        emit_columns_gpu(node, target, p);
}

bool clt_half_rows(const clt_node *node, const clt_target *target, int index, bool output)
{
    (void)target;
    return index == 0 || (!output && is_gradient(node) && index == DY);
}

const clt_variant clt_norm_rows_variants[] = {
    {"rows_cpu", clt_accepts_cpu_vectors, emit_cpu},
    {"rows_gpu", accepts_gpu, emit_gpu},
    {"portable", NULL, emit_portable},
    {0},
};

const clt_variant clt_norm_rows_grad_variants[] = {
    {"rows_cpu", clt_accepts_cpu_vectors, emit_grad_cpu},
    {"rows_gpu", accepts_gpu, emit_grad_gpu},
    {"portable", NULL, emit_grad_portable},
    {0},
};

const clt_attribute clt_norm_rows_grad_attributes[] = {
    {CLT_ATTRIBUTE(INT, "axes", clt_norm_rows_attr, axes,
                   "How many of the last axes are normalised."),
     .least = 1, .most = CLT_MAX_RANK, .default_value = 1},
    {CLT_ATTRIBUTE(REAL, "eps", clt_norm_rows_attr, eps, "The eps of the forward operator."),
     .most = INFINITY},
    {CLT_ATTRIBUTE(FLAG, "weight", clt_norm_rows_attr, weight, "Whether dweight is wanted.")},
    {CLT_ATTRIBUTE(FLAG, "bias", clt_norm_rows_attr, bias, "Whether dbias is wanted.")},
    {0},
};

/* The statistics have the axes before the rows' axes. The parameters have the rows' axes. */
void clt_norm_rows_dims(const clt_node *node, clt_node_dims *dims)
{
    const int rank = node->in[X]->type.rank, first = first_axis(node);
    const bool gradient = node->n_in > 3;
    clt_dims_clear(dims);
    for (int k = 0; k < rank; k++) {
        const signed char label = (signed char)k;
        dims->behaviour[k] = k < first ? CLT_DIM_PARALLEL : CLT_DIM_WHOLE;
        dims->in[X][k] = dims->out[0][k] = label;
        for (int i = 1; i < node->n_in; i++) {
            const bool like_x = gradient && i == DY, statistic = gradient && (i == 2 || i == 3);
            if (!node->in[i])
                continue;
            if (like_x || (statistic && k < first))
                dims->in[i][k] = label;
            else if (!statistic && k >= first)
                dims->in[i][k - first] = label;
        }
        for (int i = 1; i < node->n_out; i++) {
            dims->adds[i] = gradient;
            if (!gradient && k < first)
                dims->out[i][k] = label;
            else if (gradient && k >= first && node->out[i]->type.rank == rank - first)
                dims->out[i][k - first] = label;
        }
    }
}
