/*
 * Trains a network on one device and on a mesh, and compares. Settings without a tolerance are of
 * exact networks. Their run on one device must also be the one in double (exact_training.h).
 */
#ifndef TESTS_TRAIN_SPLIT_STEPS_H
#define TESTS_TRAIN_SPLIT_STEPS_H

#include "train/lab.h"

#include "train/core/trainer.h"
#include "train/exact_steps.h"

/* The ranks of the mesh; NULL: this process alone. Each rank trains on one device by itself too. */
static const clt_world *mesh_world;

static inline void set_parameters(const setting *s, lab *l)
{
    for (int i = 0; i < clt_store_count(l->store); i++) {
        const char *name;
        clt_type type = {0};
        int is_state;
        ok(clt_store_describe(l->store, i, &name, &type.dtype, &type.rank, type.dims, &is_state));
        float *data = calloc((size_t)elements_of(&type), sizeof *data);
        fill_small(s, name, &type, data);
        if (!is_state)
            ok(clt_store_set(l->store, name, data, (size_t)elements_of(&type) * sizeof *data));
        free(data);
    }
}

static inline void keep(trained *t, const char *name, int64_t count, float *data)
{
    assert_true(t->n < MOST_TENSORS);
    snprintf(t->names[t->n], sizeof t->names[t->n], "%s", name);
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
        ok(clt_store_collect(l->store, name, data, (size_t)elements_of(&type) * sizeof *data));
        keep(t, name, elements_of(&type), data);
    }
}

/* Returns the output y, or NULL. */
static inline const clt_value *find_y(const lab *l)
{
    const clt_value *y = clt_graph_find(l->graph, "y");
    return y && y->output ? y : NULL;
}

/* Makes room for y of all samples. Only ranks with the last stage of a pipeline fill it, and only
 * with their samples. */
static inline float *make_y(const clt_value *y)
{
    float *all = malloc((size_t)elements_of(&y->type) * sizeof *all);
    for (int64_t i = 0; i < elements_of(&y->type); i++)
        all[i] = NAN;
    return all;
}

/* Computes y of the rank's samples, which begin at `first`: by the trainer, or by a predictor. */
static inline void predict(lab *l, clt_step_batch *batch, int64_t first, bool predictor, trained *t)
{
    const clt_value *y = find_y(l);
    clt_predictor_options options;
    clt_predictor *p;
    if (!y)
        return;
    float *all = make_y(y);
    const clt_fetch fetch = {
        .name = "y", .device = -1, .array = CLT_HOST(all + elements_of(&y->type) / BATCH * first)};
    batch->fetches = &fetch;
    batch->n_fetches = 1;
    if (predictor) {
        clt_predictor_options_init(&options);
        options.batch = BATCH;
        options.poison = 1;
        ok(clt_predictor_create(l->graph, l->store, &options, &p));
        for (int k = 0; k < 2; k++)
            ok(clt_predictor_run(p, batch, NULL));
        ok(clt_predictor_wait(p));
        clt_predictor_destroy(p);
    } else {
        ok(clt_trainer_predict(l->trainer, batch, NULL));
        ok(clt_trainer_wait(l->trainer));
    }
    batch->n_fetches = 0;
    keep(t, predictor ? "y of a predictor" : "y", elements_of(&y->type), all);
}

/* Makes the data of the rank's samples, which begin at `first`. Returns the number of feeds. */
static inline int feed_samples(const setting *s, const lab *l, int64_t first, float **owned,
                               clt_feed *feeds)
{
    int n = 0;
    for (int i = 0; i < l->graph->n_values; i++) {
        const clt_value *v = l->graph->values[i];
        if (v->kind != CLT_VALUE_INPUT)
            continue;
        owned[n] = calloc((size_t)elements_of(&v->type), sizeof(float));
        split_data(s, v, owned[n]);
        feeds[n] = (clt_feed){.name = v->name, .device = -1, .array.whole = 1};
        feeds[n].array.host = owned[n] + elements_of(&v->type) / BATCH * first;
        n++;
    }
    return n;
}

