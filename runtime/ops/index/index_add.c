/* Sums into slices of an array: index_add. */
#include "base/error.h"
#include "ops/core/group_gpu.h"
#include "ops/index/index.h"
#include "ops/core/nn.h"
#include "ops/core/ops.h"
#include <cltrain/ops/index.h>

static clt_status infer(const clt_node *node, clt_type *out)
{
    const clt_index_attr *attr = node->attr;
    char a[CLT_TYPE_TEXT], b[CLT_TYPE_TEXT];
    clt_type picked;
    CLT_TRY(clt_index_check(node, 1));
    CLT_TRY(clt_index_check_batch(node, &attr->type));
    CLT_TRY(clt_index_picked_type(node, &attr->type, &picked));
    if (!clt_type_equal(&picked, &node->in[1]->type))
        return clt_fail(CLT_SHAPE, "index_add: the source is %s, not %s as the indices ask for",
                        clt_operand_text(node, 1, a), clt_type_text(&picked, b));
    if (node->in[2] && !clt_type_equal(&attr->type, &node->in[2]->type))
        return clt_fail(CLT_SHAPE, "index_add: added to %s, not to %s",
                        clt_operand_text(node, 2, a), clt_type_text(&attr->type, b));
    *out = attr->type;
    return CLT_OK;
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    const clt_index_attr *attr = node->attr;
    if (attr->padding >= 0)
        return clt_fail(CLT_UNSUPPORTED, "index_add: no gradient with padding");
    if (wanted[1])
        dx[1] = clt_emit1(&clt_op_index_select, attr, 2, node->in[0], dy[0]);
    dx[2] = wanted[2] ? dy[0] : NULL;
    return clt_graph_status(node->graph);
}

static void emit_portable(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_index_shape s = clt_index_shape_of(node);
    const clt_extent rows = clt_extent_dim(s.outer * s.size);
    clt_launch_begin(p, "index/portable/index.cl", "index_add", "-DBASE=%d", node->in[2] != NULL);
    CLT_ARGS(p, CLT_IN(0), CLT_IN(1));
    if (node->in[2])
        CLT_ARGS(p, CLT_IN(2));
    CLT_ARGS(p, CLT_OUT(0), CLT_LONG(rows), CLT_INDEX_SHAPE(&s), CLT_INDEX_PART(&s),
             CLT_FIXED(s.padding));
    clt_range_items(p, target, rows);
}

/* For results in 16 bits: links the positions of each index in order. Writes the links to a scratch
 * block and returns its index. */
static int chain_cpu(const clt_index_shape *s, const clt_target *target, clt_program *p)
{
    const clt_extent picks = clt_extent_dim(s->picks);
    const int64_t units = target->caps->compute_units, rows = (s->size + units - 1) / units;
    const int head = clt_scratch_add(p, clt_fixed(s->size * (int64_t)sizeof(int32_t)));
    const int next = clt_scratch_add(p, clt_extent_ceil(picks, 1, (int64_t)sizeof(int32_t)));
    clt_launch_begin(p, "index/cpu/index.cl", "chain", "-DVW=%d", target->caps->vector_width);
    CLT_ARGS(p, CLT_IN(0), CLT_SCRATCH(head), CLT_SCRATCH(next), CLT_INT(picks), CLT_FIXED(s->size),
             CLT_INDEX_PART(s), CLT_FIXED(s->padding), CLT_FIXED(rows));
    clt_range1(p, clt_fixed((s->size + rows - 1) / rows), 1);
    return next;
}

/* A work-item has a range of rows and a piece of each row, and iterates over all indices. For sums
 * in 16 bits, it follows the links of each row instead. */
