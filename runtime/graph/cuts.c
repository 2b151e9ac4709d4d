/* Cuts between the stages of a pipeline: behind values, and before layers that names select. */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "graph/graph.h"

clt_value *clt_cut(clt_value *value)
{
    if (!value || value->graph->status != CLT_OK)
        return NULL;
    if (!value->producer || value->cut)
        return clt_graph_failed(
            value->graph, clt_fail(CLT_INVALID_ARGUMENT, "cut: %s %s, so it ends no stage",
                                   value->name       ? value->name
                                   : value->producer ? value->producer->name
                                                     : "a constant",
                                   value->cut ? "ends one already" : "is computed by no node"));
    value->cut = ++value->graph->cuts;
    return value;
}

/* Whether a pattern matches a parameter's name, or that of its layer: "fc1" of "fc1.weight". */
static bool matches_parameter(const char *pattern, const char *name)
{
    char layer[256];
    const char *dot = strrchr(name, '.');
    snprintf(layer, sizeof layer, "%.*s", dot ? (int)(dot - name) : 0, name);
    return !fnmatch(pattern, name, 0) || (dot && !fnmatch(pattern, layer, 0));
}

static bool matches(const char *pattern, const clt_node *node)
{
    bool found = !fnmatch(pattern, node->name, 0);
    for (int i = 0; i < node->n_in; i++) {
        const clt_value *v = node->in[i];
        if (v && (v->kind == CLT_VALUE_PARAMETER || v->kind == CLT_VALUE_STATE))
            found = found || matches_parameter(pattern, v->name);
    }
    return found;
}

/* Marks the first node that a pattern matches in begins[]. It lies behind *last, the node of the
 * pattern before. */
static clt_status find_layer(const clt_graph *graph, const char *pattern, bool *begins, int *last)
{
    int i = 0;
    while (i < graph->n_nodes && !matches(pattern, graph->nodes[i]))
        i++;
    if (i == graph->n_nodes)
        return clt_fail(
            CLT_NOT_FOUND,
            "stages: no layer matches \"%s\": cltrain inspect lists the layers of a model",
            pattern);
    if (i == 0 || begins[i])
        return clt_fail(CLT_INVALID_ARGUMENT, "stages: \"%s\" begins at %s, where %s", pattern,
                        graph->nodes[i]->name,
                        i ? "another stage begins already" : "the first stage begins");
    if (i < *last)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "stages: \"%s\" begins at %s, in front of the stage before it: name layers "
                        "in the order in which data pass them",
                        pattern, graph->nodes[i]->name);
    begins[i] = true;
    *last = i;
    return CLT_OK;
}

static clt_status find_layers(const clt_graph *graph, char *patterns, bool *begins)
{
    int last = 0;
    for (char *next = patterns; next;) {
        char *const pattern = next, *const bar = strchr(pattern, '|');
        if (bar)
            *bar = '\0';
        next = bar ? bar + 1 : NULL;
        CLT_TRY(find_layer(graph, pattern, begins, &last));
    }
    return CLT_OK;
}

clt_status clt_cut_before(clt_graph *graph, const char *patterns)
{
    CLT_TRY(clt_graph_status(graph));
    char *copy = clt_strdup(patterns ? patterns : "");
    bool *begins = clt_calloc((size_t)graph->n_nodes + 1, sizeof *begins);
    clt_status status = copy && begins ? CLT_OK : CLT_OUT_OF_MEMORY;
    CLT_NEXT(status, find_layers(graph, copy, begins));
    for (int i = 0; status == CLT_OK && i < graph->n_values; i++)
        graph->values[i]->cut = 0;
    graph->cuts = status == CLT_OK ? 0 : graph->cuts;
    for (int i = 1; status == CLT_OK && i < graph->n_nodes; i++)
        if (begins[i])
            graph->nodes[i - 1]->out[0]->cut = ++graph->cuts;
    CLT_FREE(copy, begins);
    return status;
}

void clt_graph_keep_cuts(clt_graph *graph, const bool *kept)
{
    int piece = 0;
    graph->cuts = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        graph->nodes[i]->piece = piece;
        for (int o = 0; o < graph->nodes[i]->n_out; o++) {
            clt_value *v = graph->nodes[i]->out[o];
            piece += v->cut != 0;
            if (v->cut)
                v->cut = kept[v->cut] ? ++graph->cuts : 0;
        }
    }
}
