/* Launches of batch norm. The kernels in norm/cpu/, norm/gpu/ and norm/portable/batch_norm.cl have
 * the same names, operands and sizes. They differ in how the work is divided. */
#include <stdio.h>

#include "ops/norm/batch_norm.h"
#include "ops/core/group_gpu.h"
#include "ops/core/nn.h"
#include "ops/norm/norm_rows.h"
#include "ops/core/ops.h"

typedef struct shape {
    clt_extent images;
    int64_t most; /* the most samples; at least 1 */
    int64_t channels, pixels;
} shape;

static shape shape_of(const clt_node *node, const clt_target *target)
{
    const clt_type *x = &node->in[0]->type;
    shape s = {.images = clt_extent_dim(x->dims[0]),
               .channels = x->dims[1],
               .pixels = clt_dims_product(x, 2, x->rank)};
    s.most = clt_extent_at(s.images, target->max_batch);
    return s;
}

static bool is_sums(const clt_node *node)
{
    return node->op == &clt_op_batch_norm_moments || node->op == &clt_op_batch_norm_grad_sums;
}

static bool is_gradient(const clt_node *node)
{
    return node->op == &clt_op_batch_norm_grad || node->op == &clt_op_batch_norm_grad_sums;
}

/* Begins a launch of the kernel with the operator's name. */
static void begin(clt_program *p, const clt_node *node, const char *file, const char *more)
{
    const clt_batch_norm_attr *attr = node->attr;
    const bool grad = is_gradient(node);
    clt_launch_begin(p, file, node->op->name, "%s-DWEIGHT=%d -DBIAS=%d -DRELU=%d -DADD=%d", more,
                     clt_bn_has(node, grad ? CLT_BNG_WEIGHT : CLT_BN_WEIGHT),
                     clt_bn_has(node, grad ? CLT_BNG_BIAS : CLT_BN_BIAS), attr->relu,
                     !grad && clt_bn_has(node, CLT_BN_ADDEND));
}

/* Adds the node's operands, the results and the sizes. `block` is scratch memory for partial
 * results, or -1. */
static void arg_all(clt_program *p, const clt_node *node, const shape *s, int block)
{
    const clt_batch_norm_attr *attr = node->attr;
    for (int i = 0; i < node->n_in && (is_gradient(node) || i < CLT_BN_MEAN); i++)
        if (node->in[i])
            CLT_ARGS(p, CLT_IN(i));
    if (block < 0)
        CLT_ARGS(p, CLT_OUT(0));
    else
        CLT_ARGS(p, CLT_SCRATCH(block));
    CLT_ARGS(p, CLT_INT(s->images), CLT_FIXED(s->channels), CLT_FIXED(s->pixels));
    if (node->op != &clt_op_batch_norm_moments)
        CLT_ARGS(p, CLT_FLOAT(attr->eps));
}

static int add_parts(clt_program *p, const clt_node *node, const shape *s, int64_t parts)
{
    const int64_t each = node->op == &clt_op_batch_norm_moments ? 3 : 2;
    return clt_scratch_add(p, clt_fixed(parts * each * s->channels * (int64_t)sizeof(float)));
}

/* Adds the last launches of an operator of sums, which combine the partial results. */
static void join(clt_program *p, const clt_node *node, const clt_target *target, const shape *s,
                 int block, int64_t parts)
{
    if (node->op == &clt_op_batch_norm_moments) {
        clt_launch_begin(p, "norm/portable/batch_norm.cl", "batch_norm_join", "");
        CLT_ARGS(p, CLT_SCRATCH(block), CLT_OUT(0), CLT_FIXED(s->channels), CLT_FIXED(parts));
        clt_range_items(p, target, clt_fixed(s->channels));
        return;
    }
    for (int i = 0; i < 2; i++)
        clt_norm_sum_parts(p, target, block, i, s->channels, 2 * s->channels, i * s->channels,
                           parts);
}

/* --- CPUs, both layouts: an item has `share` channels of `chunk` samples or batch blocks ---- */

