#include "ops/elementwise/elementwise.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "ops/elementwise/elementwise_cpu.h"
#include "ops/elementwise/elementwise_gpu.h"
#include "ops/core/ops.h"

#define ROOT_HALF "0.70710678f"
/* (1 + tanh(u)) / 2 of gelu's approximation, written so that 1 and tanh(u) near -1 do not
 * cancel. */
#define GELU_TANH(x) "(1.0f/(1.0f+exp(-1.5957691f*(" x "+0.044715f*" x "*" x "*" x "))))"

#define SIGMOID(x) "(1.0f/(1.0f+exp(-" x ")))"
#define SILU_SLOPE(x) SIGMOID(x) "*(1.0f+" x "*(1.0f-" SIGMOID(x) "))"
#define MASK "?(T)1:(T)0"

/* `y < 0` is used instead of fmax, so that a NaN stays a NaN. Gradients of activations take (dy,
 * y); those of gelu take (dy, x). */
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
    {&clt_op_silu, 0, "a*" SIGMOID("a")},
    {&clt_op_silu_grad, 0, "a*" SILU_SLOPE("b")},
    {&clt_op_swiglu, 0, "a*" SIGMOID("a") "*b"},
    {&clt_op_swiglu_grad, 0, "a*c*" SILU_SLOPE("b")},
    {&clt_op_exp, 0, "exp(a)"},
    {&clt_op_log, 0, "log(a)"},
    {&clt_op_sqrt, 0, "sqrt(a)"},
    {&clt_op_rsqrt, 0, "rsqrt(a)"},
    {&clt_op_abs, 0, "fabs(a)"},
    {&clt_op_abs_grad, 0, "b>(T)0?a:b<(T)0?-a:a*b"},
    {&clt_op_square, 0, "a*a"},
    {&clt_op_cube, 0, "a*a*a"},
    {&clt_op_reciprocal, 0, "1.0f/a"},
    {&clt_op_pow_scalar, 1, "pow(a,(T)p0)"},
    {&clt_op_pow, 0, "pow(a,b)"},
    {&clt_op_pow_grad, 0, "c==(T)0?(T)0:a*c*pow(b,c-1.0f)"},
    {&clt_op_pow_exponent_grad, 0, "b==(T)0?(c>=(T)0?(T)0:a*d*log(b)):a*d*log(b)"},
    {&clt_op_clamp, 2, "a<p0?(T)p0:a>p1?(T)p1:a"},
    {&clt_op_clamp_grad, 2, "b>=p0?(b<=p1?a:(T)0):(T)0"},
    {&clt_op_eq, 0, "a==b" MASK},
    {&clt_op_ne, 0, "a!=b" MASK},
    {&clt_op_lt, 0, "a<b" MASK},
    {&clt_op_le, 0, "a<=b" MASK},
    {&clt_op_gt, 0, "a>b" MASK},
    {&clt_op_ge, 0, "a>=b" MASK},
    {&clt_op_logical_and, 0, "a!=(T)0?(b!=(T)0" MASK "):(T)0"},
    {&clt_op_logical_or, 0, "a!=(T)0?(T)1:(b!=(T)0" MASK ")"},
    {&clt_op_logical_xor, 0, "(a!=(T)0" MASK ")!=(b!=(T)0" MASK ")" MASK},
    {&clt_op_logical_not, 0, "a==(T)0" MASK},
    {&clt_op_where, 0, "a!=(T)0?b:c"},
    {&clt_op_where_grad, 0, "a!=(T)0?b:(T)0"},
    {&clt_op_where_other_grad, 0, "a!=(T)0?(T)0:b"},
    {&clt_op_bce_with_logits_grad, 0, "c*(" SIGMOID("a") "-b)"},
    {&clt_op_bce_with_logits_weighted_grad, 0,
     "c*((1.0f-b)-(1.0f+(d-1.0f)*b)*(1.0f/(1.0f+exp(a))))"},
    {&clt_op_bce_with_logits_target_grad, 0,
     "b*((c-1.0f)*((a<(T)0?-a:(T)0)+log1p(exp(-fabs(a))))-a)"},
    {&clt_op_huber_grad, 3,
     "c*(fabs(a-b)<p0?2.0f*p1*(a-b):(a-b>(T)0?(T)p2:(a-b<(T)0?-(T)p2:a-b)))"},
    {&clt_op_kl_div_target_grad, 0, "b==(T)0?(T)0:c*(log(b)+1.0f-a)"},
    {&clt_op_kl_div_log_target_grad, 0, "c*exp(b)*(b+1.0f-a)"},
};

const clt_elementwise_row *clt_elementwise_find(const clt_op *op)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].op == op)
            return &rows[i];
    return NULL;
}

/* Size of dimension `axis` of a result of rank `rank` in `type`, aligned at the last dimension; 1
 * if `type` has fewer dimensions. */
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
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i]->type.dtype != CLT_F32) {
            char text[CLT_TYPE_TEXT];
            return clt_fail(CLT_UNSUPPORTED, "%s: operand %d is %s; cast it to f32 first",
                            node->op->name, i, clt_type_text(&node->in[i]->type, text));
        }
    return clt_elementwise_broadcast(node, CLT_F32, out);
}

