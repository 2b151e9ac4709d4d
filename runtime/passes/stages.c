/* The stages of a pipeline: which nodes belong to which, and copies of tied parameters. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "graph/mesh.h"
#include "passes/passes.h"

enum { MOST_STAGES = 64 };

static const char *name_of(const clt_value *value)
{
    return value->name ? value->name : value->producer->name;
}

/* Returns the cut behind a node: the value that has it; NULL: there is none. */
static const clt_value *cut_of(const clt_node *node)
{
    for (int o = 0; o < node->n_out; o++)
        if (node->out[o]->cut)
            return node->out[o];
    return NULL;
}

/* `first` and `end` are the cuts around the stage; NULL: it is the graph's first or last stage. */
static clt_status fail_empty(int stage, const clt_value *first, const clt_value *end)
{
    return clt_fail(CLT_INVALID_ARGUMENT, "mesh: stage %d of axis pp has no node %s %s%s%s", stage,
                    first && end ? "between the cuts behind"
                    : first      ? "behind the cut at"
                                 : "before the cut at",
                    name_of(first ? first : end), first && end ? " and " : "",
                    first && end ? name_of(end) : "");
}

static clt_status number_nodes(const clt_graph *graph)
{
    const clt_value *last = NULL;
    int stage = 0, nodes = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        clt_node *node = graph->nodes[i];
        const clt_value *cut = cut_of(node);
        node->stage = stage;
        nodes += !node->op->view;
        if (!cut)
            continue;
        if (cut->cut != stage + 1)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "mesh: cut %d, behind %s, is against the data's direction: cut %d lies "
                            "behind it",
                            cut->cut, name_of(cut), stage + 1);
        if (!nodes)
            return fail_empty(stage, last, cut);
        last = cut;
        nodes = 0;
        stage++;
    }
    return nodes || !last ? CLT_OK : fail_empty(stage, last, NULL);
}

/* Adds the bit of each stage that uses a parameter or state. Stage 0 has those that none uses. */
static void mark_users(const clt_graph *graph)
{
    for (int i = 0; i < graph->n_values; i++)
        graph->values[i]->stages = 0;
    for (int i = 0; i < graph->n_nodes; i++)
        for (int j = 0; j < graph->nodes[i]->n_in; j++)
            if (graph->nodes[i]->in[j])
                graph->nodes[i]->in[j]->stages |= 1ull << graph->nodes[i]->stage;
    for (int i = 0; i < graph->n_assigns; i++)
        if (graph->assigns[i].value->producer)
            graph->assigns[i].state->stages |= 1ull << graph->assigns[i].value->producer->stage;
    for (int i = 0; i < graph->n_values; i++)
        if (!graph->values[i]->stages)
            graph->values[i]->stages = 1;
}

static void replace_in_stage(const clt_graph *graph, int stage, const clt_value *from,
                             clt_value *to)
{
    for (int i = 0; i < graph->n_nodes; i++)
        for (int j = 0; graph->nodes[i]->stage == stage && j < graph->nodes[i]->n_in; j++)
            if (graph->nodes[i]->in[j] == from)
                graph->nodes[i]->in[j] = to;
}

/* Adds a copy of a parameter for a stage. clt_pass_pipeline gives it the parameter's name. */
static clt_status tie(clt_graph *graph, const clt_value *parameter, int stage)
{
    char name[256];
    snprintf(name, sizeof name, "%.240s@%d", parameter->name, stage);
    clt_value *copy = clt_graph_value(graph, CLT_VALUE_PARAMETER, &parameter->type, name);
    if (!copy)
        return clt_graph_status(graph);
    copy->init = parameter->init;
    copy->group = parameter->group;
    copy->rate = parameter->rate;
    copy->decay = parameter->decay;
    for (int a = 0; a < CLT_AXES; a++)
        copy->shardings[a] = parameter->shardings[a];
    copy->stages = parameter->stages;
    copy->tied = stage;
    replace_in_stage(graph, stage, parameter, copy);
    return CLT_OK;
}

clt_status clt_pass_stages(clt_graph *graph, int stages)
{
    if (stages > MOST_STAGES)
        return clt_fail(CLT_UNSUPPORTED, "mesh: axis pp can have %d stages, not %d", MOST_STAGES,
                        stages);
    if (graph->cuts != stages - 1)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "mesh: pp=%d needs %d cuts of the graph (clt_cut), which has %d", stages,
                        stages - 1, graph->cuts);
    CLT_TRY(number_nodes(graph));
    mark_users(graph);
    const int n_values = graph->n_values;
    for (int i = 0; i < n_values; i++) {
        const clt_value *v = graph->values[i];
        for (int s = 1; clt_value_trained(v) && s < stages; s++)
            if (v->stages >> s & 1 && v->stages & ((1ull << s) - 1))
                CLT_TRY(tie(graph, v, s));
    }
    return CLT_OK;
}
