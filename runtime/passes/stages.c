/* The stages of a pipeline: which nodes belong to which, and copies of tied parameters. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "graph/mesh.h"
#include "passes/passes.h"

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
                    clt_value_called(first ? first : end), first && end ? " and " : "",
                    first && end ? clt_value_called(end) : "");
}

/* The cuts of a graph. */
typedef struct cuts {
    int n;
    double *work; /* see clt_stages_work */
    bool *used;   /* by number of the cut, from 1 on */
} cuts;

static double work_of(const clt_node *node)
{
    if (node->op->view)
        return 0;
    return node->op->flops ? node->op->flops(node, 1)
                           : (double)clt_type_elements(&node->out[0]->type, 1);
}

clt_status clt_stages_work(const clt_graph *graph, double *work)
{
    int piece = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        const clt_value *cut = cut_of(graph->nodes[i]);
        work[piece] += work_of(graph->nodes[i]);
        if (cut && cut->cut != piece + 1)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "mesh: cut %d, behind %s, is against the data's direction: cut %d lies "
                            "behind it",
                            cut->cut, clt_value_called(cut), piece + 1);
        piece += cut != NULL;
    }
    return CLT_OK;
}

/* Uses the cuts with which the largest stage has the least work. */
static clt_status balance(const cuts *c, int stages)
{
    const int n = c->n + 1;
    bool found;
    double *work = clt_calloc((size_t)(stages * n), sizeof *work);
    int *begins = clt_calloc((size_t)stages, sizeof *begins);
    clt_status status = work && begins ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int i = 0; status == CLT_OK && i < stages * n; i++)
        work[i] = c->work[i % n];
    const clt_stage_costs costs = {.pieces = n, .stages = stages, .work = work};
    CLT_NEXT(status, clt_stages_balance(&costs, begins, &found));
    for (int s = 1; status == CLT_OK && s < stages; s++)
        c->used[begins[s]] = true; /* cut number p lies before piece p */
    CLT_FREE(work, begins);
    return status;
}

/* Whether a result of the node is an output or one of the needed values. */
static bool is_needed(const clt_node *node, const bool *needed)
{
    bool any = false;
    for (int o = 0; o < node->n_out; o++)
        any = any || node->out[o]->output || needed[node->out[o]->id];
    return any;
}

/* Marks the values that losses, metrics, outputs, and the nodes before these need. */
static void find_needed(const clt_graph *graph, bool *needed)
{
    for (int i = 0; i < graph->n_losses; i++)
        needed[graph->losses[i].sum->id] = needed[graph->losses[i].weight->id] = true;
    for (int i = 0; i < graph->n_metrics; i++)
        needed[graph->metrics[i].sum->id] = needed[graph->metrics[i].weight->id] = true;
    for (int i = graph->n_nodes - 1; i >= 0; i--) {
        const clt_node *node = graph->nodes[i];
        const bool any = is_needed(node, needed);
        for (int k = 0; any && k < node->n_in; k++)
            if (node->in[k])
                needed[node->in[k]->id] = true;
    }
}

/* Nodes that only lead to a state's new value belong to the stage of what they read, even if the
 * graph has them behind the next cut. */
static clt_status settle_assigned(const clt_graph *graph)
{
    bool *needed = clt_calloc((size_t)graph->n_values + 1, sizeof *needed);
    CLT_TRY_MEMORY(needed);
    find_needed(graph, needed);
    for (int i = 0; i < graph->n_nodes; i++) {
        clt_node *node = graph->nodes[i];
        int stage = -1;
        for (int k = 0; k < node->n_in; k++)
            if (node->in[k] && node->in[k]->producer && node->in[k]->producer->stage > stage)
                stage = node->in[k]->producer->stage;
        if (stage >= 0 && !is_needed(node, needed))
            node->stage = stage;
    }
    clt_free(needed);
    return CLT_OK;
}

/* Whether a node reads leaves and nodes that do so, and may lie on any stage. */
static bool reads_leaves(const clt_node *node, const bool *does)
{
    bool only = !cut_of(node);
    for (int o = 0; o < node->n_out; o++)
        only = only && !node->out[o]->output;
    for (int k = 0; k < node->n_in; k++)
        only = only && (!node->in[k] || !node->in[k]->producer || does[node->in[k]->producer->id]);
    return only;
}

/* Moves nodes that read only leaves to the first stage that reads them, as the initial states of
 * recurrent layers, which the graph may have in front of earlier cuts. */
