/*
 * One stage of a pipeline. The nodes of the stage stay as they are. A value that another stage
 * computes is replaced by a node that receives it, and a node that sends follows each node whose
 * value another stage reads. Forward, values go to later stages; backward, gradients go to earlier
 * ones. Both ends of two stages' messages have the order of the nodes that compute the values:
 * sends follow their node, and the receives of forward and backward stand before all other nodes.
 * The idea is that of GPipe (Huang et al., 2019).
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/vec.h"
#include "ops/collective/transfer.h"
#include "passes/passes.h"
#include <cltrain/ops.h>

/* A value that a stage sends to another one. */
typedef struct message {
    clt_value *value;
    int from, to;
} message;

typedef struct pipeline {
    clt_graph *graph;
    int stage;
    message *messages; /* of all stages, in the order of the nodes */
    int n_messages, room;
    clt_node **order; /* the nodes in the order in which they are to run */
    int n_order;
    clt_str *report;
} pipeline;

static int stage_of_bits(uint64_t stages)
{
    int stage = 0;
    while (stages && !(stages >> stage & 1))
        stage++;
    return stage;
}

/* --- stages of nodes that passes have added -------------------------------------------------- */

/* The stage of the largest operand, of which most bytes would cross; -1: operands have none. */
static int stage_of_operands(const clt_node *node)
{
    int64_t most = -1;
    int stage = -1;
    for (int i = 0; i < node->n_in; i++) {
        const clt_value *v = node->in[i];
        const int64_t elements = v ? clt_type_coefficient(&v->type) : 0;
        if (v && v->producer && v->producer->stage >= 0 && elements > most) {
            most = elements;
            stage = v->producer->stage;
        }
    }
    return stage;
}

static int stage_of_reader(const clt_graph *graph, const clt_node *node)
{
    for (int i = node->id + 1; i < graph->n_nodes; i++)
        for (int j = 0; j < graph->nodes[i]->n_in; j++)
            if (graph->nodes[i]->in[j] && graph->nodes[i]->in[j]->producer == node &&
                graph->nodes[i]->stage >= 0)
                return graph->nodes[i]->stage;
    return 0;
}

static void find_stages(const clt_graph *graph)
{
    for (int i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i]->stage < 0)
            graph->nodes[i]->stage = stage_of_operands(graph->nodes[i]);
    for (int i = graph->n_nodes - 1; i >= 0; i--)
        if (graph->nodes[i]->stage < 0)
            graph->nodes[i]->stage = stage_of_reader(graph, graph->nodes[i]);
}

/* --- ends of the graph ----------------------------------------------------------------------- */

/* Adds a copy of a value on another stage. */
static clt_value *copy_on(clt_value *value, int stage)
{
    const bool backward = value && value->producer && value->producer->backward;
    clt_value *copy = clt_copy(value);
    if (copy) {
        copy->producer->backward = backward;
        copy->producer->stage = stage;
    }
    return copy;
}

static int home_of(const clt_value *parameter)
{
    return parameter->tied ? parameter->tied : stage_of_bits(parameter->stages);
}

/* Keeps the gradients of the stage's parameters. */
static clt_status end_gradients(pipeline *p, clt_value **gradients, int *n_gradients)
{
    const int n_values = p->graph->n_values;
    int kept = 0, next = 0;
    for (int i = 0; i < n_values; i++) {
        const clt_value *v = p->graph->values[i];
        if (!clt_value_trained(v) || !*n_gradients)
            continue;
        clt_value *gradient = gradients[next++];
        if (gradient && gradient->producer->stage != home_of(v)) {
            gradient->kept = false;
            gradient = copy_on(gradient, home_of(v));
            CLT_TRY(clt_graph_status(p->graph));
            gradient->kept = true;
        }
        if (home_of(v) == p->stage)
            gradients[kept++] = gradient;
    }
    *n_gradients = kept;
    return CLT_OK;
}

static clt_value *zero_on(clt_value *value, int stage)
{
    const float zero = 0;
    return copy_on(clt_constant(value->graph, CLT_F32, value->type.rank, value->type.dims, &zero),
                   stage);
}

static clt_status end_means(pipeline *p, clt_mean *means, int count)
{
    for (int i = 0; i < count; i++) {
        const int home = means[i].sum->producer ? means[i].sum->producer->stage : 0;
        if (!means[i].weight->producer || means[i].weight->producer->stage != home)
            means[i].weight = copy_on(means[i].weight, home);
        CLT_TRY(clt_graph_status(p->graph));
        if (home == p->stage)
            continue;
        means[i].sum = zero_on(means[i].sum, p->stage);
        means[i].weight = zero_on(means[i].weight, p->stage);
    }
    return clt_graph_status(p->graph);
}

