/* sum, mean and max over axes, which may include the batch, and their gradients. */
#include <math.h>
#include <string.h>

#include "ops/elementwise/elementwise.h"
#include "ops/core/nn.h"
#include "ops/core/ops.h"
#include "ops/reduce/reduce.h"
#include "ops/core/tensor.h"
#include <cltrain/ops.h>

static clt_status infer(const clt_node *node, clt_type *out)
{
    const clt_reduce_attr *attr = node->attr;
    CLT_TRY(clt_check_f32(node, 0));
    *out = attr->type;
    return CLT_OK;
}

static void describe(const clt_node *node, clt_str *text)
{
    const clt_reduce_attr *attr = node->attr;
    clt_str_add(text, "axes");
    for (int k = 0; k < node->in[0]->type.rank; k++)
        if (attr->axes >> k & 1)
            clt_str_add(text, " %d", k);
}

/* --- launches -------------------------------------------------------------------------------- */

enum { DIMS = 4 };

static void append(clt_strided *strided, int64_t dim, int64_t stride)
{
    strided->dims[strided->rank] = dim;
    strided->strides[0][strided->rank++] = stride;
}

clt_reduction clt_reduction_of(const clt_node *node, const clt_target *target)
{
    const clt_reduce_attr *attr = node->attr;
    const clt_type *in = &node->in[0]->type;
    int64_t strides[CLT_MAX_RANK], length = 1;
    clt_reduction r = {.kept = {.n_arrays = 1},
                       .reduced = {.n_arrays = 1},
                       .count = clt_extent_elements(&attr->type)};
    clt_row_major(in->rank, in->dims, strides);
    for (int k = 0; k < in->rank; k++) {
        const bool reduced = attr->axes >> k & 1;
        append(reduced ? &r.reduced : &r.kept, in->dims[k], strides[k]);
        if (reduced)
            length *= in->dims[k];
    }
    clt_strided_merge(&r.kept);
    clt_strided_merge(&r.reduced);
    r.length = clt_extent_dim(length);
    const int64_t results = clt_extent_at(r.count, target->max_batch);
    const int64_t parts = clt_extent_at(r.length, target->max_batch) / 2048;
    const int64_t room = 256 / (results ? results : 1);
    r.parts = parts < room ? parts : room;
    if (r.parts < 1)
        r.parts = 1;
    return r;
}

/* On CPUs, a few results are distributed over the cores as one work-group each. */
static void range(clt_program *p, const clt_target *target, clt_extent items)
{
    if (clt_caps_is_cpu(target->caps) && clt_extent_at(items, target->max_batch) < 4096)
        clt_range1(p, items, 1);
    else
        clt_range_items(p, target, items);
}

static clt_extent times(clt_extent e, int64_t factor)
{
    return (clt_extent){e.mul * factor, e.pre, e.div, e.add * factor};
}

/* Adds the kernels' arguments after the operands and the result. */
static void arg_reduction(clt_program *p, const clt_reduction *r, bool divide)
{
    CLT_ARGS(p, CLT_LONG(r->count), CLT_FIXED((int)r->parts), CLT_LONG(r->length),
             CLT_FIXED(divide));
    clt_arg_strided_sizes(p, &r->kept, DIMS);
    clt_arg_strided_strides(p, &r->kept, 0, DIMS);
    clt_arg_strided_sizes(p, &r->reduced, DIMS);
    clt_arg_strided_strides(p, &r->reduced, 0, DIMS);
}

/* Combines partial results in order. */
static void emit_parts(clt_program *p, const clt_target *target, const clt_reduction *r,
                       int scratch, const char *kernel, bool divide)
{
    clt_launch_begin(p, "reduce/portable/reduce.cl", kernel, "%s", "");
    CLT_ARGS(p, CLT_SCRATCH(scratch), CLT_OUT(0), CLT_LONG(r->count), CLT_FIXED((int)r->parts),
             CLT_LONG(r->length), CLT_FIXED(divide));
    range(p, target, r->count);
}

