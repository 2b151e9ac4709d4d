/* transpose: the axes in another order. */
#include "base/error.h"
#include "ops/core/group_gpu.h"
#include "ops/shape/move_gpu.h"
#include "ops/core/ops.h"
#include "ops/core/nn.h"
#include <cltrain/ops.h>

typedef struct transpose_attr {
    int permutation[CLT_MAX_RANK]; /* axis k of the result is axis permutation[k] of the operand */
} transpose_attr;

static clt_status infer(const clt_node *node, clt_type *out)
{
    const transpose_attr *attr = node->attr;
    const clt_type *in = &node->in[0]->type;
    unsigned seen = 0;
    char text[CLT_TYPE_TEXT];
    clt_type type = *in;
    for (int k = 0; k < in->rank; k++) {
        const int axis = attr->permutation[k];
        if (axis < 0 || axis >= in->rank || seen >> axis & 1)
            return clt_fail(CLT_SHAPE,
                            "transpose: axis %d, given for axis %d of the result, does not exist "
                            "in %s or occurs twice",
                            axis, k, clt_type_text(in, text));
        seen |= 1u << axis;
        type.dims[k] = in->dims[axis];
    }
    *out = type;
    return CLT_OK;
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    const transpose_attr *attr = node->attr;
    int back[CLT_MAX_RANK] = {0};
    (void)wanted;
    for (int k = 0; k < node->in[0]->type.rank; k++)
        back[attr->permutation[k]] = k;
    dx[0] = clt_transpose(dy[0], back);
    return CLT_OK;
}

static void describe(const clt_node *node, clt_str *text)
{
    const transpose_attr *attr = node->attr;
    for (int k = 0; k < node->in[0]->type.rank; k++)
        clt_str_add(text, "%s%d", k ? "," : "", attr->permutation[k]);
}

/* The iteration has the order of the result. */
static clt_move move_of(const clt_node *node)
{
    const transpose_attr *attr = node->attr;
    const clt_type *in = &node->in[0]->type, *out = &node->out[0]->type;
    int64_t strides[CLT_MAX_RANK];
    clt_move move = clt_move_of(out, out);
    clt_row_major(in->rank, in->dims, strides);
    for (int k = 0; k < in->rank; k++)
        move.strided.strides[0][k] = strides[attr->permutation[k]];
    return move;
}

/* Whether the node transposes one or more matrices, as the tile kernels require. */
static bool is_matrices(const clt_node *node, char *why)
{
    clt_move move = move_of(node);
    const clt_strided *w = &move.strided;
    clt_strided_merge(&move.strided);
    if (clt_dtype_size(move.dtype) != 4)
        return clt_decline(why, "elements of %d bytes", clt_dtype_size(move.dtype));
    if (w->rank < 2 || w->rank > 3 || w->strides[0][w->rank - 2] != 1)
        return clt_decline(why, "no transposition of matrices");
    return true;
}

static bool accepts_tiles(const clt_node *node, const clt_target *target, char *why)
{
    return clt_accepts_vectors(target, why) && is_matrices(node, why);
}

static bool accepts_gpu(const clt_node *node, const clt_target *target, char *why)
{
    return clt_gpu_elements_accepts(node, target, why) && is_matrices(node, why);
}

/* The kernel exchanges the last two of the merged dimensions and repeats this for the dimension
 * before. */
static void emit_tiles(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { COLUMNS = 64, CACHED = 4 << 20 }; /* bytes of a result that may stay in the caches */
    clt_move move = move_of(node);
    clt_strided_merge(&move.strided);
    const clt_strided *w = &move.strided;
    const int last = w->rank - 1;
    const clt_extent n1 = clt_extent_dim(w->dims[last - 1]), n2 = clt_extent_dim(w->dims[last]);
    const int64_t bytes = clt_type_elements(&node->out[0]->type, target->max_batch) * 4;
    const int rows = bytes > CACHED ? 128 : 64;
    clt_launch_begin(p, "shape/cpu/transpose.cl", "transpose", "-DLANES=%d -DROWS=%d -DSTREAM=%d",
                     target->caps->vector_width, rows, bytes > CACHED);
    CLT_ARGS(p, CLT_IN(0), CLT_OUT(0), CLT_LONG(n1), CLT_LONG(n2),
             CLT_LONG(last > 1 ? clt_extent_dim(w->strides[0][0]) : clt_fixed(0)),
             CLT_LONG(clt_extent_dim(w->strides[0][last])));
    clt_range3(p, clt_extent_ceil(n1, COLUMNS, 1), clt_extent_ceil(n2, rows, 1),
               last > 1 ? clt_extent_dim(w->dims[0]) : clt_fixed(1), 1, 1, 1);
}

