/*
 * States that each sample carries from batch to batch, as truncated back-propagation through time
 * needs them: on several devices, in micro-batches and on ranks. With every division, all devices
 * have the rows that one device computes from the whole batch.
 */
#include "exec/testing/lose.h"
#include "train/world.h"
#include <cltrain/models.h>
#include <cltrain/data.h>
#include <cltrain/fit.h>

enum { ROWS = 13, TIME = 4, IN = 3, UNITS = 6, CLASSES = 3, STEPS = 7 };

static float xs[STEPS][ROWS * TIME * IN];
static int32_t labels[STEPS][ROWS];

/* Builds an LSTM and a GRU whose three states are carried. Ranks call this, so it asserts
 * nothing. */
static clt_graph *network(void)
{
    const int64_t x[] = {CLT_BATCH, TIME, IN}, one[] = {CLT_BATCH}, all[] = {ROWS, UNITS};
    const int64_t last[] = {0, TIME - 1, 0}, stop[] = {CLT_TO_END, CLT_TO_END, CLT_TO_END};
    const int64_t flat[] = {CLT_BATCH, UNITS};
    const clt_init zero = {CLT_INIT_ZERO, 0, 0};
    clt_layer_recurrent lstm = {.hidden = UNITS, .layers = 1}, gru = lstm;
    clt_value *sum = NULL, *weight = NULL;
    clt_graph *g = NULL;
    if (clt_graph_create(&g) != CLT_OK)
        return NULL;
    clt_value *h = clt_state(g, "h", CLT_F32, 2, all, zero),
              *c = clt_state(g, "c", CLT_F32, 2, all, zero),
              *gh = clt_state(g, "gru.h", CLT_F32, 2, all, zero);
    lstm.h0[0] = clt_batch_rows(h);
    lstm.c0[0] = clt_batch_rows(c);
    gru.h0[0] = clt_batch_rows(gh);
    clt_value *y = clt_layer_lstm(g, clt_input(g, "x", CLT_F32, 3, x), "lstm", &lstm);
    y = clt_layer_gru(g, y, "gru", &gru);
    clt_assign(g, h, clt_batch_rows_put(h, clt_detach(lstm.h_n[0])));
    clt_assign(g, c, clt_detach(clt_batch_rows_put(c, clt_detach(lstm.c_n[0]))));
    clt_assign(g, gh, clt_batch_rows_put(gh, clt_detach(gru.h_n[0])));
    clt_output(lstm.c_n[0], "c_n");
    y = clt_layer_linear(g, clt_reshape(clt_slice(y, last, stop, NULL), 2, flat), "fc", CLASSES);
    clt_cross_entropy(y, clt_input(g, "label", CLT_I32, 1, one), NULL, &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    return g;
}

enum { STATES = 3 };
static const char *const names[STATES] = {"h", "c", "gru.h"};

typedef struct outcome {
    double losses[STEPS], evaluated;
    float states[STATES][ROWS * UNITS], fc[CLASSES * UNITS];
} outcome;

/* Samples of each step, and the first one. The last steps have only a part of the rows. */
static const int64_t counts[STEPS] = {ROWS, ROWS, ROWS, ROWS, 8, 5, ROWS};
static const int64_t firsts[STEPS] = {0, 0, 0, 0, 0, 4, 0};

typedef struct setting {
    const char *devices;
    const int64_t (*offsets)[3]; /* by step, for two devices; NULL: as the weights say */
    const double *weights;
    int accumulate; /* 0 means 1 */
    clt_dtype precision;
    int64_t quantum; /* 0 means 1 */
} setting;

static lab open_lab(const setting *s)
{
    clt_trainer_options options;
    lab l = lab_on_kept(s->devices);
    clt_trainer_options_init(&options);
    options.optimizer = CLT_ADAM;
    options.lr = 0.01;
    options.batch = ROWS;
    options.accumulate = s->accumulate ? s->accumulate : 1;
    options.weights = s->weights;
    options.quantum = s->quantum ? s->quantum : 1;
    options.rebalance = s->offsets != NULL;
    options.precision = s->precision;
    options.check_every = 1;
    options.poison = 1;
    lab_store(&l, network(), 3);
    lab_trainer(&l, &options);
    return l;
}

static clt_step_batch batch_of(int step, clt_feed feeds[2])
{
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    feeds[0] = (clt_feed){"x", -1, CLT_HOST(xs[step])};
    feeds[1] = (clt_feed){"label", -1, CLT_HOST(labels[step])};
    batch.count = counts[step];
    batch.first = firsts[step];
    batch.feeds = feeds;
    batch.n_feeds = 2;
    return batch;
}

static void train_steps(lab *l, const setting *s, int first, int end, outcome *o)
{
    clt_feed feeds[2];
    for (int step = first; step < end; step++) {
        clt_step_batch batch = batch_of(step, feeds);
        clt_step_result result;
        clt_step_result_init(&result);
        batch.offsets = s->offsets && l->n == 2 ? s->offsets[step] : NULL;
        ok(clt_trainer_step(l->trainer, &batch, NULL));
        ok(clt_trainer_result(l->trainer, step, &result));
        o->losses[step] = result.loss;
        ok(clt_store_check(l->store));
    }
}

static void look(lab *l, outcome *o)
{
    double sums[1] = {0}, weights[1] = {0};
    clt_feed feeds[2];
    const clt_step_batch batch = batch_of(0, feeds);
    ok(clt_trainer_evaluate(l->trainer, &batch, sums, weights));
    o->evaluated = sums[0] / weights[0];
    for (int i = 0; i < STATES; i++)
        ok(clt_store_get(l->store, names[i], o->states[i], sizeof o->states[i]));
    ok(clt_store_get(l->store, "fc.weight", o->fc, sizeof o->fc));
}

static outcome train(const setting *s)
{
    outcome o = {.evaluated = 0};
    lab l = open_lab(s);
    train_steps(&l, s, 0, STEPS, &o);
    look(&l, &o);
    lab_close(&l);
    return o;
}

static void near(const char *what, int i, double have, double want, double most)
{
    if (!(fabs(have - want) <= most * (1 + fabs(want))))
        fail_msg("%s, number %d: %.9g, one device with the whole batch has %.9g", what, i, have,
                 want);
}

static void compare(const char *what, const outcome *have, const outcome *want, double most)
{
    for (int s = 0; s < STEPS; s++)
        near(what, s, have->losses[s], want->losses[s], most);
    near(what, -1, have->evaluated, want->evaluated, most);
    for (int k = 0; k < STATES; k++)
        for (int i = 0; i < ROWS * UNITS; i++)
            near(names[k], i, (double)have->states[k][i], (double)want->states[k][i], most);
    for (int i = 0; i < CLASSES * UNITS; i++)
        near("fc.weight", i, (double)have->fc[i], (double)want->fc[i], most);
}

/* Returns the first of the test's devices. */
static const char *one_device(void)
{
    static char first[64];
    snprintf(first, sizeof first, "%s", clt_test_devices("cpu@1"));
    first[strcspn(first, ",")] = '\0';
    return first;
}

/* Returns the test's devices, which may be a single one. */
static const char *two_devices(void)
{
    return clt_test_devices("cpu/2");
}

/* Divisions that change from step to step, a device without samples, and micro-batches. */
static void test_divisions(void **state)
{
    static const int64_t changing[STEPS][3] = {
        {0, 9, ROWS}, {0, 3, ROWS}, {0, 0, ROWS}, {0, 12, 13}, {0, 8, 8}, {0, 4, 5}, {0, 6, ROWS}};
    static const double weights[] = {1, 3};
    (void)state;
    const setting alone = {.devices = one_device()};
    const outcome want = train(&alone);
    const setting others[] = {{.devices = two_devices()},
                              {.devices = two_devices(), .offsets = changing},
                              {.devices = two_devices(), .offsets = changing, .accumulate = 3},
                              {.devices = one_device(), .accumulate = 4},
                              {.devices = one_device(), .accumulate = 3, .quantum = 4},
                              {.devices = two_devices(), .accumulate = 2}};
    static const char *const what[] = {
        "evenly", "changing",           "changing micro-batches", "four micro-batches",
        "quanta", "two devices and two"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const outcome have = train(&others[i]);
        compare(what[i], &have, &want, 2e-5);
    }
    if (getenv("CLT_TEST_DEVICES"))
        return;
    const setting uneven = {.devices = two_devices(), .weights = weights};
    outcome have = train(&uneven);
    compare("weights", &have, &want, 2e-5);
    const setting half[] = {{.devices = one_device(), .precision = CLT_BF16},
                            {.devices = two_devices(), .precision = CLT_BF16}};
    const outcome whole = train(&half[0]);
    have = train(&half[1]);
    compare("bf16", &have, &whole, 0.02);
}

/* The rows of the batch are those that its devices computed, bit for bit. All other rows stay. */
static void test_rows(void **state)
{
    static float c_n[ROWS * UNITS], before[ROWS * UNITS], after[ROWS * UNITS];
    static const int64_t offsets[] = {0, 2, 5};
    const clt_fetch fetch = {"c_n", -1, CLT_HOST(c_n)};
    const setting s = {.devices = two_devices(), .offsets = &offsets};
    clt_feed feeds[2];
    outcome o;
    (void)state;
    lab l = open_lab(&s);
    train_steps(&l, &(setting){.devices = s.devices}, 0, 3, &o);
    for (int i = 0; i < ROWS * UNITS; i++)
        before[i] = i % 5 ? 0.01f * (float)(i % 17) : -0.0f;
    ok(clt_store_set(l.store, "c", before, sizeof before));
    clt_step_batch batch = batch_of(5, feeds);
    batch.offsets = l.n == 2 ? offsets : NULL;
    batch.fetches = &fetch;
    batch.n_fetches = 1;
    ok(clt_trainer_step(l.trainer, &batch, NULL));
    ok(clt_trainer_wait(l.trainer));
    ok(clt_store_check(l.store));
    ok(clt_store_get(l.store, "c", after, sizeof after));
    const size_t begin = (size_t)firsts[5] * UNITS, count = (size_t)counts[5] * UNITS;
    assert_memory_equal(after, before, begin * sizeof *after);
    assert_memory_equal(after + begin, c_n, count * sizeof *after);
    assert_memory_equal(after + begin + count, before + begin + count,
                        sizeof after - (begin + count) * sizeof *after);
    lab_close(&l);
}

/* The guard stops a step, and the rows do not change. */
static void test_guard(void **state)
{
    static float before[ROWS * UNITS], after[ROWS * UNITS], bad[ROWS * TIME * IN];
    const setting s = {.devices = two_devices()};
    clt_feed feeds[2];
    outcome o;
    (void)state;
    lab l = open_lab(&s);
    train_steps(&l, &s, 0, 2, &o);
    ok(clt_store_get(l.store, "h", before, sizeof before));
    clt_step_batch batch = batch_of(2, feeds);
    memcpy(bad, xs[2], sizeof bad);
    bad[5] = INFINITY;
    feeds[0].array.host = bad;
    ok(clt_trainer_step(l.trainer, &batch, NULL));
    ok(clt_trainer_wait(l.trainer));
    ok(clt_store_get(l.store, "h", after, sizeof after));
    assert_memory_equal(after, before, sizeof after);
    ok(clt_store_check(l.store));
    lab_close(&l);
}

/* A checkpoint has the rows of the whole batch, so any number of devices can resume. */
static void test_resume(void **state)
{
    static const double weights[] = {2, 5};
    const char *const lists[] = {one_device(), two_devices()};
    const char *parent = getenv("TMPDIR");
    char dir[256], command[300];
    (void)state;
    const setting alone = {.devices = one_device()};
    const outcome want = train(&alone);
    for (int from = 0; from < 2; from++)
        for (int to = 0; to < 2; to++) {
            const setting first = {.devices = lists[from]};
            const setting second = {.devices = lists[to],
                                    .weights = to && !getenv("CLT_TEST_DEVICES") ? weights : NULL};
            clt_position position = {0, 0};
            int64_t seed;
            outcome o = {.evaluated = 0};
            snprintf(dir, sizeof dir, "%s/carried-XXXXXX", parent ? parent : "/tmp");
            assert_non_null(mkdtemp(dir));
            lab l = open_lab(&first);
            train_steps(&l, &first, 0, 3, &o);
            ok(clt_trainer_save(l.trainer, dir, position, ROWS, 0, 1, "test"));
            lab_close(&l);
            l = open_lab(&second);
            ok(clt_trainer_restore(l.trainer, dir, &position, &seed));
            train_steps(&l, &second, 3, STEPS, &o);
            look(&l, &o);
            lab_close(&l);
            compare("resumed", &o, &want, 2e-5);
            snprintf(command, sizeof command, "rm -r %s", dir);
            assert_int_equal(system(command), 0);
        }
}

/* The division changes in later steps, and each device has the rows that it needs. */
static void test_rebalance(void **state)
{
    static const int64_t any[STEPS][3] = {{0}};
    static const double changes[STEPS][2] = {{1, 1}, {3, 2}, {1, 3}, {5, 4},
                                             {1, 1}, {2, 1}, {1, 2}};
    const setting alone = {.devices = one_device()};
    (void)state;
    if (getenv("CLT_TEST_DEVICES"))
        return;
    const outcome want = train(&alone);
    outcome o = {.evaluated = 0};
    const setting s = {.devices = two_devices(), .offsets = any},
                  by_weights = {.devices = two_devices()};
    lab l = open_lab(&s);
    for (int step = 0; step < STEPS; step++) {
        ok(clt_trainer_set_weights(l.trainer, changes[step], 1));
        train_steps(&l, &by_weights, step, step + 1, &o);
    }
    look(&l, &o);
    lab_close(&l);
    compare("rebalanced", &o, &want, 2e-5);
}

#ifdef CLT_TESTING
/* No rows are lost with a device. */
static void test_lost(void **state)
{
    const setting alone = {.devices = one_device()}, s = {.devices = "cpu/2"};
    clt_feed feeds[2];
    (void)state;
    if (getenv("CLT_TEST_DEVICES"))
        return;
    const outcome want = train(&alone);
    for (int device = 0; device < 2; device++) {
        outcome o = {.evaluated = 0};
        char words[32];
        int redo = -1;
        lab l = open_lab(&s);
        train_steps(&l, &s, 0, 3, &o);
        snprintf(words, sizeof words, "#%d=3", device);
        clt_exec_testing_lose = words;
        const clt_step_batch batch = batch_of(3, feeds);
        assert_int_equal(clt_trainer_step(l.trainer, &batch, NULL), CLT_DEVICE_LOST);
        clt_exec_testing_lose = NULL;
        ok(clt_trainer_recover(l.trainer, &redo));
        assert_int_equal(redo, 1);
        train_steps(&l, &s, 3, STEPS, &o);
        look(&l, &o);
        lab_close(&l);
        compare("after a loss", &o, &want, 2e-5);
    }
}
#endif

/* --- ranks ----------------------------------------------------------------------------------- */

/* A rank's settings and results. */
typedef struct share {
    const char *devices;
    int64_t count; /* samples of each batch */
    int64_t first;
    int tell; /* whether the caller knows the global batch */
    int64_t misplaced;
    outcome o;
} share;

static clt_status rank_steps(lab *l, share *p)
{
    for (int s = 0; s < 4; s++) {
        const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs[s] + p->first * TIME * IN)},
                                  {"label", -1, CLT_HOST(labels[s] + p->first)}};
        clt_step_batch batch;
        clt_step_result result;
        clt_step_result_init(&result);
        clt_step_batch_init(&batch);
        batch.count = p->count;
        batch.feeds = feeds;
        batch.n_feeds = 2;
        batch.first = p->tell ? p->first + p->misplaced : 0;
        batch.total = p->tell ? ROWS : 0;
        clt_status status = clt_trainer_step(l->trainer, &batch, NULL);
        if (status == CLT_OK)
            status = clt_trainer_result(l->trainer, s, &result);
        if (status != CLT_OK)
            return status;
        p->o.losses[s] = result.loss;
    }
    return CLT_OK;
}

