#include "ops/elementwise.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "ops/elementwise_cpu.h"
#include "ops/elementwise_gpu.h"
#include "ops/ops.h"

#define ROOT_HALF "0.70710678f"
/* (1 + tanh(u)) / 2 of gelu's approximation, without the cancellation of the one and the other. */
#define GELU_TANH(x) "(1.0f/(1.0f+exp(-1.5957691f*(" x "+0.044715f*" x "*" x "*" x "))))"

/* y < 0 rather than fmax, so that a NaN stays one. `x_grad` operators take (dy, y), gelu's (dy, x).
 */
static const clt_elementwise_row rows[] = {
    {&clt_op_copy, 0, "a"},
    {&clt_op_expand, 0, "a"},
    {&clt_op_add, 0, "a+b"},
    {&clt_op_sub, 0, "a-b"},
    {&clt_op_mul, 0, "a*b"},
    {&clt_op_div, 0, "a/b"},
    {&clt_op_scale, 2, "a*p0+p1"},
    {&clt_op_relu, 0, "a<(T)0?(T)0:a"},
    {&clt_op_relu_grad, 0, "b<=(T)0?(T)0:a"},
    {&clt_op_leaky_relu, 1, "a<(T)0?a*p0:a"},
    {&clt_op_leaky_relu_grad, 1, "b<=(T)0?a*p0:a"},
    {&clt_op_sigmoid, 0, "1.0f/(1.0f+exp(-a))"},
    {&clt_op_sigmoid_grad, 0, "a*b*(1.0f-b)"},
    {&clt_op_tanh, 0, "tanh(a)"},
    {&clt_op_tanh_grad, 0, "a*(1.0f-b*b)"},
    {&clt_op_gelu, 0, "0.5f*a*(1.0f+erf(a*" ROOT_HALF "))"},
    {&clt_op_gelu_grad, 0, "a*(0.5f*(1.0f+erf(b*" ROOT_HALF "))+b*0.39894228f*exp(-0.5f*b*b))"},
    {&clt_op_gelu_tanh, 0, "a*" GELU_TANH("a")},
    {&clt_op_gelu_tanh_grad, 0,
     "a*" GELU_TANH("b") "*(1.0f+b*(1.0f-" GELU_TANH("b") ")*1.5957691f*(1.0f+0.134145f*b*b))"},
    {&clt_op_mean_grad, 2, "a/(p0+p1*n)"},
    {&clt_op_max_grad, 0, "(b==c?a:(T)0)/d"},
};

const clt_elementwise_row *clt_elementwise_find(const clt_op *op)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].op == op)
            return &rows[i];
    return NULL;
}

/* Dimension `axis` of `type`, counted from the end of a result of rank `rank`; 1 where absent. */
static int64_t aligned_dim(const clt_type *type, int rank, int axis)
{
    const int own = axis - (rank - type->rank);
    return own < 0 ? 1 : type->dims[own];
}

static clt_status fail_shapes(const clt_node *node, int operand, const char *what)
{
    char a[CLT_TYPE_TEXT], b[CLT_TYPE_TEXT];
    return clt_fail(CLT_SHAPE, "%s: %s and %s %s", node->op->name,
                    clt_type_text(&node->in[0]->type, a),
                    clt_type_text(&node->in[operand]->type, b), what);
}

clt_status clt_elementwise_infer(const clt_node *node, clt_type *out)
{
    clt_type type = node->in[0]->type;
    int batched = 0;
    for (int i = 0; i < node->n_in; i++) {
        if (node->in[i]->type.dtype != CLT_F32) {
            char text[CLT_TYPE_TEXT];
            return clt_fail(CLT_UNSUPPORTED, "%s: operand %d is %s; cast it to f32 first",
                            node->op->name, i, clt_type_text(&node->in[i]->type, text));
        }
        if (node->in[i]->type.rank > type.rank)
            type.rank = node->in[i]->type.rank;
    }
    for (int axis = 0; axis < type.rank; axis++) {
        int64_t size = 1;
        for (int i = 0; i < node->n_in; i++) {
            const int64_t dim = aligned_dim(&node->in[i]->type, type.rank, axis);
            if (dim == 1 || dim == size)
                continue;
            if (size != 1)
                return fail_shapes(node, i, "do not broadcast");
            size = dim;
        }
        type.dims[axis] = size;
        batched += size < 0;
        if (batched > 1)
            return fail_shapes(node, node->n_in - 1, "broadcast to two dimensions of the batch");
    }
    *out = type;
    return CLT_OK;
}

