#include "ops/core/dims.h"
#include "ops/norm/batch_norm.h"

#include "base/error.h"
#include "ops/core/nn.h"
#include "ops/core/ops.h"
#include <cltrain/ops/norm.h>

/* --- shapes --------------------------------------------------------------------------------- */

static clt_type channels_type(int64_t channels)
{
    return (clt_type){.dtype = CLT_F32, .rank = 1, .dims = {channels}};
}

static clt_type moments_type(int64_t channels)
{
    return (clt_type){.dtype = CLT_F32, .rank = 2, .dims = {3, channels}};
}

static clt_status check_images(const clt_node *node)
{
    const clt_type *x = &node->in[0]->type;
    char text[CLT_TYPE_TEXT];
    CLT_TRY(clt_check_f32(node, 0));
    if (x->rank < 2 || x->dims[1] < 1)
        return clt_fail(CLT_SHAPE, "batch_norm: the operand %s must be [B, C, d..]",
                        clt_type_text(x, text));
    return clt_check_image(node, 0, 1);
}

/* Checks that operand `operand`, if present, has the type `wanted`. */
static clt_status check_type(const clt_node *node, int operand, const clt_type *wanted,
                             const char *what)
{
    char a[CLT_TYPE_TEXT], b[CLT_TYPE_TEXT], c[CLT_TYPE_TEXT];
    if (!clt_bn_has(node, operand) || clt_type_equal(&node->in[operand]->type, wanted))
        return CLT_OK;
    return clt_fail(CLT_SHAPE, "batch_norm: the %s %s does not fit %s: %s is needed", what,
                    clt_operand_text(node, operand, a), clt_operand_text(node, 0, b),
                    clt_type_text(wanted, c));
}

static clt_status infer_moments(const clt_node *node, clt_type *out)
{
    CLT_TRY(check_images(node));
    *out = moments_type(node->in[0]->type.dims[1]);
    return CLT_OK;
}

static clt_status infer(const clt_node *node, clt_type *out)
{
    CLT_TRY(check_images(node));
    const clt_type *x = &node->in[CLT_BN_X]->type;
    const clt_type channels = channels_type(x->dims[1]), moments = moments_type(x->dims[1]);
    CLT_TRY(check_type(node, CLT_BN_MOMENTS, &moments, "moments"));
    CLT_TRY(check_type(node, CLT_BN_WEIGHT, &channels, "weight"));
    CLT_TRY(check_type(node, CLT_BN_BIAS, &channels, "bias"));
    CLT_TRY(check_type(node, CLT_BN_ADDEND, x, "addend"));
    CLT_TRY(check_type(node, CLT_BN_MEAN, &channels, "running mean"));
    CLT_TRY(check_type(node, CLT_BN_VAR, &channels, "running variance"));
    *out = *x;
    return CLT_OK;
}

static clt_status infer_running(const clt_node *node, clt_type *out)
{
    const clt_type *moments = &node->in[0]->type;
    for (int i = 0; i < 2; i++)
        out[i] = channels_type(moments->dims[1]);
    return CLT_OK;
}

static clt_status infer_tracked(const clt_node *node, clt_type *out)
{
    char text[CLT_TYPE_TEXT];
    *out = node->in[0]->type;
    if (out->dtype != CLT_I32 || clt_type_has_batch(out) || clt_type_elements(out, 0) != 1)
        return clt_fail(CLT_SHAPE,
                        "batch_norm: num_batches_tracked must be one i32 element, not %s",
                        clt_type_text(out, text));
    return CLT_OK;
}

static clt_status infer_recall(const clt_node *node, clt_type *out)
{
    *out = moments_type(node->in[0]->type.dims[0]);
    return CLT_OK;
}

/* Only `gradient` creates nodes of these two operators, and its operands fit. */
static clt_status infer_grad_sums(const clt_node *node, clt_type *out)
{
    out[0] = out[1] = channels_type(node->in[CLT_BNG_X]->type.dims[1]);
    return CLT_OK;
}

static clt_status infer_grad(const clt_node *node, clt_type *out)
{
    *out = node->in[CLT_BNG_X]->type;
    return CLT_OK;
}

/* --- gradient, fusion, evaluation ----------------------------------------------------------- */

/* If `dy` is the gradient of a ReLU of this node's result, returns the gradient that the ReLU
 * received. */
