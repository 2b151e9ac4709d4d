#include "ops/loss/terms.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "ops/core/group_gpu.h"
#include "ops/core/ops.h"

enum { DIMS = 6 };

/* log(1 + exp(-|x|)), and the term that log(1 + exp(-x)) has besides for x < 0. */
#define LOG1P_EXP(x) "log1p(exp(-fabs(" x ")))"
#define BELOW(x) "(" x "<(T)0?-" x ":(T)0)"

/* In bce, terms that cancel for small losses cancel exactly, because they are added before the
 * logarithm. */
static const struct row {
    const clt_op *op;
    int n_in, flops;
    const char *expression;
} rows[] = {
    {&clt_op_bce_with_logits, 2, 8, "((1.0f-b)*a+" BELOW("a") ")+" LOG1P_EXP("a")},
    {&clt_op_bce_with_logits, 3, 13,
     "((1.0f-b)*a+(1.0f+(c-1.0f)*b)*" BELOW("a") ")+(1.0f+(c-1.0f)*b)*" LOG1P_EXP("a")},
    {&clt_op_huber, 2, 6, "fabs(a-b)<p0?p1*(a-b)*(a-b):p2*(fabs(a-b)-0.5f*p0)"},
    {&clt_op_kl_div, 2, 4, "b==(T)0?(T)0:b*(log(b)-a)"},
    {&clt_op_kl_div_log, 2, 4, "exp(b)*(b-a)"},
};

static const struct row *row_of(const clt_node *node)
{
    const int n_in = node->n_in > 2 && node->in[2] ? 3 : 2;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].op == node->op && rows[i].n_in == n_in)
            return &rows[i];
    return NULL;
}

/* --- shapes --------------------------------------------------------------------------------- */

static int64_t aligned_dim(const clt_type *type, int rank, int axis)
{
    const int own = axis - (rank - type->rank);
    return own < 0 ? 1 : type->dims[own];
}

static bool broadcasts(const clt_type *from, const clt_type *to)
{
    bool fits = from->rank <= to->rank;
    for (int k = 0; fits && k < to->rank; k++)
        fits = aligned_dim(from, to->rank, k) == 1 || aligned_dim(from, to->rank, k) == to->dims[k];
    return fits;
}

clt_status clt_terms_infer(const clt_node *node, clt_type *out)
{
    char a[CLT_TYPE_TEXT], b[CLT_TYPE_TEXT];
    for (int i = 0; i < node->n_in; i++)
        CLT_TRY(clt_check_f32(node, i));
    clt_operand_text(node, 0, a);
    if (!clt_type_equal(&node->in[0]->type, &node->in[1]->type))
        return clt_fail(CLT_SHAPE, "%s: %s and %s differ in shape%s", node->op->name, a,
                        clt_operand_text(node, 1, b),
                        clt_flatten_hint(&node->in[0]->type, &node->in[1]->type));
    if (node->n_in > 2 && !broadcasts(&node->in[2]->type, &node->in[0]->type))
        return clt_fail(CLT_SHAPE, "%s: the weights %s do not broadcast to %s", node->op->name,
                        clt_operand_text(node, 2, b), a);
    out[0] = out[1] = clt_scalar_type();
    return CLT_OK;
}

double clt_terms_flops(const clt_node *node, int64_t n)
{
    return row_of(node)->flops * (double)clt_type_elements(&node->in[0]->type, n);
}

/* The size of dimension 0 or the number of all elements, as an extent. */
static clt_extent count_of(const clt_node *node)
{
    const clt_type *type = &node->in[0]->type;
    return ((const clt_terms_attr *)node->attr)->per_row ? clt_extent_dim(type->dims[0])
                                                         : clt_extent_elements(type);
}

double clt_terms_weight(const clt_node *node)
{
    const clt_type *type = &node->in[0]->type;
    if (((const clt_terms_attr *)node->attr)->per_row)
        return type->dims[0] < 0 ? -(double)type->dims[0] : 0;
    return clt_type_has_batch(type) ? (double)clt_type_coefficient(type) : 0;
}

