/* Single elements of an array by indices (gather), and sums into elements (scatter_add). */
#include <string.h>

#include "base/error.h"
#include "ops/core/group_gpu.h"
#include "ops/index/index.h"
#include "ops/core/nn.h"
#include "ops/core/ops.h"
#include <cltrain/ops.h>

/* The indices have the array's size on all axes except the attribute's axis. */
static clt_status check_index(const clt_node *node, const clt_type *x)
{
    const clt_index_attr *attr = node->attr;
    const clt_type *index = &node->in[0]->type;
    char a[CLT_TYPE_TEXT], b[CLT_TYPE_TEXT];
    CLT_TRY(clt_index_check(node, 1));
    bool fits = index->rank == x->rank && index->dims[attr->axis] > 0;
    for (int k = 0; fits && k < x->rank; k++)
        fits = k == attr->axis || index->dims[k] == x->dims[k];
    if (!fits)
        return clt_fail(CLT_SHAPE,
                        "%s: the indices %s do not fit %s: on all axes but %d they must have its "
                        "size",
                        node->op->name, clt_type_text(index, a), clt_type_text(x, b), attr->axis);
    return clt_index_check_batch(node, x);
}

static clt_status infer(const clt_node *node, clt_type *out)
{
    CLT_TRY(check_index(node, &node->in[1]->type));
    *out = node->in[0]->type;
    out->dtype = CLT_F32;
    return CLT_OK;
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    clt_index_attr attr = *(const clt_index_attr *)node->attr;
    attr.type = node->in[1]->type;
    if (wanted[1])
        dx[1] = clt_emit1(&clt_op_scatter_add, &attr, 3, node->in[0], dy[0], NULL);
    return clt_graph_status(node->graph);
}

static void emit_portable(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_index_shape s = clt_index_shape_of(node);
    clt_launch_begin(p, "index/portable/index.cl", "gather", "");
    CLT_ARGS(p, CLT_IN(0), CLT_IN(1), CLT_OUT(0), CLT_LONG(clt_index_picked(&s)),
             CLT_INDEX_SHAPE(&s));
    clt_range_items(p, target, clt_index_picked(&s));
}

static void emit_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { LEAST = 256, MOST = 16384, ITEMS_A_UNIT = 4 };
    const clt_index_shape s = clt_index_shape_of(node);
    const int64_t items = ITEMS_A_UNIT * (int64_t)target->caps->compute_units;
    int64_t share = clt_index_most(&s, target) / items;
    share = share < LEAST ? LEAST : share < MOST ? share : MOST;
    clt_launch_begin(p, "index/cpu/index.cl", "gather", "-DVW=%d", target->caps->vector_width);
    CLT_ARGS(p, CLT_IN(0), CLT_IN(1), CLT_OUT(0), CLT_LONG(clt_index_picked(&s)),
             CLT_INDEX_SHAPE(&s), CLT_FIXED(share));
    clt_range1(p, clt_extent_ceil(clt_index_picked(&s), share, 1), 1);
}

static void emit_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_index_shape s = clt_index_shape_of(node);
    /* A sample within an input begins at a multiple of the sample's size. */
    const int v = clt_type_coefficient(&node->in[0]->type) % 4 ? 1 : 4;
    (void)target;
    clt_launch_begin(p, "index/gpu/index.cl", "gather", "-DV=%d", v);
    CLT_ARGS(p, CLT_IN(0), CLT_IN(1), CLT_OUT(0), CLT_INT(clt_index_picked(&s)),
             CLT_INDEX_SHAPE(&s));
    clt_range_gpu(p, clt_index_picked(&s), v);
}

const clt_op clt_op_gather = {.name = "gather",
                              .doc = "The element of x at each index.",
                              .operands = "index * i32, x *",
                              .results = "y *",
                              .by_node = "*i",
                              CLT_INDEX_MEMBERS,
                              .infer = infer,
                              .gradient = gradient,
                              .flops = clt_no_flops,
                              CLT_VARIANTS({"elements_cpu", clt_accepts_cpu_vectors, emit_cpu},
                                           {"elements_gpu", clt_gpu_elements_accepts, emit_gpu},
                                           {"portable", clt_accepts_plain, emit_portable})};

