/* global_avg_pool2d: means of whole planes, and its gradient. In the plain layout it uses the
 * kernels of mean. */
#include <stdio.h>

#include "base/error.h"
#include "graph/mesh.h"
#include "ops/collective/collective.h"
#include "ops/core/dims.h"
#include "ops/core/group_gpu.h"
#include "ops/core/nn.h"
#include "ops/core/ops.h"
#include "ops/reduce/reduce.h"
#include <cltrain/ops.h>

/* `in` holds H and W of x, for both operators. */
typedef struct global_attr {
    int in[2];
} global_attr;

static int64_t count_of(const clt_node *node)
{
    const global_attr *a = node->attr;
    return (int64_t)a->in[0] * a->in[1];
}

static clt_status check(const clt_node *node, int height, int width)
{
    const clt_type *x = &node->in[0]->type;
    char text[CLT_TYPE_TEXT];
    CLT_TRY(clt_check_f32(node, 0));
    if (x->rank != 4 || x->dims[2] != height || x->dims[3] != width)
        return clt_fail(CLT_SHAPE, "%s: the operand %s must be [B, C, %d, %d]", node->op->name,
                        clt_type_text(x, text), height, width);
    return clt_check_image(node, 0, 1);
}

static clt_status infer(const clt_node *node, clt_type *out)
{
    const global_attr *a = node->attr;
    CLT_TRY(check(node, a->in[0], a->in[1]));
    *out = node->in[0]->type;
    out->dims[2] = out->dims[3] = 1;
    return CLT_OK;
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    if (wanted[0])
        dx[0] = clt_emit1(&clt_op_global_avg_pool2d_grad, node->attr, 1, dy[0]);
    return clt_graph_status(node->graph);
}

/* The mean is the sum of the parts' means, each multiplied by its share of the elements. */
static clt_status divide(const clt_node *node, const clt_node_part *part, clt_value *const *in,
                         clt_value **stash, clt_value **out)
{
    const global_attr own = {{(int)in[0]->type.dims[2], (int)in[0]->type.dims[3]}};
    clt_value *mean = clt_emit1(&clt_op_global_avg_pool2d, &own, 1, in[0]);
    const double share = (double)own.in[0] * own.in[1] / (double)count_of(node);
    char name[192];
    (void)stash;
    snprintf(name, sizeof name, "%.120s.%s", node->name, clt_axis_name(part->axis));
    out[0] = clt_axis_all_reduce(clt_scale(mean, share), part->axis, CLT_AXIS_SUM);
    clt_label(out[0], name);
    return clt_graph_status(node->graph);
}

static void describe(const clt_node *node, clt_str *text)
{
    const global_attr *a = node->attr;
    clt_str_add(text, "%dx%d", a->in[0], a->in[1]);
}

static clt_extent planes_of(const clt_node *node)
{
    return clt_extent_dim(clt_dims_product(&node->out[0]->type, 0, 2));
}

static void begin(const clt_node *node, clt_program *p, const char *file, const char *options,
                  int number)
{
    clt_launch_begin(p, file, node->op->name, "-D%s=%d", options, number);
    CLT_ARGS(p, CLT_IN(0), CLT_OUT(0));
}

static void emit_batch_blocked(const clt_node *node, const clt_target *target, clt_program *p)
{
    begin(node, p, "pool/batch_blocked/resample.cl", "LANES", target->lanes);
    CLT_ARGS(p, CLT_FIXED(count_of(node)));
    clt_range1(p, (clt_extent){node->out[0]->type.dims[1], 1, target->lanes, 0}, 1);
}

static void emit_portable(const clt_node *node, const clt_target *target, clt_program *p)
{
    clt_launch_begin(p, "pool/portable/resample.cl", node->op->name, "%s", "");
    CLT_ARGS(p, CLT_IN(0), CLT_OUT(0), CLT_INT(planes_of(node)), CLT_FIXED(count_of(node)));
    clt_range_items(p, target, clt_extent_elements(&node->out[0]->type));
}

/* The mean over the last two axes of the node's operand. */
typedef struct as_mean {
    clt_reduce_attr attr;
    clt_node node;
} as_mean;

static void mean_of(const clt_node *node, as_mean *m)
{
    m->attr = (clt_reduce_attr){.axes = 1u << 2 | 1u << 3, .type = node->out[0]->type};
    m->node = *node;
    m->node.op = &clt_op_mean;
    m->node.attr = &m->attr;
}

