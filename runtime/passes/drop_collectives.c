#include "ops/collective/collective.h"
#include "ops/core/ops.h"
#include "passes/passes.h"
#include <cltrain/ops.h>

/* Copies the operand, because an output has memory of its own, under its own name. */
static clt_status keep_output(clt_graph *graph, clt_value *output, clt_value *operand)
{
    clt_value *copy = clt_copy(operand);
    if (!copy)
        return clt_graph_status(graph);
    for (int i = 0; i < graph->n_seeds; i++)
        if (graph->seeds[i].output == output)
            graph->seeds[i].output = copy;
    clt_graph_move_output(output, copy);
    return CLT_OK;
}

/* Whether the node is a collective of axis dp, whose result on one device is the operand. */
static bool over_data(const clt_node *node)
{
    const clt_axis_attr *attr = node->attr;
    return node->op == &clt_op_all_reduce && attr->axis == CLT_AXIS_DATA;
}

clt_status clt_pass_drop_collectives(clt_graph *graph)
{
    const int n_nodes = graph->n_nodes;
    clt_replacements replacements;
    CLT_TRY(clt_replacements_begin(graph, &replacements));
    clt_status status = CLT_OK;
    for (int i = 0; status == CLT_OK && i < n_nodes; i++) {
        clt_node *node = graph->nodes[i];
        clt_replacements_settle_node(&replacements, node);
        if (!over_data(node))
            continue;
        if (node->out[0]->output)
            status = keep_output(graph, node->out[0], node->in[0]);
        CLT_NEXT(status, clt_replacements_add(&replacements, node->out[0], node->in[0]));
    }
    if (status == CLT_OK)
        clt_replacements_settle_graph(&replacements);
    clt_replacements_free(&replacements);
    return status == CLT_OK ? clt_graph_status(graph) : status;
}
