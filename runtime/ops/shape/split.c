/* split and stack. A split into at most four parts is one node, whose gradient is a concat. A split
 * into more parts is a slice for each part. */
#include <string.h>

#include "base/error.h"
#include "ops/shape/move_gpu.h"
#include "ops/core/ops.h"
#include "ops/core/tensor.h"
#include <cltrain/ops.h>

enum { PARTS = CLT_MAX_OUTPUTS };

/* Outputs beyond `count` have one element that no kernel writes. */
typedef struct split_attr {
    int axis, count;
    int64_t sizes[PARTS];
} split_attr;

static clt_type part_type(const clt_type *in, const split_attr *attr, int part)
{
    clt_type type = {.dtype = in->dtype, .rank = 1, .dims = {1}};
    if (part < attr->count) {
        type = *in;
        type.dims[attr->axis] = attr->sizes[part];
    }
    return type;
}

static clt_status infer(const clt_node *node, clt_type *out)
{
    for (int i = 0; i < PARTS; i++)
        out[i] = part_type(&node->in[0]->type, node->attr, i);
    return CLT_OK;
}

/* The position of a part in x, as an attribute of slice. */
static clt_slice_attr place_of(const split_attr *attr, int part)
{
    clt_slice_attr place;
    memset(&place, 0, sizeof place);
    for (int k = 0; k < CLT_MAX_RANK; k++)
        place.step[k] = 1;
    for (int i = 0; i < part; i++)
        place.start[attr->axis] += attr->sizes[i];
    return place;
}

/* If a part has no gradient, its elements of dx are zero. The gradients of slices write these
 * zeros. */
static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    const split_attr *attr = node->attr;
    bool all = true;
    (void)wanted;
    for (int i = 0; i < attr->count; i++)
        all = all && dy[i];
    if (all) {
        dx[0] = clt_concat(dy, attr->count, attr->axis);
        return CLT_OK;
    }
    for (int i = 0; i < attr->count; i++) {
        clt_slice_attr place = place_of(attr, i);
        place.type = node->in[0]->type;
        if (!dy[i])
            continue;
        clt_value *term = clt_emit1(&clt_op_slice_grad, &place, 1, dy[i]);
        dx[0] = dx[0] ? clt_add(dx[0], term) : term;
    }
    return CLT_OK;
}

static void describe(const clt_node *node, clt_str *text)
{
    const split_attr *attr = node->attr;
    clt_str_add(text, "axis %d into ", attr->axis);
    for (int i = 0; i < attr->count; i++)
        clt_str_add(text, "%s%lld", i ? ", " : "", (long long)attr->sizes[i]);
}

/* Parts of one size are the blocks of x. */
static void dims_of(const clt_node *node, clt_node_dims *dims)
{
    const split_attr *attr = node->attr;
    bool equal = true;
    clt_dims_by_place(node, dims);
    for (int i = 1; i < attr->count; i++)
        equal = equal && attr->sizes[i] == attr->sizes[0];
    if (!equal)
        return;
    dims->behaviour[attr->axis] = CLT_DIM_PARALLEL;
    dims->in_blocks[0][attr->axis] = (unsigned char)attr->count;
}

static clt_status localise(const clt_node *node, const clt_node_part *part, void *copy)
{
    split_attr *attr = copy;
    clt_type type;
    CLT_TRY(clt_part_of_result(node, part, &type));
    for (int i = 0; part->label == attr->axis && i < attr->count; i++)
        attr->sizes[i] = type.dims[attr->axis];
    return CLT_OK;
}

static clt_move move_of(const clt_node *node, int part)
{
    const split_attr *attr = node->attr;
    const clt_slice_attr place = place_of(attr, part);
    clt_move move = clt_move_of(&node->out[part]->type, &node->out[part]->type);
    clt_row_major(move.strided.rank, node->in[0]->type.dims, move.strided.strides[0]);
    clt_move_shift(&move.from, place.start[attr->axis], move.strided.strides[0][attr->axis]);
    move.output = part;
    return move;
}

