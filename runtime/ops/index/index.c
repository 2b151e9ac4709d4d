/* Functions that the operators on indices share. */
#include "ops/index/index.h"
#include "ops/core/ops.h"

#include "base/error.h"
#include "ops/core/group_gpu.h"
#include "ops/core/nn.h"

clt_index_shape clt_index_shape_of(const clt_node *node)
{
    const clt_index_attr *attr = node->attr;
    const bool adds = node->op->base != 0 || node->op == &clt_op_index_copy,
               each = node->op == &clt_op_gather || node->op == &clt_op_scatter_add;
    const clt_type *x = adds ? &attr->type : &node->in[1]->type, *index = &node->in[0]->type;
    return (clt_index_shape){.outer = clt_dims_product(x, 0, attr->axis),
                             .picks = each ? index->dims[attr->axis]
                                           : clt_dims_product(index, 0, index->rank),
                             .size = x->dims[attr->axis],
                             .inner = clt_dims_product(x, attr->axis + 1, x->rank),
                             .padding = attr->padding,
                             .lowest = attr->lowest,
                             .whole = attr->whole ? attr->whole : x->dims[attr->axis]};
}

clt_extent clt_index_picked(const clt_index_shape *s)
{
    const int64_t outer = s->outer < 0 ? -s->outer : s->outer;
    const int64_t picks = s->picks < 0 ? -s->picks : s->picks;
    const int64_t all = outer * picks * s->inner;
    return clt_extent_dim(s->outer < 0 || s->picks < 0 ? -all : all);
}

int64_t clt_index_most(const clt_index_shape *s, const clt_target *target)
{
    return clt_extent_at(clt_index_picked(s), target->max_batch);
}

clt_status clt_index_axis(const char *op, const clt_value *x, int axis, int *out)
{
    char text[CLT_TYPE_TEXT];
    const int from = axis < 0 ? axis + x->type.rank : axis;
    if (from < 0 || from >= x->type.rank || x->type.dims[from] < 0)
        return clt_fail(CLT_SHAPE, "%s: axis %d of %s %s", op, axis, clt_type_text(&x->type, text),
                        from < 0 || from >= x->type.rank ? "does not exist"
                                                         : "is the batch, which no index counts");
    *out = from;
    return CLT_OK;
}

clt_status clt_index_check(const clt_node *node, int x)
{
    char text[CLT_TYPE_TEXT];
    if (node->in[0]->type.dtype != CLT_I32)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "%s: the indices must be i32, not %s: cast them first", node->op->name,
                        clt_operand_text(node, 0, text));
    return clt_check_f32(node, x);
}

clt_status clt_index_check_batch(const clt_node *node, const clt_type *x)
{
    enum { MOST = INT32_MAX };
    const clt_index_shape s = clt_index_shape_of(node);
    char a[CLT_TYPE_TEXT], b[CLT_TYPE_TEXT];
    if (s.inner < 0 || (s.outer < 0 && s.picks < 0))
        return clt_fail(CLT_SHAPE,
                        "%s: indices %s on axis %d of %s: only one of the indices and the axes "
                        "before this one may depend on the batch, none behind it",
                        node->op->name, clt_operand_text(node, 0, a),
                        ((const clt_index_attr *)node->attr)->axis, clt_type_text(x, b));
    if (s.size > MOST || s.inner > MOST)
        return clt_fail(CLT_UNSUPPORTED, "%s: %s: more than %d elements on or behind axis %d",
                        node->op->name, clt_type_text(x, b), MOST,
                        ((const clt_index_attr *)node->attr)->axis);
    return CLT_OK;
}

clt_status clt_index_picked_type(const clt_node *node, const clt_type *x, clt_type *picked)
{
    const clt_index_attr *attr = node->attr;
    const clt_type *index = &node->in[0]->type;
    char a[CLT_TYPE_TEXT], b[CLT_TYPE_TEXT];
    clt_type type = {.dtype = x->dtype, .rank = x->rank - 1 + index->rank};
    if (type.rank > CLT_MAX_RANK)
        return clt_fail(CLT_SHAPE, "%s: %s by indices %s has more than %d dimensions",
                        node->op->name, clt_type_text(x, a), clt_type_text(index, b), CLT_MAX_RANK);
    for (int k = 0; k < type.rank; k++)
        type.dims[k] = k < attr->axis                 ? x->dims[k]
                       : k < attr->axis + index->rank ? index->dims[k - attr->axis]
                                                      : x->dims[k - index->rank + 1];
    *picked = type;
    return CLT_OK;
}

