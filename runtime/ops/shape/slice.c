/* slice: every step-th element between two positions of each axis. */
#include <limits.h>
#include <string.h>

#include "base/error.h"
#include "ops/shape/move_gpu.h"
#include "ops/core/ops.h"
#include "ops/core/tensor.h"
#include "ops/core/nn.h"
#include <cltrain/ops.h>

/* Also for slice_grad, whose result is the larger tensor. */
static clt_status infer(const clt_node *node, clt_type *out)
{
    const clt_slice_attr *attr = node->attr;
    const clt_type *in = &node->in[0]->type, *to = &attr->type;
    const clt_type *large = node->op == &clt_op_slice ? in : to, *part = large == in ? to : in;
    char a[CLT_TYPE_TEXT], b[CLT_TYPE_TEXT];
    bool fits = in->dtype == to->dtype && in->rank == to->rank;
    for (int k = 0; fits && k < in->rank; k++) {
        const int64_t dim = large->dims[k], size = part->dims[k], first = attr->start[k];
        fits = dim < 0 ? size == dim && first == 0 && attr->step[k] == 1
                       : size > 0 && first >= 0 && first < dim && attr->step[k] > 0 &&
                             size - 1 <= (dim - 1 - first) / attr->step[k];
    }
    if (!fits)
        return clt_fail(CLT_SHAPE, "%s: start and step of %s do not fit %s", node->op->name,
                        clt_type_text(part, a), clt_type_text(large, b));
    *out = attr->type;
    return CLT_OK;
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    clt_slice_attr attr = *(const clt_slice_attr *)node->attr;
    (void)wanted;
    attr.type = node->in[0]->type;
    dx[0] = clt_emit1(&clt_op_slice_grad, &attr, 1, dy[0]);
    return CLT_OK;
}

static clt_status slice_grad_gradient(const clt_node *node, clt_value *const *dy,
                                      const bool *wanted, clt_value **dx)
{
    const clt_slice_attr *attr = node->attr;
    (void)wanted;
    dx[0] = clt_slice_of(dy[0], attr->start, attr->step, node->in[0]->type.dims);
    return CLT_OK;
}

static const clt_type *larger_of(const clt_node *node)
{
    return node->op == &clt_op_slice ? &node->in[0]->type : &node->out[0]->type;
}

static const clt_type *smaller_of(const clt_node *node)
{
    return node->op == &clt_op_slice ? &node->out[0]->type : &node->in[0]->type;
}

/* Returns the largest size of blocks of axis k of which a slice of neighbours consists. */
static int64_t block_of(const clt_node *node, int k)
{
    const clt_slice_attr *attr = node->attr;
    const int64_t sizes[] = {smaller_of(node)->dims[k], attr->start[k]};
    int64_t block = larger_of(node)->dims[k];
    for (int i = 0; i < 2; i++)
        for (int64_t rest = sizes[i]; rest;) {
            const int64_t next = block % rest;
            block = rest;
            rest = next;
        }
    return block;
}

/* A slice that consists of blocks of an axis keeps those of each place, as q of packed q, k and v.
 */
static void dims_of(const clt_node *node, clt_node_dims *dims)
{
    const clt_slice_attr *attr = node->attr;
    const clt_type *large = larger_of(node), *small = smaller_of(node);
    clt_dims_by_place(node, dims);
    for (int k = 0; k < large->rank; k++) {
        const int64_t whole = large->dims[k], block = whole > 0 ? block_of(node, k) : whole;
        if (block == whole || whole / block > UCHAR_MAX || attr->step[k] != 1)
            continue;
        const bool cuts = large == &node->in[0]->type;
        dims->behaviour[k] = CLT_DIM_PARALLEL;
        dims->in_blocks[0][k] = (unsigned char)((cuts ? whole : small->dims[k]) / block);
        dims->out_blocks[0][k] = (unsigned char)((cuts ? small->dims[k] : whole) / block);
    }
}