static void train_rank(rank *self)
{
    share *p = self->argument;
    clt_trainer_options options;
    lab l = {0};
    clt_trainer_options_init(&options);
    options.optimizer = CLT_ADAM;
    options.lr = 0.01;
    options.batch = ROWS;
    options.check_every = 1;
    options.comm_timeout = 60;
    options.rebalance = 1; /* room for unequal shares */
    options.poison = 1;
    options.world = &self->world;
    l.graph = network();
    if (HOLDS(self, clt_devices_open(runtime, p->devices, NULL, &l.devices, &l.n) == CLT_OK) &&
        HOLDS(self, clt_store_create(l.graph, l.devices, l.n, 3, &l.store) == CLT_OK) &&
        HOLDS(self, clt_trainer_create(l.graph, l.store, &options, &l.trainer) == CLT_OK)) {
        self->status = rank_steps(&l, p);
        snprintf(self->message, sizeof self->message, "%s", clt_error_message());
        HOLDS(self, clt_store_check(l.store) == CLT_OK);
        for (int i = 0; i < STATES; i++)
            HOLDS(self, clt_store_get(l.store, names[i], p->o.states[i], sizeof p->o.states[i]) ==
                            CLT_OK);
        HOLDS(self, clt_store_get(l.store, "fc.weight", p->o.fc, sizeof p->o.fc) == CLT_OK);
    }
    lab_close(&l);
}

