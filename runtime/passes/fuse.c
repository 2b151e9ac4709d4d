#include "base/alloc.h"
#include "base/error.h"
#include "passes/passes.h"

/* The only node that uses `value`, or NULL if there is none, there are more, or the value must
 * exist for another reason. */
static clt_node *only_user(const clt_graph *graph, const clt_value *value)
{
    clt_node *user = NULL;
    if (value->output || value->name || value->kept)
        return NULL;
    for (int i = 0; i < graph->n_nodes; i++)
        for (int j = 0; j < graph->nodes[i]->n_in; j++)
            if (graph->nodes[i]->in[j] == value) {
                if (user)
                    return NULL;
                user = graph->nodes[i];
            }
    for (int i = 0; i < graph->n_assigns; i++)
        if (graph->assigns[i].value == value)
            return NULL;
    for (int i = 0; i < graph->n_losses; i++)
        if (graph->losses[i].sum == value || graph->losses[i].weight == value)
            return NULL;
    for (int i = 0; i < graph->n_metrics; i++)
        if (graph->metrics[i].sum == value || graph->metrics[i].weight == value)
            return NULL;
    return user;
}

static bool fuse_node(clt_graph *graph, clt_node *node)
{
    if (!node->op->absorb)
        return false;
    clt_node *next = only_user(graph, node->out[0]);
    /* Forward stays forward: it also runs without the backward. */
    if (!next || next->n_out != 1 || next->in[0] != node->out[0] ||
        next->backward != node->backward || !node->op->absorb(node, next))
        return false;
    /* The node now computes next's output: it takes over that value, and the old one dies. */
    clt_value *old = node->out[0], *result = next->out[0];
    node->out[0] = result;
    result->producer = node;
    next->out[0] = old;
    old->producer = next;
    next->n_in = 0; /* dead: it uses nothing any more */
    return true;
}

clt_status clt_pass_fuse(clt_graph *graph)
{
    for (int i = 0; i < graph->n_nodes; i++)
        while (fuse_node(graph, graph->nodes[i]))
            ;
    return clt_graph_status(graph);
}
