/* Zeroes elements at random while training. The random number of an element depends on the seed,
 * the node, the step, the sample's position in the global batch and the element's index in the
 * sample, so it is the same for any split of the batch and any layout. In a part of a tensor, it is
 * that of the whole tensor's element. */
#include <string.h>

#include "base/error.h"
#include "base/philox.h"
#include "graph/mesh.h"
#include "ops/core/group_gpu.h"
#include "ops/core/nn.h"
#include "ops/core/ops.h"
#include <cltrain/ops.h>

typedef struct dropout_attr {
    double p;
    int stream; /* the node's number among the graph's random nodes */
    int unused;
    /* In a part of a divided tensor: of each `row` elements of the whole, x has `run`, from
     * `lowest` on. run 0: x is whole. */
    int64_t run, row, lowest;
} dropout_attr;

static clt_status infer(const clt_node *node, clt_type *out)
{
    const clt_type *in = &node->in[0]->type;
    char text[CLT_TYPE_TEXT];
    CLT_TRY(clt_check_f32(node, 0));
    for (int k = 1; k < in->rank; k++)
        if (in->dims[k] < 0)
            return clt_fail(CLT_UNSUPPORTED, "dropout: the batch must be the first dimension of %s",
                            clt_type_text(in, text));
    *out = *in;
    return CLT_OK;
}

/* The gradient draws the same random numbers again, so no mask is stored. */
static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    (void)wanted;
    dx[0] = clt_emit1(&clt_op_dropout, node->attr, 1, dy[0]);
    return CLT_OK;
}

static void describe(const clt_node *node, clt_str *text)
{
    const dropout_attr *attr = node->attr;
    clt_str_add(text, "p %g, stream %d", attr->p, attr->stream);
}

static clt_value *evaluate(const clt_node *node)
{
    return node->in[0];
}

/* Where the runs of a part lie; one run if x is whole. */
static void emit_runs(const clt_node *node, clt_program *p)
{
    const dropout_attr *attr = node->attr;
    CLT_ARGS(p, CLT_LONG(clt_fixed(attr->run ? attr->run : INT64_MAX)),
             CLT_LONG(clt_fixed(attr->row)), CLT_LONG(clt_fixed(attr->lowest)));
}

/* `size`: elements, or vector lanes in the batch-blocked layout. */
static void emit_arguments(const clt_node *node, clt_extent size, clt_program *p)
{
    const dropout_attr *attr = node->attr;
    const clt_type *type = &node->in[0]->type;
    const int64_t own = clt_type_coefficient(type);
    const int64_t sample = attr->run ? own / attr->run * attr->row : own;
    CLT_ARGS(p, CLT_IN(0), CLT_OUT(0));
    if (node->in[0]->layout == CLT_LAYOUT_BATCH_BLOCKED)
        CLT_ARGS(p, CLT_INT(size));
    else
        CLT_ARGS(p, CLT_LONG(size));
    /* A tensor without a batch gets the same random numbers on every device. */
    CLT_ARGS(p, CLT_LONG(clt_fixed(clt_type_has_batch(type) ? sample : 0)), CLT_FLOAT(attr->p),
             CLT_FLOAT(attr->p < 1 ? 1 / (1 - attr->p) : 0), CLT_FIXED(attr->stream),
             CLT_RUN(CLT_RUN_SEED), CLT_RUN(CLT_RUN_STEP), CLT_RUN(CLT_RUN_SAMPLE));
}

/* A work-item computes a block of four random numbers. If samples do not begin at a block's start,
 * one more block is needed. */
static void emit_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { BLOCK = 4 };
    const clt_type *type = &node->in[0]->type;
    clt_extent count = clt_extent_elements(type);
    const bool aligned = !clt_type_has_batch(type) || clt_type_coefficient(type) % BLOCK == 0;
    const bool part = ((const dropout_attr *)node->attr)->run != 0;
    (void)target;
    clt_launch_begin(p, "elementwise/gpu/dropout.cl", "dropout", "-DSTREAM=%d -DV=%d -DPART=%d",
                     CLT_STREAM_DROPOUT, aligned ? BLOCK : 1, part);
    emit_arguments(node, count, p);
    emit_runs(node, p);
    clt_extent items = clt_extent_ceil(count, BLOCK * CLT_GPU_GROUP, CLT_GPU_GROUP);
    if (!aligned)
        items.add += CLT_GPU_GROUP;
    clt_range1(p, items, CLT_GPU_GROUP);
}

/* A work-item computes 16 consecutive elements. In the batch-blocked layout they belong to one
 * sample. */
