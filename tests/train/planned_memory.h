/*
 * Compares the memory that a plan names with the bytes of all buffers of a device, at the end and
 * at most, from its store's creation to an evaluation after two steps.
 */
#ifndef TESTS_TRAIN_PLANNED_MEMORY_H
#define TESTS_TRAIN_PLANNED_MEMORY_H

#include "support/objects.h"
#include "train/lab.h"

#include "train/core/trainer.h"
#include "train/setup/capacity.h"
#include <cltrain/models.h>

enum { MOST_BATCH = 16, T = 8, WORDS = 23, CLASSES = 5, MOST_ELEMENTS = 3 * 32 * 32 };

/* Ranks exchange losses, norms and votes through a piece of pinned memory of the host. */
enum { MOST_PINNED = 65536 };

/* The ranks of the run; NULL: there is one. */
static const clt_world *memory_world;

/* Virtual shards of the run. */
static int64_t memory_shards;

/* How a run trains. */
typedef struct setting {
    const char *model, *devices, *parallel;
    int side;             /* of images; 0: text */
    int zero, accumulate; /* zero 4: offload */
    clt_optimizer optimizer;
    clt_dtype precision;
    int recompute;
} setting;

#define MLP "mlp:40,36,32"
#define GPT "gpt2:layers=2,heads=2,width=16"
#define LSTM "lstm:hidden=12,layers=2"

static inline clt_graph *build(const setting *s)
{
    clt_model_field fields[2];
    clt_graph *g;
    const clt_model_input input = {.fields = fields, .n_fields = 2, .ignore_index = -100};
    if (s->side) {
        clt_model_images(3, s->side, s->side, CLASSES, fields);
    } else {
        fields[0] = (clt_model_field){"tokens", CLT_I32, 1, {T}, WORDS};
        fields[1] = (clt_model_field){"targets", CLT_I32, 1, {T}, WORDS};
    }
    ok(clt_graph_create(&g));
    ok(clt_model_build(s->model, &input, g));
    ok(clt_graph_status(g));
    return g;
}

/* Zeros are valid images, labels and words. */
static inline void run_steps(lab *l)
{
    static const float zeros[MOST_BATCH * MOST_ELEMENTS];
    clt_feed feeds[8];
    clt_step_batch batch;
    double sums[8], weights[8];
    int n = 0;
    for (int i = 0; i < l->graph->n_values; i++)
        if (l->graph->values[i]->kind == CLT_VALUE_INPUT)
            feeds[n++] = (clt_feed){l->graph->values[i]->name, -1, CLT_HOST(zeros)};
    clt_step_batch_init(&batch);
    batch.count = MOST_BATCH;
    if (memory_world) {
        const clt_participants *all = &l->trainer->all;
        const int parts = clt_participants_parts(all);
        batch.first = MOST_BATCH * all->first_part / parts;
        batch.count = MOST_BATCH * all->own_parts / parts;
        batch.total = MOST_BATCH;
    }
    batch.feeds = feeds;
    batch.n_feeds = n;
    for (int i = 0; i < 2; i++)
        ok(clt_trainer_step(l->trainer, &batch, NULL));
    ok(clt_trainer_evaluate(l->trainer, &batch, sums, weights));
    ok(clt_trainer_wait(l->trainer));
}

static inline void check_memory(const setting *s)
{
    clt_store_options so;
    clt_trainer_options o;
    int64_t before[4];
    lab l = lab_on_kept(s->devices);
    l.graph = build(s);
    for (int d = 0; d < l.n; d++) {
        before[d] = objects_bytes(l.devices[d]->context);
        objects_forget_most(l.devices[d]->context);
    }
    clt_store_options_init(&so);
    so.parallel = s->parallel;
    so.zero = s->zero == 3 ? 3 : 0;
    so.offload = s->zero == 4;
    so.bucket_bytes = 4096;
    so.world = memory_world;
    ok(clt_store_create_with(l.graph, l.devices, l.n, &so, &l.store));
    clt_trainer_options_init(&o);
    o.optimizer = s->optimizer;
    o.precision = s->precision;
    o.batch = MOST_BATCH;
    o.accumulate = s->accumulate;
    o.virtual_shards = memory_shards;
    o.zero = s->zero == 4 ? 0 : s->zero;
    o.recompute = s->recompute;
    o.world = memory_world;
    o.comm_timeout = 60;
    lab_trainer(&l, &o);
    run_steps(&l);
    for (int d = 0; d < l.n; d++) {
        clt_memory plan;
        const int64_t made = objects_bytes(l.devices[d]->context) - before[d];
        const int64_t most = objects_most_bytes(l.devices[d]->context) - before[d];
        ok(clt_capacity_memory(l.graph, l.store, &l.trainer->options,
                               clt_participants_parts(&l.trainer->all), d, &plan));
        assert_true(objects_pinned_bytes(l.devices[d]->context) <=
                    (memory_world ? MOST_PINNED : 0));
        if (made != clt_memory_total(&plan) || most != made)
            fail_msg("%s on %s, %s, zero %d: device %d has %lld bytes, at most %lld; the plan says "
                     "%lld (store %lld, inputs %lld, arena %lld, other %lld)",
                     s->model, s->devices, s->parallel ? s->parallel : "dp", s->zero, d,
                     (long long)made, (long long)most, (long long)clt_memory_total(&plan),
                     (long long)plan.store, (long long)plan.inputs, (long long)plan.arena,
                     (long long)plan.other);
    }
    ok(clt_trainer_finish(l.trainer));
    lab_close(&l);
}

#endif
