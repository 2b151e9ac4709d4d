/* index_copy: replaces slices of an array at indices by other slices. */
#include "base/error.h"
#include "ops/core/group_gpu.h"
#include "ops/index/index.h"
#include "ops/core/nn.h"
#include "ops/core/ops.h"
#include <cltrain/ops/index.h>

/* Operands. Without a source, zeros are copied. */
enum { INDEX, SOURCE, BASE };

static clt_status infer(const clt_node *node, clt_type *out)
{
    const clt_index_attr *attr = node->attr;
    char a[CLT_TYPE_TEXT], b[CLT_TYPE_TEXT];
    clt_type picked;
    CLT_TRY(clt_index_check(node, BASE));
    CLT_TRY(clt_index_check_batch(node, &attr->type));
    CLT_TRY(clt_index_picked_type(node, &attr->type, &picked));
    if (node->in[SOURCE] && !clt_type_equal(&picked, &node->in[SOURCE]->type))
        return clt_fail(CLT_SHAPE, "index_copy: the source is %s, not %s as the indices ask for",
                        clt_operand_text(node, SOURCE, a), clt_type_text(&picked, b));
    *out = attr->type;
    return CLT_OK;
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    if (wanted[SOURCE])
        dx[SOURCE] = clt_emit1(&clt_op_index_select, node->attr, 2, node->in[INDEX], dy[0]);
    if (wanted[BASE])
        dx[BASE] = clt_emit1(&clt_op_index_copy, node->attr, 3, node->in[INDEX], NULL, dy[0]);
    return clt_graph_status(node->graph);
}

static void arg_arrays(const clt_node *node, clt_program *p)
{
    CLT_ARGS(p, CLT_IN(INDEX));
    if (node->in[SOURCE])
        CLT_ARGS(p, CLT_IN(SOURCE));
}

static void emit_portable(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_index_shape s = clt_index_shape_of(node);
    const clt_extent rows = clt_extent_dim(s.outer * s.size);
    clt_launch_begin(p, "index/portable/index.cl", "index_copy", "-DBASE=1 -DSOURCE=%d",
                     node->in[SOURCE] != NULL);
    arg_arrays(node, p);
    CLT_ARGS(p, CLT_IN(BASE), CLT_OUT(0), CLT_LONG(rows), CLT_INDEX_SHAPE(&s));
    clt_range_items(p, target, rows);
}

/* A work-item has a piece of the slices of some outer positions, and iterates over all indices. */
static void emit_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { LEAST = 64, ITEMS_A_UNIT = 4 };
    const clt_index_shape s = clt_index_shape_of(node);
    const int64_t outer = clt_extent_at(clt_extent_dim(s.outer), target->max_batch);
    const int64_t items = ITEMS_A_UNIT * (int64_t)target->caps->compute_units;
    int64_t pieces = outer ? (items + outer - 1) / outer : 1;
    pieces = pieces > s.inner / LEAST ? s.inner / LEAST : pieces;
    pieces = pieces < 1 ? 1 : pieces;
    const int64_t piece = ((s.inner + pieces - 1) / pieces + 15) / 16 * 16;
    int64_t share = outer / items;
    share = share < 1 ? 1 : share;
    clt_launch_begin(p, "index/cpu/index.cl", "index_copy", "-DVW=%d -DSOURCE=%d",
                     target->caps->vector_width, node->in[SOURCE] != NULL);
    arg_arrays(node, p);
    CLT_ARGS(p, CLT_IN(BASE), CLT_OUT(0), CLT_INT(clt_extent_dim(s.outer)), CLT_INDEX_SHAPE(&s),
             CLT_FIXED(piece), CLT_FIXED(share));
    clt_range3(p, clt_fixed((s.inner + piece - 1) / piece),
               clt_extent_ceil(clt_extent_dim(s.outer), share, 1), clt_fixed(1), 1, 1, 1);
}

static void emit_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_index_shape s = clt_index_shape_of(node);
    const bool fits = s.inner % 4 == 0 && clt_type_coefficient(&node->out[0]->type) % 4 == 0 &&
                      (!node->in[SOURCE] || clt_type_coefficient(&node->in[SOURCE]->type) % 4 == 0);
    const int v = fits ? 4 : 1;
    clt_index_begin_gpu(node, target, p);
    clt_launch_begin(p, "index/gpu/index.cl", "index_copy", "-DV=%d -DSOURCE=%d", v,
                     node->in[SOURCE] != NULL);
    arg_arrays(node, p);
    CLT_ARGS(p, CLT_OUT(0), CLT_INT(clt_index_picked(&s)), CLT_INDEX_SHAPE(&s));
    clt_range_gpu(p, clt_index_picked(&s), v);
}

const clt_op clt_op_index_copy = {.name = "index_copy",
                                  .doc = "base with slices replaced by source at the indices.",
                                  .operands = "index i i32, source *?, base *",
                                  .results = "y *",
                                  .by_node = "*i",
                                  CLT_INDEX_MEMBERS,
                                  .infer = infer,
                                  .gradient = gradient,
                                  .flops = clt_no_flops,
                                  .in_place = 1u << BASE,
                                  CLT_VARIANTS({"slices_cpu", clt_accepts_cpu_vectors, emit_cpu},
                                               {"slices_gpu", clt_gpu_elements_accepts, emit_gpu},
                                               {"portable", clt_accepts_plain, emit_portable})};

clt_value *clt_index_copy(clt_value *x, int axis, clt_value *index, clt_value *source)
{
    clt_index_attr attr;
    if (!x || !index || !source || !clt_index_attr_of("index_copy", x, axis, index, &attr))
        return NULL;
    return clt_emit1(&clt_op_index_copy, &attr, 3, index, source, x);
}

CLT_INDEX_CALL(index_copy, "x with slices replaced by source at the indices of an axis.",
               "x *, index i i32, source *", "*i", c->in[1], c->in[2]);
