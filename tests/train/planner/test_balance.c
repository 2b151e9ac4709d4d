/* Divisions of the batch that change while a trainer runs: how they are found, repeated and
 * resumed. */
#include "train/lab.h"

#include "exec/testing/lose.h"
#include "exec/testing/slow.h"
#include "train/planner/balance.h"
#include "train/core/trainer.h"

enum { IN = 64, HIDDEN = 192, CLASSES = 10, BATCH = 256, SAMPLES = 1500, MOST = 16 };

static float xs[SAMPLES * IN];
static int32_t labels[SAMPLES];

static clt_graph *build(void)
{
    const int64_t in[] = {CLT_BATCH, IN}, one[] = {CLT_BATCH};
    clt_value *sum, *weight;
    clt_graph *graph;
    ok(clt_graph_create(&graph));
    clt_value *h =
        layer(graph, clt_input(graph, "x", CLT_F32, 2, in), "h.weight", "h.bias", IN, HIDDEN);
    h = clt_relu(clt_dropout(h, 0.1));
    clt_value *logits = layer(graph, h, "o.weight", "o.bias", HIDDEN, CLASSES);
    clt_cross_entropy(logits, clt_input(graph, "label", CLT_I32, 1, one), NULL, &sum, &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    ok(clt_graph_status(graph));
    return graph;
}

static clt_trainer_options options_of(void)
{
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.batch = BATCH;
    options.optimizer = CLT_MOMENTUM;
    options.lr = 0.01;
    options.rebalance = 1;
    return options;
}

static lab open_lab(const clt_trainer_options *options)
{
    lab l = lab_on(clt_test_devices("pocl@1,pocl@1"), NULL);
    assert_int_equal(l.n, 2);
    lab_store(&l, build(), 3);
    lab_trainer(&l, options);
    return l;
}

static void parameters(const lab *l, float *weights)
{
    ok(clt_store_get(l->store, "h.weight", weights, sizeof(float) * HIDDEN * IN));
}

/* --- the policy ------------------------------------------------------------------------------ */

static void test_find(void **state)
{
    (void)state;
    const int64_t shares[] = {128, 128}, skewed[] = {240, 16}, none[] = {256, 0};
    const double equal[] = {1, 1.05}, slow[] = {1, 2}, late[] = {1, 100}, back[] = {1, 0.067};
    int64_t offsets[3];
    double w[2];
    assert_false(clt_balance_find(shares, equal, 2, 256, 16, 256, offsets, w));
    assert_true(clt_balance_find(shares, slow, 2, 256, 16, 256, offsets, w));
    assert_true(fabs(w[0] - 2.0 / 3) < 1e-5 && fabs(w[1] - 1.0 / 3) < 1e-5);
    /* With room for 160 samples. A very slow device still gets one quantum. */
    assert_true(clt_balance_find(shares, slow, 2, 256, 16, 160, offsets, w));
    assert_true(fabs(w[0] - 160.0 / 256) < 1e-5);
    assert_true(clt_balance_find(shares, late, 2, 256, 16, 256, offsets, w));
    assert_true(fabs(w[1] - 16.0 / 256) < 1e-5);
    /* The slow device has become as fast as the other. */
    assert_true(clt_balance_find(skewed, back, 2, 256, 16, 256, offsets, w));
    assert_true(fabs(w[0] - 0.5) < 0.01);
    assert_false(clt_balance_find(none, slow, 2, 256, 16, 256, offsets, w));
    /* A device that was left out stays out. */
    const int64_t idle[] = {128, 128, 0};
    const double times[] = {1, 2, 0.1};
    int64_t three[4];
    double more[3];
    assert_true(clt_balance_find(idle, times, 3, 256, 16, 256, three, more));
    assert_true(more[2] == 0 && three[3] == three[2] && fabs(more[0] - 2.0 / 3) < 1e-5);
}

/* Every division that is found has room. The trainer's batch may be larger than the run's, and
 * shares may be whole quanta. */
static void test_room(void **state)
{
    static const int64_t batches[][2] = {{256, 64}, {194, 194}, {256, 256}};
    (void)state;
    for (int k = 0; k < 3; k++) {
        clt_exchange_device devices[3] = {{.busy = 0.1}, {.busy = 0.1}, {.busy = 0.004}};
        double shares[3] = {1, 1, 1};
        int begins[2] = {0, 3};
        clt_store store = {.n_devices = 3};
        clt_trainer t = {.store = &store,
                         .exchange = {.devices = devices},
                         .all = {.own = 3, .total = 3, .ranks = 1, .begins = begins, .lanes = 16},
                         .shares = {.weights = shares,
                                    .max_micro_batches = 2,
                                    .accumulate = 1,
                                    .quantum = 1,
                                    .per_run = (batches[k][0] + 2) / 3}};
        clt_balance *b;
        bool change = false;
        t.options.batch = batches[k][0];
        t.options.rebalance = 1;
        t.call.batch.total = batches[k][1];
        ok(clt_balance_create(&t.all, batches[k][1], &b));
        for (int s = 0; s < CLT_BALANCE_WINDOW; s++)
            ok(clt_balance_step(b, &t.all, &t.shares, &t.exchange, t.options.batch,
                                t.call.batch.total, &change));
        if (change)
            ok(clt_trainer_set_weights(&t, b->weights, b->quantum));
        assert_true(change);
        clt_balance_free(b);
        clt_split_history_free(t.history);
    }
}

/* --- changes by the caller -------------------------------------------------------------------- */

static clt_step_batch batch_of(int64_t count)
{
    static const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};
    return lab_batch(feeds, count);
}

