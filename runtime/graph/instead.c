/* Values that take the place of others in a whole graph. */
#include "base/alloc.h"
#include "base/error.h"
#include "graph/graph.h"

clt_status clt_instead_begin(clt_graph *graph, clt_instead *instead)
{
    *instead = (clt_instead){.graph = graph, .n_values = graph->n_values};
    instead->values = clt_calloc((size_t)graph->n_values + 1, sizeof(clt_value *));
    return instead->values ? CLT_OK : CLT_OUT_OF_MEMORY;
}

/* What takes the place of a value may have been replaced, too, since it was entered. */
static void settle(const clt_instead *instead, clt_value **value)
{
    while (*value && (*value)->id < instead->n_values && instead->values[(*value)->id])
        *value = instead->values[(*value)->id];
}

void clt_instead_operands(const clt_instead *instead, clt_node *node)
{
    for (int i = 0; i < node->n_in; i++)
        settle(instead, &node->in[i]);
}

clt_status clt_instead_enter(clt_instead *instead, const clt_value *from, clt_value *to)
{
    const int n = instead->graph->n_values;
    if (from->id >= instead->n_values) {
        clt_value **values = clt_realloc(instead->values, (size_t)n * 2 * sizeof(clt_value *));
        if (!values)
            return CLT_OUT_OF_MEMORY;
        for (int i = instead->n_values; i < 2 * n; i++)
            values[i] = NULL;
        instead->values = values;
        instead->n_values = 2 * n;
    }
    instead->values[from->id] = to;
    return CLT_OK;
}

static void settle_means(const clt_instead *instead, clt_mean *means, int count)
{
    for (int i = 0; i < count; i++) {
        settle(instead, &means[i].sum);
        settle(instead, &means[i].weight);
    }
}

void clt_instead_everywhere(const clt_instead *instead)
{
    const clt_graph *graph = instead->graph;
    for (int i = 0; i < graph->n_nodes; i++)
        clt_instead_operands(instead, graph->nodes[i]);
    for (int i = 0; i < graph->n_assigns; i++)
        settle(instead, &graph->assigns[i].value);
    settle_means(instead, graph->losses, graph->n_losses);
    settle_means(instead, graph->metrics, graph->n_metrics);
}

void clt_instead_free(clt_instead *instead)
{
    clt_free(instead->values);
    instead->values = NULL;
}