static clt_status end_assigns(pipeline *p)
{
    clt_graph *graph = p->graph;
    int kept = 0;
    for (int i = 0; i < graph->n_assigns; i++) {
        const clt_assignment a = graph->assigns[i];
        const clt_node *node = a.value->producer;
        const int home = node ? node->stage : stage_of_bits(a.state->stages);
        if (a.state->stages & ~(1ull << home))
            return clt_fail(CLT_UNSUPPORTED,
                            "state %s is computed by stage %d of axis pp, and read by stage %d",
                            a.state->name, home, stage_of_bits(a.state->stages & ~(1ull << home)));
        a.state->stages |= 1ull << home;
        if (home == p->stage)
            graph->assigns[kept++] = a;
    }
    graph->n_assigns = kept;
    return CLT_OK;
}

/* --- messages -------------------------------------------------------------------------------- */

static clt_status check_direction(const message *m)
{
    const bool backward = m->value->producer->backward;
    return (m->to < m->from) == backward
               ? CLT_OK
               : clt_fail(CLT_UNSUPPORTED,
                          "%s passes from stage %d to stage %d of axis pp, against the direction "
                          "of %s",
                          clt_value_called(m->value), m->from, m->to,
                          backward ? "gradients" : "data");
}

/* The stages that read the outputs of a node, by output. */
static void find_readers(const clt_graph *graph, uint64_t (*readers)[CLT_MAX_OUTPUTS])
{
    for (int i = 0; i < graph->n_nodes; i++)
        for (int j = 0; j < graph->nodes[i]->n_in; j++) {
            const clt_value *v = graph->nodes[i]->in[j];
            if (v && v->producer)
                readers[v->producer->id][v->slot] |= 1ull << graph->nodes[i]->stage;
        }
}

static clt_status find_messages(pipeline *p)
{
    const clt_graph *graph = p->graph;
    uint64_t(*readers)[CLT_MAX_OUTPUTS] = clt_calloc((size_t)graph->n_nodes + 1, sizeof *readers);
    CLT_TRY_MEMORY(readers);
    find_readers(graph, readers);
    clt_status status = CLT_OK;
    for (int i = 0; i < graph->n_nodes; i++)
        for (int o = 0; o < graph->nodes[i]->n_out; o++)
            for (int to = 0; status == CLT_OK && to < CLT_MOST_STAGES; to++) {
                const message m = {graph->nodes[i]->out[o], graph->nodes[i]->stage, to};
                if (to == m.from || !(readers[i][o] >> to & 1))
                    continue;
                status = check_direction(&m);
                CLT_NEXT(status, CLT_PUSH(p->messages, p->n_messages, p->room, m));
            }
    clt_free(readers);
    return status;
}

/* Adds the stage's end of a message, for a value that the stage sends or receives. */
static clt_node *add_end(pipeline *p, const message *m)
{
    char name[192], type[CLT_TYPE_TEXT];
    const bool sends = m->from == p->stage, half = clt_precision_rounds(m->value);
    snprintf(name, sizeof name, "%.120s.%d.pp%d-%d", m->value->producer->name, m->value->slot,
             m->from, m->to);
    clt_value *end =
        sends ? clt_send(m->value, CLT_AXIS_PIPELINE, m->to, half, name)
              : clt_receive(p->graph, &m->value->type, CLT_AXIS_PIPELINE, m->from, half, name);
    if (!end)
        return NULL;
    end->producer->backward = m->value->producer->backward;
    end->producer->stage = p->stage;
    clt_str_add(p->report, "pp %s: %s of %s, stage %d to %d\n", clt_value_called(m->value),
                sends ? "send" : "receive", clt_type_text(&m->value->type, type), m->from, m->to);
    return end->producer;
}

/* Lets the stage's nodes read a received value. */
static void read_received(const pipeline *p, const clt_value *value, clt_value *received)
{
    for (int i = 0; i < p->graph->n_nodes; i++) {
        const clt_node *node = p->graph->nodes[i];
        for (int j = 0; node->stage == p->stage && j < node->n_in; j++)
            if (node->in[j] == value)
                node->in[j] = received;
    }
}

