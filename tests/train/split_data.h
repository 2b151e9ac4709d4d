/* How a test trains on a mesh, and the whole numbers that it trains on. */
#ifndef TESTS_TRAIN_SPLIT_DATA_H
#define TESTS_TRAIN_SPLIT_DATA_H

#include "train/exact_training.h"
#include "train/split_networks.h"

typedef struct setting {
    build_fn build;
    const char *devices, *parallel; /* NULL: one device */
    int limit;                      /* indices are below; 0: 3 */
    int accumulate, steps;          /* 0: 1 */
    int in_flight;                  /* of the mesh */
    int apart;                      /* see split_data; 0: integers between -2 and 2 */
    int zero;
    clt_optimizer optimizer;
    double lr; /* 0: 1/4, or with `apart` a quarter of the loss's weight */
    double clip;
    double tolerance;    /* of the largest element of a tensor; 0: bits are equal */
    clt_dtype precision; /* 0: f32 */
} setting;

static inline int limit_of(const setting *s)
{
    return s->limit ? s->limit : 3;
}

/* Fills a tensor. With `apart`, numbers are between -1 and 1. */
static inline void fill_small(const setting *s, const char *name, const clt_type *type, void *data)
{
    float *numbers = data;
    fill(name, type, limit_of(s), data);
    for (int64_t i = 0; s->apart && type->dtype == CLT_F32 && i < elements_of(type); i++)
        numbers[i] = (float)((int)numbers[i] / 2);
}

/* Gives the data of a setting to a training in double. */
static inline void give_small(const setting *s, exact_training *t)
{
    for (int i = 0; i < t->g.graph->n_values; i++) {
        const clt_value *v = t->g.graph->values[i];
        if (v->kind != CLT_VALUE_INPUT && v->kind != CLT_VALUE_PARAMETER)
            continue;
        float *data = calloc((size_t)elements_of(&v->type), sizeof *data);
        fill_small(s, v->name, &v->type, data);
        exact_give(t, v, data);
        free(data);
    }
}

/* Sets targets that are what the network computes before the first step. Every so many elements
 * (`apart`) are one more or less, or another class. So the first step changes few weights by small
 * integers, and the next steps stay exact too. */
static inline void near_targets(const setting *s, const clt_graph *graph, const clt_value *target,
                                float *data)
{
    exact_training t;
    exact_open(&t, graph, BATCH);
    give_small(s, &t);
    exact_forward(&t);
    const exact_array y = array_of(&t.g, graph->losses[0].sum->producer->in[0]);
    const int64_t count = elements_of(&target->type), width = y.count / count;
    for (int64_t i = 0; i < count; i++) {
        const bool off = (i + 2) % s->apart == 0;
        const int64_t at = y.first + i * width;
        int64_t best = 0;
        for (int64_t k = 1; k < width; k++)
            best = tape_value(&t.g.tape, at + k) > tape_value(&t.g.tape, at + best) ? k : best;
        if (target->type.dtype == CLT_I32)
            ((int32_t *)data)[i] = (int32_t)((best + off) % width);
        else
            data[i] = (float)tape_value(&t.g.tape, at) + (off ? i / s->apart % 2 ? 1 : -1 : 0);
    }
    exact_close(&t);
}

/* Makes the data of a value. */
static inline void split_data(const setting *s, const clt_value *value, float *data)
{
    if (s->apart && value->kind == CLT_VALUE_INPUT && !strcmp(value->name, "target"))
        near_targets(s, value->graph, value, data);
    else
        fill_small(s, value->name, &value->type, data);
}

static inline double rate_of(const setting *s, clt_graph *graph)
{
    if (s->lr > 0)
        return s->lr;
    return s->apart ? 0.25 * (double)elements_of(&clt_graph_find(graph, "target")->type) : 0.25;
}

#endif
