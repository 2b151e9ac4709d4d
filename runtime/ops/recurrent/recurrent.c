/* LSTM and GRU over whole sequences: checks, gradients, and variants that launch kernels for each
 * step (see recurrent.h). */
#include "ops/recurrent/recurrent.h"

#include <limits.h>
#include <stdio.h>

#include "base/error.h"
#include "ops/core/nn.h"
#include "ops/core/ops.h"
#include <cltrain/ops.h>

enum { REVERSE = 1, HAS_BIAS = 2, HAS_H0 = 4, HAS_C0 = 8, HAS_LENGTHS = 16 };
enum { HAS_DY = 32, HAS_DH = 64, HAS_DC = 128 };

/* In clkernels/recurrent/gpu/recurrent.cl: the work-items of a work-group, and its samples and
 * units. */
enum { GROUP = 64, TILE = 16 };

static bool has(const clt_node *node, int operand)
{
    return operand < node->n_in && node->in[operand];
}

static bool is_gradient(const clt_node *node)
{
    return node->op == &clt_op_lstm_grad || node->op == &clt_op_gru_grad;
}

static bool is_lstm(const clt_node *node)
{
    return node->op == &clt_op_lstm || node->op == &clt_op_lstm_grad;
}

clt_recurrent_shape clt_recurrent_shape_of(const clt_node *node)
{
    const clt_recurrent_attr *attr = node->attr;
    const bool gradient = is_gradient(node);
    const clt_type *y = &(gradient ? node->in[CLT_RNN_GRAD_Y] : node->out[CLT_RNN_Y])->type;
    clt_recurrent_shape s = {.batch = y->dims[0],
                             .gates = is_lstm(node) ? 4 : 3,
                             .steps = (int)y->dims[1],
                             .hidden = (int)y->dims[2],
                             .reverse = attr->reverse,
                             .flags = attr->reverse ? REVERSE : 0};
    if (gradient)
        s.flags |= (has(node, CLT_RNN_GRAD_H0) ? HAS_H0 : 0) |
                   (has(node, CLT_RNN_GRAD_C0) ? HAS_C0 : 0) |
                   (has(node, CLT_RNN_GRAD_LENGTHS) ? HAS_LENGTHS : 0) |
                   (has(node, CLT_RNN_GRAD_DY) ? HAS_DY : 0) |
                   (has(node, CLT_RNN_GRAD_DH_N) ? HAS_DH : 0) |
                   (has(node, CLT_RNN_GRAD_DC_N) ? HAS_DC : 0);
    else
        s.flags |= (has(node, CLT_RNN_BIAS) ? HAS_BIAS : 0) | (has(node, CLT_RNN_H0) ? HAS_H0 : 0) |
                   (has(node, CLT_RNN_C0) ? HAS_C0 : 0) |
                   (has(node, CLT_RNN_LENGTHS) ? HAS_LENGTHS : 0);
    return s;
}

/* --- checks ---------------------------------------------------------------------------------- */

/* Fails if the operand is present and has another type. `like` names the operand that it must
 * match. */
static clt_status check_like(const clt_node *node, int operand, const char *name, clt_dtype dtype,
                             int rank, int64_t first, int64_t second, const char *like)
{
    char text[CLT_TYPE_TEXT], want[CLT_TYPE_TEXT];
    if (!has(node, operand))
        return CLT_OK;
    const clt_type *type = &node->in[operand]->type;
    const clt_type wanted = {.dtype = dtype, .rank = rank, .dims = {first, second}};
    if (type->dtype != dtype)
        return clt_fail(CLT_INVALID_ARGUMENT, "%s: %s must be %s, not %s", node->op->name, name,
                        clt_type_text(&wanted, want), clt_type_text(type, text));
    if (!clt_type_equal(type, &wanted))
        return clt_fail(CLT_SHAPE, "%s: %s %s must be %s, for %s", node->op->name, name,
                        clt_type_text(type, text), clt_type_text(&wanted, want), like);
    return CLT_OK;
}

