/* Zeroes elements at random while training. The random number of an element depends on the seed,
 * the node, the step, the sample's position in the global batch and the element's index in the
 * sample, so it is the same for any split of the batch and any layout. */
#include <string.h>

#include "base/error.h"
#include "base/philox.h"
#include "ops/core/group_gpu.h"
#include "ops/core/nn.h"
#include "ops/core/ops.h"
#include <cltrain/ops.h>

typedef struct dropout_attr {
    double p;
    int stream; /* the node's number among the graph's random nodes */
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

/* `size`: elements, or vector lanes in the batch-blocked layout. */
static void emit_arguments(const clt_node *node, clt_extent size, clt_program *p)
{
    const dropout_attr *attr = node->attr;
    const clt_type *type = &node->in[0]->type;
    const int64_t sample = clt_type_coefficient(type);
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
    (void)target;
    clt_launch_begin(p, "elementwise/gpu/dropout.cl", "dropout", "-DSTREAM=%d -DV=%d",
                     CLT_STREAM_DROPOUT, aligned ? BLOCK : 1);
    emit_arguments(node, count, p);
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
    CLT_ARGS(p, CLT_LONG(clt_fixed(share)));
    clt_range1(p, clt_extent_ceil(count, share, 1), 1);
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
                    .internal = 1, .untuned = 1}),
    .infer = infer,
    .gradient = gradient,
    .describe = describe,
    .batch_blocked = clt_follows_batch_blocked,
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