typedef struct change {
    int step;
    double weights[2];
    int64_t quantum;
} change;

static double run(const change *changes, int n, float *weights)
{
    clt_step_result result;
    clt_step_result_init(&result);
    const clt_trainer_options options = options_of();
    lab l = open_lab(&options);
    for (int i = 0; i < 12; i++) {
        for (int k = 0; k < n; k++)
            if (changes[k].step == i)
                ok(clt_trainer_set_weights(l.trainer, changes[k].weights, changes[k].quantum));
        const clt_step_batch batch = batch_of(i % 3 == 2 ? 100 : BATCH);
        ok(clt_trainer_step(l.trainer, &batch, NULL));
    }
    ok(clt_trainer_result(l.trainer, 11, &result));
    ok(clt_store_check(l.store));
    parameters(&l, weights);
    lab_close(&l);
    return result.loss;
}

/* Shares beyond the plan's batch run as additional micro-batches. The same changes give the same
 * bits, and equal shares give the same up to rounding. */
static void test_changes(void **state)
{
    (void)state;
    static const change changes[] = {
        {2, {3, 1}, 16}, {5, {1, 9}, 1}, {8, {1, 0}, 16}, {10, {0.3, 0.7}, 1}};
    static float equal[HIDDEN * IN], once[HIDDEN * IN], again[HIDDEN * IN];
    const double want = run(NULL, 0, equal), loss = run(changes, 4, once);
    assert_true(fabs(loss - want) <= 1e-5 * want);
    for (int i = 0; i < HIDDEN * IN; i++)
        assert_true(fabsf(once[i] - equal[i]) <= 1e-5f);
    assert_true(run(changes, 4, again) == loss);
    assert_memory_equal(once, again, sizeof once);
}

