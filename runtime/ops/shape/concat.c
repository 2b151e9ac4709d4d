/* concat: joins tensors one after the other along an axis. */
#include <string.h>

#include "base/error.h"
#include "ops/shape/move_gpu.h"
#include "ops/core/ops.h"
#include <cltrain/ops.h>

enum { MOST = 16 };

typedef struct concat_attr {
    int axis;
} concat_attr;

/* concat_part(dy): an operand's part of the gradient. Unlike a slice, it can be a part of the batch
 * axis. There, `start` and the size are multiples of the batch size. */
typedef struct part_attr {
    int axis;
    int unused;
    int64_t start; /* as in clt_type.dims */
    clt_type type;
} part_attr;

static clt_status infer(const clt_node *node, clt_type *out)
{
    const concat_attr *attr = node->attr;
    clt_type type = node->in[0]->type;
    char a[CLT_TYPE_TEXT], b[CLT_TYPE_TEXT];
    clt_type_text(&type, a);
    if (attr->axis < 0 || attr->axis >= type.rank)
        return clt_fail(CLT_SHAPE, "concat: %s has no axis %d", a, attr->axis);
    for (int i = 1; i < node->n_in; i++) {
        const clt_type *in = &node->in[i]->type;
        bool fits = in->dtype == type.dtype && in->rank == type.rank;
        for (int k = 0; fits && k < type.rank; k++)
            fits = k == attr->axis ? (in->dims[k] < 0) == (type.dims[k] < 0)
                                   : in->dims[k] == type.dims[k];
        if (!fits)
            return clt_fail(CLT_SHAPE, "concat: operand %d, %s, does not fit %s along axis %d", i,
                            clt_type_text(in, b), a, attr->axis);
        type.dims[attr->axis] += in->dims[attr->axis];
    }
    *out = type;
    return CLT_OK;
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    part_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axis = ((const concat_attr *)node->attr)->axis;
    for (int i = 0; i < node->n_in; i++) {
        attr.type = node->in[i]->type;
        if (wanted[i])
            dx[i] = clt_emit1(&clt_op_concat_part, &attr, 1, dy[0]);
        attr.start += attr.type.dims[attr.axis];
    }
    return CLT_OK;
}

/* If the operands have one size, a part of each of them makes a part of each of the result's
 * blocks. */
static void dims_of(const clt_node *node, clt_node_dims *dims)
{
    const int axis = ((const concat_attr *)node->attr)->axis;
    const int64_t size = node->in[0]->type.dims[axis];
    bool equal = size > 0;
    clt_dims_by_place(node, dims);
    for (int i = 1; i < node->n_in; i++)
        equal = equal && node->in[i]->type.dims[axis] == size;
    if (!equal)
        return;
    dims->behaviour[axis] = CLT_DIM_PARALLEL;
    dims->out_blocks[0][axis] = (unsigned char)node->n_in;
}

static void describe(const clt_node *node, clt_str *text)
{
    const concat_attr *attr = node->attr;
    clt_str_add(text, "axis %d", attr->axis);
}

/* The offset of index `start` along an axis with that stride. A negative `start` is a multiple of
 * the batch size. */
static clt_extent start_of(int64_t start, int64_t stride)
{
    clt_extent offset = clt_fixed(0);
    if (start < 0)
        clt_move_shift(&offset, 1, start * stride);
    else
        clt_move_shift(&offset, start, stride);
    return offset;
}

static clt_move move_of(const clt_node *node, int i)
{
    const int axis = ((const concat_attr *)node->attr)->axis;
    clt_move move = clt_move_of(&node->in[i]->type, &node->out[0]->type);
    int64_t start = 0;
    for (int k = 0; k < i; k++)
        start += node->in[k]->type.dims[axis];
    move.to = start_of(start, move.strided.strides[1][axis]);
    return move;
}

CLT_MOVE_VARIANTS(variants, node->n_in, move_of, i);

static void build(const clt_op_call *c)
{
    c->out[0] = clt_concat(c->in, c->n_in, ((const concat_attr *)c->attr)->axis);
}

const clt_op clt_op_concat = {
    .name = "concat",
    .doc = "The tensors joined along an axis.",
    .operands = "x *+ any",
    .results = "y * any",
    .by_node = "*",
    .dims = dims_of,
    .callable = true,
    .build = build,
    CLT_ATTRIBUTES(concat_attr,
                   {CLT_ATTRIBUTE(INT, "axis", concat_attr, axis,
                                  "The axis; negative ones count from the end."),
                    .least = -CLT_MAX_RANK, .most = CLT_MAX_RANK - 1, .default_value = 1}),
    .infer = infer,
    .gradient = gradient,
    .describe = describe,
    .flops = clt_no_flops,
    .rounding = CLT_ROUNDS_MOVES,
    .variants = variants};