static clt_value *before_relu(const clt_node *node, clt_value *dy)
{
    const clt_node *grad = dy->producer;
    if (!grad || grad->op != &clt_op_relu_grad)
        return NULL;
    const clt_node *relu = grad->in[1]->producer;
    return relu && relu->op == &clt_op_relu && relu->in[0] == node->out[0] ? grad->in[0] : NULL;
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    clt_batch_norm_attr attr = *(const clt_batch_norm_attr *)node->attr;
    clt_value *upstream = before_relu(node, dy[0]);
    attr.relu = upstream != NULL;
    if (!upstream)
        upstream = dy[0];
    clt_value *in[CLT_BNG_IN] = {node->in[CLT_BN_X],
                                 upstream,
                                 node->in[CLT_BN_MOMENTS],
                                 node->in[CLT_BN_WEIGHT],
                                 node->in[CLT_BN_BIAS],
                                 NULL,
                                 NULL};
    const clt_node *sums =
        clt_graph_add(node->graph, &clt_op_batch_norm_grad_sums, in, CLT_BNG_DBIAS, &attr);
    if (!sums)
        return clt_graph_status(node->graph);
    in[CLT_BNG_DBIAS] = sums->out[0];
    in[CLT_BNG_DWEIGHT] = sums->out[1];
    if (wanted[CLT_BN_X] && attr.synchronised)
        CLT_TRY(clt_batch_norm_sum_all((clt_value *const[]){sums->out[0], sums->out[1]}, attr.axes,
                                       &in[CLT_BNG_DBIAS]));
    if (wanted[CLT_BN_X]) {
        const clt_node *grad =
            clt_graph_add(node->graph, &clt_op_batch_norm_grad, in, CLT_BNG_IN, &attr);
        if (!grad)
            return clt_graph_status(node->graph);
        dx[CLT_BN_X] = grad->out[0];
    }
    dx[CLT_BN_WEIGHT] = wanted[CLT_BN_WEIGHT] ? sums->out[1] : NULL;
    dx[CLT_BN_BIAS] = wanted[CLT_BN_BIAS] ? sums->out[0] : NULL;
    return CLT_OK;
}

/* A place has some elements of each channel: the gradient needs the sums of all places. */
static clt_status localise(const clt_node *node, const clt_node_part *part, void *copy)
{
    clt_batch_norm_attr *attr = copy;
    (void)node;
    if (attr->synchronised && part->label != 'c' - 'a')
        attr->axes |= 1 << part->axis;
    return CLT_OK;
}

/* Absorbs an addition of a value of the result's type, then a ReLU. */
static bool absorb(clt_node *node, const clt_node *next)
{
    clt_batch_norm_attr *attr = node->attr;
    if (attr->relu)
        return false;
    if (next->op == &clt_op_relu) {
        attr->relu = 1;
        return true;
    }
    if (next->op != &clt_op_add || clt_bn_has(node, CLT_BN_ADDEND) ||
        !clt_type_equal(&next->in[1]->type, &node->out[0]->type))
        return false;
    node->in[CLT_BN_ADDEND] = next->in[1];
    return true;
}

/* The node for evaluation: it uses the running statistics if there are any. */
static clt_value *evaluate(const clt_node *node)
{
    if (!clt_bn_has(node, CLT_BN_MEAN))
        return node->out[0];
    clt_value *const running[] = {node->in[CLT_BN_MEAN], node->in[CLT_BN_VAR]};
    const clt_node *moments =
        clt_graph_add(node->graph, &clt_op_batch_norm_recall, running, 2, NULL);
    if (!moments)
        return NULL;
    clt_value *in[CLT_BN_IN] = {NULL};
    for (int i = 0; i < CLT_BN_MEAN; i++)
        in[i] = node->in[i];
    in[CLT_BN_MOMENTS] = moments->out[0];
    const clt_node *own = clt_graph_add(node->graph, &clt_op_batch_norm, in, CLT_BN_IN, node->attr);
    return own ? own->out[0] : NULL;
}

static void describe(const clt_node *node, clt_str *text)
{
    const clt_batch_norm_attr *attr = node->attr;
    clt_str_add(text, "eps %g", attr->eps);
    if (node->op == &clt_op_batch_norm && clt_bn_has(node, CLT_BN_ADDEND))
        clt_str_add(text, ", add");
    if (attr->relu)
        clt_str_add(text, ", relu");
}

static void describe_running(const clt_node *node, clt_str *text)
{
    const clt_batch_norm_attr *attr = node->attr;
    clt_str_add(text, "momentum %g", attr->momentum);
}

/* A sum, then a sum of squared distances. */
static double flops_moments(const clt_node *node, int64_t n)
{
    return 4 * clt_flops_operand(node, n);
}

static double flops(const clt_node *node, int64_t n)
{
    return 3 * clt_flops_operand(node, n);
}

static double flops_grad(const clt_node *node, int64_t n)
{
    const clt_batch_norm_attr *attr = node->attr;
    return (attr->relu ? 7 : 4) * clt_flops_operand(node, n);
}

