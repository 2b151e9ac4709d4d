/* Devices that fail in the middle of a run. The other devices continue as if they had been alone
 * from this step on. */
#include "exec/testing/lose.h"
#include "train/setup/capacity.h"
#include "train/lab.h"
#include "train/core/trainer.h"
#include <cltrain/data.h>
#include <cltrain/fit.h>

#ifdef CLT_TESTING
enum { IN = 12, CLASSES = 4, MOST = 40, WIDE = 16, EPOCHS = 3, BATCH = 9 };

static float xs[MOST * IN];
static int32_t labels[MOST];

static int64_t shards; /* virtual */
static clt_optimizer shared_kind = CLT_MOMENTUM;

static lab lab_open(const char *devices, const double *weights)
{
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.optimizer = shared_kind;
    options.batch = BATCH;
    options.weights = weights;
    options.virtual_shards = shards;
    options.poison = 1;
    lab l = lab_on(devices, NULL);
    lab_store(&l, classifier(IN, WIDE, CLASSES), 7);
    lab_trainer(&l, &options);
    return l;
}

typedef struct course {
    double losses[64];
    int steps, unknown, epochs;
    int64_t samples;
} course;

static void on_step(void *user, const clt_progress *p)
{
    course *c = user;
    assert_int_equal(p->step, c->steps + 1); /* each step once, in order */
    c->losses[c->steps++] = p->loss;
    c->unknown += isnan(p->loss);
    c->samples += p->samples;
}

static void on_epoch(void *user, const clt_progress *p)
{
    course *c = user;
    c->epochs++;
    assert_true(isfinite(p->test_loss));
    assert_true(isfinite(p->loss));
}

/* Trains a whole run. Writes its final parameters to `ended`. */
static course run_fit(const char *devices, const double *weights, const char *lose, float *ended)
{
    const int64_t shape[] = {IN};
    clt_dataset *set;
    clt_fit_options fit;
    course c = {.steps = 0};
    int label;
    clt_exec_testing_lose = lose;
    lab l = lab_open(devices, weights);
    ok(clt_dataset_create_arrays("made up", MOST, &set));
    ok(clt_dataset_add_field(set, "x", CLT_F32, 1, shape, xs, CLT_DATA_BORROW, NULL));
    ok(clt_dataset_add_field(set, "label", CLT_I32, 0, NULL, labels, CLT_DATA_BORROW, &label));
    clt_fit_options_init(&fit);
    fit.epochs = EPOCHS;
    fit.batch = BATCH;
    fit.on_step = on_step;
    fit.on_epoch = on_epoch;
    fit.user = &c;
    ok(clt_fit(l.trainer, set, set, &fit));
    ok(clt_store_check(l.store));
    ok(clt_store_get(l.store, "a.weight", ended, WIDE * IN * sizeof *ended));
    assert_int_equal(clt_trainer_steps(l.trainer), c.steps);
    lab_close(&l);
    clt_dataset_free(set);
    clt_exec_testing_lose = NULL;
    return c;
}

static void the_others_go_on(void **state)
{
    static const char *const devices[] = {"cpu/2", "cpu/2,cpu@1"};
    static const double weights[] = {2, 1, 1};
    float alone[WIDE * IN], ended[WIDE * IN];
    (void)state;
    const course want = run_fit("cpu@1", NULL, NULL, alone);
    /* The last step of an epoch has number 4, the evaluation after it 5. */
    for (int list = 0; list < 2; list++)
        for (int step = 0; step < 7; step++)
            for (int device = 0; device < 2; device++) {
                char lose[32];
                snprintf(lose, sizeof lose, "#%d=%d", device, step);
                const course have = run_fit(devices[list], list ? weights : NULL, lose, ended);
                assert_int_equal(have.steps, want.steps);
                assert_int_equal(have.samples, want.samples);
                assert_int_equal(have.epochs, EPOCHS);
                assert_int_equal(have.unknown, 0);
                for (int s = 0; s < want.steps; s++)
                    assert_true(fabs(have.losses[s] - want.losses[s]) < 1e-4);
                for (int i = 0; i < WIDE * IN; i++)
                    assert_true(fabsf(ended[i] - alone[i]) < 1e-4f);
            }
}

