/*
 * Recurrent layers on axis time. Place p needs the state that place p - 1 has after its last
 * position. So that all places work at the same time, they run different layers: in round r, place
 * p runs layer r - p.
 *
 *     round          0        1        2        3
 *     place 0     layer 0  layer 1  layer 2
 *     place 1              layer 0  layer 1  layer 2
 *
 * Between two rounds, each place hands the state of its layer on to the next place. That is one
 * collective for all places, which those without a layer join with zeros. Backward runs the rounds
 * from the last to the first.
 *
 * All places must come to all collectives in one order. Rounds of different places contain
 * different layers, so no other collective may lie between them: it ends the wave, and the next
 * layer begins another one. So does a stage of axis pp, because a collective of axis time has the
 * places of one stage.
 */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "graph/mesh.h"
#include "ops/collective/collective.h"
#include "ops/core/ops.h"
#include "ops/recurrent/recurrent.h"
#include "passes/time.h"
#include <cltrain/ops.h>

bool clt_time_is_recurrent(const clt_node *node)
{
    return node->op == &clt_op_lstm || node->op == &clt_op_gru;
}

/* h and, of an LSTM, c. */
static int states_of(const clt_node *node)
{
    return node->op == &clt_op_lstm ? 2 : 1;
}

static int64_t width_of(const clt_node *node)
{
    return states_of(node) * node->out[CLT_RNN_H_N]->type.dims[1];
}

void clt_time_count_states(clt_partitioning *p)
{
    for (int i = 0; i < p->n_nodes; i++) {
        const clt_node *node = p->graph->nodes[i];
        if (!clt_time_is_recurrent(node))
            continue;
        p->states.layers++;
        if (width_of(node) > p->states.width)
            p->states.width = width_of(node);
    }
}

/* A state of zeros. It has the batch of x [B, T, G], the gates of a layer. */
static clt_value *zeros_like(const clt_partitioning *p, clt_value *x)
{
    const int64_t width = p->states.width, gates = x->type.dims[2];
    const int64_t dims[] = {x->type.dims[0], width < gates ? width : gates};
    clt_value *first = clt_window_cut(clt_window_cut(x, 1, 0, 1), 2, 0, dims[1]);
    return clt_detach(clt_scale(clt_reshape(first, 2, dims), 0));
}

/* All layers hand on states of one width. */
static clt_value *widened(const clt_partitioning *p, clt_value *state)
{
    const int64_t before[] = {0, 0};
    if (!state || state->type.dims[1] == p->states.width)
        return state;
    const int64_t after[] = {0, p->states.width - state->type.dims[1]};
    return clt_pad(state, before, after, 0);
}

/* Hands on a state, or zeros in its place. */
static void hand_on(clt_partitioning *p, clt_value *state)
{
    char name[48];
    clt_time_states *s = &p->states;
    const int first = p->graph->n_nodes;
    snprintf(name, sizeof name, "%s.state.%d", clt_axis_name(p->axis), s->number++);
    state = widened(p, state ? state : s->zeros);
    s->before = clt_label(clt_axis_hand_on(state, p->axis, 1), name);
    s->handed++;
    for (int i = first; i < p->graph->n_nodes; i++)
        p->graph->nodes[i]->stage = s->stage;
}

/* Adds the collectives that this place still lacks. `last`: behind the last of all layers. Its
 * state at the last place goes nowhere, so that place has not handed it on. */
static void end_wave(clt_partitioning *p, bool last)
{
    clt_time_states *s = &p->states;
    const int rounds = s->in_wave + p->at.places - (last ? 2 : 1);
    while (s->in_wave && s->handed < rounds)
        hand_on(p, NULL);
    s->in_wave = s->handed = 0;
}

void clt_time_settle(clt_partitioning *p, int first)
{
    clt_graph *graph = p->graph;
    const int end = graph->n_nodes;
    bool any = false;
    for (int i = first; i < end; i++)
        any = any || graph->nodes[i]->op->collective;
    if (!any || !p->states.in_wave)
        return;
    end_wave(p, false);
    /* The new collectives come behind those of the wave. */
    for (int i = end; i < graph->n_nodes; i++) {
        clt_node *node = graph->nodes[i];
        const int to = first + i - end;
        memmove(&graph->nodes[to + 1], &graph->nodes[to], (size_t)(i - to) * sizeof node);
        graph->nodes[to] = node;
    }
    for (int i = first; i < graph->n_nodes; i++)
        graph->nodes[i]->id = i;
}

