/* reshape: the same elements in the same order with another shape. No kernel runs. */
#include <string.h>

#include "ops/core/ops.h"
#include <cltrain/ops.h>

typedef struct reshape_attr {
    int rank;
    int unused;
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

/* Dimensions [from, to) of a shape, until its elements are those of the other's. */
typedef struct factor {
    int from, to;
    int64_t elements;
    bool batch;
} factor;

static void extend(factor *f, const clt_type *type)
{
    const int64_t dim = type->dims[f->to++];
    f->elements *= dim < 0 ? -dim : dim;
    f->batch = f->batch || dim < 0;
}

/* The first dimension of a factor that is no 1; `last` is the last one. */
static int first_of(const factor *f, const clt_type *type, int *last)
{
    int first = -1;
    *last = -1;
    for (int k = f->from; k < f->to; k++)
        if (type->dims[k] != 1) {
            first = first < 0 ? k : first;
            *last = k;
        }
    return first;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Sets the label of the first dimensions of two factors with the same elements. A part of one is a
 * part of the other, if no element of the larger dimension is cut. */
static void label_factors(const clt_type *x, const factor *fx, const clt_type *y, const factor *fy,
                          int label, clt_node_dims *dims)
{
    int x_last, y_last;
    const int i = first_of(fx, x, &x_last), k = first_of(fy, y, &y_last);
    if (i < 0 || k < 0 || (x->dims[i] < 0) != (y->dims[k] < 0))
        return;
    const bool alone = (i == x_last && k == y_last) || x->dims[i] < 0;
    const int64_t units = alone ? 0 : common_divisor(x->dims[i], y->dims[k]);
    if (units == 1)
        return;
    dims->in[0][i] = dims->out[0][k] = (signed char)label;
    dims->behaviour[label] = CLT_DIM_PARALLEL;
    dims->units[label] = units;
}

/* Both shapes are divided into as many factors as possible. All dimensions but the first one of
 * each factor are whole. */
static void dims_of(const clt_node *node, clt_node_dims *dims)
{
    const clt_type *x = &node->in[0]->type, *y = &node->out[0]->type;
    factor fx = {.to = 0}, fy = {.to = 0};
    clt_dims_clear(dims);
    for (int k = 0; k < CLT_MAX_RANK; k++) {
        dims->in[0][k] = (signed char)(CLT_MAX_RANK + k);
        dims->out[0][k] = (signed char)(CLT_DIM_STAR + k);
        dims->behaviour[CLT_MAX_RANK + k] = dims->behaviour[CLT_DIM_STAR + k] = CLT_DIM_WHOLE;
    }
    for (int label = 0; fx.to < x->rank && fy.to < y->rank; label++) {
        fx = (factor){fx.to, fx.to, 1, false};
        fy = (factor){fy.to, fy.to, 1, false};
        extend(&fx, x);
        extend(&fy, y);
        while (fx.elements != fy.elements || fx.batch != fy.batch) {
            const bool more = fx.elements < fy.elements || fy.to == y->rank;
            if (more && fx.to < x->rank)
                extend(&fx, x);
            else if (fy.to < y->rank)
                extend(&fy, y);
            else
                return;
        }
        label_factors(x, &fx, y, &fy, label, dims);
    }
}

static clt_status localise(const clt_node *node, const clt_node_part *part, void *copy)
{
    reshape_attr *attr = copy;
    clt_type type;
    CLT_TRY(clt_part_of_result(node, part, &type));
    memcpy(attr->dims, type.dims, sizeof attr->dims);
    return CLT_OK;
}

const clt_op clt_op_reshape = {
    .name = "reshape",
    .doc = "The elements of x in row-major order, with another shape.",
    .operands = "x * any",
    .results = "y * any",
    .by_node = "*",
    .dims = dims_of,
    .localise = localise,
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