static clt_status infer(const clt_node *node, clt_type *out)
{
    const int gates = is_lstm(node) ? 4 : 3;
    const clt_type *x = &node->in[CLT_RNN_X]->type, *w = &node->in[CLT_RNN_W]->type;
    char tx[CLT_TYPE_TEXT], tw[CLT_TYPE_TEXT], like[2 * CLT_TYPE_TEXT + 64];
    CLT_TRY(clt_check_f32(node, CLT_RNN_X));
    CLT_TRY(clt_check_f32(node, CLT_RNN_W));
    clt_operand_text(node, CLT_RNN_X, tx);
    clt_operand_text(node, CLT_RNN_W, tw);
    if (w->rank != 2 || w->dims[1] < 1 || w->dims[0] != gates * w->dims[1])
        return clt_fail(CLT_SHAPE, "%s: weight_hh %s must be [%d H, H]", node->op->name, tw, gates);
    if (x->rank != 3 || x->dims[2] != w->dims[0])
        return clt_fail(CLT_SHAPE, "%s: the gates' input %s does not fit weight_hh %s",
                        node->op->name, tx, tw);
    if (x->dims[1] < 0)
        return clt_fail(CLT_UNSUPPORTED, "%s: the number of steps of %s depends on the batch",
                        node->op->name, tx);
    CLT_TRY(clt_check_image(node, CLT_RNN_X, 1));
    CLT_TRY(clt_check_image(node, CLT_RNN_W, 0));
    const int64_t batch = x->dims[0], hidden = w->dims[1];
    const int saved = gates == 4 ? 5 : 4;
    if (batch > INT_MAX || saved * hidden * x->dims[1] > INT_MAX)
        return clt_fail(CLT_UNSUPPORTED, "%s: the sequences of %s are too large", node->op->name,
                        tx);
    snprintf(like, sizeof like, "the weight %s", tw);
    CLT_TRY(check_like(node, CLT_RNN_BIAS, "bias_hh", CLT_F32, 1, w->dims[0], 0, like));
    snprintf(like, sizeof like, "%s and weight_hh %s", tx, tw);
    CLT_TRY(check_like(node, CLT_RNN_H0, "h0", CLT_F32, 2, batch, hidden, like));
    CLT_TRY(check_like(node, CLT_RNN_C0, "c0", CLT_F32, 2, batch, hidden, like));
    CLT_TRY(check_like(node, CLT_RNN_LENGTHS, "lengths", CLT_I32, 1, batch, 0, like));
    const clt_type state = {.dtype = CLT_F32, .rank = 2, .dims = {batch, hidden}};
    out[CLT_RNN_Y] = *x;
    out[CLT_RNN_Y].dims[2] = hidden;
    out[CLT_RNN_H_N] = state;
    out[CLT_RNN_C_N] = gates == 4 ? state : (clt_type){.dtype = CLT_F32, .rank = 1, .dims = {1}};
    out[CLT_RNN_SAVED] = *x;
    out[CLT_RNN_SAVED].dims[2] = saved * hidden;
    return CLT_OK;
}

/* Only this file creates gradient nodes, and their operands fit. */
static clt_status infer_grad(const clt_node *node, clt_type *out)
{
    const clt_recurrent_shape s = clt_recurrent_shape_of(node);
    const clt_type *y = &node->in[CLT_RNN_GRAD_Y]->type;
    const clt_type state = {.dtype = CLT_F32, .rank = 2, .dims = {s.batch, s.hidden}};
    out[CLT_RNN_GRAD_DX] = *y;
    out[CLT_RNN_GRAD_DX].dims[2] = (int64_t)s.gates * s.hidden;
    out[CLT_RNN_GRAD_DH0] = state;
    out[CLT_RNN_GRAD_DC0] = s.gates == 4 ? state : out[CLT_RNN_GRAD_DX];
    out[CLT_RNN_GRAD_BEFORE] = *y;
    return CLT_OK;
}

static void describe(const clt_node *node, clt_str *text)
{
    const clt_recurrent_attr *attr = node->attr;
    if (attr->reverse)
        clt_str_add(text, "reverse");
}

/* The recurrent products, and about 30 operations for each element of a state. */
static double flops(const clt_node *node, int64_t n)
{
    const clt_recurrent_shape s = clt_recurrent_shape_of(node);
    return (double)clt_dim(s.batch, n) * s.steps * s.hidden * (2.0 * s.gates * s.hidden + 30);
}

/* --- gradient -------------------------------------------------------------------------------- */