/* --- scatter_add ---------------------------------------------------------------------------- */

static clt_status infer_scatter(const clt_node *node, clt_type *out)
{
    const clt_index_attr *attr = node->attr;
    char a[CLT_TYPE_TEXT], b[CLT_TYPE_TEXT];
    CLT_TRY(check_index(node, &attr->type));
    clt_type source = node->in[0]->type;
    source.dtype = CLT_F32;
    if (!clt_type_equal(&source, &node->in[1]->type))
        return clt_fail(CLT_SHAPE, "scatter_add: the source %s does not fit the indices %s",
                        clt_operand_text(node, 1, a), clt_operand_text(node, 0, b));
    if (node->in[2] && !clt_type_equal(&attr->type, &node->in[2]->type))
        return clt_fail(CLT_SHAPE, "scatter_add: added to %s, not to %s",
                        clt_operand_text(node, 2, a), clt_type_text(&attr->type, b));
    *out = attr->type;
    return CLT_OK;
}

static clt_status gradient_scatter(const clt_node *node, clt_value *const *dy, const bool *wanted,
                                   clt_value **dx)
{
    if (wanted[1])
        dx[1] = clt_emit1(&clt_op_gather, node->attr, 2, node->in[0], dy[0]);
    dx[2] = wanted[2] ? dy[0] : NULL;
    return clt_graph_status(node->graph);
}

/* Each position on the axis belongs to one work-item, which iterates over the indices of its line.
 * Lines are divided into parts so that there are enough work-items. */
static int64_t part_of(const clt_index_shape *s, const clt_target *target, int64_t items)
{
    const int64_t lines = clt_extent_at(clt_extent_dim(s->outer), target->max_batch) * s->inner;
    int64_t parts = lines ? items / lines : 1;
    parts = parts < 1 ? 1 : parts > s->size ? s->size : parts;
    return (s->size + parts - 1) / parts;
}

/* Work-items: one for each part of each of outer x inner lines. */
static clt_extent items_of(const clt_index_shape *s, int64_t part)
{
    return clt_extent_dim(s->outer * ((s->size + part - 1) / part) * s->inner);
}

static void emit_scatter_portable(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { ITEMS_A_UNIT = 64 };
    const clt_index_shape s = clt_index_shape_of(node);
    const int64_t part =
        part_of(&s, target, ITEMS_A_UNIT * (int64_t)(target->caps->compute_units + 1));
    clt_launch_begin(p, "index/portable/index.cl", "scatter_add", "-DBASE=%d", node->in[2] != NULL);
    CLT_ARGS(p, CLT_IN(0), CLT_IN(1));
    if (node->in[2])
        CLT_ARGS(p, CLT_IN(2));
    CLT_ARGS(p, CLT_OUT(0), CLT_LONG(items_of(&s, part)), CLT_INDEX_SHAPE(&s), CLT_FIXED(part));
    clt_range_items(p, target, items_of(&s, part));
}

/* A work-item iterates over the indices of whole slices, element by element of the line. */
static void emit_scatter_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { ITEMS_A_UNIT = 4 };
    const clt_index_shape s = clt_index_shape_of(node);
    const int64_t outer = clt_extent_at(clt_extent_dim(s.outer), target->max_batch);
    const int64_t items = ITEMS_A_UNIT * (int64_t)target->caps->compute_units;
    int64_t share = outer / items, pieces = outer ? items / outer : 1;
    share = share < 1 ? 1 : share;
    pieces = pieces < 1 ? 1 : pieces > s.inner ? s.inner : pieces;
    const int64_t piece = (s.inner + pieces - 1) / pieces;
    pieces = (s.inner + piece - 1) / piece;
    int64_t parts = outer > 0 ? items / (outer * pieces) : 1;
    parts = parts < 1 ? 1 : parts > s.size ? s.size : parts;
    const int64_t part = (s.size + parts - 1) / parts;
    clt_launch_begin(p, "index/cpu/index.cl", "scatter_add", "-DVW=%d -DBASE=%d",
                     target->caps->vector_width, node->in[2] != NULL);
    CLT_ARGS(p, CLT_IN(0), CLT_IN(1));
    if (node->in[2])
        CLT_ARGS(p, CLT_IN(2));
    CLT_ARGS(p, CLT_OUT(0), CLT_INT(clt_extent_dim(s.outer)), CLT_INDEX_SHAPE(&s), CLT_FIXED(piece),
             CLT_FIXED(part), CLT_FIXED(share));
    clt_range3(p, clt_fixed(pieces), clt_fixed((s.size + part - 1) / part),
               clt_extent_ceil(clt_extent_dim(s.outer), share, 1), 1, 1, 1);
}

