/*
 * Rounds the gradients of parameters to 16 bits, in which buckets hold them and devices exchange
 * them. A gradient is rounded once, after everything was added in f32. If a node's kernels cannot
 * write 16 bits, or others read its result, the node writes f32 and a conversion follows it.
 *
 * Several nodes may use one parameter, such as a table of words that is also the last layer's
 * weight. Then a sum over few of its rows continues from the other nodes' gradient (clt_op.base).
 * That gradient is stored in 16 bits in the bucket too. In f32 it would be a second tensor of the
 * parameter's size, the largest of the whole step. So it is rounded once for each use, by up to
 * 2^-9 of itself in bf16, as in frameworks that add such gradients in 16 bits. Rows that a sum does
 * not touch keep their bits. With more than MOST_PARTS uses, nothing is rounded until everything is
 * added.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "passes/passes.h"
#include <cltrain/ops.h>

/* The most sums of a gradient that are rounded, the last one included. */
enum { MOST_PARTS = 4 };

typedef struct gradients_pass {
    clt_graph *graph;
    const clt_target *target;
    clt_dtype precision;
    int n_nodes;  /* number of nodes before conversions were added */
    int *readers; /* by value id, for values before the pass: how often the value is an operand */
    clt_node **behind;   /* by node id: the last conversion added for its outputs */
    clt_node **previous; /* by number of the conversion: the one added before for the same node */
} gradients_pass;

static void count_readers(const gradients_pass *p)
{
    const clt_graph *g = p->graph;
    for (int i = 0; i < g->n_nodes; i++)
        for (int j = 0; j < g->nodes[i]->n_in; j++)
            if (g->nodes[i]->in[j])
                p->readers[g->nodes[i]->in[j]->id]++;
}

static int output_index(const clt_value *value)
{
    int index = 0;
    while (value->producer->out[index] != value)
        index++;
    return index;
}

/* Whether kernels read (`output`: write) the value in 16 bits. */
static bool takes(const clt_node *node, const clt_target *target, int index, bool output)
{
    return node->op->half && node->op->half(node, target, index, output);
}

/* Returns the value to which the node adds, if it may be stored in 16 bits; otherwise NULL. */
static clt_value *part_of(const gradients_pass *p, const clt_value *value)
{
    const clt_node *node = value->producer;
    const int base = node->op->base;
    clt_value *part = base ? node->in[base] : NULL;
    if (!part || !takes(node, p->target, base, false) || p->readers[part->id] != 1 ||
        part->output || part->kept)
        return NULL;
    return part;
}

/* Stores a gradient, and the sums from which it continues, in 16 bits. False if it must stay
 * f32. */
static bool round_where_made(const gradients_pass *p, clt_value *gradient)
{
    clt_value *parts[MOST_PARTS];
    int n = 0;
    if (p->readers[gradient->id])
        return false;
    for (clt_value *v = gradient; v; v = part_of(p, v)) {
        if (n == MOST_PARTS || !v->producer || v->producer->op->view ||
            !takes(v->producer, p->target, output_index(v), true))
            return false;
        parts[n++] = v;
    }
    for (int i = 0; i < n; i++)
        parts[i]->type.dtype = p->precision;
    return true;
}

static clt_status convert(const gradients_pass *p, clt_value **gradient)
{
    clt_value *exact = *gradient;
    clt_graph *graph = p->graph;
    clt_graph_set_origin(graph, exact->producer->origin);
    clt_value *half = clt_cast(exact, p->precision);
    clt_graph_set_origin(graph, NULL);
    if (!half)
        return clt_graph_status(graph);
    half->layout = exact->layout;
    half->producer->backward = true;
    half->kept = true;
    exact->kept = false;
    p->readers[exact->id]++;
    p->previous[half->producer->id - p->n_nodes] = p->behind[exact->producer->id];
    p->behind[exact->producer->id] = half->producer;
    *gradient = half;
    return CLT_OK;
}

/* Puts conversions right after the nodes that make their operands. Those of one node come in
 * reverse order of adding. */
static clt_status order_nodes(const gradients_pass *p)
{
    clt_graph *g = p->graph;
    int n = 0;
    clt_node **order = clt_calloc((size_t)g->n_nodes + 1, sizeof *order);
    CLT_TRY_MEMORY(order);
    for (int i = 0; i < p->n_nodes; i++) {
        order[n++] = g->nodes[i];
        for (clt_node *c = p->behind[i]; c; c = p->previous[c->id - p->n_nodes])
            order[n++] = c;
    }
    if (n) /* a graph of parameters alone has no array of nodes */
        memcpy(g->nodes, order, (size_t)n * sizeof *order);
    clt_free(order);
    for (int i = 0; i < n; i++)
        g->nodes[i]->id = i;
    return CLT_OK;
}

static clt_status run(const gradients_pass *p, clt_value **gradients, int n_gradients)
{
    count_readers(p);
    for (int i = 0; i < n_gradients; i++)
        if (gradients[i] && !round_where_made(p, gradients[i]))
            CLT_TRY(convert(p, &gradients[i]));
    return order_nodes(p);
}

clt_status clt_pass_round_gradients(clt_graph *graph, const clt_target *target, clt_dtype precision,
                                    clt_value **gradients, int n_gradients)
{
    gradients_pass p = {
        .graph = graph, .target = target, .precision = precision, .n_nodes = graph->n_nodes};
    p.readers = clt_calloc((size_t)graph->n_values + 1, sizeof *p.readers);
    p.behind = clt_calloc((size_t)graph->n_nodes + 1, sizeof *p.behind);
    p.previous = clt_calloc((size_t)n_gradients + 1, sizeof *p.previous);
    const clt_status status =
        p.readers && p.behind && p.previous ? run(&p, gradients, n_gradients) : CLT_OUT_OF_MEMORY;
    CLT_FREE(p.readers, p.behind, p.previous);
    return status;
}