/* `parts_kernel` combines the results of parts. `divide`: divide the result by the length. */
static void emit_reduction(const clt_node *node, const clt_target *target, clt_program *p,
                           const char *kernel, const char *parts_kernel, bool divide)
{
    const clt_reduction r = clt_reduction_of(node, target);
    const clt_extent items = times(r.count, r.parts);
    const int scratch = r.parts > 1 ? clt_scratch_add(p, times(items, (int64_t)sizeof(float))) : -1;
    clt_launch_begin(p, "reduce/portable/reduce.cl", kernel, "%s", "");
    CLT_ARGS(p, CLT_IN(0));
    if (node->n_in > 1)
        CLT_ARGS(p, CLT_IN(1));
    if (r.parts > 1)
        CLT_ARGS(p, CLT_SCRATCH(scratch));
    else
        CLT_ARGS(p, CLT_OUT(0));
    arg_reduction(p, &r, divide && r.parts == 1);
    range(p, target, items);
    if (r.parts > 1)
        emit_parts(p, target, &r, scratch, parts_kernel, divide);
}

static void emit_sum(const clt_node *node, const clt_target *target, clt_program *p)
{
    emit_reduction(node, target, p, "add", "add_parts", false);
}

static void emit_mean(const clt_node *node, const clt_target *target, clt_program *p)
{
    emit_reduction(node, target, p, "add", "add_parts", true);
}

static void emit_max(const clt_node *node, const clt_target *target, clt_program *p)
{
    emit_reduction(node, target, p, "largest", "max_parts", false);
}

static void emit_max_count(const clt_node *node, const clt_target *target, clt_program *p)
{
    emit_reduction(node, target, p, "count_equal", "add_parts", false);
}

/* --- gradients ------------------------------------------------------------------------------- */

/* The operand's type with reduced axes of size 1, which broadcasts to the operand. */
static clt_type kept_type(const clt_node *node)
{
    const clt_reduce_attr *attr = node->attr;
    clt_type type = node->in[0]->type;
    for (int k = 0; k < type.rank; k++)
        if (attr->axes >> k & 1)
            type.dims[k] = 1;
    return type;
}

static clt_value *shaped(clt_value *value, const clt_type *type)
{
    return value && !clt_type_equal(&value->type, type) ? clt_reshape(value, type->rank, type->dims)
                                                        : value;
}

static clt_status sum_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                               clt_value **dx)
{
    const clt_type kept = kept_type(node);
    (void)wanted;
    dx[0] = clt_expand_to(shaped(dy[0], &kept), &node->in[0]->type);
    return CLT_OK;
}

static clt_status mean_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                                clt_value **dx)
{
    const clt_reduce_attr *attr = node->attr;
    const clt_type kept = kept_type(node), *in = &node->in[0]->type;
    int64_t length = 1;
    (void)wanted;
    for (int k = 0; k < in->rank; k++)
        if (attr->axes >> k & 1)
            length *= in->dims[k];
    dx[0] = clt_mean_grad(shaped(dy[0], &kept), in, length < 0 ? 0 : (double)length,
                          length < 0 ? (double)-length : 0);
    return CLT_OK;
}

/* Equal maxima share the gradient equally, as in PyTorch's amax. */
static clt_status max_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                               clt_value **dx)
{
    static const clt_elementwise_attr no_numbers;
    const clt_type kept = kept_type(node);
    clt_value *count = clt_emit1(&clt_op_max_count, node->attr, 2, node->in[0], node->out[0]);
    (void)wanted;
    dx[0] = clt_emit1(&clt_op_max_grad, &no_numbers, 4, shaped(dy[0], &kept), node->in[0],
                      shaped(node->out[0], &kept), shaped(count, &kept));
    return CLT_OK;
}

CLT_ELEMENTWISE_OP(max_grad, "The gradient of max. Equal maxima share it equally.",
                   "dy *, x *, y *, count *", .infer = clt_elementwise_infer);