static clt_value *operand(const clt_node *node, int index)
{
    return has(node, index) ? node->in[index] : NULL;
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    const bool lstm = is_lstm(node);
    const bool bias = has(node, CLT_RNN_BIAS) && wanted[CLT_RNN_BIAS];
    clt_value *const in[] = {node->in[CLT_RNN_W],
                             node->out[CLT_RNN_SAVED],
                             node->out[CLT_RNN_Y],
                             dy[CLT_RNN_Y],
                             dy[CLT_RNN_H_N],
                             lstm ? dy[CLT_RNN_C_N] : NULL,
                             operand(node, CLT_RNN_H0),
                             operand(node, CLT_RNN_C0),
                             operand(node, CLT_RNN_LENGTHS)};
    clt_node *steps = clt_graph_add(node->graph, lstm ? &clt_op_lstm_grad : &clt_op_gru_grad, in,
                                    sizeof in / sizeof *in, node->attr);
    if (!steps)
        return clt_graph_status(node->graph);
    dx[CLT_RNN_X] = steps->out[CLT_RNN_GRAD_DX];
    if (has(node, CLT_RNN_H0))
        dx[CLT_RNN_H0] = steps->out[CLT_RNN_GRAD_DH0];
    if (has(node, CLT_RNN_C0))
        dx[CLT_RNN_C0] = steps->out[CLT_RNN_GRAD_DC0];
    if (wanted[CLT_RNN_W] || bias) {
        /* One matrix product over all steps. */
        const clt_linear_weight_grad_attr grad = {.bias = bias};
        clt_value *const of[] = {steps->out[CLT_RNN_GRAD_BEFORE],
                                 steps->out[lstm ? CLT_RNN_GRAD_DX : CLT_RNN_GRAD_DGATES]};
        clt_node *product = clt_graph_add(node->graph, &clt_op_linear_weight_grad, of, 2, &grad);
        if (!product)
            return clt_graph_status(node->graph);
        dx[CLT_RNN_W] = product->out[0];
        if (bias)
            dx[CLT_RNN_BIAS] = product->out[1];
    }
    return clt_graph_status(node->graph);
}

/* --- variants with a launch for each step ----------------------------------------------------- */

void clt_recurrent_arg_in(const clt_node *node, int index, clt_program *p)
{
    CLT_ARGS(p, CLT_IN(has(node, index) ? index : 0));
}

static void arg_sizes(const clt_recurrent_shape *s, clt_program *p)
{
    CLT_ARGS(p, CLT_INT(clt_extent_dim(s->batch)), CLT_FIXED(s->steps), CLT_FIXED(s->hidden));
}

/* The portable kernels and the GPU kernels take the same arguments. */
static void begin(const clt_recurrent_shape *s, bool gpu, bool forward, const char *kernel,
                  clt_program *p)
{
    if (gpu)
        clt_launch_begin(p, "recurrent/gpu/recurrent.cl", kernel, "-DFORWARD=%d -DGATES=%d -DV=%d",
                         forward, s->gates, s->hidden % 4 ? 1 : 4);
    else
        clt_launch_begin(p, "recurrent/portable/recurrent.cl", kernel, "-DGATES=%d", s->gates);
}

static void range(const clt_recurrent_shape *s, bool gpu, const clt_target *target, clt_program *p)
{
    clt_extent items = clt_extent_dim(s->batch);
    if (gpu) {
        clt_range3(p, clt_fixed((s->hidden + TILE - 1) / TILE * GROUP),
                   clt_extent_ceil(items, TILE, 1), clt_fixed(1), GROUP, 1, 1);
        return;
    }
    items.mul *= s->hidden;
    clt_range_items(p, target, items);
}

static void emit(const clt_node *node, const clt_target *target, clt_program *p, bool gpu)
{
    const clt_recurrent_shape s = clt_recurrent_shape_of(node);
    for (int i = 0; i < s.steps; i++) {
        begin(&s, gpu, true, gpu ? "gemm_cells" : "recurrent_step", p);
        for (int o = 0; o <= CLT_RNN_LENGTHS; o++)
            clt_recurrent_arg_in(node, o, p);
        for (int o = 0; o < node->n_out; o++)
            CLT_ARGS(p, CLT_OUT(o));
        arg_sizes(&s, p);
        CLT_ARGS(p, CLT_FIXED(s.reverse ? s.steps - 1 - i : i), CLT_FIXED(s.flags));
        range(&s, gpu, target, p);
    }
}