/* Values and gradients of samples may be stored in 16 bits; statistics, weights and sums may
 * not. */
static bool half(const clt_node *node, const clt_target *target, int index, bool output)
{
    (void)target;
    if (output || index == 0)
        return index == 0;
    return node->op == &clt_op_batch_norm ? index == CLT_BN_ADDEND : index == CLT_BNG_DY;
}

/* Rows that the layer's options and the nodes' attributes, a TYPE, have in common. */
#define BATCH_NORM_ATTRIBUTES(TYPE)                                                                \
    {CLT_ATTRIBUTE(REAL, "eps", TYPE, eps, "Added to the variance."), .most = INFINITY,            \
     .default_value = CLT_NORM_EPS},                                                               \
        {CLT_ATTRIBUTE(REAL, "momentum", TYPE, momentum,                                           \
                       "The share of a new batch in the running statistics."),                     \
         .most = 1, .default_value = 0.1},                                                         \
    {                                                                                              \
        CLT_ATTRIBUTE(FLAG, "synchronised", TYPE, synchronised,                                    \
                      "The statistics are over the samples of all devices and ranks.")             \
    }

static const clt_attribute attributes[] = {
    BATCH_NORM_ATTRIBUTES(clt_batch_norm_attr),
    {CLT_ATTRIBUTE(FLAG, "relu", clt_batch_norm_attr, relu,
                   "Applies a ReLU last. The fusion pass sets it."),
     .internal = 1},
    {CLT_ATTRIBUTE(INT, "axes", clt_batch_norm_attr, axes,
                   "Bit k: the gradient's sums are also over axis k of the mesh."),
     .most = (1 << CLT_AXES) - 1, .internal = 1},
    {0},
};

#define BATCH_NORM_OP(NAME, DOC, OPERANDS, RESULTS, ...)                                           \
    const clt_op clt_op_##NAME = {.name = #NAME,                                                   \
                                  .doc = DOC,                                                      \
                                  .operands = OPERANDS,                                            \
                                  .results = RESULTS,                                              \
                                  .attributes = attributes,                                        \
                                  .attr_bytes = sizeof(clt_batch_norm_attr),                       \
                                  __VA_ARGS__}

static const char
    in_moments[] = "x bc*",
    out_moments[] = "moments mc",
    in_norm[] =
        "x bc*, moments mc, weight c?, bias c?, addend bc*?, running_mean c?, running_var c?",
    out_y[] = "y bc*", in_sums[] = "x bc*, dy bc*, moments mc, weight c?, bias c?",
    out_sums[] = "dbias c, dweight c",
    in_grad[] = "x bc*, dy bc*, moments mc, weight c?, bias c?, dbias c?, dweight c?",
    out_dx[] = "dx bc*", in_running[] = "moments mc, running_mean c, running_var c",
    out_running[] = "running_mean c, running_var c", in_recall[] = "running_mean c, running_var c",
    in_tracked[] = "num_batches_tracked * i32", out_tracked[] = "num_batches_tracked * i32";

BATCH_NORM_OP(
    batch_norm_moments,
    "Mean, sum of squared distances from the mean, and number of the values of each channel.",
    in_moments, out_moments, .infer = infer_moments, .whole = "bm*", .flops = flops_moments,
    .batch_blocked = clt_follows_batch_blocked, .rounding = CLT_ROUNDS_NONE, .half = half,
    .variants = clt_batch_norm_variants);
BATCH_NORM_OP(batch_norm, "(x - mean) / sqrt(variance + eps) * weight + bias of each channel.",
              in_norm, out_y, .infer = infer, .whole = "m", .localise = localise,
              .gradient = gradient, .describe = describe, .flops = flops,
              .batch_blocked = clt_follows_batch_blocked, .in_place = 1u << CLT_BN_X,
              .absorb = absorb, .evaluate = evaluate, .half = half,
              .variants = clt_batch_norm_variants);
BATCH_NORM_OP(batch_norm_grad_sums, "The gradients of batch_norm for bias and weight.", in_sums,
              out_sums, .infer = infer_grad_sums, .whole = "m", .describe = describe,
              .flops = flops_grad, .batch_blocked = clt_follows_batch_blocked,
              .rounding = CLT_ROUNDS_NONE, .half = half, .variants = clt_batch_norm_variants);
BATCH_NORM_OP(batch_norm_grad, "The gradient of batch_norm for x.", in_grad, out_dx,
              .infer = infer_grad, .whole = "m", .describe = describe, .flops = flops_grad,
              .batch_blocked = clt_follows_batch_blocked,
              .in_place = 1u << CLT_BNG_X | 1u << CLT_BNG_DY, .half = half,
              .variants = clt_batch_norm_variants);