/* The merged iteration over the operands. */
static clt_strided strided_of(const clt_node *node)
{
    const clt_type *type = &node->in[0]->type;
    clt_strided strided = {.rank = type->rank, .n_arrays = node->n_in};
    memcpy(strided.dims, type->dims, (size_t)type->rank * sizeof *type->dims);
    for (int i = 0; i < node->n_in; i++) {
        int64_t own[CLT_WALK_RANK], row_major[CLT_WALK_RANK];
        for (int k = 0; k < strided.rank; k++)
            own[k] = aligned_dim(&node->in[i]->type, strided.rank, k);
        clt_row_major(strided.rank, own, row_major);
        for (int k = 0; k < strided.rank; k++)
            strided.strides[i][k] = own[k] == strided.dims[k] ? row_major[k] : 0;
    }
    clt_strided_merge(&strided);
    return strided;
}

/* --- launches ------------------------------------------------------------------------------- */

/* Adds the arguments of all kernels. `share`, the elements of a work-item, is for CPU kernels
 * only. */
static void arguments(const clt_node *node, const clt_strided *strided, int sums, int64_t share,
                      int64_t parts, bool has_strides, clt_program *p)
{
    const clt_terms_attr *attr = node->attr;
    clt_args_in(p, node->n_in);
    CLT_ARGS(p, CLT_SCRATCH(sums), CLT_LONG(clt_extent_elements(&node->in[0]->type)));
    if (share)
        CLT_ARGS(p, CLT_LONG(clt_fixed(share)));
    for (int i = 0; i < CLT_ELEMENTWISE_NUMBERS; i++)
        CLT_ARGS(p, CLT_FLOAT((double)attr->numbers.p[i]));
    if (share)
        CLT_ARGS(p, CLT_RUN(CLT_RUN_COUNT));
    else
        CLT_ARGS(p, CLT_FIXED(parts));
    if (!has_strides)
        return;
    clt_arg_strided_sizes(p, strided, DIMS);
    for (int i = 0; i < node->n_in; i++)
        clt_arg_strided_strides(p, strided, i, DIMS);
}

/* Adds the last launch, which sums the parts in order and writes the weight. */
static void total(const clt_node *node, const char *file, const char *options, int sums,
                  int64_t parts, int64_t group, clt_program *p)
{
    clt_launch_begin(p, file, "terms_total", "%s", options);
    CLT_ARGS(p, CLT_SCRATCH(sums), CLT_OUT(0), CLT_OUT(1), CLT_FIXED(parts),
             CLT_LONG(count_of(node)));
    clt_range1(p, clt_fixed(group), group);
}

static void emit_portable(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_strided strided = strided_of(node);
    const clt_extent elements = clt_extent_elements(&node->in[0]->type);
    const int64_t parts = clt_loss_parts(target, elements);
    const int sums = clt_loss_scratch(p, parts);
    clt_launch_begin(p, "loss/portable/terms.cl", "terms", "-DN_IN=%d -DBODY=OUT(%s)", node->n_in,
                     row_of(node)->expression);
    arguments(node, &strided, sums, 0, parts, true, p);
    clt_range_items(p, target, clt_fixed(parts));
    total(node, "loss/portable/terms.cl", "-DN_IN=2 -DBODY=OUT(a)", sums, parts, 1, p);
}

static bool accepts_cpu(const clt_node *node, const clt_target *target, char *why)
{
    const clt_strided strided = strided_of(node);
    if (!clt_accepts_cpu_vectors(node, target, why))
        return false;
    if (strided.rank < 1)
        return clt_decline(why, "one element");
    const int64_t line = clt_dim(strided.dims[strided.rank - 1], target->max_batch);
    if (line < target->caps->vector_width)
        return clt_decline(why, "lines of %lld elements", (long long)line);
    return strided.rank <= DIMS ||
           clt_decline(why, "an iteration over %d dimensions", strided.rank);
}

/* Partial sums of at most 16 Ki elements. There are enough for all compute units, but so few that
 * adding them is cheap. */
