/* pad: surrounds a tensor with a constant. */
#include <string.h>

#include "base/error.h"
#include "ops/shape/move_gpu.h"
#include "ops/core/ops.h"
#include "ops/core/tensor.h"
#include "ops/core/nn.h"
#include <cltrain/ops.h>

typedef struct pad_attr {
    int64_t before[CLT_MAX_RANK], after[CLT_MAX_RANK];
    double value;
} pad_attr;

static clt_status infer(const clt_node *node, clt_type *out)
{
    const pad_attr *attr = node->attr;
    clt_type type = node->in[0]->type;
    char text[CLT_TYPE_TEXT];
    clt_type_text(&type, text);
    if (attr->value != 0 && type.dtype != CLT_F32 && type.dtype != CLT_I32)
        return clt_fail(CLT_UNSUPPORTED, "pad: %s can be padded with 0 only, not with %g", text,
                        attr->value);
    for (int k = 0; k < type.rank; k++) {
        const bool none = !attr->before[k] && !attr->after[k];
        if (attr->before[k] < 0 || attr->after[k] < 0 || (type.dims[k] < 0 && !none))
            return clt_fail(CLT_SHAPE, "pad: %lld before and %lld after do not fit axis %d of %s",
                            (long long)attr->before[k], (long long)attr->after[k], k, text);
        if (!none)
            type.dims[k] += attr->before[k] + attr->after[k];
    }
    *out = type;
    return CLT_OK;
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    const pad_attr *attr = node->attr;
    int64_t step[CLT_MAX_RANK];
    (void)wanted;
    for (int k = 0; k < CLT_MAX_RANK; k++)
        step[k] = 1;
    dx[0] = clt_slice_of(dy[0], attr->before, step, node->in[0]->type.dims);
    return CLT_OK;
}

static void describe(const clt_node *node, clt_str *text)
{
    const pad_attr *attr = node->attr;
    for (int k = 0; k < node->in[0]->type.rank; k++)
        clt_str_add(text, "%s%lld+%lld", k ? ", " : "", (long long)attr->before[k],
                    (long long)attr->after[k]);
    clt_str_add(text, " of %g", attr->value);
}

static bool half(const clt_node *node, const clt_target *target, int index, bool output)
{
    const pad_attr *attr = node->attr;
    (void)target;
    (void)index;
    (void)output;
    return attr->value == 0; /* the bits of 0 are known for every type */
}

/* The bits of the constant. */
static uint32_t bits_of(const clt_node *node)
{
    const pad_attr *attr = node->attr;
    const float as_float = (float)attr->value;
    uint32_t bits = (uint32_t)(int32_t)(node->out[0]->type.dtype == CLT_I32 ? attr->value : 0);
    if (node->out[0]->type.dtype == CLT_F32)
        memcpy(&bits, &as_float, sizeof bits);
    return bits;
}

static clt_move move_of(const clt_node *node)
{
    const pad_attr *attr = node->attr;
    clt_move move = clt_move_of(&node->in[0]->type, &node->out[0]->type);
    for (int k = 0; k < move.strided.rank; k++)
        clt_move_shift(&move.to, attr->before[k], move.strided.strides[1][k]);
    return move;
}

static void emit(const clt_node *node, const clt_target *target, clt_program *p)
{
    clt_move move = move_of(node);
    clt_fill_emit(node, bits_of(node), target, p);
    clt_move_emit(&move, 0, target, p);
}

static bool accepts_cpu(const clt_node *node, const clt_target *target, char *why)
{
    const clt_move move = move_of(node);
    return clt_move_cpu_fills(node, target, &move, why);
}

static void emit_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    clt_move move = move_of(node);
    const uint64_t bits = bits_of(node);
    clt_move_emit_cpu(&move, 0, &bits, target, p);
}

static void emit_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const pad_attr *attr = node->attr;
    int64_t step[CLT_MAX_RANK];
    (void)target;
    for (int k = 0; k < CLT_MAX_RANK; k++)
        step[k] = 1;
    clt_place_gpu_emit(node, attr->before, step, bits_of(node), p);
}

const clt_op clt_op_pad = {
    .name = "pad",
    .doc = "x with a constant added around it.",
    .operands = "x * any",
    .results = "y * any",
    .by_node = "*",
    .dims = clt_dims_by_place,
    CLT_ATTRIBUTES(
        pad_attr,
        {CLT_ATTRIBUTE(INT, "before", pad_attr, before, "Elements added before each axis."),
         .count = CLT_MAX_RANK, .internal = 1},
        {CLT_ATTRIBUTE(INT, "after", pad_attr, after, "Elements added behind each axis."),
         .count = CLT_MAX_RANK, .internal = 1},
        {CLT_ATTRIBUTE(REAL, "value", pad_attr, value, "The value of the added elements.")}),
    .infer = infer,
    .gradient = gradient,
    .describe = describe,
    .flops = clt_no_flops,
    .rounding = CLT_ROUNDS_MOVES,
    .half = half,
    CLT_VARIANTS({"runs_cpu", accepts_cpu, emit_cpu},
                 {"vectors_gpu", clt_gpu_elements_accepts, emit_gpu}, {"portable", NULL, emit})};

clt_value *clt_pad(clt_value *x, const int64_t *before, const int64_t *after, double value)
{
    pad_attr attr;
    if (!x)
        return NULL;
    memset(&attr, 0, sizeof attr);
    memcpy(attr.before, before, (size_t)x->type.rank * sizeof *before);
    memcpy(attr.after, after, (size_t)x->type.rank * sizeof *after);
    attr.value = value;
    return clt_emit1(&clt_op_pad, &attr, 1, x);
}

typedef struct pad_call {
    pad_attr pad;
    int n_before, n_after;
} pad_call;

static void call_pad(const clt_op_call *c)
{
    pad_call call = *(const pad_call *)c->attr;
    if (clt_entries(c->op, c->in[0], "before", call.pad.before, call.n_before, 0) &&
        clt_entries(c->op, c->in[0], "after", call.pad.after, call.n_after, 0))
        c->out[0] = clt_pad(c->in[0], call.pad.before, call.pad.after, call.pad.value);
}

const clt_op clt_call_pad = {
    .name = "pad",
    .doc = "x with a constant added around it.",
    .operands = "x * any",
    .results = "y * any",
    CLT_ATTRIBUTES(
        pad_call,
        {CLT_ATTRIBUTE(INT, "before", pad_call, pad.before,
                       "Elements added before each axis. Default: 0."),
         .count = CLT_MAX_RANK, .list = 1, .length = offsetof(pad_call, n_before), .most = INT_MAX},
        {CLT_ATTRIBUTE(INT, "after", pad_call, pad.after,
                       "Elements added behind each axis. Default: 0."),
         .count = CLT_MAX_RANK, .list = 1, .length = offsetof(pad_call, n_after), .most = INT_MAX},
        {CLT_ATTRIBUTE(REAL, "value", pad_call, pad.value, "The value of the added elements.")}),
    .whole = "*",
    .callable = true,
    .build = call_pad};
