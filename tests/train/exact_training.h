/*
 * Trains a graph in double: forward, gradients and the update, for the whole batch at once. It also
 * says how many bits the widest sum needs. With at most F32_BITS, every device and every mesh must
 * give the same bits; see exact_tape.h.
 */
#ifndef TESTS_TRAIN_EXACT_TRAINING_H
#define TESTS_TRAIN_EXACT_TRAINING_H

#include "train/exact_operators.h"

typedef struct exact_training {
    exact_graph g;
    double *velocity;    /* of momentum, by cell */
    int64_t own;         /* cells of values; those behind are of operators */
    double loss;         /* of the last forward pass */
    int bits, loss_bits; /* of the widest sum, and of the losses' sums */
    char widest[96];     /* where `bits` are needed */
} exact_training;

/* The graph must stay. */
static inline void exact_open(exact_training *t, const clt_graph *graph, int64_t batch)
{
    *t = (exact_training){.g = {.graph = graph, .batch = batch}};
    t->g.first = calloc((size_t)graph->n_values, sizeof *t->g.first);
    for (int i = 0; i < graph->n_values; i++) {
        const clt_value *v = graph->values[i];
        const int64_t count = clt_type_elements(&v->type, batch);
        t->g.first[i] = tape_cells(&t->g.tape, count);
        for (int64_t k = 0; v->kind == CLT_VALUE_CONSTANT && k < count; k++)
            exact_set(&t->g.tape.cells[t->g.first[i] + k].number, ((const float *)v->data)[k]);
    }
    t->own = t->g.tape.n_cells;
    t->velocity = calloc((size_t)t->own, sizeof *t->velocity);
}

static inline void exact_close(exact_training *t)
{
    tape_free(&t->g.tape);
    free(t->g.first);
    free(t->velocity);
}

/* Sets an input or a parameter from floats, or an input of indices from integers. */
static inline void exact_give(exact_training *t, const clt_value *value, const void *data)
{
    const exact_array a = array_of(&t->g, value);
    for (int64_t i = 0; i < a.count; i++)
        exact_set(&t->g.tape.cells[a.first + i].number, value->type.dtype == CLT_I32
                                                            ? (double)((const int32_t *)data)[i]
                                                            : (double)((const float *)data)[i]);
}

static inline double exact_element(const exact_training *t, const clt_value *value, int64_t i)
{
    return t->g.tape.cells[t->g.first[value->id] + i].number.value;
}

static inline void exact_widen(exact_training *t, const exact_sum *sum, const char *what,
                               const char *name)
{
    const int bits = exact_bits(sum);
    if (bits > t->bits) {
        t->bits = bits;
        snprintf(t->widest, sizeof t->widest, "%s of %s", what, name);
    }
}

/* Computes all values and the loss. */
static inline void exact_forward(exact_training *t)
{
    const clt_graph *graph = t->g.graph;
    tape *all = &t->g.tape;
    all->n_cells = t->own;
    all->n_terms = 0;
    for (int64_t i = 0; i < t->own; i++)
        all->cells[i].gradient = (exact_sum){0};
    for (int i = 0; i < graph->n_values; i++)
        if (graph->values[i]->kind == CLT_VALUE_INTERMEDIATE) {
            const exact_array a = array_of(&t->g, graph->values[i]);
            memset(all->cells + a.first, 0, (size_t)a.count * sizeof *all->cells);
        }
    for (int i = 0; i < graph->n_nodes; i++)
        exact_node(&t->g, graph->nodes[i]);
    t->loss = 0;
    for (int i = 0; i < graph->n_losses; i++) {
        const clt_mean *loss = &graph->losses[i];
        t->loss +=
            loss->coefficient * exact_element(t, loss->sum, 0) / exact_element(t, loss->weight, 0);
    }
}

/* Computes the losses' gradients of all cells, after exact_forward. */
static inline void exact_backward(exact_training *t)
{
    const clt_graph *graph = t->g.graph;
    for (int i = 0; i < graph->n_losses; i++) {
        const clt_mean *loss = &graph->losses[i];
        exact_set(&t->g.tape.cells[t->g.first[loss->sum->id]].gradient,
                  loss->coefficient / exact_element(t, loss->weight, 0));
    }
    tape_backward(&t->g.tape);
}

/* Looks at all sums of a step. */
static inline void exact_look(exact_training *t)
{
    const clt_graph *graph = t->g.graph;
    const tape *all = &t->g.tape;
    for (int i = 0; i < graph->n_values; i++) {
        const exact_array a = array_of(&t->g, graph->values[i]);
        const clt_value *v = graph->values[i];
        const char *name = v->name ? v->name : v->producer ? v->producer->name : "a constant";
        bool loss = false;
        for (int k = 0; k < graph->n_losses; k++)
            loss = loss || graph->losses[k].sum == v;
        for (int64_t k = a.first; k < a.first + a.count; k++) {
            const tape_cell *cell = &all->cells[k];
            const int bits = exact_bits(&cell->number);
            if (loss)
                t->loss_bits = bits > t->loss_bits ? bits : t->loss_bits;
            else
                exact_widen(t, &cell->number, "element", name);
            if (v->kind != CLT_VALUE_INPUT)
                exact_widen(t, &cell->gradient, "gradient", name);
        }
    }
    for (int64_t k = t->own; k < all->n_cells; k++) {
        exact_widen(t, &all->cells[k].number, "difference", "mse");
        exact_widen(t, &all->cells[k].gradient, "gradient", "mse");
    }
}

/* One step of SGD, with momentum if it is not 0. */
static inline void exact_step(exact_training *t, double lr, double momentum)
{
    const clt_graph *graph = t->g.graph;
    exact_forward(t);
    exact_backward(t);
    exact_look(t);
    for (int i = 0; i < graph->n_values; i++) {
        const exact_array a = array_of(&t->g, graph->values[i]);
        for (int64_t k = a.first; clt_value_trained(graph->values[i]) && k < a.first + a.count;
             k++) {
            tape_cell *cell = &t->g.tape.cells[k];
            exact_sum velocity = {0}, weight = {0};
            exact_add(&velocity, momentum * t->velocity[k]);
            exact_add(&velocity, cell->gradient.value);
            exact_widen(t, &velocity, "velocity", graph->values[i]->name);
            exact_add(&weight, cell->number.value);
            exact_add(&weight, -lr * velocity.value);
            exact_widen(t, &weight, "update", graph->values[i]->name);
            t->velocity[k] = velocity.value;
            exact_set(&cell->number, weight.value);
        }
    }
}

#endif