static void emit_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { ELEMENTS = 16384, LEAST = 1024, MOST = 1024 };
    const clt_strided strided = strided_of(node);
    const int64_t all = clt_extent_at(clt_extent_elements(&node->in[0]->type), target->max_batch);
    const int64_t wanted = 8 * (int64_t)target->caps->compute_units;
    int64_t parts = all / ELEMENTS > wanted ? all / ELEMENTS : wanted;
    parts = parts < all / LEAST ? parts : all / LEAST;
    parts = parts < 1 ? 1 : parts < MOST ? parts : MOST;
    const int width = target->caps->vector_width;
    const int64_t share = ((all + parts - 1) / parts + width - 1) / width * width;
    const int sums = clt_loss_scratch(p, parts);
    int splat = 0;
    for (int i = 0; i < node->n_in; i++)
        splat |= (strided.strides[i][strided.rank - 1] == 0) << i;
    clt_launch_begin(p, "elementwise/cpu/elementwise.cl", "terms",
                     "-DVW=%d -DN_IN=%d -DSPLAT=%d -DTERMS -DBODY=OUT(%s)", width, node->n_in,
                     splat, row_of(node)->expression);
    arguments(node, &strided, sums, share, parts, true, p);
    clt_range1(p, clt_fixed(parts), 1);
    total(node, "loss/portable/terms.cl", "-DN_IN=2 -DBODY=OUT(a)", sums, parts, 1, p);
}

static bool accepts_gpu(const clt_node *node, const clt_target *target, char *why)
{
    enum { MOST = 1 << 30 };
    const clt_strided strided = strided_of(node);
    if (!clt_gpu_group_accepts(node, target, why))
        return false;
    if (clt_type_elements(&node->in[0]->type, target->max_batch) > MOST)
        return clt_decline(why, "more than %d elements", MOST);
    return strided.rank <= DIMS ||
           clt_decline(why, "an iteration over %d dimensions", strided.rank);
}

/* Uses vectors of four if all operands have the same strides and their samples fit float4. */
static void emit_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { LOADS = 4, MOST = 1024 };
    const clt_strided strided = strided_of(node);
    const bool flat = clt_strided_flat(&strided);
    const clt_extent elements = clt_extent_elements(&node->in[0]->type);
    const int v = flat && clt_type_coefficient(&node->in[0]->type) % 4 == 0 ? 4 : 1;
    const int64_t each = (int64_t)CLT_GPU_GROUP * v * LOADS;
    int64_t parts = (clt_extent_at(elements, target->max_batch) + each - 1) / each;
    parts = parts < 1 ? 1 : parts < MOST ? parts : MOST;
    char options[64];
    const int sums = clt_loss_scratch(p, parts);
    snprintf(options, sizeof options, "-DGROUP=%d -DV=1 -DN_IN=2 -DSPREAD=0 -DBODY=OUT(a)",
             CLT_GPU_GROUP);
    clt_launch_begin(p, "loss/gpu/terms.cl", "terms",
                     "-DGROUP=%d -DV=%d -DN_IN=%d -DSPREAD=%d -DBODY=OUT(%s)", CLT_GPU_GROUP, v,
                     node->n_in, flat ? 0 : strided.rank, row_of(node)->expression);
    arguments(node, &strided, sums, 0, parts, !flat, p);
    clt_range1(p, clt_fixed(parts * CLT_GPU_GROUP), CLT_GPU_GROUP);
    total(node, "loss/gpu/terms.cl", options, sums, parts, CLT_GPU_GROUP, p);
}

const clt_variant clt_terms_variants[] = {
    {"vectors_cpu", accepts_cpu, emit_cpu},
    {"tree_gpu", accepts_gpu, emit_gpu},
    {"portable", NULL, emit_portable},
    {0},
};

clt_status clt_terms_emit(const clt_op *op, const clt_terms_attr *attr, clt_value *a, clt_value *b,
                          clt_value *third, clt_value **sum, clt_value **weight)
{
    clt_value *const in[] = {a, b, third};
    *sum = *weight = NULL;
    if (!a || !b) {
        clt_graph *graph = a ? a->graph : b ? b->graph : NULL;
        if (graph && graph->status != CLT_OK)
            return clt_graph_status(graph);
        return clt_fail(CLT_INVALID_ARGUMENT, "%s: an operand is NULL", op->name);
    }
    const clt_node *node = clt_graph_add(a->graph, op, in, third ? 3 : 2, attr);
    if (!node)
        return clt_graph_status(a->graph);
    *sum = node->out[0];
    *weight = node->out[1];
    return CLT_OK;
}

void clt_terms_dims(const clt_node *node, clt_node_dims *dims)
{
    if (((const clt_terms_attr *)node->attr)->per_row)
        for (int k = 1; k < node->in[0]->type.rank; k++)
            dims->behaviour[CLT_DIM_STAR + node->in[0]->type.rank - 1 - k] = CLT_DIM_WHOLE;
}