typedef struct division {
    int64_t share, chunk, parts;
} division;

/* Divides the work into items of at least LEAST floats; ITEMS_A_UNIT for each unit if there is
 * enough work. Items of sums have few channels and many samples, which makes few partial sums. */
static division divide(const shape *s, const clt_target *target, int64_t groups, int64_t length,
                       bool sums)
{
    enum { LEAST = 4096, ELEMENTS = 16384, ITEMS_A_UNIT = 8 };
    const int64_t units = target->caps->compute_units > 0 ? target->caps->compute_units : 1;
    const int64_t wanted = ITEMS_A_UNIT * units;
    division d = {.share = clt_ceil_div(sums ? LEAST : ELEMENTS, length), .chunk = 1, .parts = 1};
    if (!sums && clt_ceil_div(s->channels, d.share) * groups < wanted)
        d.share = clt_ceil_div(LEAST, length);
    if (d.share > s->channels)
        d.share = s->channels;
    if (!sums) {
        d.chunk = clt_ceil_div(LEAST, d.share * length);
        return d;
    }
    if (clt_ceil_div(s->channels, d.share) < wanted)
        d.share = clt_ceil_div(s->channels, wanted);
    d.parts = clt_ceil_div(wanted, clt_ceil_div(s->channels, d.share));
    const int64_t most = clt_ceil_div(groups * d.share * length, LEAST);
    d.parts = d.parts < most ? d.parts : most;
    d.parts = d.parts < groups ? d.parts : groups;
    d.chunk = clt_ceil_div(groups, d.parts);
    d.parts = clt_ceil_div(groups, d.chunk);
    return d;
}

static void emit_runs(const clt_node *node, const clt_target *target, clt_program *p, int width,
                      int lanes)
{
    const shape s = shape_of(node, target);
    const int64_t groups = lanes ? clt_ceil_div(s.most, lanes) : s.most;
    const clt_extent extent = lanes ? clt_extent_blocks(target) : s.images;
    const division d = divide(&s, target, groups, s.pixels * (lanes ? lanes : 1), is_sums(node));
    const int block = is_sums(node) ? add_parts(p, node, &s, d.parts) : -1;
    char more[64];
    snprintf(more, sizeof more, "-DVW=%d -DBATCH_BLOCKED=%d ", width, lanes != 0);
    begin(p, node, "norm/cpu/batch_norm.cl", more);
    arg_all(p, node, &s, block);
    CLT_ARGS(p, CLT_FIXED(d.share), CLT_FIXED(d.chunk));
    /* Every partial result is written, even if it has no samples. */
    clt_range3(p, clt_fixed(clt_ceil_div(s.channels, d.share)),
               block < 0 ? clt_extent_ceil(extent, d.chunk, 1) : clt_fixed(d.parts), clt_fixed(1),
               1, 1, 1);
    if (block >= 0)
        join(p, node, target, &s, block, d.parts);
}

static void emit_batch_blocked(const clt_node *node, const clt_target *target, clt_program *p)
{
    emit_runs(node, target, p, target->lanes, target->lanes);
}

static void emit_runs_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    emit_runs(node, target, p, target->caps->vector_width, 0);
}

/* --- GPUs ----------------------------------------------------------------------------------- */

static bool accepts_gpu(const clt_node *node, const clt_target *target, char *why)
{
    enum { MOST = 1 << 30 };
    if (!clt_gpu_group_accepts(node, target, why))
        return false;
    const shape s = shape_of(node, target);
    if (s.most * s.pixels > MOST || s.most * s.channels > MOST / s.pixels * 4)
        return clt_decline(why, "more than %d elements", MOST);
    return true;
}

/* Sums: a work-group has one channel, or 32 neighbouring channels if a channel's elements are not
 * contiguous. Other kernels: a work-item has one vector. */