int clt_elementwise_lanes(const clt_node *node)
{
    if (!clt_value_leads_with_batch(node->out[0]) || node->out[0]->type.dtype != CLT_F32)
        return CLT_LANES_NO;
    const int rank = node->out[0]->type.rank;
    for (int i = 0; i < node->n_in; i++) {
        const clt_type *type = &node->in[i]->type;
        if (type->dtype != CLT_F32 || (clt_type_has_batch(type) && type->rank != rank))
            return CLT_LANES_NO;
    }
    return CLT_LANES_FOLLOW;
}

/* Steps of an operand along the stored dimensions of the result, 0 where it is repeated. In LANES,
 * these are [groups, rest.., lane], and what lies plain has no batch and repeats along both ends.
 */
static void operand_strides(const clt_value *value, const clt_value *result, const clt_walk *walk,
                            int64_t *strides)
{
    int64_t own[CLT_WALK_RANK], row_major[CLT_WALK_RANK];
    const bool in_lanes = value->layout == CLT_LAYOUT_LANES;
    for (int k = 0; k < walk->rank; k++)
        own[k] = k < result->type.rank ? aligned_dim(&value->type, result->type.rank, k)
                                       : (in_lanes ? walk->lanes : 1);
    clt_row_major(walk->rank, own, row_major);
    for (int k = 0; k < walk->rank; k++)
        strides[k] = own[k] == walk->dims[k] ? row_major[k] : 0;
}

clt_walk clt_elementwise_walk(const clt_node *node, int lanes)
{
    const clt_value *result = node->out[0];
    clt_walk walk = {.rank = result->type.rank, .n_arrays = node->n_in};
    memcpy(walk.dims, result->type.dims, (size_t)walk.rank * sizeof(int64_t));
    if (result->layout == CLT_LAYOUT_LANES) {
        walk.lanes = lanes;
        walk.dims[walk.rank++] = lanes;
    }
    for (int i = 0; i < node->n_in; i++)
        operand_strides(node->in[i], result, &walk, walk.strides[i]);
    clt_walk_merge(&walk);
    return walk;
}

void clt_elementwise_emit(const clt_node *node, const clt_target *target, clt_program *p,
                          const char *body)
{
    enum { DIMS = 6, CHUNK = 16 };
    static const clt_elementwise_attr none;
    const clt_elementwise_attr *attr = node->op->attr_bytes ? node->attr : &none;
    const clt_walk walk = clt_elementwise_walk(node, target->lanes);
    const bool flat = clt_walk_flat(&walk);
    const clt_extent count = clt_extent_stored(node->out[0], target->lanes);
    clt_launch_begin(p, "portable/elementwise.cl", flat ? "flat" : "spread", "-DN_IN=%d -DBODY=%s",
                     node->n_in, body);
    for (int i = 0; i < node->n_in; i++)
        clt_arg_in(p, i);
    clt_arg_out(p, 0);
    clt_arg_long(p, count);
    for (int i = 0; i < CLT_ELEMENTWISE_NUMBERS; i++)
        clt_arg_float(p, attr->p[i]);
    clt_arg_run(p, CLT_RUN_COUNT);
    if (!flat) {
        clt_arg_walk_sizes(p, &walk, DIMS);
        for (int i = 0; i < node->n_in; i++)
            clt_arg_walk_strides(p, &walk, i, DIMS);
    }
    clt_range1(p, clt_extent_ceil(count, CHUNK * 16, 16), 16);
}

static void body_of(const clt_node *node, char *body, size_t room)
{
    snprintf(body, room, "OUT(%s)", clt_elementwise_find(node->op)->expression);
}

static void emit(const clt_node *node, const clt_target *target, clt_program *p)
{
    char body[256];
    body_of(node, body, sizeof body);
    clt_elementwise_emit(node, target, p, body);
}

static void emit_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    char body[256];
    body_of(node, body, sizeof body);
    clt_elementwise_cpu_emit(node, target, p, body);
}

static void emit_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    char body[256];
    body_of(node, body, sizeof body);
    clt_elementwise_gpu_emit(node, target, p, body);
}

const clt_variant clt_elementwise_variants[] = {
    {"runs_cpu", clt_elementwise_cpu_accepts, emit_cpu},
    {"vectors_gpu", clt_elementwise_gpu_accepts, emit_gpu},
    {"elementwise", NULL, emit},
    {0},
};