/* The bits are those of any number of devices, so also of one that becomes smaller. */
static void virtual_shards_with(clt_optimizer kind)
{
    static const char *const devices[] = {"cpu/2", "cpu/2,cpu@1"};
    float alone[WIDE * IN], ended[WIDE * IN];
    shared_kind = kind;
    shards = 4;
    const course want = run_fit("cpu@1", NULL, NULL, alone);
    for (int list = 0; list < 2; list++)
        for (int step = 0; step < 7; step += 3) {
            char lose[32];
            snprintf(lose, sizeof lose, "#%d=%d", list, step);
            const course have = run_fit(devices[list], NULL, lose, ended);
            assert_int_equal(have.steps, want.steps);
            assert_int_equal(have.samples, want.samples);
            assert_memory_equal(have.losses, want.losses, sizeof want.losses);
            assert_memory_equal(ended, alone, sizeof ended);
        }
    shards = 0;
    shared_kind = CLT_MOMENTUM;
}

static void virtual_shards_keep_their_bits(void **state)
{
    (void)state;
    virtual_shards_with(CLT_MOMENTUM);
    virtual_shards_with(CLT_MUON);
}

/* A device failed after all other devices but one had updated. */
static void an_updated_replica_becomes_all(void **state)
{
    float want[WIDE * IN], have[WIDE * IN], zeros[WIDE * IN] = {0};
    const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};
    clt_step_batch batch;
    int redo = -1;
    (void)state;
    lab l = lab_open("cpu/2,cpu@1", NULL);
    clt_trainer *t = l.trainer;
    clt_step_batch_init(&batch);
    batch.count = BATCH;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    assert_int_equal(clt_trainer_recover(t, &redo), CLT_STATE);
    for (int s = 0; s < 3; s++)
        ok(clt_trainer_step(t, &batch, NULL));
    ok(clt_trainer_wait(t));
    ok(clt_store_get(l.store, "a.weight", want, sizeof want));
    const clt_slot *slot = clt_buckets_find(&l.store->layout, "a.weight");
    ok(clt_replica_write(&l.store->replicas[2], l.store->replicas[2].values[slot->bucket],
                         slot->offset, slot->bytes, zeros));
    t->steps = 2; /* as if step 3 failed between the updates of its devices */
    t->devices[2].done = 2;
    atomic_store(&t->lost, 0);
    ok(clt_trainer_recover(t, &redo));
    assert_int_equal(redo, 0);
    assert_int_equal(clt_trainer_steps(t), 3);
    assert_int_equal(t->all.own, 2);
    ok(clt_store_check(l.store));
    ok(clt_store_get(l.store, "a.weight", have, sizeof have));
    assert_memory_equal(have, want, sizeof have);
    ok(clt_trainer_step(t, &batch, NULL));
    ok(clt_trainer_wait(t));
    ok(clt_store_check(l.store));
    /* The last device is kept. */
    atomic_store(&t->lost, 1);
    ok(clt_trainer_recover(t, &redo));
    assert_int_equal(redo, 1);
    atomic_store(&t->lost, 0);
    assert_int_equal(clt_trainer_recover(t, &redo), CLT_STATE);
    lab_close(&l);
}