static bool accepts_rows(const clt_node *node, const clt_target *target, char *why)
{
    as_mean m;
    mean_of(node, &m);
    return clt_reduce_cpu_rows_accepts(&m.node, target, why);
}

static void emit_rows(const clt_node *node, const clt_target *target, clt_program *p)
{
    as_mean m;
    mean_of(node, &m);
    clt_reduce_cpu_rows(&m.node, target, p);
}

static bool accepts_tree(const clt_node *node, const clt_target *target, char *why)
{
    as_mean m;
    mean_of(node, &m);
    return clt_reduce_gpu_accepts(&m.node, target, why);
}

static void emit_tree(const clt_node *node, const clt_target *target, clt_program *p)
{
    as_mean m;
    mean_of(node, &m);
    clt_reduce_gpu(&m.node, target, p);
}

const clt_op clt_op_global_avg_pool2d = {
    .name = "global_avg_pool2d",
    .doc = "The mean of each channel of an image.",
    .operands = "x bchw",
    .results = "y bc11",
    .whole = "hw",
    CLT_ATTRIBUTES(global_attr, {CLT_ATTRIBUTE(INT, "in", global_attr, in, "Size of x."),
                                 .count = 2, .internal = 1}),
    .infer = infer,
    .gradient = gradient,
    .divide = divide,
    .describe = describe,
    .flops = clt_flops_operand,
    .batch_blocked = clt_wants_batch_blocked,
    CLT_VARIANTS(
        {"batch_blocked", clt_accepts_batch_blocked, emit_batch_blocked, NULL, CLT_BATCH_BLOCKED},
        {"rows_cpu", accepts_rows, emit_rows}, {"tree_gpu", accepts_tree, emit_tree},
        {"portable", clt_accepts_plain, emit_portable}),
};

clt_value *clt_global_avg_pool2d(clt_value *x)
{
    const global_attr attr = {{(int)x->type.dims[2], (int)x->type.dims[3]}};
    return clt_emit1(&clt_op_global_avg_pool2d, &attr, 1, x);
}

/* --- global_avg_pool2d_grad -------------------------------------------------------------------
 */

static clt_status infer_grad(const clt_node *node, clt_type *out)
{
    const global_attr *a = node->attr;
    CLT_TRY(check(node, 1, 1));
    *out = node->in[0]->type;
    out->dims[2] = a->in[0];
    out->dims[3] = a->in[1];
    return CLT_OK;
}

static void emit_grad_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_extent planes = planes_of(node);
    const int64_t items = 4 * (int64_t)target->caps->compute_units;
    const int64_t share = (clt_extent_at(planes, target->max_batch) + items - 1) / items;
    begin(node, p, "pool/cpu/resample.cl", "VW", target->caps->vector_width);
    CLT_ARGS(p, CLT_INT(planes), CLT_FIXED(count_of(node)), CLT_FIXED(share > 0 ? share : 1));
    clt_range1(p, clt_extent_ceil(planes, share > 0 ? share : 1, 1), 1);
}

static void emit_grad_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const int v = count_of(node) % 4 ? 1 : 4;
    clt_extent items = planes_of(node);
    items.mul *= count_of(node) / v;
    (void)target;
    begin(node, p, "pool/gpu/resample.cl", "V", v);
    CLT_ARGS(p, CLT_INT(planes_of(node)), CLT_FIXED(count_of(node)));
    clt_range_gpu(p, items, 1);
}

const clt_op clt_op_global_avg_pool2d_grad = {
    .name = "global_avg_pool2d_grad",
    .doc = "The gradient of global_avg_pool2d.",
    .operands = "dy bc11",
    .results = "dx bchw",
    .whole = "hw",
    CLT_ATTRIBUTES(global_attr, {CLT_ATTRIBUTE(INT, "in", global_attr, in, "Size of x."),
                                 .count = 2, .internal = 1}),
    .infer = infer_grad,
    .describe = describe,
    .flops = clt_flops_operand,
    .batch_blocked = clt_wants_batch_blocked,
    CLT_VARIANTS(
        {"batch_blocked", clt_accepts_batch_blocked, emit_batch_blocked, NULL, CLT_BATCH_BLOCKED},
        {"vectors_gpu", clt_gpu_elements_accepts, emit_grad_gpu},
        {"vectors_cpu", clt_accepts_cpu_vectors, emit_grad_cpu},
        {"portable", clt_accepts_plain, emit_portable}),
};