#define CPU_VARIANTS                                                                               \
    {"rows_cpu", clt_reduce_cpu_rows_accepts, clt_reduce_cpu_rows},                                \
    {                                                                                              \
        "columns_cpu", clt_reduce_cpu_columns_accepts, clt_reduce_cpu_columns                      \
    }

static const clt_variant variants_sum[] = {
    CPU_VARIANTS,
    {"tree_gpu", clt_reduce_gpu_accepts, clt_reduce_gpu},
    {"portable", NULL, emit_sum},
    {0},
};

static const clt_variant variants_mean[] = {
    CPU_VARIANTS,
    {"tree_gpu", clt_reduce_gpu_accepts, clt_reduce_gpu},
    {"portable", NULL, emit_mean},
    {0},
};

static const clt_variant variants_max[] = {
    CPU_VARIANTS,
    {"tree_gpu", clt_reduce_gpu_accepts, clt_reduce_gpu},
    {"portable", NULL, emit_max},
    {0},
};

static const clt_variant variants_max_count[] = {
    CPU_VARIANTS,
    {"tree_gpu", clt_reduce_gpu_accepts, clt_reduce_gpu},
    {"portable", NULL, emit_max_count},
    {0},
};

static bool half(const clt_node *node, const clt_target *target, int index, bool output)
{
    (void)node;
    (void)target;
    return !output && index == 0;
}

static const clt_attribute attributes[] = {
    {CLT_ATTRIBUTE(INT, "axes", clt_reduce_attr, axes, "Bit k: axis k is reduced."), .internal = 1},
    {CLT_ATTRIBUTE(TYPE, "to", clt_reduce_attr, type, "The type of the result."), .internal = 1},
    {0},
};

/* Kept axes are parallel. Over reduced axes, sums and counts of parts add up; other results do not.
 * The result has the kept axes, and axes of size 1 where its type says so. */
static void dims_of(const clt_node *node, clt_node_dims *dims)
{
    const clt_reduce_attr *attr = node->attr;
    const clt_type *x = &node->in[0]->type, *y = &node->out[0]->type;
    const bool adds = node->op == &clt_op_sum || node->op == &clt_op_max_count;
    int kept = 0, at = y->rank;
    for (int k = 0; k < x->rank; k++) {
        const bool reduced = attr->axes >> k & 1;
        dims->in[0][k] = (signed char)k;
        dims->behaviour[k] = !reduced ? CLT_DIM_PARALLEL : adds ? CLT_DIM_SUMMED : CLT_DIM_WHOLE;
        kept += !reduced;
    }
    for (int i = 0; i < y->rank; i++)
        dims->out[0][i] = -1;
    for (int k = x->rank - 1; k >= 0; k--) {
        if (!(attr->axes >> k & 1)) {
            dims->out[0][--at] = (signed char)k;
            kept--;
        } else if (at > kept) {
            at--;
        }
    }
    if (node->n_in > 1)
        memcpy(dims->in[1], dims->out[0], sizeof dims->in[1]);
}

#define REDUCTION(NAME, DOC, OPERANDS, GRADIENT)                                                   \
    const clt_op clt_op_##NAME = {.name = #NAME,                                                   \
                                  .doc = DOC,                                                      \
                                  .operands = OPERANDS,                                            \
                                  .results = "y *",                                                \
                                  .attributes = attributes,                                        \
                                  .by_node = "*",                                                  \
                                  .dims = dims_of,                                                 \
                                  .localise = clt_localise_type,                                   \
                                  .attr_bytes = sizeof(clt_reduce_attr),                           \
                                  .infer = infer,                                                  \
                                  .gradient = GRADIENT,                                            \
                                  .describe = describe,                                            \
                                  .flops = clt_flops_operand,                                      \
                                  .rounding = CLT_ROUNDS_NONE,                                     \
                                  .half = half,                                                    \
                                  .variants = variants_##NAME}

REDUCTION(sum, "The sum over axes.", "x *", sum_gradient);
REDUCTION(mean, "The mean over axes.", "x *", mean_gradient);
REDUCTION(max, "The maximum over axes.", "x *", max_gradient);
REDUCTION(max_count, "The number of elements of x that equal the maximum y.", "x *, y *", NULL);