static clt_status localise(const clt_node *node, const clt_node_part *part, void *copy)
{
    const int k = part->label;
    clt_slice_attr *attr = copy;
    CLT_TRY(clt_localise_type(node, part, copy));
    if (attr->start[k]) {
        const int64_t block = block_of(node, k);
        attr->start[k] = attr->start[k] / block * part->blocks *
                         clt_part_size(block / part->blocks, part->at.places, part->at.place);
    }
    return CLT_OK;
}

static void describe(const clt_node *node, clt_str *text)
{
    const clt_slice_attr *attr = node->attr;
    for (int k = 0; k < attr->type.rank; k++)
        clt_str_add(text, "%s%lld:%lld", k ? ", " : "from ", (long long)attr->start[k],
                    (long long)attr->step[k]);
}

/* Sets strides and offset for the larger array (0: the operand, 1: the result). */
static void stepped(clt_move *move, const clt_slice_attr *attr, int array)
{
    for (int k = 0; k < move->strided.rank; k++) {
        clt_move_shift(array ? &move->to : &move->from, attr->start[k],
                       move->strided.strides[array][k]);
        move->strided.strides[array][k] *= attr->step[k];
    }
}

static clt_move move_of(const clt_node *node, int i)
{
    (void)i;
    clt_move move = clt_move_of(&node->out[0]->type, &node->out[0]->type);
    clt_row_major(move.strided.rank, node->in[0]->type.dims, move.strided.strides[0]);
    stepped(&move, node->attr, 0);
    return move;
}

CLT_MOVE_VARIANTS(variants, 1, move_of, 0);

static clt_move grad_move_of(const clt_node *node)
{
    clt_move move = clt_move_of(&node->in[0]->type, &node->out[0]->type);
    stepped(&move, node->attr, 1);
    return move;
}

static bool accepts_grad_cpu(const clt_node *node, const clt_target *target, char *why)
{
    const clt_move move = grad_move_of(node);
    return clt_move_cpu_fills(node, target, &move, why);
}

static void emit_grad_cpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    clt_move move = grad_move_of(node);
    const uint64_t zero = 0;
    clt_move_emit_cpu(&move, 0, &zero, target, p);
}

static void emit_grad(const clt_node *node, const clt_target *target, clt_program *p)
{
    clt_move move = grad_move_of(node);
    clt_fill_emit(node, 0, target, p);
    clt_move_emit(&move, 0, target, p);
}

static void emit_grad_gpu(const clt_node *node, const clt_target *target, clt_program *p)
{
    const clt_slice_attr *attr = node->attr;
    (void)target;
    clt_place_gpu_emit(node, attr->start, attr->step, 0, p);
}

static const clt_attribute attributes[] = {
    {CLT_ATTRIBUTE(INT, "start", clt_slice_attr, start, "The first element of each axis."),
     .count = CLT_MAX_RANK, .internal = 1},
    {CLT_ATTRIBUTE(INT, "step", clt_slice_attr, step, "The step of each axis."),
     .count = CLT_MAX_RANK, .internal = 1},
    {CLT_ATTRIBUTE(TYPE, "to", clt_slice_attr, type, "The type of the result."), .internal = 1},
    {0},
};

const clt_op clt_op_slice = {.name = "slice",
                             .doc = "Every step-th element of each axis, from start on.",
                             .operands = "x * any",
                             .results = "y * any",
                             .by_node = "*",
                             .dims = dims_of,
                             .localise = localise,
                             .attributes = attributes,
                             .attr_bytes = sizeof(clt_slice_attr),
                             .infer = infer,
                             .gradient = gradient,
                             .describe = describe,
                             .flops = clt_no_flops,
                             .rounding = CLT_ROUNDS_MOVES,
                             .variants = variants};

const clt_op clt_op_slice_grad = {
    .name = "slice_grad",
    .doc = "The gradient of slice: dy at the elements that slice took, zeros elsewhere.",
    .operands = "dy * any",
    .results = "dx * any",
    .by_node = "*",
    .dims = dims_of,
    .localise = localise,
    .attributes = attributes,
    .attr_bytes = sizeof(clt_slice_attr),
    .infer = infer,
    .gradient = slice_grad_gradient,
    .describe = describe,
    .flops = clt_no_flops,
    .rounding = CLT_ROUNDS_MOVES,
    CLT_VARIANTS({"runs_cpu", accepts_grad_cpu, emit_grad_cpu},
                 {"vectors_gpu", clt_gpu_elements_accepts, emit_grad_gpu},
                 {"portable", NULL, emit_grad})};

