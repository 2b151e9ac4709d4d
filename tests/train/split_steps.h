/* Trains a network on one device and on a mesh whose places share each sample, and compares. */
#ifndef TESTS_TRAIN_SPLIT_STEPS_H
#define TESTS_TRAIN_SPLIT_STEPS_H

#include "train/lab.h"

#include "train/split_networks.h"

enum { MOST_TENSORS = 32 };

typedef struct setting {
    build_fn build;
    const char *devices, *parallel; /* NULL: one device */
    int accumulate, steps;          /* 0: 1 */
    clt_optimizer optimizer;
    double clip;
    double tolerance; /* of the largest element of a tensor; 0: bits are equal */
} setting;

typedef struct trained {
    float *data[MOST_TENSORS]; /* the prediction, then parameters and states */
    int64_t count[MOST_TENSORS];
    int n;
    double loss, norm, sums[4], weights[4];
} trained;

static inline void set_parameters(lab *l)
{
    for (int i = 0; i < clt_store_count(l->store); i++) {
        const char *name;
        clt_type type = {0};
        int is_state;
        ok(clt_store_describe(l->store, i, &name, &type.dtype, &type.rank, type.dims, &is_state));
        float *data = calloc((size_t)elements_of(&type), sizeof *data);
        fill(name, &type, 3, data);
        if (!is_state)
            ok(clt_store_set(l->store, name, data, (size_t)elements_of(&type) * sizeof *data));
        free(data);
    }
}

static inline void keep(trained *t, int64_t count, float *data)
{
    assert_true(t->n < MOST_TENSORS);
    t->count[t->n] = count;
    t->data[t->n++] = data;
}

static inline void get_parameters(lab *l, trained *t)
{
    for (int i = 0; i < clt_store_count(l->store); i++) {
        const char *name;
        clt_type type = {0};
        int is_state;
        ok(clt_store_describe(l->store, i, &name, &type.dtype, &type.rank, type.dims, &is_state));
        float *data = calloc((size_t)elements_of(&type), sizeof *data);
        ok(clt_store_get(l->store, name, data, (size_t)elements_of(&type) * sizeof *data));
        keep(t, elements_of(&type), data);
    }
}

/* Steps, then evaluates and predicts. */
static inline void run_steps(lab *l, int steps, trained *t)
{
    clt_feed feeds[8];
    clt_step_batch batch;
    clt_step_result result;
    const clt_value *y = clt_graph_find(l->graph, "y");
    clt_fetch fetch = {
        .name = "y", .device = -1, .host = calloc((size_t)elements_of(&y->type), sizeof(float))};
    int n = 0;
    for (int i = 0; i < l->graph->n_values; i++) {
        const clt_value *v = l->graph->values[i];
        if (v->kind != CLT_VALUE_INPUT)
            continue;
        void *data = calloc((size_t)elements_of(&v->type), sizeof(float));
        fill(v->name, &v->type, 3, data);
        feeds[n++] = (clt_feed){.name = v->name, .device = -1, .host = data};
    }
    clt_step_batch_init(&batch);
    batch.count = BATCH;
    batch.feeds = feeds;
    batch.n_feeds = n;
    clt_step_result_init(&result);
    for (int s = 0; s < steps; s++)
        ok(clt_trainer_step(l->trainer, &batch, NULL));
    ok(clt_trainer_wait(l->trainer));
    ok(clt_trainer_result(l->trainer, steps - 1, &result));
    t->loss = result.loss;
    t->norm = result.norm;
    ok(clt_trainer_evaluate(l->trainer, &batch, t->sums, t->weights));
    batch.fetches = &fetch;
    batch.n_fetches = 1;
    ok(clt_trainer_predict(l->trainer, &batch, NULL));
    ok(clt_trainer_wait(l->trainer));
    keep(t, elements_of(&y->type), fetch.host);
    for (int i = 0; i < n; i++)
        free((void *)(uintptr_t)feeds[i].host);
}

static inline trained train(const setting *s, bool split)
{
    trained t = {.n = 0};
    clt_store_options store;
    clt_trainer_options o;
    lab l = lab_on_kept(split ? s->devices : "pocl@1");
    ok(clt_graph_create(&l.graph));
    s->build(l.graph);
    ok(clt_graph_status(l.graph));
    clt_store_options_init(&store);
    store.parallel = split ? s->parallel : NULL;
    ok(clt_store_create_with(l.graph, l.devices, l.n, &store, &l.store));
    set_parameters(&l);
    clt_trainer_options_init(&o);
    o.optimizer = s->optimizer;
    o.batch = BATCH;
    o.lr = 0.25;
    o.momentum = 0.5;
    o.accumulate = s->accumulate ? s->accumulate : 1;
    o.clip_norm = s->clip;
    o.check_every = 1;
    o.poison = 1;
    lab_trainer(&l, &o);
    run_steps(&l, s->steps ? s->steps : 1, &t);
    get_parameters(&l, &t);
    lab_close(&l);
    return t;
}

/* Numbers of evaluations and predictions have more bits than f32 after a step: they are rounded. */
static inline void close_to(const setting *s, const char *what, double one, double all)
{
    if (!(fabs(one - all) <= (s->tolerance + 1e-6) * fabs(one)))
        fail_msg("%s: %s is %.9g on one device, %.9g", s->parallel, what, one, all);
}

static inline void check(const setting *s)
{
    trained one = train(s, false), all = train(s, true);
    assert_int_equal(one.n, all.n);
    for (int i = 0; i < one.n; i++) {
        const double tolerance = s->tolerance + (i ? 0 : 1e-6);
        double largest = 0;
        for (int64_t e = 0; e < one.count[i]; e++)
            largest = fmax(largest, fabs((double)one.data[i][e]));
        for (int64_t e = 0; e < one.count[i]; e++)
            if (!(fabs((double)one.data[i][e] - (double)all.data[i][e]) <= tolerance * largest))
                fail_msg("%s, tensor %d[%d]: %.9g on one device, %.9g", s->parallel, i, (int)e,
                         (double)one.data[i][e], (double)all.data[i][e]);
        free(one.data[i]);
        free(all.data[i]);
    }
    close_to(s, "the loss", one.loss, all.loss);
    if (s->clip == 0)
        close_to(s, "the norm", one.norm, all.norm);
    for (int i = 0; i < 4; i++) {
        close_to(s, "an evaluated sum", one.sums[i], all.sums[i]);
        close_to(s, "an evaluated weight", one.weights[i], all.weights[i]);
    }
}

static const char two[] = "pocl@1,pocl@1", three[] = "pocl@1,pocl@1,pocl@1",
                  four[] = "pocl@1,pocl@1,pocl@1,pocl@1";

#endif
