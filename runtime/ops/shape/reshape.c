/* reshape: the same elements in the same order with another shape. No kernel runs. */
#include <string.h>

#include "ops/core/ops.h"
#include <cltrain/ops.h>

typedef struct reshape_attr {
    int rank;
    int64_t dims[CLT_MAX_RANK];
} reshape_attr;

static clt_status infer(const clt_node *node, clt_type *out)
{
    const reshape_attr *attr = node->attr;
    const clt_type *in = &node->in[0]->type;
    clt_type type = {.dtype = in->dtype, .rank = attr->rank};
    memcpy(type.dims, attr->dims, sizeof type.dims);
    char a[CLT_TYPE_TEXT], b[CLT_TYPE_TEXT];
    int batched = 0;
    for (int i = 0; i < type.rank; i++)
        batched += type.dims[i] < 0;
    if (batched > 1 || (batched == 1) != clt_type_has_batch(in) ||
        clt_type_coefficient(&type) != clt_type_coefficient(in))
        return clt_fail(CLT_SHAPE, "reshape: %s does not have the elements of %s",
                        clt_type_text(in, a), clt_type_text(&type, b));
    *out = type;
    return CLT_OK;
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    (void)wanted;
    dx[0] = clt_reshape(dy[0], node->in[0]->type.rank, node->in[0]->type.dims);
    return CLT_OK;
}

/* In the batch-blocked layout, the elements of a sample stay in order for every shape. */
static int wants_batch_blocked(const clt_node *node)
{
    return clt_value_leads_with_batch(node->in[0]) && clt_value_leads_with_batch(node->out[0])
               ? CLT_BATCH_BLOCKED_FOLLOW
               : CLT_BATCH_BLOCKED_NO;
}

/* Leading and trailing dimensions that both shapes share keep their labels. */
static void dims_of(const clt_node *node, clt_node_dims *dims)
{
    const clt_type *x = &node->in[0]->type, *y = &node->out[0]->type;
    int before = 0, after = 0;
    while (before < x->rank && before < y->rank && x->dims[before] == y->dims[before])
        before++;
    while (before + after < x->rank && before + after < y->rank &&
           x->dims[x->rank - 1 - after] == y->dims[y->rank - 1 - after])
        after++;
    clt_dims_clear(dims);
    for (int k = 0; k < before; k++)
        dims->in[0][k] = dims->out[0][k] = (signed char)k;
    for (int k = 1; k <= after; k++)
        dims->in[0][x->rank - k] = dims->out[0][y->rank - k] = (signed char)(before + k - 1);
    for (int k = before + after, label = k; k < x->rank; k++, label++) {
        dims->in[0][k - after] = (signed char)label;
        dims->behaviour[label] = CLT_DIM_WHOLE;
    }
    for (int k = before + after, label = CLT_DIM_STAR; k < y->rank; k++, label++) {
        dims->out[0][k - after] = (signed char)label;
        dims->behaviour[label] = CLT_DIM_WHOLE;
    }
    for (int k = 0; k < before + after; k++)
        dims->behaviour[k] = CLT_DIM_PARALLEL;
}

const clt_op clt_op_reshape = {
    .name = "reshape",
    .doc = "The elements of x in row-major order, with another shape.",
    .operands = "x * any",
    .results = "y * any",
    .by_node = "*",
    .dims = dims_of,
    .callable = true,
    CLT_ATTRIBUTES(
        reshape_attr,
        {CLT_ATTRIBUTE(INT, "shape", reshape_attr, dims,
                       "The dimensions; a negative one is a multiple of the batch size."),
         .count = CLT_MAX_RANK, .list = 1, .length = offsetof(reshape_attr, rank), .required = 1}),
    .infer = infer,
    .gradient = gradient,
    .flops = clt_no_flops,
    .batch_blocked = wants_batch_blocked,
    .view = true};

clt_value *clt_reshape(clt_value *x, int rank, const int64_t *dims)
{
    reshape_attr attr = {.rank = rank};
    if (!x)
        return NULL;
    if (rank < 0 || rank > CLT_MAX_RANK)
        return clt_graph_failed(x->graph, clt_fail(CLT_SHAPE,
                                                   "reshape: %d dimensions; at most %d are "
                                                   "possible",
                                                   rank, CLT_MAX_RANK));
    memcpy(attr.dims, dims, (size_t)rank * sizeof *dims);
    return clt_emit1(&clt_op_reshape, &attr, 1, x);
}

clt_value *clt_flatten(clt_value *x)
{
    if (!x)
        return NULL;
    if (x->type.rank < 1)
        return clt_graph_failed(x->graph,
                                clt_fail(CLT_SHAPE, "flatten needs at least one dimension"));
    int64_t rest = 1;
    for (int i = 1; i < x->type.rank; i++)
        rest *= x->type.dims[i];
    const int64_t dims[2] = {x->type.dims[0], rest};
    return clt_reshape(x, 2, dims);
}

static void call_flatten(const clt_op_call *c)
{
    c->out[0] = clt_flatten(c->in[0]);
}

const clt_op clt_call_flatten = {.name = "flatten",
                                 .doc = "x with all dimensions but the first joined into one.",
                                 .operands = "x b* any",
                                 .results = "y bk any",
                                 .whole = "*k",
                                 .callable = true,
                                 .build = call_flatten};