static void emit_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    enum { TILE = 32 };
    clt_move move = move_of(node);
    clt_strided_merge(&move.strided);
    const clt_strided *w = &move.strided;
    const int last = w->rank - 1;
    const int64_t n0 = last > 1 ? w->dims[0] : 1, n1 = w->dims[last - 1], n2 = w->dims[last];
    const int64_t x0 = last > 1 ? w->strides[0][0] : 0, x2 = w->strides[0][last];
    (void)target;
    clt_launch_begin(p, "shape/gpu/transpose.cl", "transpose", "-DV=%d",
                     n1 % 4 || n2 % 4 || x0 % 4 || x2 % 4 ? 1 : 4);
    CLT_ARGS(p, CLT_IN(0), CLT_OUT(0), CLT_INT(clt_extent_dim(n1)), CLT_INT(clt_extent_dim(n2)),
             CLT_LONG(clt_extent_dim(x0)), CLT_LONG(clt_extent_dim(x2)));
    /* At most one of the sizes is a multiple of the batch size. */
    const int64_t tiles1 = (n1 + TILE - 1) / TILE, tiles2 = (n2 + TILE - 1) / TILE;
    clt_extent groups = clt_extent_dim(n0);
    groups.mul *= CLT_GPU_GROUP * tiles1 * tiles2;
    if (n1 < 0)
        groups = clt_extent_ceil(clt_extent_dim(n1), TILE, CLT_GPU_GROUP * n0 * tiles2);
    else if (n2 < 0)
        groups = clt_extent_ceil(clt_extent_dim(n2), TILE, CLT_GPU_GROUP * n0 * tiles1);
    clt_range1(p, groups, CLT_GPU_GROUP);
}

static void emit_gpu_rows(const clt_node *node, const clt_target *target, clt_program *p)
{
    clt_move move = move_of(node);
    (void)target;
    clt_move_gpu_emit(node, &move, 0, p);
}

static void emit_portable(const clt_node *node, const clt_target *target, clt_program *p)
{
    clt_move move = move_of(node);
    clt_move_emit(&move, 0, target, p);
}

static void dims_of(const clt_node *node, clt_node_dims *dims)
{
    const transpose_attr *attr = node->attr;
    for (int k = 0; k < node->in[0]->type.rank && k < CLT_MAX_RANK; k++) {
        dims->in[0][k] = (signed char)k;
        dims->out[0][k] = (signed char)attr->permutation[k];
        dims->behaviour[k] = CLT_DIM_PARALLEL;
    }
}

const clt_op clt_op_transpose = {
    .name = "transpose",
    .doc = "x with its axes in another order.",
    .operands = "x * any",
    .results = "y * any",
    .by_node = "*",
    .dims = dims_of,
    CLT_ATTRIBUTES(transpose_attr, {CLT_ATTRIBUTE(INT, "permutation", transpose_attr, permutation,
                                                  "For each axis of the result, the axis of x."),
                                    .count = CLT_MAX_RANK, .internal = 1}),
    .infer = infer,
    .gradient = gradient,
    .describe = describe,
    .flops = clt_no_flops,
    .rounding = CLT_ROUNDS_MOVES,
    CLT_VARIANTS({"tiles_cpu", accepts_tiles, emit_tiles}, {"tiles_gpu", accepts_gpu, emit_gpu},
                 {"vectors_gpu", clt_gpu_elements_accepts, emit_gpu_rows},
                 {"portable", NULL, emit_portable})};

clt_value *clt_transpose(clt_value *x, const int *permutation)
{
    transpose_attr attr = {{0}};
    if (!x)
        return NULL;
    for (int k = 0; k < x->type.rank; k++)
        attr.permutation[k] = permutation[k] < 0 ? permutation[k] + x->type.rank : permutation[k];
    return clt_emit1(&clt_op_transpose, &attr, 1, x);
}

typedef struct transpose_call {
    int64_t permutation[CLT_MAX_RANK];
    int count;
} transpose_call;

static void call_transpose(const clt_op_call *c)
{
    transpose_call call = *(const transpose_call *)c->attr;
    int permutation[CLT_MAX_RANK];
    if (!clt_entries(c->op, c->in[0], "permutation", call.permutation, call.count, 0))
        return;
    for (int k = 0; k < CLT_MAX_RANK; k++)
        permutation[k] = (int)call.permutation[k];
    c->out[0] = clt_transpose(c->in[0], permutation);
}

const clt_op clt_call_transpose = {
    .name = "transpose",
    .doc = "x with its axes in another order.",
    .operands = "x * any",
    .results = "y * any",
    CLT_ATTRIBUTES(transpose_call,
                   {CLT_ATTRIBUTE(INT, "permutation", transpose_call, permutation,
                                  "For each axis of the result, the axis of x."),
                    .count = CLT_MAX_RANK, .list = 1, .length = offsetof(transpose_call, count),
                    .least = -CLT_MAX_RANK, .most = CLT_MAX_RANK - 1, .required = 1}),
    .callable = true,
    .build = call_transpose};