static void emit(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { CHUNK = 16 };
    const clt_type *type = &node->in[0]->type;
    const bool in_batch_blocked = node->in[0]->layout == CLT_LAYOUT_BATCH_BLOCKED;
    const int64_t sample = clt_type_coefficient(type);
    const clt_extent count = clt_extent_elements(type);
    clt_launch_begin(p,
                     in_batch_blocked ? "elementwise/batch_blocked/dropout.cl"
                                      : "elementwise/portable/dropout.cl",
                     in_batch_blocked ? "dropout_batch_blocked" : "dropout", "-DSTREAM=%d",
                     CLT_STREAM_DROPOUT);
    emit_arguments(node, in_batch_blocked ? clt_fixed(target->lanes) : count, p);
    if (!in_batch_blocked)
        emit_runs(node, p);
    if (in_batch_blocked)
        clt_range3(p, clt_fixed(target->lanes), clt_fixed((sample + CHUNK - 1) / CHUNK),
                   (clt_extent){1, 1, target->lanes, 0}, target->lanes, 1, 1);
    else
        clt_range1(p, clt_extent_ceil(count, CHUNK * 16, 16), 16);
}

static void emit_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { LEAST = 256, MOST = 16384, ITEMS_A_UNIT = 4 };
    const clt_type *type = &node->in[0]->type;
    const clt_extent count = clt_extent_elements(type);
    const int64_t items = ITEMS_A_UNIT * (int64_t)target->caps->compute_units;
    int64_t share = clt_extent_at(count, target->max_batch) / items / LEAST * LEAST;
    share = share < LEAST ? LEAST : share < MOST ? share : MOST;
    clt_launch_begin(p, "elementwise/cpu/dropout.cl", "dropout", "-DVW=%d -DSTREAM=%d",
                     target->caps->vector_width, CLT_STREAM_DROPOUT);
    emit_arguments(node, count, p);
    emit_runs(node, p);
    CLT_ARGS(p, CLT_LONG(clt_fixed(share)));
    clt_range1(p, clt_extent_ceil(count, share, 1), 1);
}

/* A part of a dimension is a run of each row: of the block with all dimensions behind it. */
static clt_status localise(const clt_node *node, const clt_node_part *part, void *copy)
{
    const clt_type *whole = &node->in[0]->type;
    dropout_attr *attr = copy;
    clt_node_dims dims;
    clt_node_dims_of(node, &dims);
    for (int k = 0; k < whole->rank; k++) {
        if (dims.in[0][k] != part->label)
            continue;
        if (attr->run)
            return clt_fail(CLT_UNSUPPORTED, "node %s: dropout cannot be divided twice, over %s",
                            node->name, clt_axis_name(part->axis));
        const int64_t inner = clt_dims_product(whole, k + 1, whole->rank);
        const int64_t block = whole->dims[k] / part->blocks;
        attr->row = block * inner;
        attr->run = clt_part_size(block, part->at.places, part->at.place) * inner;
        attr->lowest = clt_part_begin(block, part->at.places, part->at.place) * inner;
    }
    return CLT_OK;
}

static int batch_blocked(const clt_node *node)
{
    return ((const dropout_attr *)node->attr)->run ? CLT_BATCH_BLOCKED_NO
                                                   : clt_follows_batch_blocked(node);
}

static void build(const clt_op_call *c)
{
    c->out[0] = clt_dropout(c->in[0], ((const dropout_attr *)c->attr)->p);
}

const clt_op clt_op_dropout = {
    .name = "dropout",
    .doc = "In training, zeroes elements with probability p and scales the others by 1 / (1 - p).",
    .operands = "x *",
    .results = "y *",
    .callable = true,
    .build = build,
    CLT_ATTRIBUTES(dropout_attr,
                   {CLT_ATTRIBUTE(REAL, "p", dropout_attr, p, "The probability of zeroing."),
                    .most = 1, .default_value = 0.5},
                   {CLT_ATTRIBUTE(INT, "stream", dropout_attr, stream,
                                  "The node's number among the random nodes of the graph."),
                    .internal = 1, .untuned = 1},
                   {CLT_ATTRIBUTE(INT, "run", dropout_attr, run,
                                  "In a part of a tensor: elements of each row; 0: x is whole."),
                    .internal = 1},
                   {CLT_ATTRIBUTE(INT, "row", dropout_attr, row,
                                  "In a part of a tensor: elements of the whole tensor's rows."),
                    .internal = 1, .untuned = 1},
                   {CLT_ATTRIBUTE(INT, "lowest", dropout_attr, lowest,
                                  "In a part of a tensor: the first of each row's elements."),
                    .internal = 1, .untuned = 1}),
    .infer = infer,
    .localise = localise,
    .gradient = gradient,
    .describe = describe,
    .batch_blocked = batch_blocked,
    .in_place = 1,
    .evaluate = evaluate,
    .half = clt_half_all,
    CLT_VARIANTS({"blocks_cpu", clt_accepts_cpu_vectors, emit_cpu},
                 {"vectors_gpu", clt_gpu_group_accepts, emit_gpu}, {"portable", NULL, emit})};

clt_value *clt_dropout(clt_value *x, double p)
{
    if (!x)
        return NULL;
    dropout_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.p = p;
    attr.stream = x->graph->streams++;
    return clt_emit1(&clt_op_dropout, &attr, 1, x);
}
