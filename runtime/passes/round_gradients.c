/*
 * Gradients of parameters in 16 bits, in which they lie in their buckets and travel between
 * devices. They are rounded once, after all that is added to them has been added in f32: a node
 * whose kernels cannot write 16 bits, or whose result others read, leaves f32 for a conversion
 * right behind it.
 *
 * Of a parameter that several nodes use (a table of words that is the last layer's weight, too), a
 * sum over few of its rows goes on from what the others gave (clt_op.base). That lies in 16 bits as
 * well, in the bucket: in f32 it would be a second tensor of the parameter's size, the largest of
 * the whole step. So it is rounded once for each of the uses, by 2^-9 of itself in bf16, which is
 * what frameworks that add up such gradients in 16 bits do; rows that a sum does not touch keep
 * their bits. Of more than MOST_PARTS uses nothing is rounded before all is added.
 */
#include <string.h>

#include "base/error.h"
#include "passes/passes.h"
#include <cltrain/ops.h>

/* How many sums of a gradient are rounded, with the last one. */
enum { MOST_PARTS = 4 };

static int count_readers(const clt_graph *graph, const clt_value *value)
{
    int count = 0;
    for (int i = 0; i < graph->n_nodes; i++)
        for (int j = 0; j < graph->nodes[i]->n_in; j++)
            count += graph->nodes[i]->in[j] == value;
    return count;
}

static int output_index(const clt_value *value)
{
    int index = 0;
    while (value->producer->out[index] != value)
        index++;
    return index;
}

/* Whether kernels read, or write (`output`), the value in 16 bits. */
static bool takes(const clt_node *node, const clt_target *target, int index, bool output)
{
    return node->op->half && node->op->half(node, target, index, output);
}

/* What the value's node adds to, if that may lie in 16 bits; NULL: it stays what it is. */
static clt_value *part_of(const clt_graph *graph, const clt_target *target, const clt_value *value)
{
    const clt_node *node = value->producer;
    const int base = node->op->base;
    clt_value *part = base ? node->in[base] : NULL;
    if (!part || !takes(node, target, base, false) || count_readers(graph, part) != 1 ||
        part->output || part->kept)
        return NULL;
    return part;
}

/* Makes a gradient, and the sums that it goes on from, values in 16 bits; false: it must stay f32.
 */
static bool round_where_made(const clt_graph *graph, const clt_target *target, clt_value *gradient,
                             clt_dtype precision)
{
    clt_value *parts[MOST_PARTS];
    int n = 0;
    if (count_readers(graph, gradient))
        return false;
    for (clt_value *v = gradient; v; v = part_of(graph, target, v)) {
        if (n == MOST_PARTS || !v->producer || v->producer->op->view ||
            !takes(v->producer, target, output_index(v), true))
            return false;
        parts[n++] = v;
    }
    for (int i = 0; i < n; i++)
        parts[i]->type.dtype = precision;
    return true;
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
        if (!round_where_made(graph, target, gradients[i], precision))
            CLT_TRY(convert(graph, &gradients[i], precision));
    }
    return CLT_OK;
}