static void test_ranks(void **state)
{
    const setting alone = {.devices = one_device()};
    outcome want = {.evaluated = 0};
    (void)state;
    if (getenv("CLT_TEST_DEVICES"))
        return;
    lab l = open_lab(&alone);
    train_steps(&l, &alone, 0, 4, &want);
    for (int i = 0; i < STATES; i++)
        ok(clt_store_get(l.store, names[i], want.states[i], sizeof want.states[i]));
    ok(clt_store_get(l.store, "fc.weight", want.fc, sizeof want.fc));
    lab_close(&l);
    for (int tell = 0; tell < 2; tell++) {
        static share shares[3];
        rank ranks[3];
        shares[0] = (share){.devices = "cpu/2", .count = 6, .first = 0, .tell = tell};
        shares[1] = (share){.devices = "cpu@1", .count = 0, .first = 6, .tell = tell};
        shares[2] = (share){.devices = "cpu@1", .count = 7, .first = 6, .tell = tell};
        run_ranks(ranks, 3, train_rank, shares, sizeof *shares);
        for (int r = 0; r < 3; r++) {
            if (ranks[r].status != CLT_OK)
                fail_msg("rank %d: %s", r, ranks[r].message);
            compare("rank", &shares[r].o, &want, 2e-5);
            assert_memory_equal(shares[r].o.states, shares[0].o.states, sizeof want.states);
        }
    }
    /* Rows that no batch has, on all ranks. Each rank reports this before its devices begin. */
    static share wrong[2];
    rank ranks[2];
    for (int r = 0; r < 2; r++)
        wrong[r] = (share){.devices = "cpu@1", .count = 7, .first = 0, .tell = 1, .misplaced = 7};
    run_ranks(ranks, 2, train_rank, wrong, sizeof *wrong);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(ranks[r].status, CLT_INVALID_ARGUMENT);
        assert_non_null(strstr(ranks[r].message, "7 from 7 on"));
    }
}