static void emit_grad(const clt_node *node, const clt_target *target, clt_program *p, bool gpu)
{
    const clt_recurrent_shape s = clt_recurrent_shape_of(node);
    const int dgates = s.gates == 4 ? CLT_RNN_GRAD_DX : CLT_RNN_GRAD_DGATES;
    const int dc0 = s.gates == 4 ? CLT_RNN_GRAD_DC0 : CLT_RNN_GRAD_DH0;
    for (int i = 0; i < s.steps; i++) {
        begin(&s, gpu, false, gpu ? "gemm_cells_grad" : "recurrent_step_grad", p);
        for (int o = 0; o <= CLT_RNN_GRAD_LENGTHS; o++)
            clt_recurrent_arg_in(node, o, p);
        CLT_ARGS(p, CLT_OUT(CLT_RNN_GRAD_DX), CLT_OUT(dgates), CLT_OUT(dc0),
                 CLT_OUT(CLT_RNN_GRAD_BEFORE));
        arg_sizes(&s, p);
        CLT_ARGS(p, CLT_FIXED(s.reverse ? i : s.steps - 1 - i), CLT_FIXED(s.flags));
        range(&s, gpu, target, p);
    }
    begin(&s, gpu, false, gpu ? "gemm_start_grad" : "recurrent_start_grad", p);
    CLT_ARGS(p, CLT_IN(CLT_RNN_GRAD_W));
    clt_recurrent_arg_in(node, CLT_RNN_GRAD_DH_N, p);
    clt_recurrent_arg_in(node, CLT_RNN_GRAD_DC_N, p);
    clt_recurrent_arg_in(node, CLT_RNN_GRAD_LENGTHS, p);
    CLT_ARGS(p, CLT_OUT(dgates), CLT_OUT(CLT_RNN_GRAD_DH0), CLT_OUT(dc0));
    arg_sizes(&s, p);
    CLT_ARGS(p, CLT_FIXED(s.flags));
    range(&s, gpu, target, p);
}

static void emit_portable(const clt_node *node, const clt_target *target, clt_program *p)
{
    emit(node, target, p, false);
}

static void emit_grad_portable(const clt_node *node, const clt_target *target, clt_program *p)
{
    emit_grad(node, target, p, false);
}

static void emit_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    emit(node, target, p, true);
}

static void emit_grad_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    emit_grad(node, target, p, true);
}

static bool accepts_gpu(const clt_node *node, const clt_target *target, char *why)
{
    enum { LOCAL_BYTES = 16384 };
    const clt_caps *caps = target->caps;
    if (!clt_all_plain(node))
        return clt_decline(why, "values are batch-blocked");
    if (clt_caps_is_cpu(caps))
        return clt_decline(why, "made for GPUs");
    if (caps->max_work_group < GROUP || caps->local_bytes < LOCAL_BYTES)
        return clt_decline(why, "work-groups of %d with %lld bytes of local memory",
                           caps->max_work_group, (long long)caps->local_bytes);
    return true;
}

static const clt_variant variants[] = {
    {"rows_cpu", clt_recurrent_cpu_accepts, clt_recurrent_cpu},
    {"steps_gpu", accepts_gpu, emit_gpu},
    {"portable", NULL, emit_portable},
    {0},
};

static const clt_variant grad_variants[] = {
    {"rows_cpu", clt_recurrent_cpu_accepts, clt_recurrent_grad_cpu},
    {"steps_gpu", accepts_gpu, emit_grad_gpu},
    {"portable", NULL, emit_grad_portable},
    {0},
};

static const clt_attribute attributes[] = {
    {CLT_ATTRIBUTE(FLAG, "reverse", clt_recurrent_attr, reverse,
                   "Runs from the last step to the first.")},
    {0},
};

