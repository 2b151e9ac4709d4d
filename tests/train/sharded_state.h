/*
 * Trainers of one small classifier whose optimizer's state may be divided among devices and ranks,
 * for the tests of zero and of offload, and the comparison of their parameters and slots.
 */
#ifndef TESTS_TRAIN_SHARDED_STATE_H
#define TESTS_TRAIN_SHARDED_STATE_H

#include "train/lab.h"
#include "train/world.h"

#include "train/core/trainer.h"

enum { IN = 13, WIDE = 37, CLASSES = 5, MOST = 24, STEPS = 5, LARGEST = WIDE * IN };

static float xs[MOST * IN];
static int32_t labels[MOST];
static const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};

static const char *const names[] = {"a.weight", "a.bias", "b.weight", "b.bias"};
static const int sizes[] = {WIDE * IN, WIDE, CLASSES *WIDE, CLASSES};

static inline clt_trainer_options usual_options(clt_optimizer optimizer, clt_dtype precision,
                                                int accumulate)
{
    clt_trainer_options o;
    clt_trainer_options_init(&o);
    o.optimizer = optimizer;
    o.precision = precision;
    o.batch = MOST;
    o.lr = optimizer >= CLT_ADAM ? 0.01 : 0.1;
    o.accumulate = accumulate;
    o.check_every = 1;
    o.poison = 1;
    return o;
}

static inline clt_store_options usual_store(int64_t bucket_bytes)
{
    clt_store_options o;
    clt_store_options_init(&o);
    o.seed = 4;
    o.bucket_bytes = bucket_bytes;
    return o;
}

static inline clt_step_batch batch_of(const clt_feed *of)
{
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = MOST;
    batch.feeds = of;
    batch.n_feeds = 2;
    return batch;
}

static inline void step(lab *l)
{
    const clt_step_batch batch = batch_of(feeds);
    ok(clt_trainer_step(l->trainer, &batch, NULL));
}

static inline void train(lab *l, int steps)
{
    for (int s = 0; s < steps; s++)
        step(l);
    ok(clt_trainer_wait(l->trainer));
}

/* Whether the optimizer has slots for a tensor: not if it is frozen. */
static inline bool has_slots(const lab *l, int tensor)
{
    return !clt_buckets_find(&l->store->layout, names[tensor])->state;
}

static inline void compare_tensor(const float *x, const float *y, int count, bool exactly)
{
    for (int i = 0; i < count; i++)
        assert_true(exactly ? !memcmp(&x[i], &y[i], sizeof *x)
                            : fabsf(x[i] - y[i]) <= 1e-5f * (1 + fabsf(x[i])));
}

/* Compares all parameters and slots of two trainers. */
static inline void compare(lab *a, lab *b, bool exactly)
{
    float x[LARGEST], y[LARGEST];
    for (int i = 0; i < 4; i++) {
        const size_t bytes = (size_t)sizes[i] * sizeof *x;
        ok(clt_store_get(a->store, names[i], x, bytes));
        ok(clt_store_get(b->store, names[i], y, bytes));
        compare_tensor(x, y, sizes[i], exactly);
        for (int k = 0; has_slots(a, i) && clt_trainer_slot_name(a->trainer, k); k++) {
            ok(clt_trainer_slot_get(a->trainer, k, names[i], x, bytes));
            ok(clt_trainer_slot_get(b->trainer, k, names[i], y, bytes));
            compare_tensor(x, y, sizes[i], exactly);
        }
    }
    ok(clt_store_check(a->store));
    ok(clt_store_check(b->store));
}

/* Sets the slots of the first tensor to the same numbers in both trainers. */
static inline void set_slots(lab *a, lab *b)
{
    float x[LARGEST];
    for (int j = 0; j < sizes[0]; j++)
        x[j] = 0.001f * (float)(j % 17);
    for (int k = 0; has_slots(a, 0) && clt_trainer_slot_name(a->trainer, k); k++) {
        ok(clt_trainer_slot_set(a->trainer, k, names[0], x, (size_t)sizes[0] * sizeof *x));
        ok(clt_trainer_slot_set(b->trainer, k, names[0], x, (size_t)sizes[0] * sizeof *x));
    }
}

/* Bytes of the buffers that a device has for the optimizer. */
static inline int64_t slot_bytes(const clt_replica *r)
{
    int64_t sum = 0;
    for (int k = 0; k < r->n_slots; k++)
        for (int b = 0; b < r->layout->n_buckets; b++) {
            size_t bytes = 0;
            if (r->slots[k][b])
                clGetMemObjectInfo(r->slots[k][b], CL_MEM_SIZE, sizeof bytes, &bytes, NULL);
            sum += (int64_t)bytes;
        }
    return sum;
}

/* --- ranks ------------------------------------------------------------------------------------ */

/* The samples of a rank, and its parameters and slots after the steps. */
typedef struct share {
    int64_t first, count;
    float values[4][LARGEST];
    float slots[2][4][LARGEST];
} share;

/* Opens the rank's devices, and trains with an optimizer that has two slots. */
static inline bool train_share(rank *self, share *s, const char *list, clt_store_options store,
                               clt_trainer_options o, lab *l)
{
    const clt_feed own[] = {{"x", -1, CLT_HOST(xs + s->first * IN)},
                            {"label", -1, CLT_HOST(labels + s->first)}};
    clt_step_batch batch = batch_of(own);
    batch.count = s->count;
    batch.first = s->first;
    batch.total = MOST;
    o.world = &self->world;
    o.batch = 4 * MOST; /* room for unequal parts */
    o.comm_timeout = 60;
    l->graph = classifier(IN, WIDE, CLASSES);
    if (!HOLDS(self, clt_devices_open(runtime, list, NULL, &l->devices, &l->n) == CLT_OK) ||
        !HOLDS(self,
               clt_store_create_with(l->graph, l->devices, l->n, &store, &l->store) == CLT_OK) ||
        !HOLDS(self, clt_trainer_create(l->graph, l->store, &o, &l->trainer) == CLT_OK))
        return false;
    for (int i = 0; i < STEPS && !*self->failed; i++)
        HOLDS(self, clt_trainer_step(l->trainer, &batch, NULL) == CLT_OK);
    for (int i = 0; i < 4; i++) {
        const size_t bytes = (size_t)sizes[i] * sizeof(float);
        HOLDS(self, clt_store_get(l->store, names[i], s->values[i], bytes) == CLT_OK);
        for (int k = 0; k < 2; k++)
            HOLDS(self,
                  clt_trainer_slot_get(l->trainer, k, names[i], s->slots[k][i], bytes) == CLT_OK);
    }
    return true;
}

static inline void compare_shares(const share *a, const share *b)
{
    assert_memory_equal(a->values, b->values, sizeof a->values);
    assert_memory_equal(a->slots, b->slots, sizeof a->slots);
}

#endif
