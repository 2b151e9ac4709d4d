/* Runs of whole models, whose results are compared bit by bit. */
#ifndef CLT_TESTS_TRAIN_MODEL_RUNS_H
#define CLT_TESTS_TRAIN_MODEL_RUNS_H

#include "train/lab.h"

#include "train/core/trainer.h"
#include <cltrain/models.h>

enum { STEPS = 3, T = 12, WORDS = 40, CLASSES = 10, MOST_BATCH = 24, MOST_ELEMENTS = 3 * 32 * 32 };

static float images[MOST_BATCH * MOST_ELEMENTS], logits[MOST_BATCH * T * WORDS];
static int32_t numbers[2][MOST_BATCH * T];

/* A model with one kind of data: images of `channels` and `side`, or text. */
typedef struct kind {
    const char *model;
    int channels, side; /* 0 for text */
    int tokens;         /* of a sample of text */
    int batch;
} kind;

static clt_graph *build(const kind *k)
{
    clt_model_field fields[2];
    clt_graph *g;
    const clt_model_input input = {.fields = fields, .n_fields = 2, .ignore_index = -100};
    if (k->channels) {
        clt_model_images(k->channels, k->side, k->side, CLASSES, fields);
    } else {
        fields[0] = (clt_model_field){"tokens", CLT_I32, 1, {k->tokens}, WORDS};
        fields[1] = (clt_model_field){"targets", CLT_I32, 1, {k->tokens}, WORDS};
    }
    ok(clt_graph_create(&g));
    ok(clt_model_build(k->model, &input, g));
    ok(clt_graph_status(g));
    return g;
}

static void make_data(void)
{
    for (int i = 0; i < MOST_BATCH * MOST_ELEMENTS; i++)
        images[i] = (float)((i * 37 + i / 101) % 203 - 101) / 80;
    for (int i = 0; i < MOST_BATCH * T; i++) {
        numbers[0][i] = (i * 7 + i / 5) % CLASSES;
        numbers[1][i] = (i * 3 + i / 7) % CLASSES;
    }
}

/* The results of a run: losses, the outputs of a step, and everything in the store. */
typedef struct outcome {
    double losses[STEPS];
    unsigned char *bytes;
    size_t n_bytes;
    int64_t arena, plain; /* of device 0's plan; plain 0: nothing is recomputed */
    int merges;           /* of device 0's plan */
    bool ends;            /* the end of a step is one launch */
} outcome;

static void append(outcome *o, const void *bytes, size_t count)
{
    o->bytes = realloc(o->bytes, o->n_bytes + count + 1);
    assert_non_null(o->bytes);
    memcpy(o->bytes + o->n_bytes, bytes, count);
    o->n_bytes += count;
}

static void read_store(clt_store *store, outcome *o)
{
    ok(clt_store_check(store));
    for (int i = 0; i < clt_store_count(store); i++) {
        const clt_slot *slot = &store->layout.slots[i];
        void *data = malloc((size_t)slot->bytes);
        assert_non_null(data);
        ok(clt_store_get(store, slot->name, data, (size_t)slot->bytes));
        append(o, data, (size_t)slot->bytes);
        free(data);
    }
}

static void step(const lab *l, const kind *k, int index, int parts, outcome *o)
{
    const bool text = !k->channels;
    const clt_feed feeds[] = {
        {text ? "tokens" : "image", -1, CLT_HOST(text ? (const void *)numbers[0] : images)},
        {text ? "targets" : "label", -1, CLT_HOST(numbers[1])}};
    const clt_fetch fetch = {"logits", -1, CLT_HOST(logits)};
    clt_step_batch batch;
    clt_step_result result;
    clt_step_result_init(&result);
    clt_step_batch_init(&batch);
    clt_step_result_init(&result);
    batch.count = index == STEPS - 1 ? k->batch - k->batch / 3 : k->batch;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    batch.fetches = &fetch;
    batch.n_fetches = index == 1;
    if (parts) {
        ok(clt_trainer_forward(l->trainer, &batch));
        ok(clt_trainer_backward(l->trainer));
        ok(clt_trainer_reduce(l->trainer));
        ok(clt_trainer_apply(l->trainer, NULL));
    } else {
        ok(clt_trainer_step(l->trainer, &batch, NULL));
    }
    ok(clt_trainer_result(l->trainer, index, &result));
    o->losses[index] = result.loss;
    if (index == 1)
        append(o, logits,
               sizeof(float) * (size_t)k->batch * (size_t)(text ? k->tokens * WORDS : CLASSES));
}

static outcome run(const kind *k, const char *list, const clt_trainer_options *options, int parts)
{
    outcome o = {0};
    lab l = lab_on_kept(list);
    lab_store(&l, build(k), 3);
    lab_trainer(&l, options);
    const clt_plan *plan = l.trainer->training->devices[0].plan;
    o.arena = clt_plan_arena_bytes(plan);
    o.plain = plan->plain_bytes;
    o.merges = plan->n_merges;
    for (int i = 0; i < STEPS; i++)
        step(&l, k, i, parts, &o);
    ok(clt_trainer_wait(l.trainer));
    o.ends = clt_update_ends(l.trainer->devices[0].update);
    read_store(l.store, &o);
    lab_close(&l);
    return o;
}

static void same(const kind *k, const char *list, const char *how, const outcome *a,
                 const outcome *b)
{
    for (int i = 0; i < STEPS; i++)
        if (a->losses[i] != b->losses[i])
            fail_msg("%s on %s, %s: the loss of step %d is %.17g, not %.17g", k->model, list, how,
                     i, b->losses[i], a->losses[i]);
    assert_int_equal(a->n_bytes, b->n_bytes);
    if (memcmp(a->bytes, b->bytes, a->n_bytes))
        fail_msg("%s on %s, %s: outputs, parameters or states differ", k->model, list, how);
}

#endif
