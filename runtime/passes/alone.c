#include "ops/ops.h"
#include "passes/passes.h"
#include <cltrain/ops.h>

/* An output is memory of its own, under its name. */
static clt_status keep_output(clt_graph *graph, clt_value *output, clt_value *operand)
{
    clt_value *copy = clt_copy(operand);
    if (!copy)
        return clt_graph_status(graph);
    for (int i = 0; i < graph->n_seeds; i++)
        if (graph->seeds[i].output == output)
            graph->seeds[i].output = copy;
    copy->name = output->name;
    copy->output = true;
    output->name = NULL;
    output->output = false;
    return CLT_OK;
}

clt_status clt_pass_alone(clt_graph *graph)
{
    const int n_nodes = graph->n_nodes;
    for (int i = 0; i < n_nodes; i++) {
        const clt_node *node = graph->nodes[i];
        if (!node->op->collective)
            continue;
        if (node->out[0]->output)
            CLT_TRY(keep_output(graph, node->out[0], node->in[0]));
        clt_graph_replace(graph, node->out[0], node->in[0]);
    }
    return clt_graph_status(graph);
}