static void emit_scatter_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_index_shape s = clt_index_shape_of(node);
    const int64_t part = part_of(&s, target, clt_gpu_groups(target) * CLT_GPU_GROUP);
    const clt_extent items = items_of(&s, part);
    clt_index_begin_gpu(node, target, p);
    clt_launch_begin(p, "index/gpu/index.cl", "scatter_add", "-DV=1");
    CLT_ARGS(p, CLT_IN(0), CLT_IN(1), CLT_OUT(0), CLT_INT(items), CLT_INDEX_SHAPE(&s),
             CLT_FIXED(part));
    clt_range_gpu(p, items, 1);
}

const clt_op clt_op_scatter_add = {
    .name = "scatter_add",
    .doc = "base, or 0, plus elements of source at the indices.",
    .operands = "index * i32, source *, base *?!",
    CLT_INDEX_SUM_MEMBERS,
    .infer = infer_scatter,
    .gradient = gradient_scatter,
    CLT_VARIANTS({"lines_cpu", clt_accepts_cpu_vectors, emit_scatter_cpu},
                 {"lines_gpu", clt_gpu_elements_accepts, emit_scatter_gpu},
                 {"portable", clt_accepts_plain, emit_scatter_portable})};

/* --- builders ------------------------------------------------------------------------------- */

/* Cuts x to the index's size on all axes but `axis` (-1: on all). The operator reports sizes that
 * do not fit. */
static clt_value *cut(clt_value *x, int axis, const clt_value *index)
{
    int64_t start[CLT_MAX_RANK] = {0}, stop[CLT_MAX_RANK];
    bool whole = true;
    if (!x || x->type.rank != index->type.rank)
        return x;
    for (int k = 0; k < x->type.rank; k++) {
        const bool shorter = k != axis && x->type.dims[k] > 0 && index->type.dims[k] > 0 &&
                             index->type.dims[k] < x->type.dims[k];
        stop[k] = shorter ? index->type.dims[k] : CLT_TO_END;
        whole = whole && !shorter;
    }
    return whole ? x : clt_slice(x, start, stop, NULL);
}

static bool attr_of(const char *op, clt_value *x, int axis, clt_index_attr *attr)
{
    memset(attr, 0, sizeof *attr);
    attr->padding = -1;
    attr->type = x->type;
    const clt_status status = clt_index_axis(op, x, axis, &attr->axis);
    if (status != CLT_OK)
        clt_graph_failed(x->graph, status);
    return status == CLT_OK;
}

clt_value *clt_gather(clt_value *x, int axis, clt_value *index)
{
    clt_index_attr attr;
    if (!x || !index || !attr_of("gather", x, axis, &attr))
        return NULL;
    return clt_emit1(&clt_op_gather, &attr, 2, index, cut(x, attr.axis, index));
}

clt_value *clt_scatter_add(clt_value *x, int axis, clt_value *index, clt_value *source)
{
    clt_index_attr attr;
    if (!x || !index || !source || !attr_of("scatter_add", x, axis, &attr))
        return NULL;
    return clt_emit1(&clt_op_scatter_add, &attr, 3, index, cut(source, -1, index), x);
}

CLT_INDEX_CALL(gather, "The element of x at each index.", "x *, index * i32", "*", c->in[1]);

CLT_INDEX_CALL(scatter_add, "x plus elements of source at the indices of an axis.",
               "x *, index * i32, source *", "*", c->in[1], c->in[2]);