/* Puts the nodes of forward or backward into order: receives, then each node with what it sends. */
static clt_status order_pass(pipeline *p, bool backward, int n_nodes)
{
    for (int k = 0; k < p->n_messages; k++) {
        const message *m = &p->messages[k];
        if (m->to != p->stage || m->value->producer->backward != backward)
            continue;
        clt_node *node = add_end(p, m);
        CLT_TRY(clt_graph_status(p->graph));
        p->order[p->n_order++] = node;
        read_received(p, m->value, node->out[0]);
    }
    for (int i = 0, k = 0; i < n_nodes; i++) {
        clt_node *node = p->graph->nodes[i];
        if (node->backward == backward)
            p->order[p->n_order++] = node;
        for (; k < p->n_messages && p->messages[k].value->producer == node; k++) {
            if (p->messages[k].from != p->stage || node->backward != backward)
                continue;
            clt_node *send = add_end(p, &p->messages[k]);
            CLT_TRY(clt_graph_status(p->graph));
            p->order[p->n_order++] = send;
        }
    }
    return CLT_OK;
}

static clt_status order_nodes(pipeline *p)
{
    clt_graph *graph = p->graph;
    const int n_nodes = graph->n_nodes;
    p->order = clt_calloc((size_t)(n_nodes + p->n_messages) + 1, sizeof *p->order);
    CLT_TRY_MEMORY(p->order);
    CLT_TRY(order_pass(p, false, n_nodes));
    CLT_TRY(order_pass(p, true, n_nodes));
    for (int i = 0; i < p->n_order; i++) {
        graph->nodes[i] = p->order[i];
        graph->nodes[i]->id = i;
    }
    return CLT_OK;
}

/* --- what leaves the graph ------------------------------------------------------------------- */

/* Effects of other stages leave too. clt_graph_clean would keep them, and all that they read. */
static void drop_effects(const pipeline *p)
{
    for (int i = 0; i < p->graph->n_nodes; i++)
        if (p->graph->nodes[i]->op->effect && p->graph->nodes[i]->stage != p->stage)
            p->graph->nodes[i]->replaced = true;
}

/* Takes a leaf out: clt_graph_clean drops it, because nothing reads it. */
static void drop_leaf(clt_value *value)
{
    value->kind = CLT_VALUE_INTERMEDIATE;
}

static clt_status drop_values(pipeline *p)
{
    clt_graph *graph = p->graph;
    bool *read = clt_calloc((size_t)graph->n_values + 1, sizeof *read);
    CLT_TRY_MEMORY(read);
    for (int i = 0; i < graph->n_nodes; i++)
        for (int j = 0; graph->nodes[i]->stage == p->stage && j < graph->nodes[i]->n_in; j++)
            if (graph->nodes[i]->in[j])
                read[graph->nodes[i]->in[j]->id] = true;
    for (int i = 0; i < graph->n_assigns; i++)
        read[graph->assigns[i].state->id] = true;
    for (int i = 0; i < graph->n_values; i++) {
        clt_value *v = graph->values[i];
        if (v->kind == CLT_VALUE_PARAMETER ? home_of(v) != p->stage && !read[i]
                                           : v->kind != CLT_VALUE_INTERMEDIATE && !read[i])
            drop_leaf(v);
        else if (v->producer && v->producer->stage != p->stage)
            v->output = false;
    }
    for (int l = 0; l < graph->n_losses; l++)
        if (graph->losses[l].upstream && !read[graph->losses[l].upstream->id])
            graph->losses[l].upstream = NULL;
    clt_free(read);
    return CLT_OK;
}

/* Gives copies of tied parameters the name of the parameter, which has left the graph. */
static void name_tied(clt_graph *graph)
{
    for (int i = 0; i < graph->n_values; i++) {
        clt_value *v = graph->values[i];
        if (v->kind == CLT_VALUE_PARAMETER && v->tied)
            *strrchr(v->name, '@') = '\0';
    }
}

static clt_status take_stage(pipeline *p, clt_value **gradients, int *n_gradients)
{
    clt_graph *graph = p->graph;
    find_stages(graph);
    CLT_TRY(end_means(p, graph->losses, graph->n_losses));
    CLT_TRY(end_means(p, graph->metrics, graph->n_metrics));
    CLT_TRY(end_assigns(p));
    CLT_TRY(end_gradients(p, gradients, n_gradients));
    CLT_TRY(find_messages(p));
    CLT_TRY(order_nodes(p));
    drop_effects(p);
    return drop_values(p);
}

clt_status clt_pass_pipeline(clt_graph *graph, int stage, clt_value **gradients, int *n_gradients,
                             clt_str *report)
{
    pipeline p = {.graph = graph, .stage = stage, .report = report};
    const clt_status status = take_stage(&p, gradients, n_gradients);
    CLT_FREE(p.messages, p.order);
    CLT_TRY(status);
    name_tied(graph);
    return clt_graph_clean(graph, gradients, *n_gradients);
}