static void test_refused(void **state)
{
    (void)state;
    static const double even[] = {1, 1}, bad[] = {1, -1};
    clt_trainer_options options = options_of();
    lab l = open_lab(&options);
    assert_int_equal(clt_trainer_set_weights(l.trainer, bad, 1), CLT_INVALID_ARGUMENT);
    assert_int_equal(clt_trainer_set_weights(l.trainer, even, 0), CLT_INVALID_ARGUMENT);
    const clt_step_batch batch = batch_of(8);
    assert_int_equal(clt_trainer_forward(l.trainer, &batch), CLT_STATE);
    assert_non_null(strstr(clt_error_message(), "rebalance"));
    lab_close(&l);
    options.rebalance = 0;
    l = open_lab(&options);
    assert_int_equal(clt_trainer_set_weights(l.trainer, even, 1), CLT_STATE);
    lab_close(&l);
    /* Twice the largest share fits, and no more. */
    static const double third[] = {1, 1, 1}, all[] = {1, 0, 0};
    options.rebalance = 1;
    l = lab_on("pocl@1,pocl@1,pocl@1", NULL);
    lab_store(&l, build(), 3);
    lab_trainer(&l, &options);
    ok(clt_trainer_set_weights(l.trainer, third, 1));
    assert_int_equal(clt_trainer_set_weights(l.trainer, all, 1), CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "256 samples; there is room for 172"));
    lab_close(&l);
}

/* --- whole runs ------------------------------------------------------------------------------ */

typedef struct record {
    clt_split_change changes[MOST];
    double weights[MOST][2];
    int count;
} record;

static void on_step(void *user, const clt_progress *p)
{
    record *r = user;
    if (!p->split)
        return;
    if (p->n_split != 2) /* one device is left */
        return;
    assert_true(r->count < MOST);
    memcpy(r->weights[r->count], p->split, sizeof r->weights[0]);
    r->changes[r->count] = (clt_split_change){p->step, NULL, p->quantum};
    r->count++;
}

static clt_dataset *samples(int64_t count)
{
    static const int64_t shape[] = {IN};
    clt_dataset *data;
    ok(clt_dataset_create_arrays("samples", count ? count : SAMPLES, &data));
    ok(clt_dataset_add_field(data, "x", CLT_F32, 1, shape, xs, CLT_DATA_BORROW, NULL));
    ok(clt_dataset_add_field(data, "label", CLT_I32, 0, NULL, labels, CLT_DATA_BORROW, NULL));
    return data;
}

typedef struct fit_case {
    int64_t steps, per_device;
    const double *weights; /* at the beginning */
    int64_t quantum;
    const clt_split_change *splits;
    int n_splits, resume;
    const char *dir;
    int64_t every, count; /* steps between checkpoints; number of samples, 0 for all */
} fit_case;

static record fit(const fit_case *c, float *weights)
{
    record r = {.count = 0};
    clt_fit_options fit;
    clt_trainer_options options = options_of();
    options.weights = c->weights;
    options.quantum = c->quantum ? c->quantum : 1;
    options.per_device = c->per_device;
    lab l = open_lab(&options);
    clt_dataset *data = samples(c->count);
    clt_fit_options_init(&fit);
    fit.steps = c->steps;
    fit.splits = c->splits;
    fit.n_splits = c->n_splits;
    fit.checkpoint_dir = c->dir;
    fit.checkpoint_every = c->every;
    fit.resume = c->resume;
    fit.on_step = on_step;
    fit.user = &r;
    ok(clt_fit(l.trainer, data, NULL, &fit));
    ok(clt_store_check(l.store));
    assert_int_equal(clt_trainer_steps(l.trainer), c->steps);
    parameters(&l, weights);
    lab_close(&l);
    clt_dataset_free(data);
    return r;
}

/* Resumes another run with the division of its checkpoint. */
static void resume(const char *dir, int64_t steps, int n_changes, float *weights)
{
    clt_checkpoint *checkpoint;
    double frozen[2];
    int use[2], uneven;
    fit_case c = {.steps = steps, .weights = frozen, .dir = dir, .resume = 1};
    lab l = lab_on(clt_test_devices("pocl@1,pocl@1"), NULL);
    ok(clt_checkpoint_open(dir, &checkpoint));
    const clt_section *section = clt_checkpoint_section(checkpoint, CLT_SECTION_SPLIT);
    assert_non_null(section);
    ok(clt_split_frozen(section->text, NULL, l.devices, 2, use, frozen, &c.quantum, &c.per_device,
                        &uneven));
    int changes = 0;
    for (const char *at = section->text; (at = strstr(at, "\"step\"")); at++)
        changes++;
    assert_int_equal(changes, n_changes);
    clt_checkpoint_close(checkpoint);
    lab_close(&l);
    c.splits = (const clt_split_change[]){{0, NULL, 0}}; /* no changes, and none are searched */
    fit(&c, weights);
}

