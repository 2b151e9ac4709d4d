/* Finds values by their names. */
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "graph/graph.h"

typedef struct lookup {
    const clt_graph *graph;
    const char *name;
} lookup;

/* The index may be outdated: values may have been renamed since they were added to it. */
static bool has_name(const void *context, int item)
{
    const lookup *l = context;
    const char *name = item < l->graph->n_values ? l->graph->values[item]->name : NULL;
    return name && !strcmp(name, l->name);
}

/* Several threads may search a graph at once, so a search must not change it. */
clt_value *clt_graph_find(clt_graph *graph, const char *name)
{
    const lookup l = {graph, name};
    int found = clt_table_find(&graph->names, clt_hash_text(name, 0), has_name, &l);
    for (int i = 0; found < 0 && graph->names_moved && i < graph->n_values; i++)
        if (has_name(&l, i))
            found = i;
    return found < 0 ? NULL : graph->values[found];
}

clt_status clt_graph_index_name(clt_graph *graph, const clt_value *value)
{
    if (graph->names_moved)
        CLT_TRY(clt_graph_index_names(graph));
    return clt_table_add(&graph->names, clt_hash_text(value->name, 0), value->id);
}

clt_status clt_graph_index_names(clt_graph *graph)
{
    clt_table_clear(&graph->names);
    for (int i = 0; i < graph->n_values; i++) {
        const char *name = graph->values[i]->name;
        if (name)
            CLT_TRY(clt_table_add(&graph->names, clt_hash_text(name, 0), i));
    }
    graph->names_moved = false;
    return CLT_OK;
}

void clt_graph_move_output(clt_value *from, clt_value *to)
{
    to->name = from->name;
    to->output = true;
    to->spare = from->spare;
    to->input_gradient = from->input_gradient;
    from->name = NULL;
    from->output = from->input_gradient = false;
    to->graph->names_moved = true;
}