CLT_MOVE_VARIANTS(variants, ((const split_attr *)node->attr)->count, move_of, 0);

const clt_op clt_op_split = {
    .name = "split",
    .doc = "Up to four parts of x along an axis.",
    .operands = "x * any",
    .results = "part * any, part2 * any, part3 * any, part4 * any",
    .by_node = "*",
    .dims = dims_of,
    .localise = localise,
    CLT_ATTRIBUTES(
        split_attr, {CLT_ATTRIBUTE(INT, "axis", split_attr, axis, "The axis."), .internal = 1},
        {CLT_ATTRIBUTE(INT, "count", split_attr, count, "The number of parts."), .internal = 1},
        {CLT_ATTRIBUTE(INT, "sizes", split_attr, sizes, "The sizes of the parts."), .count = PARTS,
         .internal = 1}),
    .infer = infer,
    .gradient = gradient,
    .describe = describe,
    .flops = clt_no_flops,
    .rounding = CLT_ROUNDS_MOVES,
    .variants = variants};

/* The size of part i: sizes[i], or an equal share. */
static int64_t size_of(const int64_t *sizes, int count, int64_t dim, int i)
{
    return sizes ? sizes[i] : dim / count;
}

static clt_status check_split(const clt_value *x, const int64_t *sizes, int count, int axis)
{
    char text[CLT_TYPE_TEXT];
    clt_type_text(&x->type, text);
    if (axis < 0 || axis >= x->type.rank)
        return clt_fail(CLT_SHAPE, "split: %s has no axis %d", text, axis);
    const int64_t dim = x->type.dims[axis];
    if (dim < 0)
        return clt_fail(CLT_SHAPE, "split: axis %d of %s depends on the batch", axis, text);
    if (count < 1)
        return clt_fail(CLT_INVALID_ARGUMENT, "split: into %d parts", count);
    if (!sizes && dim % count)
        return clt_fail(CLT_SHAPE, "split: axis %d of %s does not divide into %d parts", axis, text,
                        count);
    int64_t sum = 0;
    for (int i = 0; i < count; i++) {
        const int64_t size = size_of(sizes, count, dim, i);
        if (size < 1 || size > dim)
            return clt_fail(CLT_SHAPE, "split: part %d has %lld elements of axis %d of %s", i,
                            (long long)size, axis, text);
        sum += size;
    }
    if (sum != dim)
        return clt_fail(CLT_SHAPE, "split: the parts have %lld elements of axis %d of %s",
                        (long long)sum, axis, text);
    return CLT_OK;
}

static clt_status split_node(clt_value *x, const int64_t *sizes, int count, int axis,
                             clt_value **parts)
{
    split_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axis = axis;
    attr.count = count;
    for (int i = 0; i < count; i++)
        attr.sizes[i] = size_of(sizes, count, x->type.dims[axis], i);
    const clt_node *node = clt_graph_add(x->graph, &clt_op_split, &x, 1, &attr);
    if (!node)
        return clt_graph_status(x->graph);
    memcpy(parts, node->out, (size_t)count * sizeof *parts);
    return CLT_OK;
}

/* `sizes` may be NULL: then the parts have one size. */
static clt_status split(clt_value *x, const int64_t *sizes, int count, int axis, clt_value **parts)
{
    for (int i = 0; i < count; i++)
        parts[i] = NULL;
    if (!x)
        return clt_fail(CLT_INVALID_ARGUMENT, "split: the operand is NULL");
    CLT_TRY(clt_graph_status(x->graph));
    axis += axis < 0 ? x->type.rank : 0;
    const clt_status status = check_split(x, sizes, count, axis);
    if (status != CLT_OK) {
        clt_graph_failed(x->graph, status);
        return status;
    }
    if (count <= PARTS)
        return split_node(x, sizes, count, axis, parts);
    int64_t start[CLT_MAX_RANK] = {0}, step[CLT_MAX_RANK], size[CLT_MAX_RANK];
    for (int k = 0; k < x->type.rank; k++) {
        step[k] = 1;
        size[k] = x->type.dims[k];
    }
    for (int i = 0; i < count; i++) {
        size[axis] = size_of(sizes, count, x->type.dims[axis], i);
        parts[i] = clt_slice_of(x, start, step, size);
        start[axis] += size[axis];
    }
    return clt_graph_status(x->graph);
}

