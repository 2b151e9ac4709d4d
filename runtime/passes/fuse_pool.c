/*
 * Fuses convolution, ReLU and 2 x 2 pooling into one kernel if all three are batch-blocked (so it
 * runs after the layout pass). In training graphs the gradient of ReLU also reads the convolution's
 * result. The fused kernel keeps a mask of the windows instead, through which the backward pass
 * reads the pooled gradient:
 *
 *   forward:  r = relu(conv2d(x, w, b)); p = pool(r)
 *   backward: dz = relu_grad(pool_grad(dp), r); dw = conv2d_weight_grad(x, dz);
 *             dx = conv2d_data_grad(dz, w)
 *   becomes:  p, mask = conv2d_pool(x, w, b)
 *             dz = unpool2d(dp, mask), or conv2d_pool_weight_grad(x, dp, mask) if there is no dx
 *
 * conv2d_pool_weight_grad has two rows of dz at a time on its stack, for each of some channels. For
 * wide images the rows would not fit on a stack.
 */
#include <string.h>

#include "base/vec.h"
#include "ops/conv/conv2d_pool.h"
#include "ops/core/ops.h"
#include "passes/passes.h"

/* COLUMNS: of dz; each takes up to 1 KiB on the stack. */
enum { MOST_USERS = 4, MOST_COLUMNS = 2048 };

/* The nodes of one match. */
typedef struct pattern {
    clt_node *conv, *pool;
    clt_node *pool_grad, *relu_grad, *weight_grad, *data_grad; /* NULL outside training */
} pattern;

/* A node that read a value when it was listed. `next` is the number of the next reader plus one. */
typedef struct reader {
    clt_node *node;
    int next;
} reader;

typedef struct pool_pass {
    clt_graph *graph;
    reader *readers;
    int n_readers, room;
    int *first, *last; /* by value id: number of the first, last reader plus one, in node order */
    int n_values;      /* number of values with such lists: those before the pass */
} pool_pass;

static clt_status add_reader(pool_pass *p, clt_node *node)
{
    for (int j = 0; j < node->n_in; j++) {
        const int id = node->in[j] ? node->in[j]->id : p->n_values;
        if (id >= p->n_values || (p->last[id] && p->readers[p->last[id] - 1].node == node))
            continue;
        CLT_TRY(CLT_PUSH(p->readers, p->n_readers, p->room, (reader){node, 0}));
        if (p->last[id])
            p->readers[p->last[id] - 1].next = p->n_readers;
        else
            p->first[id] = p->n_readers;
        p->last[id] = p->n_readers;
    }
    return CLT_OK;
}

static bool reads(const clt_node *node, const clt_value *value)
{
    for (int j = 0; j < node->n_in; j++)
        if (node->in[j] == value)
            return true;
    return false;
}

/* Finds the nodes that use `value`. Returns -1 if there are more than MOST_USERS. */
static int users_of(const pool_pass *p, const clt_value *value, clt_node **users)
{
    int count = 0;
    for (int i = p->first[value->id]; i; i = p->readers[i - 1].next) {
        clt_node *node = p->readers[i - 1].node;
        if (!reads(node, value))
            continue;
        if (count == MOST_USERS)
            return -1;
        users[count++] = node;
    }
    return count;
}

static bool find_backward(const pool_pass *pass, pattern *p)
{
    clt_node *users[MOST_USERS];
    const clt_op *grad_op =
        p->pool->op == &clt_op_avg_pool2d ? &clt_op_avg_pool2d_grad : &clt_op_max_pool2d_grad;
    clt_node *relu_grad = p->relu_grad;
    p->pool_grad = relu_grad->in[0]->producer;
    if (!p->pool_grad || p->pool_grad->op != grad_op ||
        users_of(pass, p->pool_grad->out[0], users) != 1)
        return false;
    const int count = users_of(pass, relu_grad->out[0], users);
    for (int i = 0; i < count; i++) {
        if (users[i]->op == &clt_op_conv2d_weight_grad && users[i]->in[0] == p->conv->in[0])
            p->weight_grad = users[i];
        else if (users[i]->op == &clt_op_conv2d_data_grad && users[i]->in[1] == p->conv->in[1])
            p->data_grad = users[i];
        else
            return false;
    }
    return count > 0 && p->weight_grad;
}

