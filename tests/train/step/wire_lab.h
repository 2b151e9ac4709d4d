/* A small network that trains with 16 bits on the wire, and the residuals of its trainer. */
#ifndef TESTS_TRAIN_STEP_WIRE_LAB_H
#define TESTS_TRAIN_STEP_WIRE_LAB_H

#include "train/lab_as.h"

#include "train/core/trainer.h"

enum { COUNT = 24, IN = 37, HIDDEN = 50, CLASSES = 7, MOST = 4, FLOATS = 8192 };

static float xs[COUNT * IN];
static int32_t labels[COUNT];
static const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};

typedef struct setting {
    const char *devices;
    clt_dtype precision, wire;
    int accumulate, zero, no_guard, as_gpu;
    const char *parallel;
    clt_graph *(*build)(void); /* NULL: classifier */
    const char *input;         /* of that graph, its only one, which has the samples xs */
} setting;

static clt_feed only; /* the feed of `input` */

static inline clt_trainer_options options_of(const setting *s)
{
    clt_trainer_options o;
    clt_trainer_options_init(&o);
    o.optimizer = CLT_MOMENTUM;
    o.lr = 0.25;
    o.batch = COUNT;
    o.accumulate = s->accumulate;
    o.precision = s->precision;
    o.wire = s->wire;
    o.zero = s->zero;
    o.guard = !s->no_guard;
    o.poison = 1;
    o.separate = clt_test_oclgrind();
    return o;
}

static inline lab lab_of(const setting *s)
{
    const clt_trainer_options options = options_of(s);
    clt_store_options stored;
    clt_store_options_init(&stored);
    stored.seed = 3;
    stored.bucket_bytes = 4096;
    stored.parallel = s->parallel;
    only = (clt_feed){s->input, -1, CLT_HOST(xs)};
    make_samples(xs, labels, COUNT, IN, CLASSES);
    lab l = lab_as(clt_test_devices(s->devices), s->as_gpu);
    l.graph = s->build ? s->build() : classifier(IN, HIDDEN, CLASSES);
    ok(clt_store_create_with(l.graph, l.devices, l.n, &stored, &l.store));
    ok(clt_trainer_create(l.graph, l.store, &options, &l.trainer));
    return l;
}

static inline clt_step_result run_step(lab *l, int64_t count)
{
    clt_step_batch batch;
    clt_step_result result;
    clt_step_batch_init(&batch);
    clt_step_result_init(&result);
    batch.count = count;
    batch.feeds = only.name ? &only : feeds;
    batch.n_feeds = only.name ? 1 : 2;
    ok(clt_trainer_step(l->trainer, &batch, NULL));
    ok(clt_trainer_result(l->trainer, clt_trainer_steps(l->trainer) - 1, &result));
    ok(clt_trainer_wait(l->trainer));
    return result;
}

/* --- what the trainer has --------------------------------------------------------------------- */

/* The residuals of one bucket. */
typedef struct residuals {
    float device[MOST][FLOATS], sum[FLOATS];
} residuals;

static inline int64_t count_of(const lab *l, int bucket)
{
    const int64_t count = l->store->layout.buckets[bucket].bytes / 4;
    assert_true(count <= FLOATS / 2);
    return count;
}

static inline void read_residuals(const lab *l, int bucket, residuals *r)
{
    const clt_trainer *t = l->trainer;
    memset(r, 0, sizeof *r);
    for (int d = 0; d < l->n && t->exchange.wire.rounds; d++)
        ok(clt_replica_read(&l->store->replicas[d], l->store->replicas[d].residuals[bucket], 0,
                            count_of(l, bucket) * 4, r->device[d]));
    t->exchange.collectives.residual_get(t->exchange.wire.sums[bucket], CLT_ROUNDS_SUM, r->sum);
}

static inline int buckets_of(const lab *l)
{
    return l->store->layout.n_buckets;
}

static inline bool is_state(const lab *l, int bucket)
{
    return l->store->layout.buckets[bucket].state;
}

#endif