/* --- refusals --------------------------------------------------------------------------------- */

enum { DECAYED, FEW, TWICE, DERIVED, REFUSED };

/* Builds assignments that have no row for each sample. */
static clt_graph *refused(int which)
{
    const int64_t x[] = {CLT_BATCH, UNITS}, all[] = {which == FEW ? ROWS - 1 : ROWS, UNITS};
    const int64_t scalar[] = {UNITS};
    const clt_init zero = {CLT_INIT_ZERO, 0, 0};
    static const int rows_axis[] = {0};
    clt_value *sum, *weight;
    clt_graph *g;
    ok(clt_graph_create(&g));
    clt_value *h = clt_state(g, "rows", CLT_F32, 2, all, zero);
    clt_value *mean = clt_state(g, "mean", CLT_F32, 1, scalar, zero);
    clt_value *in = clt_input(g, "x", CLT_F32, 2, x);
    clt_value *put = clt_batch_rows_put(h, clt_add(clt_batch_rows(h), in));
    if (which == DECAYED)
        clt_assign(g, h, clt_relu(put));
    else if (which == TWICE)
        clt_assign(g, h, clt_batch_rows_put(put, in));
    else if (which == DERIVED)
        clt_assign(g, mean, clt_reduce_mean(put, rows_axis, 1, 0));
    else
        clt_assign(g, h, put);
    clt_value *y = layer(g, in, "fc.weight", "fc.bias", UNITS, 2);
    clt_mse(y, clt_input(g, "y", CLT_F32, 2, (int64_t[]){CLT_BATCH, 2}), &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    ok(clt_graph_status(g));
    return g;
}

/* Refused before the first step. */
static void expect_too_few(clt_trainer *trainer)
{
    static const float y[ROWS * 2];
    const int64_t x_shape[] = {UNITS}, y_shape[] = {2};
    clt_fit_options fit;
    clt_dataset *set;
    ok(clt_dataset_create_arrays("made up", ROWS, &set));
    ok(clt_dataset_add_field(set, "x", CLT_F32, 1, x_shape, xs, CLT_DATA_BORROW, NULL));
    ok(clt_dataset_add_field(set, "y", CLT_F32, 1, y_shape, y, CLT_DATA_BORROW, NULL));
    clt_fit_options_init(&fit);
    fit.batch = ROWS;
    assert_int_equal(clt_fit(trainer, set, NULL, &fit), CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "state rows has rows for 12 samples"));
    fit.batch = ROWS - 1;
    ok(clt_fit(trainer, set, NULL, &fit));
    clt_dataset_free(set);
}