/* A repeated run and a run in two parts give the same bits, across the ends of epochs and with
 * partial batches. */
static void test_repeat(void **state)
{
    (void)state;
    static const double first[] = {0.75, 0.25}, second[] = {0.2, 0.8};
    static const clt_split_change splits[] = {{4, first, 16}, {11, second, 1}};
    static float once[HIDDEN * IN], again[HIDDEN * IN], parts[HIDDEN * IN];
    char dir[] = "/tmp/cltrain-balance-XXXXXX", command[64];
    fit_case c = {.steps = 20, .splits = splits, .n_splits = 2};
    const record r = fit(&c, once);
    assert_int_equal(r.count, 3);
    assert_true(r.changes[0].step == 1 && r.changes[1].step == 4 && r.changes[2].step == 11);
    assert_memory_equal(r.weights[2], second, sizeof second);
    fit(&c, again);
    assert_memory_equal(once, again, sizeof once);
    assert_non_null(mkdtemp(dir));
    c.steps = 14;
    c.dir = dir;
    fit(&c, parts);
    resume(dir, 20, 2, parts);
    assert_memory_equal(once, parts, sizeof once);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

#ifdef CLT_TESTING
/* A device becomes slow, so its share falls. Replaying the changes gives the same bits. */
static void test_straggler(void **state)
{
    (void)state;
    static float once[HIDDEN * IN], again[HIDDEN * IN];
    clt_exec_testing_slow = "#1=8@20";
    record r = fit(&(fit_case){.steps = 90}, once);
    clt_exec_testing_slow = NULL;
    assert_true(r.count >= 2);
    const double *last = r.weights[r.count - 1];
    if (!(last[0] > 1.7 * last[1]))
        fail_msg("weights %g and %g", last[0], last[1]);
    for (int i = 0; i < r.count; i++)
        r.changes[i].weights = r.weights[i];
    const fit_case c = {.steps = 90, .splits = r.changes + 1, .n_splits = r.count - 1};
    const record repeated = fit(&c, again);
    assert_int_equal(repeated.count, r.count);
    assert_memory_equal(once, again, sizeof once);
}

/* The share also falls if each step is followed by a checkpoint, or if each step is an epoch with
 * fewer samples than a batch. */
static void test_straggler_meets_ends(void **state)
{
    (void)state;
    static float weights[HIDDEN * IN];
    char dir[] = "/tmp/cltrain-balance-XXXXXX", command[64];
    assert_non_null(mkdtemp(dir));
    clt_exec_testing_slow = "#1=8@2";
    const record saved = fit(&(fit_case){.steps = 40, .dir = dir, .every = 1}, weights);
    const record epochs = fit(&(fit_case){.steps = 40, .count = BATCH - 50}, weights);
    clt_exec_testing_slow = NULL;
    assert_true(saved.count >= 2);
    assert_true(epochs.count >= 2);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

/* After a device is lost, the batch is divided among the others. */
static void test_lost(void **state)
{
    (void)state;
    static float weights[HIDDEN * IN];
    static const double first[] = {0.75, 0.25}, second[] = {0.2, 0.8};
    static const clt_split_change splits[] = {{4, first, 16}, {25, second, 1}};
    clt_exec_testing_lose = "#1=12";
    const record given = fit(&(fit_case){.steps = 30, .splits = splits, .n_splits = 2}, weights);
    const record found = fit(&(fit_case){.steps = 40}, weights);
    clt_exec_testing_lose = NULL;
    assert_true(given.count >= 2 && given.changes[1].step == 4);
    assert_true(found.count >= 1);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_repeat),
#ifdef CLT_TESTING
        cmocka_unit_test(test_straggler),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_straggler_meets_ends),
#endif
    };
    make_samples(xs, labels, SAMPLES, IN, CLASSES);
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
