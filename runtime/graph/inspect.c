/* The data that `cltrain inspect` prints: nodes with shapes, parameters and operations. */
#include <string.h>

#include "graph/graph.h"
#include <cltrain/unstable.h>

int clt_graph_node_count(const clt_graph *graph)
{
    return graph->n_nodes;
}

/* Whether the parameter was counted before: it is counted for the first node that uses it. */
static bool used_before(const clt_node *node, int operand)
{
    const clt_value *value = node->in[operand];
    for (int i = 0; i < operand; i++)
        if (node->in[i] == value)
            return true;
    return value->first_reader != node->id + 1;
}

clt_status clt_graph_node_describe(const clt_graph *graph, int index, clt_node_info *info)
{
    if (index < 0 || index >= graph->n_nodes)
        return clt_error_set(CLT_INVALID_ARGUMENT, "the graph has no node of that number");
    const clt_node *node = graph->nodes[index];
    clt_node_info out = {.name = node->name, .op = node->op->name, .schema = node->op};
    const clt_type *type = &node->out[0]->type;
    out.dtype = type->dtype;
    out.rank = type->rank;
    memcpy(out.dims, type->dims, (size_t)type->rank * sizeof *out.dims);
    for (int i = 0; i < node->n_in; i++) {
        const clt_value *value = node->in[i];
        if (!value || value->kind != CLT_VALUE_PARAMETER)
            continue;
        const int64_t count = clt_type_elements(&value->type, 1);
        if (used_before(node, i))
            out.shared += count;
        else
            out.parameters += count;
    }
    out.flops = node->op->view    ? 0
                : node->op->flops ? node->op->flops(node, 1)
                                  : (double)clt_type_elements(type, 1);
    *info = out;
    return CLT_OK;
}