/* Predicts, evaluates, steps, evaluates again and predicts. */
static inline void run_steps(const setting *s, lab *l, trained *t)
{
    const clt_participants *all = &l->trainer->all;
    const int64_t part = BATCH / clt_participants_parts(all), first = part * all->first_part;
    clt_feed feeds[8];
    float *owned[8];
    clt_step_batch batch;
    clt_step_result result;
    const int steps = steps_of(s);
    clt_step_batch_init(&batch);
    batch.count = BATCH;
    if (all->ranks > 1)
        batch.count = part * all->own_parts;
    batch.feeds = feeds;
    batch.n_feeds = feed_samples(s, l, first, owned, feeds);
    /* Before any step: exact networks give exact outputs. */
    predict(l, &batch, first, true, t);
    ok(clt_trainer_evaluate(l->trainer, &batch, t->begin, t->begin + MEANS));
    assert_true(t->begin[MEANS] > 0);
    clt_step_result_init(&result);
    assert_true(steps <= MOST_STEPS);
    for (int k = 0; k < steps; k++) {
        ok(clt_trainer_step(l->trainer, &batch, NULL));
        ok(clt_trainer_result(l->trainer, k, &result));
        t->losses[k] = result.loss;
    }
    ok(clt_trainer_wait(l->trainer));
    t->norm = result.norm;
    ok(clt_trainer_evaluate(l->trainer, &batch, t->end, t->end + MEANS));
    predict(l, &batch, first, false, t);
    for (int i = 0; i < batch.n_feeds; i++)
        free(owned[i]);
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
    store.zero = split && s->zero == 3 ? 3 : 0;
    store.world = split ? mesh_world : NULL;
    ok(clt_store_create_with(l.graph, l.devices, l.n, &store, &l.store));
    set_parameters(s, &l);
    clt_trainer_options_init(&o);
    o.optimizer = s->optimizer;
    o.batch = BATCH;
    o.lr = rate_of(s, l.graph);
    o.momentum = MOMENTUM;
    o.accumulate = s->accumulate ? s->accumulate : 1;
    o.in_flight = split ? s->in_flight : 0;
    o.clip_norm = s->clip;
    o.precision = s->precision;
    o.zero = split ? s->zero : 0;
    o.check_every = 1;
    o.poison = 1;
    o.world = store.world;
    o.comm_timeout = 60;
    lab_trainer(&l, &o);
    run_steps(s, &l, &t);
    get_parameters(&l, &t);
    ok(clt_trainer_finish(l.trainer));
    lab_close(&l);
    return t;
}

/* Evaluations and predictions after a step, and sums of squares, have more bits than f32: they are
 * rounded. */
static const double later = 1e-6;

static inline void close_to(const setting *s, const char *what, double tolerance, double one,
                            double all)
{
    if (!(fabs(one - all) <= tolerance * fabs(one)))
        fail_msg("%s on %s, zero %d: %s is %.9g on one device, %.9g",
                 s->parallel ? s->parallel : "dp", s->devices, s->zero, what, one, all);
}

static inline void compare_tensor(const setting *s, const trained *one, const trained *all, int i)
{
    const bool output = one->names[i][0] == 'y';
    const double more = strcmp(one->names[i], "y") ? 0 : later;
    double largest = 0;
    assert_string_equal(one->names[i], all->names[i]);
    for (int64_t e = 0; e < one->count[i]; e++)
        largest = fmax(largest, fabs((double)one->data[i][e]));
    for (int64_t e = 0; e < one->count[i]; e++)
        if (!(output && mesh_world && isnan(all->data[i][e])) && /* another rank has it */
            !(fabs((double)one->data[i][e] - (double)all->data[i][e]) <=
              (s->tolerance + more) * largest))
            fail_msg("%s on %s, zero %d, %s[%d]: %.9g on one device, %.9g",
                     s->parallel ? s->parallel : "dp", s->devices, s->zero, one->names[i], (int)e,
                     (double)one->data[i][e], (double)all->data[i][e]);
}

static inline void check(const setting *s)
{
    char text[200];
    int bits;
    trained one = train(s, false), all = train(s, true);
    assert_int_equal(one.n, all.n);
    if (s->tolerance == 0 && s->precision == CLT_F32 &&
        !equals_double(s, &one, &bits, text, sizeof text))
        fail_msg("%s on %s: one device is not exact: %s", s->parallel ? s->parallel : "dp",
                 s->devices, text);
    for (int i = 0; i < one.n; i++) {
        compare_tensor(s, &one, &all, i);
        free(one.data[i]);
        free(all.data[i]);
    }
    for (int k = 0; k < MOST_STEPS; k++)
        close_to(s, "a loss", s->tolerance, one.losses[k], all.losses[k]);
    close_to(s, "the norm", s->tolerance + later, one.norm, all.norm);
    for (int i = 0; i < 2 * MEANS; i++) {
        close_to(s, "an evaluation before the steps", s->tolerance, one.begin[i], all.begin[i]);
        close_to(s, "an evaluation after the steps", s->tolerance + later, one.end[i], all.end[i]);
    }
}

/* Checks settings whose numbers are rounded, after three steps. */
static inline void check_rounded(const setting *settings, size_t count, double tolerance, double lr)
{
    for (size_t i = 0; i < count; i++) {
        setting s = settings[i];
        s.tolerance = tolerance;
        s.steps = 3;
        s.lr = lr;
        check(&s);
    }
}

/* Checks settings whose steps are exact. */
static inline void check_exact(const setting *settings, size_t count)
{
    for (size_t i = 0; i < count; i++)
        check(&settings[i]);
}

static const char two[] = "pocl@1,pocl@1", three[] = "pocl@1,pocl@1,pocl@1",
                  four[] = "pocl@1,pocl@1,pocl@1,pocl@1";

#endif
