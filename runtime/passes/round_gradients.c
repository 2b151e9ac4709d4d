/*
 * Gradients of parameters in 16 bits, in which they lie in their buckets and travel between
 * devices. They are rounded once, after all that is added to them has been added in f32: a node
 * whose kernels cannot write 16 bits, or whose result others read, leaves f32 for a conversion
 * right behind it.
 */
#include <string.h>

#include "base/error.h"
#include "passes/passes.h"
#include <cltrain/ops.h>

static bool is_read(const clt_graph *graph, const clt_value *value)
{
    for (int i = 0; i < graph->n_nodes; i++)
        for (int j = 0; j < graph->nodes[i]->n_in; j++)
            if (graph->nodes[i]->in[j] == value)
                return true;
    return false;
}

static int output_index(const clt_value *value)
{
    int index = 0;
    while (value->producer->out[index] != value)
        index++;
    return index;
}

static bool writes(const clt_graph *graph, const clt_target *target, const clt_value *value)
{
    const clt_node *node = value->producer;
    return node->op->half && node->op->half(node, target, output_index(value), true) &&
           !is_read(graph, value);
}

/* The last node goes right behind the one that makes its operand. */
static void move_back(clt_graph *graph)
{
    clt_node *node = graph->nodes[graph->n_nodes - 1];
    const int to = node->in[0]->producer->id + 1;
    memmove(&graph->nodes[to + 1], &graph->nodes[to],
            (size_t)(graph->n_nodes - 1 - to) * sizeof *graph->nodes);
    graph->nodes[to] = node;
    for (int i = to; i < graph->n_nodes; i++)
        graph->nodes[i]->id = i;
}

static clt_status convert(clt_graph *graph, clt_value **gradient, clt_dtype precision)
{
    clt_value *exact = *gradient;
    clt_graph_set_origin(graph, exact->producer->origin);
    clt_value *half = clt_cast(exact, precision);
    clt_graph_set_origin(graph, NULL);
    if (!half)
        return clt_graph_status(graph);
    half->layout = exact->layout;
    half->producer->backward = true;
    half->kept = true;
    exact->kept = false;
    move_back(graph);
    *gradient = half;
    return CLT_OK;
}

clt_status clt_pass_round_gradients(clt_graph *graph, const clt_target *target, clt_dtype precision,
                                    clt_value **gradients, int n_gradients)
{
    for (int i = 0; i < n_gradients; i++) {
        if (!gradients[i])
            continue;
        if (writes(graph, target, gradients[i]))
            gradients[i]->type.dtype = precision;
        else
            CLT_TRY(convert(graph, &gradients[i], precision));
    }
    return CLT_OK;
}