#define RECURRENT(NAME, DOC, RESULTS, GRADIENTS)                                                   \
    const clt_op clt_op_##NAME = {                                                                 \
        .name = #NAME,                                                                             \
        .doc = DOC,                                                                                \
        .attributes = attributes,                                                                  \
        .whole = "ghis",                                                                           \
        .scan = "t",                                                                               \
        .operands = "gates btg, weight_hh gh, bias_hh g?, h0 bh?, c0 bh?, lengths b? i32",         \
        .results = RESULTS,                                                                        \
        .attr_bytes = sizeof(clt_recurrent_attr),                                                  \
        .infer = infer,                                                                            \
        .gradient = gradient,                                                                      \
        .describe = describe,                                                                      \
        .flops = flops,                                                                            \
        .variants = variants};                                                                     \
    const clt_op clt_op_##NAME##_grad = {.name = #NAME "_grad",                                    \
                                         .doc = "The gradient of " #NAME ".",                      \
                                         .attributes = attributes,                                 \
                                         .whole = "ghis",                                          \
                                         .scan = "t",                                              \
                                         .operands =                                               \
                                             "weight_hh gh, saved bts, y bth, dy bth?, dh_n bh?, " \
                                             "dc_n bh?, h0 bh?, c0 bh?, lengths b? i32",           \
                                         .results = GRADIENTS,                                     \
                                         .attr_bytes = sizeof(clt_recurrent_attr),                 \
                                         .infer = infer_grad,                                      \
                                         .describe = describe,                                     \
                                         .flops = flops,                                           \
                                         .variants = grad_variants}

static const char out_lstm[] = "y bth, h_n bh, c_n bh, saved bts",
                  out_gru[] = "y bth, h_n bh, unused 1, saved bts",
                  out_lstm_grad[] = "dgates btg, dh0 bh, dc0 bh, before bth",
                  out_gru_grad[] = "dgates btg, dh0 bh, dproduct btg, before bth";

RECURRENT(lstm, "Long short-term memory. The operand gates is the input times its weight.",
          out_lstm, out_lstm_grad);
RECURRENT(gru, "Gated recurrent unit. The operand gates is the input times its weight.", out_gru,
          out_gru_grad);

/* --- builders -------------------------------------------------------------------------------- */

CLT_STRUCT_INIT(clt_recurrent_options, )

/* Checks the operands of the input's product for the caller. linear would report operands that the
 * caller did not pass. */
static clt_status check_input(const char *op, int gates, const clt_value *x, const clt_value *w,
                              const clt_value *bias)
{
    char tx[CLT_TYPE_TEXT], tw[CLT_TYPE_TEXT];
    clt_type_text(&x->type, tx);
    clt_type_text(&w->type, tw);
    if (x->type.dtype != CLT_F32 || w->type.dtype != CLT_F32 ||
        (bias && bias->type.dtype != CLT_F32))
        return clt_fail(CLT_INVALID_ARGUMENT, "%s: x %s, weight_ih %s and the biases must be f32",
                        op, tx, tw);
    if (x->type.rank != 3)
        return clt_fail(CLT_SHAPE, "%s: x %s must be [B, T, I]", op, tx);
    if (w->type.rank != 2 || w->type.dims[0] % gates || w->type.dims[1] != x->type.dims[2])
        return clt_fail(CLT_SHAPE,
                        "%s: weight_ih %s must be [%d H, I], with I the last dimension "
                        "of x %s",
                        op, tw, gates, tx);
    if (bias && (bias->type.rank != 1 || bias->type.dims[0] != w->type.dims[0]))
        return clt_fail(CLT_SHAPE, "%s: the bias %s does not fit weight_ih %s", op,
                        clt_type_text(&bias->type, tx), tw);
    return CLT_OK;
}

static clt_status build(const clt_op *op, int gates, clt_value *x, clt_value *weight_ih,
                        clt_value *weight_hh, clt_value *bias_ih, clt_value *bias_hh,
                        const clt_recurrent_options *given, clt_node **node)
{
    clt_recurrent_options options;
    clt_recurrent_options_init(&options);
    if (!x || !weight_ih || !weight_hh) {
        clt_graph *failed = x           ? x->graph
                            : weight_ih ? weight_ih->graph
                            : weight_hh ? weight_hh->graph
                                        : NULL;
        if (failed && failed->status != CLT_OK)
            return clt_graph_status(failed);
        return clt_fail(CLT_INVALID_ARGUMENT, "%s: an operand is NULL", op->name);
    }
    clt_graph *graph = x->graph;
    clt_status status = clt_options_read(op->name, &options, sizeof options, given);
    CLT_NEXT(status, check_input(op->name, gates, x, weight_ih, bias_ih));
    if (status == CLT_OK && gates == 4)
        status = check_input(op->name, gates, x, weight_ih, bias_hh);
    if (status == CLT_OK && gates == 3 && options.c0)
        status = clt_fail(CLT_INVALID_ARGUMENT, "%s: there is no cell for c0", op->name);
    if (status != CLT_OK) {
        clt_graph_failed(graph, status);
        return status;
    }
    const clt_recurrent_attr attr = {.reverse = options.reverse != 0};
    /* A GRU's reset gate multiplies a part of bias_hh, so bias_hh stays with the recurrent
     * product. */
    clt_value *bias = bias_ih && bias_hh && gates == 4 ? clt_add(bias_ih, bias_hh) : bias_ih;
    if (!bias && gates == 4)
        bias = bias_hh;
    clt_value *const in[] = {clt_linear(x, weight_ih, bias),
                             weight_hh,
                             gates == 3 ? bias_hh : NULL,
                             options.h0,
                             options.c0,
                             options.lengths};
    if (in[0])
        *node = clt_graph_add(graph, op, in, sizeof in / sizeof *in, &attr);
    return clt_graph_status(graph);
}