void clt_index_describe(const clt_node *node, clt_str *text)
{
    const clt_index_attr *attr = node->attr;
    clt_str_add(text, "axis %d", attr->axis);
    if (attr->padding >= 0)
        clt_str_add(text, ", padding_idx %lld", (long long)attr->padding);
}

double clt_index_sum_flops(const clt_node *node, int64_t n)
{
    return (double)clt_type_elements(&node->in[1]->type, n);
}

static bool has_base(const clt_node *node)
{
    return node->in[2] != NULL;
}

void clt_index_begin_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { LEAST = 1024, MOST = 65536, ITEMS_A_UNIT = 8 };
    const clt_extent count = clt_extent_elements(&node->out[0]->type);
    const int64_t items = ITEMS_A_UNIT * (int64_t)target->caps->compute_units;
    int64_t share = clt_extent_at(count, target->max_batch) / items / LEAST * LEAST;
    share = share < LEAST ? LEAST : share < MOST ? share : MOST;
    clt_launch_begin(p, "index/cpu/index.cl", "begin", "-DVW=%d -DBASE=%d",
                     target->caps->vector_width, has_base(node));
    if (has_base(node))
        CLT_ARGS(p, CLT_IN(2));
    CLT_ARGS(p, CLT_OUT(0), CLT_LONG(count), CLT_LONG(clt_fixed(share)));
    if (!has_base(node))
        CLT_ARGS(p, CLT_RUN(CLT_RUN_ADDS));
    clt_range1(p, clt_extent_ceil(count, share, 1), 1);
}

void clt_index_begin_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_extent count = clt_extent_elements(&node->out[0]->type);
    /* A sample within an input begins at a multiple of the sample's size. */
    const int v = clt_type_coefficient(&node->out[0]->type) % 4 ? 1 : 4;
    (void)target;
    clt_launch_begin(p, "index/gpu/index.cl", "begin", "-DV=%d -DBASE=%d", v, has_base(node));
    if (has_base(node))
        CLT_ARGS(p, CLT_IN(2));
    CLT_ARGS(p, CLT_OUT(0), CLT_INT(count));
    clt_range_gpu(p, count, v);
}

const clt_attribute clt_index_call_attributes[] = {
    {CLT_ATTRIBUTE(INT, "axis", clt_index_call, axis,
                   "The axis of the indices; a negative axis counts from the end."),
     .least = -CLT_MAX_RANK, .most = CLT_MAX_RANK - 1, .default_value = 1},
    {0},
};

const clt_attribute clt_index_attributes[] = {
    {CLT_ATTRIBUTE(INT, "axis", clt_index_attr, axis, "The axis of the indices."), .internal = 1},
    {CLT_ATTRIBUTE(INT, "padding", clt_index_attr, padding,
                   "The index whose terms are left out of sums; -1: none."),
     .internal = 1},
    {CLT_ATTRIBUTE(TYPE, "to", clt_index_attr, type, "The type of the result of a sum."),
     .internal = 1},
    {CLT_ATTRIBUTE(INT, "lowest", clt_index_attr, lowest,
                   "In a part of an array: the index of its first element."),
     .internal = 1, .untuned = 1},
    {CLT_ATTRIBUTE(INT, "whole", clt_index_attr, whole,
                   "In a part of an array: the size of the whole axis; 0: it is no part."),
     .internal = 1, .untuned = 1},
    {0},
};

/* Labels: dimensions of the array have the label of their position; dimensions of the indices have
 * labels from PICKS on. */
enum { PICKS = CLT_DIM_STAR };

static void place_array(const clt_type *type, signed char *labels)
{
    for (int k = 0; k < type->rank; k++)
        labels[k] = (signed char)k;
}

/* Labels the array's dimensions, with the indices' dimensions instead of the axis. */
static void place_picked(const clt_type *picked, int axis, int index_rank, signed char *labels)
{
    for (int k = 0; k < picked->rank; k++)
        labels[k] = (signed char)(k < axis                ? k
                                  : k < axis + index_rank ? PICKS + k - axis
                                                          : k - index_rank + 1);
}