static clt_status infer_part(const clt_node *node, clt_type *out)
{
    const part_attr *attr = node->attr;
    const clt_type *dy = &node->in[0]->type, *dx = &attr->type;
    char a[CLT_TYPE_TEXT], b[CLT_TYPE_TEXT];
    bool fits =
        dx->dtype == dy->dtype && dx->rank == dy->rank && attr->axis >= 0 && attr->axis < dy->rank;
    for (int k = 0; fits && k < dy->rank; k++) {
        /* Multiples of the batch size are negative. */
        const int64_t sign = dy->dims[k] < 0 ? -1 : 1, start = sign * attr->start;
        fits = k == attr->axis ? start >= 0 && sign * dx->dims[k] > 0 &&
                                     sign * dx->dims[k] <= sign * dy->dims[k] - start
                               : dx->dims[k] == dy->dims[k];
    }
    if (!fits)
        return clt_fail(CLT_SHAPE, "concat_part: %s has no part %s at %lld of axis %d",
                        clt_type_text(dy, a), clt_type_text(dx, b), (long long)attr->start,
                        attr->axis);
    *out = attr->type;
    return CLT_OK;
}

static void dims_of_part(const clt_node *node, clt_node_dims *dims)
{
    const part_attr *attr = node->attr;
    const int64_t size = attr->type.dims[attr->axis];
    const int parts = clt_dims_equal_parts(node->in[0]->type.dims[attr->axis], size, attr->start);
    clt_dims_by_place(node, dims);
    if (!parts)
        return;
    dims->behaviour[attr->axis] = CLT_DIM_PARALLEL;
    dims->in_blocks[0][attr->axis] = (unsigned char)parts;
}

static clt_status localise_part(const clt_node *node, const clt_node_part *part, void *copy)
{
    part_attr *attr = copy;
    const int64_t before = attr->start / attr->type.dims[attr->axis];
    CLT_TRY(clt_localise_type(node, part, copy));
    if (part->label == attr->axis)
        attr->start = before * attr->type.dims[attr->axis];
    return CLT_OK;
}

static void describe_part(const clt_node *node, clt_str *text)
{
    const part_attr *attr = node->attr;
    clt_str_add(text, "axis %d from %lld", attr->axis, (long long)attr->start);
}

static clt_move part_of(const clt_node *node, int i)
{
    (void)i;
    const part_attr *attr = node->attr;
    clt_move move = clt_move_of(&attr->type, &attr->type);
    clt_row_major(attr->type.rank, node->in[0]->type.dims, move.strided.strides[0]);
    move.dtype = node->out[0]->type.dtype;
    move.from = start_of(attr->start, move.strided.strides[0][attr->axis]);
    return move;
}

CLT_MOVE_VARIANTS(variants_part, 1, part_of, 0);

const clt_op clt_op_concat_part = {
    .name = "concat_part",
    .doc = "The part of a gradient that belongs to an operand of concat.",
    .operands = "dy * any",
    .results = "dx * any",
    .by_node = "*",
    .dims = dims_of_part,
    .localise = localise_part,
    CLT_ATTRIBUTES(
        part_attr, {CLT_ATTRIBUTE(INT, "axis", part_attr, axis, "The axis."), .internal = 1},
        {CLT_ATTRIBUTE(INT, "start", part_attr, start, "Where the part begins."), .internal = 1},
        {CLT_ATTRIBUTE(TYPE, "to", part_attr, type, "The type of the result."), .internal = 1}),
    .infer = infer_part,
    .describe = describe_part,
    .flops = clt_no_flops,
    .rounding = CLT_ROUNDS_MOVES,
    .variants = variants_part};

clt_value *clt_concat(clt_value *const *values, int count, int axis)
{
    concat_attr attr = {axis};
    clt_graph *graph = NULL;
    for (int i = 0; i < count; i++) {
        if (!values[i])
            return NULL;
        graph = values[i]->graph;
    }
    if (!graph)
        return NULL;
    if (axis < 0)
        attr.axis += values[0]->type.rank;
    clt_node *node = clt_graph_add(graph, &clt_op_concat, values, count, &attr);
    return node ? node->out[0] : NULL;
}