/* The other devices keep their weights, also if their memory needs more micro-batches. */
static void the_others_run_micro_batches(void **state)
{
    enum { MANY = 4096 };
    static const double weights[] = {3, 3, 3};
    static float many[MANY * IN];
    static int32_t classes[MANY];
    const clt_feed feeds[] = {{"x", -1, CLT_HOST(many)}, {"label", -1, CLT_HOST(classes)}};
    clt_trainer_options options;
    clt_step_batch batch;
    int redo = -1;
    (void)state;
    clt_trainer_options_init(&options);
    options.batch = MANY;
    options.weights = weights;
    lab l = lab_on("cpu/2,cpu@1", NULL);
    lab_store(&l, classifier(IN, WIDE, CLASSES), 7);
    do
        options.memory += 4096;
    while (clt_capacity_check(l.graph, l.store, &options, 3, MANY) != CLT_OK);
    lab_trainer(&l, &options);
    clt_trainer *t = l.trainer;
    atomic_store(&t->lost, 0);
    ok(clt_trainer_recover(t, &redo));
    assert_int_equal(t->all.own, 2);
    assert_true(t->options.accumulate > 1);
    assert_true(t->shares.weights[0] == 3 && t->shares.weights[1] == 3);
    clt_step_batch_init(&batch);
    batch.count = MANY;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    ok(clt_trainer_step(t, &batch, NULL));
    ok(clt_trainer_wait(t));
    assert_int_equal(t->shares.offsets[1], MANY / 2);
    ok(clt_store_check(l.store));
    lab_close(&l);
}

/* A device fails in an evaluation. The others have yet to read the batch, whose memory must stay
 * until then. */
static void evaluation_waits_for_the_others(void **state)
{
    enum { MANY = 4096, LARGE = 512, MICROS = 16 };
    const int64_t shape[] = {LARGE};
    static float many[MANY * LARGE];
    static int32_t classes[MANY];
    double sums[2] = {0}, weights[2] = {0};
    clt_trainer_options options;
    clt_fit_options fit;
    clt_dataset *set;
    int label;
    (void)state;
    clt_trainer_options_init(&options);
    options.batch = MANY;
    options.accumulate = MICROS;
    lab l = lab_on("cpu/2", NULL);
    lab_store(&l, classifier(LARGE, 8 * WIDE, CLASSES), 7);
    lab_trainer(&l, &options);
    ok(clt_dataset_create_arrays("made up", MANY, &set));
    ok(clt_dataset_add_field(set, "x", CLT_F32, 1, shape, many, CLT_DATA_BORROW, NULL));
    ok(clt_dataset_add_field(set, "label", CLT_I32, 0, NULL, classes, CLT_DATA_BORROW, &label));
    clt_fit_options_init(&fit);
    clt_exec_testing_lose = "#0=0";
    assert_int_equal(clt_evaluate(l.trainer, set, &fit, sums, weights), CLT_DEVICE_LOST);
    clt_exec_testing_lose = NULL;
    cl_int ended = CL_QUEUED; /* of the other device's last command */
    const cl_event last = l.trainer->evaluation->devices[1].read[0];
    clGetEventInfo(last, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof ended, &ended, NULL);
    assert_int_equal(ended, CL_COMPLETE);
    ok(clt_trainer_wait(l.trainer));
    lab_close(&l);
    clt_dataset_free(set);
}

/* Opens devices of different kinds. Each has the optimizer state of its shards only. */
static lab lab_with_shards(clt_optimizer optimizer)
{
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.optimizer = optimizer;
    options.batch = BATCH;
    lab l = lab_on("cpu/2,cpu@1", NULL);
    l.devices[1]->identity ^= 1;
    lab_store(&l, classifier(IN, WIDE, CLASSES), 7);
    lab_trainer(&l, &options);
    assert_true(l.trainer->sharded && l.trainer->unlike);
    return l;
}

static void lose(lab *l, const clt_step_batch *batch, int device)
{
    char words[32];
    snprintf(words, sizeof words, "%.20s=0", l->trainer->store->replicas[device].device->label);
    clt_exec_testing_lose = words;
    assert_int_equal(clt_trainer_step(l->trainer, batch, NULL), CLT_DEVICE_LOST);
    clt_exec_testing_lose = NULL;
}