/* For operators with an index for every element. All their arrays have one rank. */
static void place_each(const clt_node *node, int axis, bool adds, clt_node_dims *dims)
{
    const clt_type *index = &node->in[0]->type,
                   *array = adds ? &node->out[0]->type : &node->in[1]->type;
    for (int k = 0; k < index->rank; k++) {
        const signed char label = (signed char)(k == axis ? PICKS : k);
        dims->in[0][k] = label;
        (adds ? dims->in[1] : dims->out[0])[k] = label;
        (adds ? dims->out[0] : dims->in[1])[k] = (signed char)k;
        if (adds)
            dims->in[2][k] = (signed char)k;
        dims->behaviour[k] =
            k != axis && index->dims[k] == array->dims[k] ? CLT_DIM_PARALLEL : CLT_DIM_WHOLE;
    }
    dims->behaviour[PICKS] = adds ? CLT_DIM_SUMMED : CLT_DIM_PARALLEL;
}

void clt_index_dims(const clt_node *node, clt_node_dims *dims)
{
    const clt_index_attr *attr = node->attr;
    const bool adds = node->op->base != 0, copies = node->op == &clt_op_index_copy;
    const int index_rank = node->in[0]->type.rank;
    clt_dims_clear(dims);
    if (node->op == &clt_op_gather || node->op == &clt_op_scatter_add) {
        place_each(node, attr->axis, adds, dims);
        return;
    }
    for (int l = 0; l < CLT_DIM_LABELS; l++)
        dims->behaviour[l] = l == attr->axis                  ? (copies ? CLT_DIM_WHOLE
                                                                 : adds ? CLT_DIM_PARALLEL
                                                                        : CLT_DIM_SUMMED)
                             : l < PICKS || !(adds || copies) ? CLT_DIM_PARALLEL
                             : adds                           ? CLT_DIM_SUMMED
                                                              : CLT_DIM_WHOLE;
    for (int k = 0; k < index_rank; k++)
        dims->in[0][k] = (signed char)(PICKS + k);
    if (!adds && !copies) {
        place_array(&node->in[1]->type, dims->in[1]);
        place_picked(&node->out[0]->type, attr->axis, index_rank, dims->out[0]);
        return;
    }
    if (node->in[1])
        place_picked(&node->in[1]->type, attr->axis, index_rank, dims->in[1]);
    place_array(&node->out[0]->type, dims->in[2]);
    place_array(&node->out[0]->type, dims->out[0]);
}

/* A part of the array leaves out what other parts have: it picks zeros, or adds nothing. */
clt_status clt_index_localise(const clt_node *node, const clt_node_part *part, void *copy)
{
    const clt_index_shape s = clt_index_shape_of(node);
    clt_index_attr *attr = copy;
    CLT_TRY(clt_localise_type(node, part, copy));
    if (part->label != attr->axis)
        return CLT_OK;
    if (part->blocks != 1)
        return clt_fail(CLT_SHAPE, "node %s: axis %d in %d blocks cannot be divided", node->name,
                        attr->axis, part->blocks);
    attr->lowest += clt_part_begin(s.size, part->at.places, part->at.place);
    attr->whole = s.whole;
    return CLT_OK;
}

int64_t clt_index_piece(const clt_index_shape *s, const clt_target *target, int64_t slices)
{
    enum { LEAST = 64, ITEMS_A_UNIT = 4 };
    const int64_t items = ITEMS_A_UNIT * (int64_t)target->caps->compute_units;
    int64_t pieces = slices ? (items + slices - 1) / slices : 1;
    pieces = pieces > s->inner / LEAST ? s->inner / LEAST : pieces;
    pieces = pieces < 1 ? 1 : pieces;
    const int64_t piece = (s->inner + pieces - 1) / pieces;
    return (piece + 15) / 16 * 16;
}

int clt_index_vector(const clt_node *node, const clt_index_shape *s)
{
    /* A sample within an input begins at a multiple of the sample's size. */
    bool fits = s->inner % 4 == 0;
    for (int i = 1; i < node->n_in; i++)
        fits = fits && (!node->in[i] || clt_type_coefficient(&node->in[i]->type) % 4 == 0);
    return fits ? 4 : 1;
}