clt_value *clt_slice_of(clt_value *x, const int64_t *start, const int64_t *step,
                        const int64_t *size)
{
    clt_slice_attr attr;
    if (!x)
        return NULL;
    const size_t bytes = (size_t)x->type.rank * sizeof(int64_t);
    memset(&attr, 0, sizeof attr);
    memcpy(attr.start, start, bytes);
    memcpy(attr.step, step, bytes);
    attr.type = x->type;
    memcpy(attr.type.dims, size, bytes);
    return clt_emit1(&clt_op_slice, &attr, 1, x);
}

clt_value *clt_slice(clt_value *x, const int64_t *start, const int64_t *stop, const int64_t *step)
{
    int64_t from[CLT_MAX_RANK], by[CLT_MAX_RANK], size[CLT_MAX_RANK];
    char text[CLT_TYPE_TEXT];
    if (!x)
        return NULL;
    for (int k = 0; k < x->type.rank; k++) {
        const int64_t dim = x->type.dims[k];
        by[k] = step ? step[k] : 1;
        from[k] = start[k] < 0 && dim > 0 ? start[k] + dim : start[k];
        int64_t end = stop[k] < 0 && dim > 0 ? stop[k] + dim : stop[k];
        if (dim > 0 && end > dim)
            end = dim;
        const bool whole = from[k] == 0 && stop[k] == CLT_TO_END && by[k] == 1;
        if (dim < 0 ? !whole : (by[k] < 1 || from[k] < 0 || end <= from[k]))
            return clt_graph_failed(
                x->graph, clt_fail(CLT_SHAPE, "slice: %lld to %lld by %lld %s axis %d of %s",
                                   (long long)start[k], (long long)stop[k], (long long)by[k],
                                   dim < 0 ? "is not the whole of the batch," : "has no element in",
                                   k, clt_type_text(&x->type, text)));
        size[k] = dim < 0 ? dim : (end - from[k] + by[k] - 1) / by[k];
    }
    return clt_slice_of(x, from, by, size);
}

typedef struct slice_call {
    int64_t start[CLT_MAX_RANK], stop[CLT_MAX_RANK], step[CLT_MAX_RANK];
    int n_start, n_stop, n_step;
} slice_call;

static void call_slice(const clt_op_call *c)
{
    slice_call call = *(const slice_call *)c->attr;
    if (clt_entries(c->op, c->in[0], "start", call.start, call.n_start, 0) &&
        clt_entries(c->op, c->in[0], "stop", call.stop, call.n_stop, CLT_TO_END) &&
        clt_entries(c->op, c->in[0], "step", call.step, call.n_step, 1))
        c->out[0] = clt_slice(c->in[0], call.start, call.stop, call.step);
}

const clt_op clt_call_slice = {
    .name = "slice",
    .doc = "Elements start, start + step, .. below stop of each axis.",
    .operands = "x * any",
    .results = "y * any",
    CLT_ATTRIBUTES(
        slice_call,
        {CLT_ATTRIBUTE(
             INT, "start", slice_call, start,
             "The first element of each axis; negative ones count from the end. Default: 0."),
         .count = CLT_MAX_RANK, .list = 1, .length = offsetof(slice_call, n_start)},
        {CLT_ATTRIBUTE(
             INT, "stop", slice_call, stop,
             "The end of each axis, which is not included. Default: the size of the axis."),
         .count = CLT_MAX_RANK, .list = 1, .length = offsetof(slice_call, n_stop), .least = INT_MIN,
         .most = (double)INT64_MAX},
        {CLT_ATTRIBUTE(INT, "step", slice_call, step, "The step. Default: 1."),
         .count = CLT_MAX_RANK, .list = 1, .length = offsetof(slice_call, n_step), .least = 1,
         .most = INT_MAX}),
    .whole = "*",
    .callable = true,
    .build = call_slice};
