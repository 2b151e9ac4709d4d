/* A small network whose steps run in parts, for tests that set gradients between them. */
#ifndef TESTS_TRAIN_STEP_GIVEN_H
#define TESTS_TRAIN_STEP_GIVEN_H

#include "train/split_model.h"
#include "train/core/trainer.h"

enum { MOST = 77, STEPS = 3 };

static float xs[COUNT * IN];
static int32_t labels[COUNT];
static const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};

typedef struct setting {
    const char *devices, *parallel;
    clt_optimizer optimizer;
    clt_dtype precision;
    int zero;
    double clip_norm, decay;
    int64_t virtual_shards;
} setting;

static inline clt_step_batch batch_of(int64_t count)
{
    return lab_batch(feeds, count);
}

static inline clt_trainer_options options_of(const setting *s)
{
    clt_trainer_options o;
    clt_trainer_options_init(&o);
    o.optimizer = s->optimizer;
    o.lr = 0.25;
    o.batch = COUNT;
    o.precision = s->precision;
    o.clip_norm = s->clip_norm;
    o.weight_decay = s->decay;
    o.zero = s->zero;
    o.virtual_shards = s->virtual_shards;
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
    stored.parallel = s->parallel;
    stored.zero = s->zero == 3 ? 3 : 0;
    make_samples(xs, labels, COUNT, IN, CLASSES);
    lab l = lab_on_kept(clt_test_devices(s->devices));
    l.graph = split_network(false);
    ok(clt_store_create_with(l.graph, l.devices, l.n, &stored, &l.store));
    ok(clt_trainer_create(l.graph, l.store, &options, &l.trainer));
    return l;
}

/* Whether the setting has what it divides, and for tp devices of one kind. */
static inline bool is_possible(const setting *s)
{
    lab l = lab_on_kept(clt_test_devices(s->devices));
    const bool one = l.n == 1;
    const bool alike =
        one || !memcmp(&l.devices[0]->caps, &l.devices[1]->caps, sizeof l.devices[0]->caps);
    lab_close(&l);
    return s->parallel || s->virtual_shards ? !one && alike : !s->zero || !one;
}

static inline size_t bytes_of(int i)
{
    return (size_t)sizes[i] * sizeof(float);
}

static inline void backward(lab *l, int64_t count)
{
    const clt_step_batch batch = batch_of(count);
    ok(clt_trainer_forward(l->trainer, &batch));
    ok(clt_trainer_backward(l->trainer));
}

static inline clt_step_result last(lab *l)
{
    clt_step_result result;
    clt_step_result_init(&result);
    ok(clt_trainer_result(l->trainer, clt_trainer_steps(l->trainer) - 1, &result));
    return result;
}

static inline clt_step_result apply(lab *l)
{
    ok(clt_trainer_apply(l->trainer, NULL));
    return last(l);
}

static inline clt_step_result end(lab *l)
{
    ok(clt_trainer_reduce(l->trainer));
    return apply(l);
}

#endif