/* --- builders -------------------------------------------------------------------------------- */

static bool read_axes(const clt_value *x, const char *op, const int *axes, int n_axes,
                      unsigned *mask)
{
    const int rank = x->type.rank;
    char text[CLT_TYPE_TEXT];
    *mask = n_axes ? 0 : (1u << rank) - 1;
    for (int i = 0; i < n_axes; i++) {
        const int axis = axes[i] < 0 ? axes[i] + rank : axes[i];
        if (axis < 0 || axis >= rank || *mask >> axis & 1) {
            clt_graph_failed(x->graph,
                             clt_fail(CLT_SHAPE, "%s: axis %d does not exist in %s or occurs twice",
                                      op, axes[i], clt_type_text(&x->type, text)));
            return false;
        }
        *mask |= 1u << axis;
    }
    return true;
}

static clt_value *reduce(const clt_op *op, clt_value *x, const int *axes, int n_axes, int keepdims)
{
    clt_reduce_attr attr;
    memset(&attr, 0, sizeof attr);
    if (!x || !read_axes(x, op->name, axes, n_axes, &attr.axes))
        return NULL;
    attr.type.dtype = CLT_F32;
    for (int k = 0; k < x->type.rank; k++) {
        const bool reduced = attr.axes >> k & 1;
        if (!reduced || keepdims)
            attr.type.dims[attr.type.rank++] = reduced ? 1 : x->type.dims[k];
    }
    return clt_emit1(op, &attr, 1, x);
}

clt_value *clt_reduce_sum(clt_value *x, const int *axes, int n_axes, int keepdims)
{
    return reduce(&clt_op_sum, x, axes, n_axes, keepdims);
}

clt_value *clt_reduce_mean(clt_value *x, const int *axes, int n_axes, int keepdims)
{
    return reduce(&clt_op_mean, x, axes, n_axes, keepdims);
}

clt_value *clt_reduce_max(clt_value *x, const int *axes, int n_axes, int keepdims)
{
    return reduce(&clt_op_max, x, axes, n_axes, keepdims);
}

clt_value *clt_sum_to(clt_value *x, const clt_type *to)
{
    clt_reduce_attr attr;
    if (!x || clt_type_equal(&x->type, to))
        return x;
    memset(&attr, 0, sizeof attr);
    attr.type = *to;
    const int lead = x->type.rank - to->rank;
    for (int k = 0; k < x->type.rank; k++)
        if (k < lead || to->dims[k - lead] != x->type.dims[k])
            attr.axes |= 1u << k;
    return clt_emit1(&clt_op_sum, &attr, 1, x);
}

typedef struct reduce_call {
    int axes[CLT_MAX_RANK], n_axes, keepdims;
} reduce_call;

static const clt_attribute call_attributes[] = {
    {CLT_ATTRIBUTE(INT, "axes", reduce_call, axes,
                   "The axes to reduce; negative ones count from the end. Without axes: all."),
     .least = -CLT_MAX_RANK, .most = CLT_MAX_RANK - 1, .count = CLT_MAX_RANK, .list = 1,
     .length = offsetof(reduce_call, n_axes)},
    {CLT_ATTRIBUTE(FLAG, "keepdims", reduce_call, keepdims, "Keeps reduced axes, with size 1.")},
    {0},
};

#define REDUCE_CALL(NAME, NODE, DOC)                                                               \
    CLT_CALLABLE(NAME, reduce_call,                                                                \
                 c->out[0] = reduce(&clt_op_##NODE, c->in[0], a->axes, a->n_axes, a->keepdims),    \
                 .doc = DOC, .operands = "x *", .results = "y *", .attributes = call_attributes,   \
                 .whole = "*", .attr_bytes = sizeof(reduce_call))

REDUCE_CALL(reduce_sum, sum, "The sum over axes.");
REDUCE_CALL(reduce_mean, mean, "The mean over axes.");
REDUCE_CALL(reduce_max, max, "The maximum over axes.");
