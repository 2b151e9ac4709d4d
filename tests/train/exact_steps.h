/* Compares a run with the same steps in double. */
#ifndef TESTS_TRAIN_EXACT_STEPS_H
#define TESTS_TRAIN_EXACT_STEPS_H

#include "train/split_data.h"

enum { MOST_TENSORS = 64, MEANS = 4, MOST_STEPS = 4 };

static const double MOMENTUM = 0.5;

typedef struct trained {
    char names[MOST_TENSORS][64]; /* "y", if the graph has this output; parameters and states */
    float *data[MOST_TENSORS];
    int64_t count[MOST_TENSORS];
    int n;
    double losses[MOST_STEPS], norm;
    double begin[8], end[8]; /* sums, then weights, evaluated before and after the steps */
} trained;

static inline int steps_of(const setting *s)
{
    return s->steps ? s->steps : 1;
}

static inline double momentum_of(const setting *s)
{
    return s->optimizer == CLT_MOMENTUM ? MOMENTUM : 0;
}

/* Makes a setting's network and its training in double. The caller destroys both. */
static inline exact_training open_double(const setting *s, clt_graph **graph)
{
    exact_training t;
    ok(clt_graph_create(graph));
    s->build(*graph);
    ok(clt_graph_status(*graph));
    exact_open(&t, *graph, BATCH);
    for (int i = 0; i < (*graph)->n_values; i++) {
        const clt_value *v = (*graph)->values[i];
        if (v->kind != CLT_VALUE_INPUT && v->kind != CLT_VALUE_PARAMETER)
            continue;
        float *data = calloc((size_t)elements_of(&v->type), sizeof *data);
        split_data(s, v, data);
        exact_give(&t, v, data);
        free(data);
    }
    return t;
}

/* Whether a tensor of a run has the numbers in double now, to the bit (0 equals -0). */
static inline bool same_tensor(const exact_training *t, const trained *run, int i,
                               const clt_value *value, char *text, size_t room)
{
    for (int64_t e = 0; e < run->count[i]; e++)
        if ((float)exact_element(t, value, e) != run->data[i][e]) {
            snprintf(text, room, "%s[%d] is %.9g, not %.17g", run->names[i], (int)e,
                     (double)run->data[i][e], exact_element(t, value, e));
            return false;
        }
    return true;
}

/* Returns whether step `step` has the numbers in double: its loss, and y before the first step. */
static inline bool same_step(const exact_training *t, const trained *run, int step, char *text,
                             size_t room)
{
    if (t->loss != run->losses[step]) {
        snprintf(text, room, "the loss of step %d is %.17g, not %.17g", step, run->losses[step],
                 t->loss);
        return false;
    }
    for (int i = 0; step == 0 && i < run->n; i++)
        if (!strcmp(run->names[i], "y of a predictor") &&
            !same_tensor(t, run, i, clt_graph_find((clt_graph *)t->g.graph, "y"), text, room))
            return false;
    return true;
}

/* Computes the steps in double. Returns whether they have the numbers of `run`: losses, the output
 * before the steps, and parameters behind them. `text` gets the first difference, or the sum that
 * needs more bits than f32 has. `bits` gets the bits of the widest sum. */
static inline bool equals_double(const setting *s, const trained *run, int *bits, char *text,
                                 size_t room)
{
    clt_graph *graph;
    exact_training t = open_double(s, &graph);
    bool same = true;
    for (int k = 0; k < steps_of(s); k++) {
        exact_step(&t, rate_of(s, graph), momentum_of(s));
        same = same && same_step(&t, run, k, text, room);
    }
    for (int i = 0; same && i < run->n; i++)
        if (run->names[i][0] != 'y')
            same = same_tensor(&t, run, i, clt_graph_find(graph, run->names[i]), text, room);
    *bits = t.bits > t.loss_bits ? t.bits : t.loss_bits;
    if (same && *bits > F32_BITS) {
        snprintf(text, room, "%s needs %d bits, and the loss %d", t.widest, t.bits, t.loss_bits);
        same = false;
    }
    exact_close(&t);
    clt_graph_destroy(graph);
    return same;
}

#endif
