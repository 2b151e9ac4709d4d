#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "passes/passes.h"
#include <cltrain/ops.h>

clt_status clt_pass_evaluate(clt_graph *graph)
{
    for (int i = 0; i < graph->n_nodes; i++) {
        const clt_node *node = graph->nodes[i];
        if (!node->op->evaluate)
            continue;
        clt_value *instead = node->op->evaluate(node);
        if (!instead)
            return clt_graph_status(graph);
        clt_value *output = node->out[0];
        if (instead == output)
            continue;
        if (output->output) {
            /* An output is memory of its own. */
            if (instead->kind != CLT_VALUE_INTERMEDIATE || instead->name)
                instead = clt_copy(instead);
            if (!instead)
                return clt_graph_status(graph);
            /* The name moves along, so that the output is still found. */
            instead->name = output->name;
            instead->output = true;
            output->name = NULL;
            output->output = false;
        }
        clt_graph_replace(graph, output, instead);
    }
    return CLT_OK;
}

/* Equal operators on equal operands give equal values, unless the operator draws random numbers:
 * those differ in an attribute (their stream). */
static bool same_node(const clt_node *a, const clt_node *b)
{
    if (a->op != b->op || a->n_in != b->n_in || a->n_out != b->n_out)
        return false;
    for (int i = 0; i < a->n_in; i++)
        if (a->in[i] != b->in[i])
            return false;
    return !a->op->attr_bytes || !memcmp(a->attr, b->attr, a->op->attr_bytes);
}

static bool named(const clt_node *node)
{
    for (int i = 0; i < node->n_out; i++)
        if (node->out[i]->name || node->out[i]->output || node->out[i]->kept)
            return true;
    return false;
}

/* The sums and weights of losses and metrics are memory of their own, also where two are equal. */
static bool is_result(const clt_graph *graph, const clt_node *node)
{
    for (int i = 0; i < graph->n_losses + graph->n_metrics; i++) {
        const clt_mean *mean =
            i < graph->n_losses ? &graph->losses[i] : &graph->metrics[i - graph->n_losses];
        if (mean->sum == node->out[0] || mean->weight == node->out[0])
            return true;
    }
    return false;
}

/* True if the node returns its operand unchanged. */
static bool without_effect(const clt_node *node)
{
    return node->op->view && node->in[0]->kind == CLT_VALUE_INTERMEDIATE &&
           clt_type_equal(&node->in[0]->type, &node->out[0]->type);
}

clt_status clt_pass_simplify(clt_graph *graph)
{
    for (int i = 0; i < graph->n_nodes; i++) {
        clt_node *node = graph->nodes[i];
        if (named(node))
            continue;
        /* A view of a view is a view of the first. */
        if (node->op->view && node->in[0]->producer && node->in[0]->producer->op->view &&
            node->in[0]->producer->op == node->op)
            node->in[0] = node->in[0]->producer->in[0];
        if (without_effect(node)) {
            clt_graph_replace(graph, node->out[0], node->in[0]);
            node->n_in = 0; /* dead: it uses nothing any more */
            continue;
        }
        for (int j = 0; j < i; j++) {
            if (!same_node(graph->nodes[j], node) ||
                (is_result(graph, graph->nodes[j]) && is_result(graph, node)))
                continue;
            for (int k = 0; k < node->n_out; k++)
                clt_graph_replace(graph, node->out[k], graph->nodes[j]->out[k]);
            node->n_in = 0;
            break;
        }
    }
    return CLT_OK;
}
