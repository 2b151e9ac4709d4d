/* Joins the graphs of all places of an axis into one graph, in which ordinary nodes stand for the
 * collectives. One device then computes what the places compute together. */
#ifndef TESTS_PASSES_MERGE_H
#define TESTS_PASSES_MERGE_H

#include "graph/graph.h"
#include "ops/collective/collective.h"
#include <cltrain/ops.h>

enum { MERGE_PLACES = 8, MERGE_NAME = 160 };

/* What stands in place of a collective: the collective itself, its operand (as if nothing were
 * exchanged), or zeros. */
typedef enum merge_fault { MERGE_RIGHT, MERGE_IDENTITY, MERGE_ZEROS } merge_fault;

typedef struct merger {
    clt_graph *graph;                  /* the result */
    const clt_graph *of[MERGE_PLACES]; /* the places' graphs */
    clt_value **twins[MERGE_PLACES];   /* by value id */
    int next[MERGE_PLACES], places;    /* by place: the next node */
    int collectives, fault_at;         /* so far; the one that is at fault */
    merge_fault fault;
} merger;

/* Adds the value that stands for a leaf. Parameters and states become inputs "name@place". Inputs
 * are the same at all places. */
static inline clt_value *merge_leaf(merger *m, int place, const clt_value *v)
{
    char name[MERGE_NAME];
    if (v->kind == CLT_VALUE_CONSTANT)
        return clt_constant(m->graph, v->type.dtype, v->type.rank, v->type.dims, v->data);
    if (v->kind == CLT_VALUE_INPUT) {
        clt_value *same = clt_graph_find(m->graph, v->name);
        return same ? same
                    : clt_input(m->graph, v->name, v->type.dtype, v->type.rank, v->type.dims);
    }
    snprintf(name, sizeof name, "%s@%d", v->name, place);
    return clt_input(m->graph, name, v->type.dtype, v->type.rank, v->type.dims);
}

static inline void merge_node(merger *m, int place, const clt_node *node)
{
    clt_value *in[64] = {NULL};
    assert_true(node->n_in <= 64);
    for (int i = 0; i < node->n_in; i++)
        in[i] = node->in[i] ? m->twins[place][node->in[i]->id] : NULL;
    const clt_node *twin = clt_graph_add(m->graph, node->op, in, node->n_in, node->attr);
    if (!twin)
        fail_msg("%s: %s", node->name, clt_error_message());
    for (int o = 0; o < node->n_out; o++)
        m->twins[place][node->out[o]->id] = twin->out[o];
}

/* Goes on with a place up to its next collective. */
static inline const clt_node *merge_until_collective(merger *m, int place)
{
    const clt_graph *g = m->of[place];
    while (m->next[place] < g->n_nodes) {
        const clt_node *node = g->nodes[m->next[place]++];
        if (node->op->collective)
            return node;
        merge_node(m, place, node);
    }
    return NULL;
}

static inline clt_value *merged_sum(clt_value *const *in, int places)
{
    clt_value *sum = in[0];
    for (int p = 1; p < places; p++)
        sum = clt_add(sum, in[p]);
    return sum;
}

/* Takes item `place` of x [places, ...]. */
static inline clt_value *merged_item(clt_value *x, int place)
{
    int64_t start[CLT_MAX_RANK] = {place}, stop[CLT_MAX_RANK];
    for (int k = 0; k < CLT_MAX_RANK; k++)
        stop[k] = k ? CLT_TO_END : place + 1;
    return clt_reshape(clt_slice(x, start, stop, NULL), x->type.rank - 1, x->type.dims + 1);
}

/* What the place gets, if `in` are the operands of all places. */
static inline clt_value *merged_collective(const merger *m, const clt_node *node, int place,
                                           clt_value **in)
{
    const clt_axis_attr *attr = node->attr;
    const clt_shift_attr *shift = node->attr;
    const int axis = 0;
    if (!strcmp(node->op->name, "all_gather"))
        return clt_stack(in, m->places, 0);
    if (!strcmp(node->op->name, "reduce_scatter"))
        return merged_item(merged_sum(in, m->places), place);
    if (!strcmp(node->op->name, "shift") || !strcmp(node->op->name, "hand_on")) {
        const int from = place - shift->step;
        return from >= 0 && from < m->places ? in[from]
                                             : clt_add_scalar(clt_scale(in[place], 0), shift->fill);
    }
    assert_string_equal(node->op->name, "all_reduce");
    return attr->reduction == CLT_AXIS_SUM
               ? merged_sum(in, m->places)
               : clt_reduce_max(clt_stack(in, m->places, 0), &axis, 1, 0);
}

static inline void merge_collective(merger *m, const clt_node *const *nodes)
{
    clt_value *in[MERGE_PLACES], *own[MERGE_PLACES];
    const bool wrong = m->fault && m->collectives++ == m->fault_at;
    for (int p = 0; p < m->places; p++) {
        assert_string_equal(nodes[p]->name, nodes[0]->name);
        assert_ptr_equal(nodes[p]->op, nodes[0]->op);
        in[p] = m->twins[p][nodes[p]->in[0]->id];
    }
    for (int p = 0; p < m->places; p++) {
        clt_value *result = merged_collective(m, nodes[p], p, in);
        if (wrong && m->fault == MERGE_ZEROS) {
            result = clt_scale(result, 0);
        } else if (wrong && (!strcmp(nodes[0]->op->name, "all_gather"))) {
            for (int q = 0; q < m->places; q++)
                own[q] = in[p];
            result = clt_stack(own, m->places, 0);
        } else if (wrong) {
            result = strcmp(nodes[0]->op->name, "reduce_scatter") ? in[p] : merged_item(in[p], p);
        }
        m->twins[p][nodes[p]->out[0]->id] = result;
    }
}

/* Returns the joined graph, without outputs. The caller marks values of m->twins. */
static inline void merge_graphs(merger *m, clt_graph *const *graphs, int places, merge_fault fault,
                                int fault_at)
{
    *m = (merger){.places = places, .fault = fault, .fault_at = fault_at};
    ok(clt_graph_create(&m->graph));
    for (int p = 0; p < places; p++) {
        m->of[p] = graphs[p];
        m->twins[p] = calloc((size_t)graphs[p]->n_values + 1, sizeof *m->twins[p]);
        for (int i = 0; i < graphs[p]->n_values; i++)
            if (graphs[p]->values[i]->kind != CLT_VALUE_INTERMEDIATE)
                m->twins[p][i] = merge_leaf(m, p, graphs[p]->values[i]);
    }
    for (;;) {
        const clt_node *nodes[MERGE_PLACES];
        for (int p = 0; p < places; p++)
            nodes[p] = merge_until_collective(m, p);
        for (int p = 1; p < places; p++)
            assert_int_equal(nodes[p] != NULL, nodes[0] != NULL);
        if (!nodes[0])
            break;
        merge_collective(m, nodes);
    }
    ok(clt_graph_status(m->graph));
}

static inline void merge_free(merger *m)
{
    for (int p = 0; p < m->places; p++)
        free(m->twins[p]);
}

#endif