static clt_status settle_leaves(const clt_graph *graph)
{
    bool *leaves = clt_calloc((size_t)graph->n_nodes + 1, sizeof *leaves);
    int *first = clt_calloc((size_t)graph->n_nodes + 1, sizeof *first); /* 0: nothing reads it */
    if (leaves && first) {
        for (int i = 0; i < graph->n_nodes; i++)
            leaves[i] = reads_leaves(graph->nodes[i], leaves);
        for (int i = graph->n_nodes - 1; i >= 0; i--) {
            clt_node *node = graph->nodes[i];
            if (leaves[i] && first[i])
                node->stage = first[i] - 1;
            for (int k = 0; k < node->n_in; k++) {
                const clt_node *from = node->in[k] ? node->in[k]->producer : NULL;
                if (from && (!first[from->id] || node->stage < first[from->id] - 1))
                    first[from->id] = node->stage + 1;
            }
        }
    }
    const clt_status status = leaves && first ? CLT_OK : CLT_OUT_OF_MEMORY;
    CLT_FREE(leaves, first);
    return status;
}

static clt_status number_nodes(const clt_graph *graph, const cuts *c)
{
    const clt_value *last = NULL;
    int stage = 0, nodes = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        clt_node *node = graph->nodes[i];
        const clt_value *cut = cut_of(node);
        node->stage = stage;
        nodes += !node->op->view;
        if (!cut || !c->used[cut->cut])
            continue;
        if (!nodes)
            return fail_empty(stage, last, cut);
        last = cut;
        nodes = 0;
        stage++;
    }
    if (!nodes && last)
        return fail_empty(stage, last, NULL);
    CLT_TRY(settle_leaves(graph));
    return settle_assigned(graph);
}

/* --- stages that are given ------------------------------------------------------------------- */

static bool has_place(const clt_value *value)
{
    return value && value->stages &&
           (value->kind == CLT_VALUE_PARAMETER || value->kind == CLT_VALUE_STATE);
}

/* Returns an operand of a node that the node's stage does not have; NULL: there is none. */
static const clt_value *misses(const clt_node *node)
{
    for (int i = 0; i < node->n_in; i++)
        if (has_place(node->in[i]) && !(node->in[i]->stages >> node->stage & 1))
            return node->in[i];
    return NULL;
}

static const clt_value *any_misses(const clt_graph *graph)
{
    const clt_value *missing = NULL;
    for (int i = 0; i < graph->n_nodes && !missing; i++)
        missing = misses(graph->nodes[i]);
    return missing;
}

/* Marks the cuts behind which the parameters and states of the next stages begin. */
static void follow(const clt_graph *graph, cuts *c)
{
    int stage = 0, last = 0; /* the last cut that was passed */
    for (int i = 1; i <= c->n; i++)
        c->used[i] = false;
    for (int i = 0; i < graph->n_nodes; i++) {
        clt_node *node = graph->nodes[i];
        const clt_value *cut = cut_of(node);
        node->stage = stage;
        if (misses(node) && last && !c->used[last]) {
            c->used[last] = true;
            node->stage = ++stage;
        }
        last = cut ? cut->cut : last;
    }
}

/* Another graph with other work has divided the parameters. */
static clt_status fit(const clt_graph *graph, cuts *c, int stages)
{
    const clt_value *missing = any_misses(graph);
    if (!missing)
        return CLT_OK;
    follow(graph, c);
    CLT_TRY(number_nodes(graph, c));
    missing = any_misses(graph);
    return !missing && graph->nodes[graph->n_nodes - 1]->stage == stages - 1
               ? CLT_OK
               : clt_fail(
                     CLT_MISMATCH,
                     "mesh: the cuts of the graph do not fit the stages of the store%s%s: make "
                     "the store of a graph with the same cuts",
                     missing ? ", of which another one has " : "", missing ? missing->name : "");
}

/* Gives each node its stage. */
static clt_status divide(const clt_graph *graph, int stages)
{
    cuts c = {.n = graph->cuts,
              .work = clt_calloc((size_t)graph->cuts + 1, sizeof *c.work),
              .used = clt_calloc((size_t)graph->cuts + 1, sizeof *c.used)};
    clt_status status = c.work && c.used ? CLT_OK : CLT_OUT_OF_MEMORY;
    CLT_NEXT(status, clt_stages_work(graph, c.work));
    CLT_NEXT(status, balance(&c, stages));
    CLT_NEXT(status, number_nodes(graph, &c));
    CLT_NEXT(status, fit(graph, &c, stages));
    CLT_FREE(c.work, c.used);
    return status;
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
    if (stages > CLT_MOST_STAGES)
        return clt_fail(CLT_UNSUPPORTED, "mesh: axis pp can have %d stages, not %d",
                        CLT_MOST_STAGES, stages);
    if (graph->cuts < stages - 1)
        return clt_fail(
            CLT_INVALID_ARGUMENT,
            "mesh: pp=%d needs %d cut%s of the graph, which has %d: name the layers at which "
            "stages begin (clt_cut_before; --stages)",
            stages, stages - 1, stages == 2 ? "" : "s", graph->cuts);
    CLT_TRY(divide(graph, stages));
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