static void emit_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { ITEMS_A_UNIT = 4 };
    const clt_index_shape s = clt_index_shape_of(node);
    const int64_t outer = clt_extent_at(clt_extent_dim(s.outer), target->max_batch);
    const int64_t items = ITEMS_A_UNIT * (int64_t)target->caps->compute_units;
    const int64_t piece = clt_index_piece(&s, target, outer),
                  pieces = (s.inner + piece - 1) / piece;
    int64_t parts = outer > 0 ? items / (outer * pieces) : 1;
    parts = parts < 1 ? 1 : parts > s.size ? s.size : parts;
    const int64_t rows = (s.size + parts - 1) / parts;
    int64_t share = outer / items;
    share = share < 1 ? 1 : share;
    const bool chained = clt_is_half(node->out[0]->type.dtype);
    clt_index_begin_cpu(node, target, p);
    const int next = chained ? chain_cpu(&s, target, p) : -1;
    clt_launch_begin(p, "index/cpu/index.cl", "index_add", "-DVW=%d", target->caps->vector_width);
    if (chained)
        CLT_ARGS(p, CLT_SCRATCH(next));
    CLT_ARGS(p, CLT_IN(0), CLT_IN(1), CLT_OUT(0), CLT_INT(clt_extent_dim(s.outer)),
             CLT_INDEX_SHAPE(&s), CLT_INDEX_PART(&s), CLT_FIXED(s.padding), CLT_FIXED(piece),
             CLT_FIXED(rows), CLT_FIXED(share));
    p->adds_parts = true; /* slice by slice */
    clt_range3(p, clt_fixed(pieces), clt_fixed((s.size + rows - 1) / rows),
               clt_extent_ceil(clt_extent_dim(s.outer), share, 1), 1, 1, 1);
}

/* The positions of each index are linked in order. The work-items of the first position add all of
 * them. */
static void emit_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_index_shape s = clt_index_shape_of(node);
    const int v = clt_index_vector(node, &s);
    const clt_extent picks = clt_extent_dim(s.picks), all = clt_index_picked(&s);
    const int next = clt_scratch_add(p, clt_extent_ceil(picks, 1, (int64_t)sizeof(int32_t)));
    (void)target;
    clt_index_begin_gpu(node, target, p);
    clt_launch_begin(p, "index/gpu/index.cl", "chain", "-DV=1");
    CLT_ARGS(p, CLT_IN(0), CLT_SCRATCH(next), CLT_INT(picks), CLT_FIXED(s.size), CLT_INDEX_PART(&s),
             CLT_FIXED(s.padding));
    clt_range_gpu(p, picks, 1);
    clt_launch_begin(p, "index/gpu/index.cl", "index_add", "-DV=%d", v);
    CLT_ARGS(p, CLT_SCRATCH(next), CLT_IN(0), CLT_IN(1), CLT_OUT(0), CLT_INT(all),
             CLT_INDEX_SHAPE(&s), CLT_INDEX_PART(&s));
    clt_range_gpu(p, all, v);
}

/* All but the indices may be stored in 16 bits. Sums are computed in f32 and rounded once. */
static bool half(const clt_node *node, const clt_target *target, int index, bool output)
{
    (void)node;
    (void)target;
    return output || index > 0;
}

const clt_op clt_op_index_add = {
    .name = "index_add",
    .doc = "base, or 0, plus slices of source at the indices.",
    .operands = "index i i32, source *, base *?!",
    CLT_INDEX_SUM_MEMBERS,
    .infer = infer,
    .gradient = gradient,
    .half = half,
    CLT_VARIANTS({"slices_cpu", clt_accepts_cpu_vectors, emit_cpu, NULL, CLT_ADDS},
                 {"chains_gpu", clt_gpu_elements_accepts, emit_gpu},
                 {"portable", clt_accepts_plain, emit_portable})};

clt_value *clt_index_add(clt_value *x, int axis, clt_value *index, clt_value *source)
{
    clt_index_attr attr;
    if (!x || !index || !source || !clt_index_attr_of("index_add", x, axis, index, &attr))
        return NULL;
    return clt_emit1(&clt_op_index_add, &attr, 3, index, source, x);
}

CLT_INDEX_CALL(index_add, "x plus slices of source at the indices of an axis.",
               "x *, index i i32, source *", "*", c->in[1], c->in[2]);
