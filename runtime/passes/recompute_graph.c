/*
 * Makes the backward pass recompute activations instead of keeping them (Chen et al., "Training
 * deep nets with sublinear memory cost", 2016). Forward nodes are copied, and clt_graph_clean
 * places each copy just before the first backward node that needs it. A copy runs the same kernel
 * on the same operands, random numbers included, so no bit of the results changes. plan/recompute.c
 * chooses the values.
 */
#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "passes/passes.h"

typedef struct recompute {
    clt_graph *graph;
    const bool *recomputed; /* by value id */
    bool *needed;           /* by node id: the node must be copied */
    clt_value **twins;      /* the copies by value id; NULL: none */
    int n_nodes;            /* number of nodes before copies were added */
} recompute;

static bool wanted(const recompute *r, const clt_value *value)
{
    return value && value->producer && !value->producer->backward && r->recomputed[value->id];
}

/* Marks the nodes to copy. Going backwards also finds nodes that only copies need, because nodes
 * are in topological order. */
static void mark_needed(recompute *r)
{
    for (int i = r->n_nodes - 1; i >= 0; i--) {
        const clt_node *node = r->graph->nodes[i];
        if (!node->backward && !r->needed[i])
            continue;
        for (int j = 0; j < node->n_in; j++)
            if (wanted(r, node->in[j]))
                r->needed[node->in[j]->producer->id] = true;
    }
}

static clt_value *operand(const recompute *r, clt_value *value)
{
    return wanted(r, value) ? r->twins[value->id] : value;
}

static clt_status copy_node(recompute *r, const clt_node *node)
{
    char name[192];
    clt_value **in = clt_calloc((size_t)node->n_in + 1, sizeof *in);
    CLT_TRY_MEMORY(in);
    for (int i = 0; i < node->n_in; i++)
        in[i] = operand(r, node->in[i]);
    clt_graph_set_origin(r->graph, node);
    clt_node *twin = clt_graph_add_twin(r->graph, node, in);
    clt_graph_set_origin(r->graph, NULL);
    clt_free(in);
    if (!twin)
        return clt_graph_status(r->graph);
    twin->recomputed = true;
    snprintf(name, sizeof name, "%s.recomputed", node->name);
    char *own = clt_strdup(name);
    CLT_TRY_MEMORY(own);
    clt_free(twin->name);
    twin->name = own;
    for (int i = 0; i < node->n_out; i++) {
        twin->out[i]->layout = node->out[i]->layout;
        r->twins[node->out[i]->id] = twin->out[i];
    }
    return CLT_OK;
}

static clt_status rewrite(recompute *r)
{
    mark_needed(r);
    for (int i = 0; i < r->n_nodes; i++)
        if (r->needed[i])
            CLT_TRY(copy_node(r, r->graph->nodes[i]));
    for (int i = 0; i < r->n_nodes; i++) {
        clt_node *node = r->graph->nodes[i];
        for (int j = 0; node->backward && j < node->n_in; j++)
            node->in[j] = operand(r, node->in[j]);
    }
    return CLT_OK;
}

clt_status clt_pass_recompute(clt_graph *graph, const bool *recomputed)
{
    recompute r = {.graph = graph, .recomputed = recomputed, .n_nodes = graph->n_nodes};
    r.needed = clt_calloc((size_t)graph->n_nodes + 1, sizeof *r.needed);
    r.twins = clt_calloc((size_t)graph->n_values + 1, sizeof *r.twins);
    const clt_status status = r.needed && r.twins ? rewrite(&r) : CLT_OUT_OF_MEMORY;
    CLT_FREE(r.needed, r.twins);
    return status;
}