static void emit_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { WIDTH = 32, FEW_PIXELS = 16, EACH = 16 };
    const shape s = shape_of(node, target);
    const int v = s.pixels % 4 ? 1 : 4;
    const int width = is_sums(node) && s.pixels < FEW_PIXELS && s.channels > 1 ? WIDTH : 1;
    const int64_t columns = clt_ceil_div(s.channels, width);
    int block = -1;
    int64_t parts = 1;
    char more[96];
    if (is_sums(node)) {
        const int64_t wanted = clt_ceil_div(2 * clt_gpu_groups(target), columns);
        const int64_t most = clt_ceil_div(s.most * s.pixels * width, (int64_t)EACH * CLT_GPU_GROUP);
        parts = most < wanted ? most : wanted;
        if (parts > s.most)
            parts = s.most;
        block = add_parts(p, node, &s, parts);
    }
    snprintf(more, sizeof more, "-DV=%d -DWIDTH=%d -DGROUP=%d ", width > 1 ? 1 : v, width,
             CLT_GPU_GROUP);
    begin(p, node, "norm/gpu/batch_norm.cl", more);
    arg_all(p, node, &s, block);
    if (block < 0) {
        const clt_extent items = clt_extent_elements(&node->in[0]->type);
        clt_range_gpu(p, items, v);
        return;
    }
    CLT_ARGS(p, CLT_FIXED(parts));
    clt_range3(p, clt_fixed(columns * CLT_GPU_GROUP), clt_fixed(parts), clt_fixed(1), CLT_GPU_GROUP,
               1, 1);
    join(p, node, target, &s, block, parts);
}

/* --- portable ------------------------------------------------------------------------------- */

static void emit_portable(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { PARTS = 16 };
    const shape s = shape_of(node, target);
    const int64_t parts = s.most < PARTS ? s.most : PARTS;
    const int block = is_sums(node) ? add_parts(p, node, &s, parts) : -1;
    begin(p, node, "norm/portable/batch_norm.cl", "");
    arg_all(p, node, &s, block);
    if (block < 0) {
        clt_range_items(p, target, clt_extent_elements(&node->in[0]->type));
        return;
    }
    CLT_ARGS(p, CLT_FIXED(parts));
    clt_range_items(p, target, clt_fixed(parts * s.channels));
    join(p, node, target, &s, block, parts);
}

const clt_variant clt_batch_norm_variants[] = {
    {"batch_blocked", clt_accepts_batch_blocked, emit_batch_blocked, NULL, CLT_BATCH_BLOCKED},
    {"runs_cpu", clt_accepts_cpu_vectors, emit_runs_cpu},
    {"channels_gpu", accepts_gpu, emit_gpu},
    {"portable", clt_accepts_plain, emit_portable},
    {0},
};

/* --- one work-item for each channel --------------------------------------------------------- */

static void emit_channels(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_type *first = &node->in[0]->type;
    const int64_t channels = first->dims[first->rank - 1];
    const bool running = node->op == &clt_op_batch_norm_running;
    const clt_batch_norm_attr *attr = node->attr;
    clt_launch_begin(p, "norm/portable/batch_norm.cl", node->op->name, "");
    clt_args_in(p, node->n_in);
    for (int i = 0; i < node->n_out; i++)
        CLT_ARGS(p, CLT_OUT(i));
    CLT_ARGS(p, CLT_FIXED(channels));
    if (running)
        CLT_ARGS(p, CLT_FLOAT(attr->momentum));
    clt_range_items(p, target, clt_fixed(channels));
}

static void emit_tracked(const clt_node *node, const clt_target *target, clt_program *p)
{
    (void)node;
    clt_launch_begin(p, "norm/portable/batch_norm.cl", "batch_norm_tracked", "");
    CLT_ARGS(p, CLT_IN(0), CLT_OUT(0));
    clt_range_items(p, target, clt_fixed(1));
}

const clt_variant clt_batch_norm_tracked_variants[] = {{"portable", NULL, emit_tracked}, {0}};
const clt_variant clt_batch_norm_channel_variants[] = {{"portable", NULL, emit_channels}, {0}};