static bool find(const pool_pass *pass, clt_node *pool, pattern *p)
{
    clt_node *users[MOST_USERS];
    *p = (pattern){.pool = pool};
    if (!clt_conv2d_pool_kind(pool) || pool->out[0]->layout != CLT_LAYOUT_BATCH_BLOCKED)
        return false;
    clt_value *r = pool->in[0];
    p->conv = r->producer;
    if (!p->conv || p->conv->op != &clt_op_conv2d || r->name || r->output ||
        ((const clt_conv2d_attr *)p->conv->attr)->epilogue.activation != CLT_ACTIVATION_RELU)
        return false;
    const int count = users_of(pass, r, users);
    for (int i = 0; i < count; i++)
        if (users[i]->op == &clt_op_relu_grad && users[i]->in[1] == r)
            p->relu_grad = users[i];
        else if (users[i] != pool && users[i]->op != &clt_op_max_pool2d_grad)
            return false;
    return count == 1 || (count > 0 && p->relu_grad && find_backward(pass, p));
}

/* Makes `fresh` the producer of old's first `count` outputs. */
static void take_outputs(clt_node *fresh, clt_node *old, int count)
{
    for (int i = 0; i < count; i++) {
        clt_value *theirs = fresh->out[i];
        fresh->out[i] = old->out[i];
        fresh->out[i]->producer = fresh;
        old->out[i] = theirs;
        theirs->producer = old;
    }
}

static clt_conv2d_pool_attr attr_of(const pattern *p)
{
    const clt_type *r = &p->pool->in[0]->type;
    clt_conv2d_pool_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.conv = *(const clt_conv2d_attr *)p->conv->attr;
    for (int i = 0; i < 2; i++) {
        attr.conv.kernel[i] = (int)p->conv->in[1]->type.dims[2 + i];
        attr.out[i] = (int)r->dims[2 + i];
    }
    if (p->weight_grad)
        attr.conv.bias = ((const clt_conv2d_attr *)p->weight_grad->attr)->bias;
    attr.pool = (clt_pool_kind)clt_conv2d_pool_kind(p->pool);
    return attr;
}

static clt_status rewrite_backward(clt_graph *graph, const pattern *p,
                                   const clt_conv2d_pool_attr *attr, clt_value *mask)
{
    clt_value *dp = p->pool_grad->in[p->pool_grad->n_in - 1];
    if (p->data_grad || attr->out[1] > MOST_COLUMNS) {
        clt_value *const in[] = {dp, mask};
        clt_node *unpool = clt_graph_add(graph, &clt_op_unpool2d, in, 2, attr);
        if (!unpool)
            return clt_graph_status(graph);
        unpool->out[0]->layout = CLT_LAYOUT_BATCH_BLOCKED;
        p->weight_grad->in[1] = unpool->out[0];
        if (p->data_grad)
            p->data_grad->in[0] = unpool->out[0];
        return CLT_OK;
    }
    clt_value *const in[] = {p->conv->in[0], dp, mask};
    clt_node *grad = clt_graph_add(graph, &clt_op_conv2d_pool_weight_grad, in, 3, attr);
    if (!grad)
        return clt_graph_status(graph);
    take_outputs(grad, p->weight_grad, 2);
    return CLT_OK;
}

static clt_status rewrite(clt_graph *graph, const pattern *p)
{
    const clt_conv2d_pool_attr attr = attr_of(p);
    clt_node *fused = clt_graph_add(graph, &clt_op_conv2d_pool, p->conv->in, p->conv->n_in, &attr);
    if (!fused)
        return clt_graph_status(graph);
    fused->out[0]->layout = fused->out[1]->layout = CLT_LAYOUT_BATCH_BLOCKED;
    char *name = fused->name;
    fused->name = p->conv->name;
    p->conv->name = name;
    take_outputs(fused, p->pool, 1);
    if (!p->relu_grad)
        return CLT_OK;
    clt_graph_set_origin(graph, fused);
    clt_status status = rewrite_backward(graph, p, &attr, fused->out[1]);
    clt_graph_set_origin(graph, NULL);
    return status;
}

static clt_status run(pool_pass *p)
{
    clt_graph *graph = p->graph;
    const int n_nodes = graph->n_nodes;
    for (int i = 0; i < n_nodes; i++)
        CLT_TRY(add_reader(p, graph->nodes[i]));
    for (int i = 0; i < n_nodes; i++) {
        pattern found;
        const int before = graph->n_nodes;
        if (find(p, graph->nodes[i], &found))
            CLT_TRY(rewrite(graph, &found));
        for (int k = before; k < graph->n_nodes; k++)
            CLT_TRY(add_reader(p, graph->nodes[k]));
    }
    return CLT_OK;
}

clt_status clt_pass_fuse_pool(clt_graph *graph)
{
    pool_pass p = {.graph = graph, .n_values = graph->n_values};
    p.first = clt_calloc((size_t)graph->n_values + 1, sizeof *p.first);
    p.last = clt_calloc((size_t)graph->n_values + 1, sizeof *p.last);
    const clt_status status = p.first && p.last ? run(&p) : CLT_OUT_OF_MEMORY;
    CLT_FREE(p.first, p.last, p.readers);
    return status;
}