static clt_status check(const clt_partitioning *p, const clt_node *node)
{
    const bool reverse = ((const clt_recurrent_attr *)node->attr)->reverse;
    if (!reverse && (node->n_in <= CLT_RNN_LENGTHS || !node->in[CLT_RNN_LENGTHS]))
        return CLT_OK;
    return clt_fail(CLT_UNSUPPORTED, "node %s (%s): axis %s cannot split %s", node->name,
                    node->op->name, clt_axis_name(p->axis),
                    reverse ? "a layer that runs backwards" : "sequences of several lengths");
}

/* Makes the state behind the last position that of all places. */
static void share_last(clt_partitioning *p, const clt_value *old)
{
    char name[64];
    clt_value *state = p->local[old->id];
    if (p->at.place < p->at.places - 1)
        state = clt_scale(state, 0);
    snprintf(name, sizeof name, "%s.last.%d", clt_axis_name(p->axis), p->states.number++);
    p->local[old->id] = clt_label(clt_axis_all_reduce(state, p->axis, CLT_AXIS_SUM), name);
    p->placed[old->id].own = false;
}

clt_status clt_time_share_states(clt_partitioning *p, const clt_node *node)
{
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i] && p->placed[node->in[i]->id].own) {
            end_wave(p, false);
            share_last(p, node->in[i]);
        }
    return clt_graph_status(p->graph);
}

/* Adds the layer's local node, and hands on its state. */
static clt_node *add_layer(clt_partitioning *p, const clt_node *node, clt_value **in)
{
    const int64_t hidden = node->out[CLT_RNN_H_N]->type.dims[1];
    const int states = states_of(node);
    for (int i = 0; p->at.place > 0 && i < states; i++)
        in[CLT_RNN_H0 + i] = clt_window_cut(p->states.before, 1, i * hidden, (i + 1) * hidden);
    clt_node *local = clt_graph_add(p->graph, node->op, in, CLT_RNN_LENGTHS, node->attr);
    if (!local)
        return NULL;
    clt_value *state =
        states == 1 ? local->out[CLT_RNN_H_N] : clt_concat(local->out + CLT_RNN_H_N, states, 1);
    const bool last = p->states.visited == p->states.layers;
    p->states.in_wave++;
    if (!last || p->at.place < p->at.places - 1)
        hand_on(p, state);
    if (last)
        end_wave(p, true);
    return local;
}

static clt_status divide_layer(clt_partitioning *p, clt_node *node, clt_sharding has)
{
    const int first = p->graph->n_nodes;
    clt_value *in[CLT_RNN_LENGTHS] = {p->local[node->in[CLT_RNN_X]->id]};
    CLT_TRY(check(p, node));
    for (int i = CLT_RNN_W; i < CLT_RNN_LENGTHS && i < node->n_in; i++)
        if (node->in[i])
            in[i] = clt_partition_convert(p, node->in[i], (clt_sharding){0, 0});
    clt_time_settle(p, first);
    if (p->states.stage != node->stage)
        end_wave(p, false);
    if (!p->states.in_wave) {
        p->states.stage = node->stage;
        p->states.zeros = zeros_like(p, in[CLT_RNN_X]);
        for (int i = 0; i < p->at.place; i++)
            hand_on(p, NULL);
    }
    const clt_node *local = add_layer(p, node, in);
    CLT_TRY(clt_graph_status(p->graph));
    CLT_TRY(clt_partition_place(p, node, local->out[CLT_RNN_Y], has));
    for (int o = CLT_RNN_H_N; o < node->n_out; o++) {
        p->local[node->out[o]->id] = local->out[o];
        p->placed[node->out[o]->id].own = o < CLT_RNN_H_N + states_of(node);
    }
    return CLT_OK;
}

clt_status clt_time_visit_states(clt_partitioning *p, clt_node *node, clt_sharding has, bool *done)
{
    p->states.visited++;
    *done = has.blocks > 0;
    return has.blocks ? divide_layer(p, node, has) : CLT_OK;
}

clt_status clt_time_end_states(clt_partitioning *p)
{
    end_wave(p, false);
    for (int i = 0; i < p->n_values; i++)
        if (p->placed[i].own)
            share_last(p, p->graph->values[i]);
    return clt_graph_status(p->graph);
}
