#include "ops/elementwise.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

enum { SPREAD_DIMS = 5 };

/* Dimension `axis` of `type`, counted from the end of a result of rank `rank`; 1 where absent. */
static int64_t aligned_dim(const clt_type *type, int rank, int axis)
{
    const int own = axis - (rank - type->rank);
    return own < 0 ? 1 : type->dims[own];
}

clt_status clt_elementwise_infer(const clt_node *node, clt_type *out)
{
    clt_type type = node->in[0]->type;
    for (int i = 1; i < node->n_in; i++)
        if (node->in[i]->type.rank > type.rank)
            type.rank = node->in[i]->type.rank;
    for (int axis = 0; axis < type.rank; axis++) {
        int64_t size = 1;
        for (int i = 0; i < node->n_in; i++) {
            const int64_t dim = aligned_dim(&node->in[i]->type, type.rank, axis);
            if (dim == 1 || dim == size)
                continue;
            if (size != 1) {
                char a[CLT_TYPE_TEXT], b[CLT_TYPE_TEXT];
                return clt_fail(CLT_SHAPE, "%s: %s and %s do not broadcast", node->op->name,
                                clt_type_text(&node->in[0]->type, a),
                                clt_type_text(&node->in[i]->type, b));
            }
            size = dim;
        }
        type.dims[axis] = size;
    }
    *out = type;
    return CLT_OK;
}

int clt_elementwise_lanes(const clt_node *node)
{
    if (!clt_value_leads_with_batch(node->out[0]))
        return CLT_LANES_NO;
    const int rank = node->out[0]->type.rank;
    for (int i = 0; i < node->n_in; i++) {
        const clt_type *type = &node->in[i]->type;
        if (node->in[i]->type.dtype != CLT_F32 || (clt_type_has_batch(type) && type->rank != rank))
            return CLT_LANES_NO;
    }
    return node->out[0]->type.dtype == CLT_F32 ? CLT_LANES_FOLLOW : CLT_LANES_NO;
}

/* --- as it lies in memory -------------------------------------------------------------------- */

/* Dimensions as stored, aligned to the result: in LANES [groups of lanes, rest.., lane]. Sizes of
 * operands without a batch are 1 in the first and last of these. */
typedef struct stored {
    int rank;
    int64_t dims[CLT_MAX_RANK + 1]; /* 1: repeated; the group dimension is kept negative */
} stored;

static stored stored_dims(const clt_value *value, const clt_value *result, int lanes)
{
    const bool in_lanes = result->layout == CLT_LAYOUT_LANES;
    stored s = {.rank = result->type.rank + (in_lanes ? 1 : 0)};
    for (int axis = 0; axis < result->type.rank; axis++)
        s.dims[axis] = aligned_dim(&value->type, result->type.rank, axis);
    if (in_lanes)
        s.dims[s.rank - 1] = value->layout == CLT_LAYOUT_LANES ? lanes : 1;
    return s;
}

static bool same_as_result(const clt_node *node)
{
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i]->layout != node->out[0]->layout ||
            node->in[i]->type.rank != node->out[0]->type.rank ||
            memcmp(node->in[i]->type.dims, node->out[0]->type.dims,
                   (size_t)node->in[i]->type.rank * sizeof(int64_t)))
            return false;
    return true;
}

static const char *c_type(clt_dtype dtype)
{
    switch (dtype) {
    case CLT_I32:
        return "int";
    case CLT_U8:
        return "uchar";
    case CLT_F64:
        return "double";
    default:
        return "float";
    }
}

static void begin(const clt_node *node, clt_program *p, const char *kernel, const char *expression)
{
    char types[160] = "";
    size_t used = 0;
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i]->type.dtype != CLT_F32)
            used += (size_t)snprintf(types + used, sizeof types - used, " -DT%c=%s", 'A' + i,
                                     c_type(node->in[i]->type.dtype));
    if (node->out[0]->type.dtype != CLT_F32)
        snprintf(types + used, sizeof types - used, " -DTO=%s", c_type(node->out[0]->type.dtype));
    clt_launch_begin(p, "portable/elementwise.cl", kernel, "-DN_IN=%d%s -DEXPR=%s", node->n_in,
                     types, expression);
    for (int i = 0; i < node->n_in; i++)
        clt_arg_in(p, i);
    clt_arg_out(p, 0);
}

static void end(const clt_node *node, clt_program *p)
{
    const clt_elementwise_attr *attr = node->attr;
    clt_arg_float(p, attr ? attr->p[0] : 0);
    clt_arg_float(p, attr ? attr->p[1] : 0);
}

/* Merges neighbouring dimensions along which every operand is either whole or repeated, then emits
 * sizes and strides for SPREAD_DIMS dimensions. */
static void emit_spread(const clt_node *node, const clt_target *target, clt_program *p,
                        const char *expression)
{
    const clt_value *result = node->out[0];
    stored all[5];
    all[0] = stored_dims(result, result, target->lanes);
    for (int i = 0; i < node->n_in; i++)
        all[i + 1] = stored_dims(node->in[i], result, target->lanes);
    const int n = node->n_in + 1;
    int rank = all[0].rank;
    for (int axis = rank - 2; axis >= 0; axis--) {
        bool merges = true;
        for (int i = 1; i < n; i++)
            merges = merges && (all[i].dims[axis] == all[0].dims[axis]) ==
                                   (all[i].dims[axis + 1] == all[0].dims[axis + 1]);
        merges = merges && (axis > 0 || all[0].dims[0] > 0);
        if (!merges)
            continue;
        for (int i = 0; i < n; i++) {
            all[i].dims[axis] *= all[i].dims[axis + 1];
            memmove(&all[i].dims[axis + 1], &all[i].dims[axis + 2],
                    (size_t)(rank - axis - 2) * sizeof(int64_t));
        }
        rank--;
    }
    if (rank > SPREAD_DIMS) {
        p->status =
            clt_fail(CLT_UNSUPPORTED, "node %s broadcasts along too many dimensions", node->name);
        return;
    }
    begin(node, p, "spread", expression);
    const clt_extent count = clt_extent_stored(result, target->lanes);
    clt_arg_long(p, count);
    for (int k = 1; k < SPREAD_DIMS; k++)
        clt_arg_int(p, k < rank ? clt_extent_dim(all[0].dims[k]) : clt_fixed(1));
    for (int i = 1; i < n; i++) {
        clt_extent strides[SPREAD_DIMS] = {{0}}, stride = clt_fixed(1);
        for (int k = rank - 1; k >= 0; k--) {
            const int64_t dim = all[i].dims[k];
            strides[k] = dim == 1 ? clt_fixed(0) : stride;
            stride.mul *= dim < 0 ? -dim : dim;
            if (dim < 0)
                stride.pre = 1;
        }
        clt_arg_long(p, strides[0]);
        for (int k = 1; k < SPREAD_DIMS; k++)
            clt_arg_int(p, strides[k]);
    }
    end(node, p);
    clt_range_items(p, target, count);
}

void clt_elementwise_emit(const clt_node *node, const clt_target *target, clt_program *p,
                          const char *expression)
{
    if (!same_as_result(node)) {
        emit_spread(node, target, p, expression);
        return;
    }
    const clt_extent count = clt_extent_stored(node->out[0], target->lanes);
    begin(node, p, "flat", expression);
    clt_arg_long(p, count);
    end(node, p);
    clt_range1(p, clt_extent_ceil(count, 256, 16), 16);
}