clt_status clt_lstm(clt_value *x, clt_value *weight_ih, clt_value *weight_hh, clt_value *bias_ih,
                    clt_value *bias_hh, const clt_recurrent_options *options, clt_value **y,
                    clt_value **h_n, clt_value **c_n)
{
    clt_node *node = NULL;
    const clt_status status =
        build(&clt_op_lstm, 4, x, weight_ih, weight_hh, bias_ih, bias_hh, options, &node);
    *y = node ? node->out[CLT_RNN_Y] : NULL;
    if (h_n)
        *h_n = node ? node->out[CLT_RNN_H_N] : NULL;
    if (c_n)
        *c_n = node ? node->out[CLT_RNN_C_N] : NULL;
    return status;
}

clt_status clt_gru(clt_value *x, clt_value *weight_ih, clt_value *weight_hh, clt_value *bias_ih,
                   clt_value *bias_hh, const clt_recurrent_options *options, clt_value **y,
                   clt_value **h_n)
{
    clt_node *node = NULL;
    const clt_status status =
        build(&clt_op_gru, 3, x, weight_ih, weight_hh, bias_ih, bias_hh, options, &node);
    *y = node ? node->out[CLT_RNN_Y] : NULL;
    if (h_n)
        *h_n = node ? node->out[CLT_RNN_H_N] : NULL;
    return status;
}

static void call_lstm(const clt_op_call *c)
{
    clt_recurrent_options o;
    clt_recurrent_options_init(&o);
    o.reverse = ((const clt_recurrent_attr *)c->attr)->reverse;
    o.h0 = c->in[5];
    o.c0 = c->in[6];
    o.lengths = c->in[7];
    clt_lstm(c->in[0], c->in[1], c->in[2], c->in[3], c->in[4], &o, &c->out[0], &c->out[1],
             &c->out[2]);
}

const clt_op clt_call_lstm = {
    .name = "lstm",
    .doc = "Long short-term memory over whole sequences.",
    .operands =
        "x bti, weight_ih gi, weight_hh gh, bias_ih g?, bias_hh g?, h0 bh?, c0 bh?, lengths b? i32",
    .results = "y bth, h_n bh, c_n bh",
    .attributes = attributes,
    .whole = "ghi",
    .scan = "t",
    .attr_bytes = sizeof(clt_recurrent_attr),
    .callable = true,
    .build = call_lstm};

static void call_gru(const clt_op_call *c)
{
    clt_recurrent_options o;
    clt_recurrent_options_init(&o);
    o.reverse = ((const clt_recurrent_attr *)c->attr)->reverse;
    o.h0 = c->in[5];
    o.lengths = c->in[6];
    clt_gru(c->in[0], c->in[1], c->in[2], c->in[3], c->in[4], &o, &c->out[0], &c->out[1]);
}

const clt_op clt_call_gru = {
    .name = "gru",
    .doc = "Gated recurrent unit over whole sequences.",
    .operands = "x bti, weight_ih gi, weight_hh gh, bias_ih g?, bias_hh g?, h0 bh?, lengths b? i32",
    .results = "y bth, h_n bh",
    .attributes = attributes,
    .whole = "ghi",
    .scan = "t",
    .attr_bytes = sizeof(clt_recurrent_attr),
    .callable = true,
    .build = call_gru};