BATCH_NORM_OP(batch_norm_running, "The running statistics after a batch.", in_running, out_running,
              .infer = infer_running, .whole = "m", .describe = describe_running,
              .variants = clt_batch_norm_channel_variants);

/* Defines an operator without an attribute. */
#define BATCH_NORM_PLAIN_OP(NAME, DOC, OPERANDS, RESULTS, INFER, VARIANTS)                         \
    const clt_op clt_op_##NAME = {.name = #NAME,                                                   \
                                  .doc = DOC,                                                      \
                                  .operands = OPERANDS,                                            \
                                  .results = RESULTS,                                              \
                                  .whole = "m",                                                    \
                                  .infer = INFER,                                                  \
                                  .variants = VARIANTS}

BATCH_NORM_PLAIN_OP(batch_norm_recall, "The running statistics as moments, for evaluation.",
                    in_recall, out_moments, infer_recall, clt_batch_norm_channel_variants);
BATCH_NORM_PLAIN_OP(batch_norm_tracked, "The number of batches plus one.", in_tracked, out_tracked,
                    infer_tracked, clt_batch_norm_tracked_variants);

/* --- the builder ---------------------------------------------------------------------------- */

static bool is_state(const clt_value *value)
{
    return !value || value->kind == CLT_VALUE_STATE;
}

static clt_status read_options(const clt_value *mean, const clt_value *var,
                               const clt_value *tracked, const clt_batch_norm_options *given,
                               clt_batch_norm_attr *attr)
{
    clt_batch_norm_options own;
    clt_batch_norm_options_init(&own);
    CLT_TRY(clt_options_read("batch_norm", &own, sizeof own, given));
    CLT_TRY(clt_attributes_check(&clt_call_batch_norm, &own));
    if (!mean != !var || (tracked && !mean))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "batch_norm: running_mean and running_var are given together or not at "
                        "all, and num_batches_tracked with them only");
    if (!is_state(mean) || !is_state(var) || !is_state(tracked))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "batch_norm: running_mean, running_var and num_batches_tracked must be "
                        "states (clt_state): they are assigned");
    *attr = (clt_batch_norm_attr){
        .eps = own.eps, .momentum = own.momentum, .synchronised = own.synchronised != 0};
    return CLT_OK;
}

static void assign_running(clt_value *moments, clt_value *const states[3],
                           const clt_batch_norm_attr *attr)
{
    clt_graph *graph = moments->graph;
    clt_value *const in[] = {moments, states[0], states[1]};
    const clt_node *node = clt_graph_add(graph, &clt_op_batch_norm_running, in, 3, attr);
    for (int i = 0; node && i < 2; i++)
        clt_assign(graph, states[i], node->out[i]);
    /* This count does not depend on the batch, so replicas agree on it without a reduction. */
    if (states[2])
        clt_assign(graph, states[2], clt_emit1(&clt_op_batch_norm_tracked, NULL, 1, states[2]));
}

clt_value *clt_batch_norm(clt_value *x, clt_value *weight, clt_value *bias, clt_value *running_mean,
                          clt_value *running_var, clt_value *num_batches_tracked,
                          const clt_batch_norm_options *options)
{
    clt_batch_norm_attr attr;
    if (!x || clt_graph_status(x->graph) != CLT_OK)
        return NULL;
    const clt_status status =
        read_options(running_mean, running_var, num_batches_tracked, options, &attr);
    if (status != CLT_OK)
        return clt_graph_failed(x->graph, status);
    clt_value *moments = clt_emit1(&clt_op_batch_norm_moments, &attr, 1, x);
    if (attr.synchronised)
        moments = clt_batch_norm_join_all(moments);
    clt_value *y = clt_emit1(&clt_op_batch_norm, &attr, CLT_BN_IN, x, moments, weight, bias,
                             (clt_value *)NULL, running_mean, running_var);
    if (y && running_mean)
        assign_running(moments,
                       (clt_value *const[]){running_mean, running_var, num_batches_tracked}, &attr);
    return clt_graph_status(x->graph) == CLT_OK ? y : NULL;
}

CLT_CALLABLE_OPTIONS(
    batch_norm, clt_batch_norm_options,
    c->out[0] = clt_batch_norm(c->in[0], c->in[1], c->in[2], c->in[3], c->in[4], c->in[5], a),
    .doc = "(x - mean) / sqrt(variance + eps) * weight + bias over each channel of the batch.",
    .operands =
        "x bc*, weight c?, bias c?, running_mean c?, running_var c?, num_batches_tracked 1? i32",
    .results = "y bc*",
    CLT_ATTRIBUTES(clt_batch_norm_options, BATCH_NORM_ATTRIBUTES(clt_batch_norm_options)),
    .whole = "b*");
