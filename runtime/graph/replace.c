/* Replaces values in a whole graph. */
#include "base/alloc.h"
#include "base/error.h"
#include "graph/graph.h"

clt_status clt_replacements_begin(clt_graph *graph, clt_replacements *replacements)
{
    *replacements = (clt_replacements){.graph = graph, .n_values = graph->n_values};
    replacements->values = clt_calloc((size_t)graph->n_values + 1, sizeof(clt_value *));
    return replacements->values ? CLT_OK : CLT_OUT_OF_MEMORY;
}

/* Follows replacements to their end, since a replacement may have been replaced later. */
static void settle(const clt_replacements *replacements, clt_value **value)
{
    while (*value && (*value)->id < replacements->n_values && replacements->values[(*value)->id])
        *value = replacements->values[(*value)->id];
}

void clt_replacements_settle_node(const clt_replacements *replacements, clt_node *node)
{
    for (int i = 0; i < node->n_in; i++)
        settle(replacements, &node->in[i]);
}

clt_status clt_replacements_add(clt_replacements *replacements, const clt_value *from,
                                clt_value *to)
{
    const int n = replacements->graph->n_values;
    if (from->id >= replacements->n_values) {
        clt_value **values = clt_realloc(replacements->values, (size_t)n * 2 * sizeof(clt_value *));
        CLT_TRY_MEMORY(values);
        for (int i = replacements->n_values; i < 2 * n; i++)
            values[i] = NULL;
        replacements->values = values;
        replacements->n_values = 2 * n;
    }
    replacements->values[from->id] = to;
    return CLT_OK;
}

static void settle_means(const clt_replacements *replacements, clt_mean *means, int count)
{
    for (int i = 0; i < count; i++) {
        settle(replacements, &means[i].sum);
        settle(replacements, &means[i].weight);
    }
}

void clt_replacements_settle_graph(const clt_replacements *replacements)
{
    const clt_graph *graph = replacements->graph;
    for (int i = 0; i < graph->n_nodes; i++)
        clt_replacements_settle_node(replacements, graph->nodes[i]);
    for (int i = 0; i < graph->n_assigns; i++)
        settle(replacements, &graph->assigns[i].value);
    settle_means(replacements, graph->losses, graph->n_losses);
    settle_means(replacements, graph->metrics, graph->n_metrics);
}

void clt_replacements_free(clt_replacements *replacements)
{
    clt_free(replacements->values);
    replacements->values = NULL;
}