static void shards_of_a_lost_device_are_missing(void **state)
{
    const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};
    clt_step_batch batch;
    (void)state;
    clt_step_batch_init(&batch);
    batch.count = BATCH;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    for (int lost = 0; lost < 2; lost++) {
        int again = -1;
        lab l = lab_with_shards(CLT_MOMENTUM);
        for (int s = 0; s < 3; s++)
            ok(clt_trainer_step(l.trainer, &batch, NULL));
        lose(&l, &batch, lost);
        assert_int_equal(clt_trainer_recover(l.trainer, &again), CLT_STATE);
        assert_non_null(strstr(clt_error_message(), "a shard of the optimizer's state went with"));
        lab_close(&l);
    }
    /* Without optimizer state any device may be lost. */
    lab l = lab_with_shards(CLT_SGD);
    int redo = -1;
    ok(clt_trainer_step(l.trainer, &batch, NULL));
    lose(&l, &batch, 0);
    ok(clt_trainer_recover(l.trainer, &redo));
    ok(clt_trainer_step(l.trainer, &batch, NULL));
    ok(clt_store_check(l.store));
    /* Devices began to update their shards in a step that no device has completely. */
    l.trainer->devices[1].begun = clt_trainer_steps(l.trainer) + 1;
    atomic_store(&l.trainer->lost, 0);
    if (l.trainer->sharded) {
        assert_int_equal(clt_trainer_recover(l.trainer, &redo), CLT_STATE);
        assert_non_null(strstr(clt_error_message(), "updated their shards in step 3"));
    }
    lab_close(&l);
}

/* Continues a run, as clt_fit does: each device has the optimizer's slots of its shards, and not
 * the rank's first device all of them. */
static void a_broadcast_keeps_shards(void **state)
{
    float want[WIDE * IN], have[WIDE * IN], slot[WIDE * IN];
    const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};
    clt_step_batch batch;
    clt_store_options stored;
    clt_trainer_options options;
    (void)state;
    clt_step_batch_init(&batch);
    batch.count = BATCH;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    clt_store_options_init(&stored);
    stored.bucket_bytes = 64;
    clt_trainer_options_init(&options);
    options.optimizer = CLT_MOMENTUM;
    options.batch = BATCH;
    for (int again = 0; again < 2; again++) {
        lab l = lab_on("cpu/2,cpu@1", NULL);
        l.devices[1]->identity ^= 1;
        l.graph = classifier(IN, WIDE, CLASSES);
        ok(clt_store_create_with(l.graph, l.devices, l.n, &stored, &l.store));
        lab_trainer(&l, &options);
        assert_true(l.store->layout.n_buckets > l.n);
        for (int s = 0; s < 6; s++) {
            if (again && s == 3)
                ok(clt_trainer_broadcast(l.trainer, 0));
            ok(clt_trainer_step(l.trainer, &batch, NULL));
        }
        ok(clt_store_get(l.store, "a.weight", again ? have : want, sizeof want));
        /* Slots that were set on the root are sent. */
        memset(slot, 0, sizeof slot);
        ok(clt_trainer_slot_set(l.trainer, 0, "a.weight", slot, sizeof slot));
        ok(clt_trainer_broadcast(l.trainer, 0));
        ok(clt_trainer_slot_get(l.trainer, 0, "a.weight", slot, sizeof slot));
        for (int i = 0; i < WIDE * IN; i++)
            assert_true(slot[i] == 0);
        lab_close(&l);
    }
    assert_memory_equal(want, have, sizeof want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_others_go_on),
        cmocka_unit_test(virtual_shards_keep_their_bits),
        cmocka_unit_test(a_broadcast_keeps_shards),
        cmocka_unit_test(shards_of_a_lost_device_are_missing),
        cmocka_unit_test(an_updated_replica_becomes_all),
        cmocka_unit_test(the_others_run_micro_batches),
        cmocka_unit_test(evaluation_waits_for_the_others),
    };
    make_samples(xs, labels, MOST, IN, CLASSES);
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
#else
int main(void)
{
    return 0; /* without the tests' hooks no device fails */
}
#endif