clt_status clt_elementwise_broadcast(const clt_node *node, clt_dtype dtype, clt_type *out)
{
    clt_type type = node->in[0]->type;
    int batched = 0;
    type.dtype = dtype;
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i]->type.rank > type.rank)
            type.rank = node->in[i]->type.rank;
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

int clt_elementwise_batch_blocked(const clt_node *node)
{
    if (!clt_value_leads_with_batch(node->out[0]) || node->out[0]->type.dtype != CLT_F32)
        return CLT_BATCH_BLOCKED_NO;
    const int rank = node->out[0]->type.rank;
    for (int i = 0; i < node->n_in; i++) {
        const clt_type *type = &node->in[i]->type;
        if (type->dtype != CLT_F32 || (clt_type_has_batch(type) && type->rank != rank))
            return CLT_BATCH_BLOCKED_NO;
    }
    /* The node's layout is still plain here. The batch-blocked layout adds one dimension, the
     * lane. */
    return clt_elementwise_strided(node, 1).rank < CLT_ELEMENTWISE_DIMS ? CLT_BATCH_BLOCKED_FOLLOW
                                                                        : CLT_BATCH_BLOCKED_NO;
}

/* Writes the strides of an operand along the stored dimensions of the result; 0 where it is
 * broadcast. In the batch-blocked layout these dimensions are [blocks, rest.., lane]. A plain
 * operand has no batch then and is broadcast along blocks and lanes. */
static void operand_strides(const clt_value *value, const clt_value *result,
                            const clt_strided *strided, int64_t *strides)
{
    int64_t own[CLT_WALK_RANK], row_major[CLT_WALK_RANK];
    const bool in_batch_blocked = value->layout == CLT_LAYOUT_BATCH_BLOCKED;
    for (int k = 0; k < strided->rank; k++)
        own[k] = k < result->type.rank ? aligned_dim(&value->type, result->type.rank, k)
                                       : (in_batch_blocked ? strided->lanes : 1);
    clt_row_major(strided->rank, own, row_major);
    for (int k = 0; k < strided->rank; k++)
        strides[k] = own[k] == strided->dims[k] ? row_major[k] : 0;
}

clt_strided clt_elementwise_strided(const clt_node *node, int lanes)
{
    const clt_value *result = node->out[0];
    clt_strided strided = {.rank = result->type.rank, .n_arrays = node->n_in};
    memcpy(strided.dims, result->type.dims, (size_t)strided.rank * sizeof(int64_t));
    if (result->layout == CLT_LAYOUT_BATCH_BLOCKED) {
        strided.lanes = lanes;
        strided.dims[strided.rank++] = lanes;
    }
    for (int i = 0; i < node->n_in; i++)
        operand_strides(node->in[i], result, &strided, strided.strides[i]);
    clt_strided_merge(&strided);
    return strided;
}

const char *clt_elementwise_kinds(const clt_node *node, char *text)
{
    int used = 0;
    text[0] = 0;
    for (int i = 0; i < node->n_in && i < CLT_ELEMENTWISE_IN; i++)
        if (node->in[i]->type.dtype == CLT_U8)
            used += snprintf(text + used, (size_t)(CLT_ELEMENTWISE_KINDS - used), " -DKIND_%c=b",
                             'a' + i);
    if (node->out[0]->type.dtype == CLT_U8)
        snprintf(text + used, (size_t)(CLT_ELEMENTWISE_KINDS - used), " -DKIND_out=b");
    return text;
}

void clt_elementwise_emit(const clt_node *node, const clt_target *target, clt_program *p,
                          const char *body)
{
    enum { DIMS = CLT_ELEMENTWISE_DIMS, CHUNK = 16 };
    char kinds[CLT_ELEMENTWISE_KINDS];
    static const clt_elementwise_attr none;
    const clt_elementwise_attr *attr = node->op->attr_bytes ? node->attr : &none;
    const clt_strided strided = clt_elementwise_strided(node, target->lanes);
    const bool flat = clt_strided_flat(&strided);
    const clt_extent count = clt_extent_stored(node->out[0], target->lanes);
    clt_launch_begin(p, "elementwise/portable/elementwise.cl", flat ? "flat" : "spread",
                     "-DN_IN=%d -DBODY=%s%s", node->n_in, body, clt_elementwise_kinds(node, kinds));
    clt_args_in(p, node->n_in);
    CLT_ARGS(p, CLT_OUT(0), CLT_LONG(count));
    for (int i = 0; i < CLT_ELEMENTWISE_NUMBERS; i++)
        CLT_ARGS(p, CLT_FLOAT(attr->p[i]));
    CLT_ARGS(p, CLT_RUN(CLT_RUN_COUNT));
    if (!flat) {
        clt_arg_strided_sizes(p, &strided, DIMS);
        for (int i = 0; i < node->n_in; i++)
            clt_arg_strided_strides(p, &strided, i, DIMS);
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