static void test_refused(void **state)
{
    (void)state;
    for (int which = 0; which < REFUSED; which++)
        for (int several = 0; several < 3; several++) {
            clt_trainer_options options;
            clt_trainer *trainer = NULL;
            if (several == 2 && getenv("CLT_TEST_DEVICES"))
                continue;
            lab l = lab_on_kept(several == 2 ? "cpu/2" : one_device());
            lab_store(&l, refused(which), 1);
            clt_trainer_options_init(&options);
            options.batch = ROWS;
            options.accumulate = several == 1 ? 2 : 1;
            const clt_status status = clt_trainer_create(l.graph, l.store, &options, &trainer);
            if (which == FEW) {
                ok(status);
                expect_too_few(trainer);
            } else if (several) {
                assert_int_equal(status, CLT_UNSUPPORTED);
                assert_non_null(strstr(clt_error_message(), "one clt_batch_rows_put directly"));
            } else {
                ok(status);
            }
            clt_trainer_destroy(trainer);
            lab_close(&l);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_divisions), cmocka_unit_test(test_rows),
        cmocka_unit_test(test_guard),     cmocka_unit_test(test_resume),
        cmocka_unit_test(test_rebalance), cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_refused),
#ifdef CLT_TESTING
        cmocka_unit_test(test_lost),
#endif
    };
    for (int s = 0; s < STEPS; s++) {
        for (int i = 0; i < ROWS * TIME * IN; i++)
            xs[s][i] = (float)((i * 37 + s * 53) % 101 - 50) / 40;
        for (int i = 0; i < ROWS; i++)
            labels[s][i] = (i * 5 + i / 3 + s) % CLASSES;
    }
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