clt_status clt_split_with_sizes(clt_value *x, const int64_t *sizes, int count, int axis,
                                clt_value **parts)
{
    return split(x, sizes, count, axis, parts);
}

clt_status clt_chunk(clt_value *x, int count, int axis, clt_value **parts)
{
    return split(x, NULL, count, axis, parts);
}

/* --- stack ---------------------------------------------------------------------------------- */

/* Joins the values by several concats, because a concat has a limited number of operands. */
static clt_value *join(clt_value **values, int count, int axis)
{
    enum { MOST = 16 };
    while (count > 1) {
        int joined = 0;
        for (int i = 0; i < count; i += MOST) {
            const int n = count - i < MOST ? count - i : MOST;
            values[joined++] = n > 1 ? clt_concat(values + i, n, axis) : values[i];
        }
        count = joined;
    }
    return values[0];
}

clt_value *clt_stack(clt_value *const *values, int count, int axis)
{
    enum { MOST = 256 };
    char a[CLT_TYPE_TEXT], b[CLT_TYPE_TEXT];
    clt_value *rows[MOST];
    int64_t dims[CLT_MAX_RANK];
    clt_graph *graph = NULL;
    for (int i = 0; i < count && !graph; i++)
        graph = values[i] ? values[i]->graph : NULL;
    if (!graph)
        return NULL;
    if (count > MOST)
        return clt_graph_failed(
            graph, clt_fail(CLT_INVALID_ARGUMENT, "stack: %d values, more than %d", count, MOST));
    for (int i = 0; i < count; i++)
        if (!values[i])
            return clt_graph_failed(graph,
                                    clt_fail(CLT_INVALID_ARGUMENT, "stack: value %d is NULL", i));
    const clt_type *type = &values[0]->type;
    const int rank = type->rank + 1, at = axis < 0 ? axis + rank : axis;
    clt_type_text(type, a);
    if (at < 0 || at >= rank || rank > CLT_MAX_RANK)
        return clt_graph_failed(
            graph, clt_fail(CLT_SHAPE,
                            "stack: axis %d is not one of the result's, which has one more than %s",
                            axis, a));
    for (int i = 1; i < count; i++)
        if (!clt_type_equal(&values[i]->type, type))
            return clt_graph_failed(graph,
                                    clt_fail(CLT_SHAPE, "stack: value %d, %s, differs from %s", i,
                                             clt_type_text(&values[i]->type, b), a));
    for (int k = 0; k < rank; k++)
        dims[k] = k < at ? type->dims[k] : k == at ? 1 : type->dims[k - 1];
    for (int i = 0; i < count; i++)
        rows[i] = clt_reshape(values[i], rank, dims);
    return join(rows, count, at);
}

typedef struct stack_call {
    int axis;
} stack_call;

CLT_CALLABLE(
    stack, stack_call, c->out[0] = clt_stack(c->in, c->n_in, a->axis),
    .doc = "Tensors of equal shape, joined along a new axis.", .operands = "x *+ any",
    .results = "y * any",
    CLT_ATTRIBUTES(stack_call,
                   {CLT_ATTRIBUTE(INT, "axis", stack_call, axis,
                                  "The new axis of the result; negative ones count from the end."),
                    .least = -CLT_MAX_RANK, .most = CLT_MAX_RANK - 1, .default_value = 1}),
    .whole = "*");
