/*
 * Ranks that train together, as threads of this program (tests/mpi uses processes). Their results
 * are those of one process with the whole batch. All ranks report a mistake on one rank.
 */
#include "train/world.h"

#include <cltrain/data.h>
#include <cltrain/fit.h>
#include <cltrain/train.h>

enum { IN = 12, CLASSES = 4, MOST = 40, STEPS = 6, WIDE = 16 };

static float xs[MOST * IN];
static int32_t labels[MOST];

/* The settings of a rank. */
typedef struct plan {
    const char *devices;
    int64_t count;  /* samples of each of its batches */
    int64_t first;  /* its first sample */
    int64_t room;   /* largest global batch; 0 for MOST */
    int tell_total; /* whether the caller knows the global batch */
    double lr;
    int64_t hidden;
    uint64_t seed;
    int64_t check_every;
    const char *frozen; /* pattern of frozen parameters; NULL for none */
    const char *slow;   /* pattern of a group with half the rate; NULL for none */
    int spoil;          /* step before which the rank changes its replica; 0: never */
} plan;

static const plan usual = {.devices = "cpu", .lr = 0.2, .hidden = WIDE, .seed = 3};

static clt_trainer_options options_of(const plan *p)
{
    clt_trainer_options o;
    clt_trainer_options_init(&o);
    o.optimizer = CLT_MOMENTUM;
    o.batch = p->room ? p->room : MOST;
    o.lr = p->lr;
    o.check_every = p->check_every;
    o.comm_timeout = 60;
    o.poison = 1;
    return o;
}

/* Opens devices, store and trainer of a rank. This is not the test's thread, so nothing is
 * asserted. */
static clt_status open_rank(lab *l, const plan *p, const clt_world *world)
{
    clt_trainer_options options = options_of(p);
    options.world = world;
    l->graph = classifier(IN, p->hidden, CLASSES);
    clt_status status = clt_devices_open(runtime, p->devices, NULL, &l->devices, &l->n);
    if (status == CLT_OK && p->frozen)
        status = clt_freeze(l->graph, p->frozen, NULL);
    if (status == CLT_OK && p->slow)
        status = clt_param_group(l->graph, p->slow, 0.5, CLT_COMMON_DECAY, NULL);
    if (status == CLT_OK)
        status = clt_store_create(l->graph, l->devices, l->n, p->seed, &l->store);
    return status == CLT_OK ? clt_trainer_create(l->graph, l->store, &options, &l->trainer)
                            : status;
}

static clt_step_batch batch_of(const plan *p, clt_feed feeds[2])
{
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    feeds[0] = (clt_feed){"x", -1, CLT_HOST(xs + p->first * IN)};
    feeds[1] = (clt_feed){"label", -1, CLT_HOST(labels + p->first)};
    batch.count = p->count;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    if (p->tell_total) {
        batch.first = p->first;
        batch.total = MOST;
    }
    return batch;
}

static clt_status train_steps(lab *l, const plan *p, double *loss)
{
    clt_feed feeds[2];
    clt_step_batch batch = batch_of(p, feeds);
    for (int s = 0; s < STEPS; s++) {
        static const float wrong[CLASSES];
        clt_step_result result;
        clt_step_result_init(&result);
        if (p->spoil && s + 1 == p->spoil)
            clt_store_set(l->store, "b.bias", wrong, sizeof wrong);
        clt_status status = clt_trainer_step(l->trainer, &batch, NULL);
        if (status == CLT_OK)
            status = clt_trainer_result(l->trainer, s, &result);
        if (status != CLT_OK)
            return status;
        *loss = result.loss;
        if (result.samples != MOST)
            return clt_error_set(CLT_INTERNAL, "a step of another number of samples");
    }
    return CLT_OK;
}

/* Trains. Sets `numbers` to the last loss, the accuracy, and three weights. */
static void train_rank(rank *self)
{
    const plan *p = self->argument;
    lab l = {0};
    float weights[WIDE * IN];
    double sums[2] = {0}, means[2] = {0};
    clt_feed feeds[2];
    self->status = open_rank(&l, p, &self->world);
    if (self->status == CLT_OK)
        self->status = train_steps(&l, p, &self->numbers[0]);
    if (self->status == CLT_OK) {
        const clt_step_batch batch = batch_of(p, feeds);
        HOLDS(self, clt_trainer_evaluate(l.trainer, &batch, sums, means) == CLT_OK);
        self->numbers[1] = sums[1] / means[1];
        self->numbers[5] = sums[0] / means[0];
        HOLDS(self, clt_store_get(l.store, "a.weight", weights, sizeof weights) == CLT_OK);
        for (int i = 0; i < 3; i++)
            self->numbers[2 + i] = weights[i * 61];
        HOLDS(self, clt_store_check(l.store) == CLT_OK);
    } else {
        snprintf(self->message, sizeof self->message, "%s", clt_error_message());
    }
    lab_close(&l);
}

static void expect_equal(const rank *ranks, int count, const double *want)
{
    for (int r = 0; r < count; r++) {
        assert_int_equal(ranks[r].status, CLT_OK);
        /* All ranks have the same bits. */
        assert_memory_equal(ranks[r].numbers, ranks[0].numbers, sizeof ranks[0].numbers);
        for (int i = 0; i < 6; i++)
            if (!(fabs(ranks[r].numbers[i] - want[i]) <= 2e-5 * (1 + fabs(want[i]))))
                fail_msg("rank %d, number %d: %.9g, one process has %.9g", r, i,
                         ranks[r].numbers[i], want[i]);
    }
}

static void one_process(double *numbers)
{
    rank alone[1];
    plan p = usual;
    p.count = MOST;
    run_ranks(alone, 1, train_rank, &p, sizeof p);
    assert_int_equal(alone[0].status, CLT_OK);
    memcpy(numbers, alone[0].numbers, sizeof alone[0].numbers);
}

static void give_parts(plan *plans, int count, const int64_t *sizes)
{
    int64_t first = 0;
    for (int r = 0; r < count; r++) {
        plans[r] = usual;
        plans[r].count = sizes[r];
        plans[r].first = first;
        plans[r].room = 80; /* the largest part of any device, times the number of devices */
        first += sizes[r];
    }
    assert_int_equal(first, MOST);
}

static void ranks_give_what_one_process_gives(void **state)
{
    static const int64_t halves[] = {20, 20}, uneven[] = {7, 14, 19}, empty[] = {14, 0, 13, 13};
    double want[8];
    rank ranks[RANKS_MOST];
    plan plans[RANKS_MOST];
    (void)state;
    one_process(want);
    for (int told = 0; told < 2; told++) {
        give_parts(plans, 2, halves);
        plans[0].tell_total = plans[1].tell_total = told;
        run_ranks(ranks, 2, train_rank, plans, sizeof *plans);
        expect_equal(ranks, 2, want);
        give_parts(plans, 4, empty);
        for (int r = 0; r < 4; r++)
            plans[r].tell_total = told;
        run_ranks(ranks, 4, train_rank, plans, sizeof *plans);
        expect_equal(ranks, 4, want);
    }
    if (getenv("CLT_TEST_DEVICES"))
        return;
    give_parts(plans, 3, uneven);
    plans[1].devices = "cpu/2"; /* rank 1 has two devices */
    run_ranks(ranks, 3, train_rank, plans, sizeof *plans);
    expect_equal(ranks, 3, want);
}

static void expect_failure(const rank *ranks, int count, clt_status status, const char *part)
{
    for (int r = 0; r < count; r++) {
        if (!strstr(ranks[r].message, part))
            fail_msg("rank %d: '%s' does not say '%s'", r, ranks[r].message, part);
        assert_int_equal(ranks[r].status, status);
    }
}

static void ranks_that_differ_are_named(void **state)
{
    static const int64_t halves[] = {20, 20};
    rank ranks[2];
    plan plans[2];
    (void)state;
    give_parts(plans, 2, halves);
    plans[1].lr = 0.1;
    run_ranks(ranks, 2, train_rank, plans, sizeof *plans);
    expect_failure(ranks, 2, CLT_MISMATCH,
                   "rank 1 has another learning rate (lr) than rank 0 (0.1, not ");
    give_parts(plans, 2, halves);
    plans[1].hidden = WIDE + 1;
    run_ranks(ranks, 2, train_rank, plans, sizeof *plans);
    expect_failure(ranks, 2, CLT_MISMATCH, "rank 1 has another model");
    for (int frozen = 0; frozen < 2; frozen++) {
        give_parts(plans, 2, halves);
        *(frozen ? &plans[1].frozen : &plans[1].slow) = "a.*";
        run_ranks(ranks, 2, train_rank, plans, sizeof *plans);
        expect_failure(ranks, 2, CLT_MISMATCH,
                       "rank 1 has another set of frozen parameters or parameter groups");
    }
}

static void a_divergence_is_named(void **state)
{
    static const int64_t parts[] = {14, 13, 13};
    rank ranks[3];
    plan plans[3];
    (void)state;
    give_parts(plans, 3, parts);
    for (int r = 0; r < 3; r++)
        plans[r].check_every = 2;
    run_ranks(ranks, 3, train_rank, plans, sizeof *plans);
    for (int r = 0; r < 3; r++)
        assert_int_equal(ranks[r].status, CLT_OK);
    /* The message names the replica that differs, even if it is the first one. */
    for (int who = 0; who < 3; who++) {
        char words[64];
        for (int r = 0; r < 3; r++)
            plans[r].spoil = r == who ? 3 : 0;
        run_ranks(ranks, 3, train_rank, plans, sizeof *plans);
        snprintf(words, sizeof words, "rank %d, device 0", who);
        expect_failure(ranks, 3, CLT_MISMATCH, words);
        expect_failure(ranks, 3, CLT_MISMATCH, "step 4: ");
        expect_failure(ranks, 3, CLT_MISMATCH, "has other bits");
    }
}

/* Stores with other seeds or changed values are found, also without check_every. */
static void unequal_starts_are_named(void **state)
{
    static const int64_t parts[] = {14, 13, 13};
    rank ranks[3];
    plan plans[3];
    (void)state;
    for (int spoilt = 0; spoilt < 2; spoilt++) {
        give_parts(plans, 3, parts);
        plans[1].seed += spoilt ? 0 : 1;
        plans[1].spoil = spoilt;
        run_ranks(ranks, 3, train_rank, plans, sizeof *plans);
        expect_failure(ranks, 3, CLT_MISMATCH, "rank 1, device 0");
        expect_failure(ranks, 3, CLT_MISMATCH, "before the first step");
        expect_failure(ranks, 3, CLT_MISMATCH, spoilt ? "b.bias has" : "has other bits");
    }
}

/* Evaluates twice, then trains a step. */
static void evaluate_rank(rank *self)
{
    const plan *p = self->argument;
    lab l = {0};
    double sums[2] = {0}, means[2] = {0};
    clt_feed feeds[2];
    const clt_step_batch batch = batch_of(p, feeds);
    self->status = open_rank(&l, p, &self->world);
    for (int i = 0; i < 2 && self->status == CLT_OK; i++) {
        self->status = clt_trainer_evaluate(l.trainer, &batch, sums, means);
        self->numbers[0] += self->status == CLT_OK;
    }
    if (self->status == CLT_OK && p->spoil)
        self->status =
            clt_store_set(l.store, "b.bias", (float[CLASSES]){0}, CLASSES * sizeof(float));
    if (self->status == CLT_OK)
        self->status = clt_trainer_step(l.trainer, &batch, NULL);
    snprintf(self->message, sizeof self->message, "%s", clt_error_message());
    lab_close(&l);
}

/* An evaluation would add up losses of different parameters. */
static void unequal_replicas_are_not_evaluated(void **state)
{
    static const int64_t parts[] = {14, 13, 13};
    rank ranks[3];
    plan plans[3];
    (void)state;
    for (int spoilt = 0; spoilt < 2; spoilt++) {
        give_parts(plans, 3, parts);
        plans[1].seed += spoilt ? 0 : 1;
        plans[1].spoil = spoilt;
        run_ranks(ranks, 3, evaluate_rank, plans, sizeof *plans);
        expect_failure(ranks, 3, CLT_MISMATCH, "rank 1, device 0");
        expect_failure(ranks, 3, CLT_MISMATCH, spoilt ? "b.bias has" : "has other bits");
        assert_int_equal((int)ranks[0].numbers[0], spoilt ? 2 : 0); /* evaluations */
    }
    give_parts(plans, 3, parts);
    run_ranks(ranks, 3, evaluate_rank, plans, sizeof *plans);
    for (int r = 0; r < 3; r++)
        assert_int_equal(ranks[r].status, CLT_OK);
}

/* --- parameters and whole runs --------------------------------------------------------------- */

/* Each rank has another seed, until all get the parameters of rank 1. */
static void broadcast_rank(rank *self)
{
    plan p = usual;
    lab l = {0};
    float weights[WIDE * IN];
    p.seed = 10 + (uint64_t)self->number;
    if (HOLDS(self, open_rank(&l, &p, &self->world) == CLT_OK)) {
        clt_trainer_set_steps(l.trainer, 5 * self->number);
        HOLDS(self, clt_trainer_broadcast(l.trainer, 3) == CLT_INVALID_ARGUMENT);
        HOLDS(self, clt_trainer_broadcast(l.trainer, 1) == CLT_OK);
        HOLDS(self, clt_trainer_steps(l.trainer) == 5);
        HOLDS(self, clt_store_get(l.store, "a.weight", weights, sizeof weights) == CLT_OK);
        for (int i = 0; i < 8; i++)
            self->numbers[i] = weights[i];
    }
    lab_close(&l);
}

static void parameters_are_broadcast(void **state)
{
    rank ranks[3];
    (void)state;
    run_ranks(ranks, 3, broadcast_rank, NULL, 0);
    for (int r = 0; r < 3; r++)
        assert_memory_equal(ranks[r].numbers, ranks[1].numbers, sizeof ranks[1].numbers);
}

/* A run over a data set. One rank may be told to stop. */
typedef struct fitting {
    rank *self;
    int64_t seen;
    int stop_after; /* 0: never */
    double loss;
} fitting;

static void on_step(void *user, const clt_progress *p)
{
    fitting *f = user;
    f->seen = p->step;
    f->loss = p->loss;
}

static int should_stop(void *user)
{
    const fitting *f = user;
    return f->stop_after && f->seen >= f->stop_after;
}

static void fit_rank(rank *self)
{
    const int64_t shape[] = {IN};
    plan p = usual;
    lab l = {0};
    clt_dataset *set = NULL;
    clt_fit_options fit;
    fitting f = {.self = self, .stop_after = self->argument ? *(int *)self->argument : 0};
    int label = 0;
    p.seed = 20;
    HOLDS(self, clt_dataset_create_arrays("made up", MOST, &set) == CLT_OK);
    HOLDS(self,
          clt_dataset_add_field(set, "x", CLT_F32, 1, shape, xs, CLT_DATA_BORROW, NULL) == CLT_OK);
    HOLDS(self, clt_dataset_add_field(set, "label", CLT_I32, 0, NULL, labels, CLT_DATA_BORROW,
                                      &label) == CLT_OK);
    if (HOLDS(self, open_rank(&l, &p, &self->world) == CLT_OK)) {
        clt_fit_options_init(&fit);
        fit.epochs = 3;
        fit.batch = 9; /* the last batch of an epoch has 4 samples */
        fit.on_step = on_step;
        fit.should_stop = should_stop;
        fit.user = &f;
        self->status = clt_fit(l.trainer, set, set, &fit);
        snprintf(self->message, sizeof self->message, "%s", clt_error_message());
        self->numbers[0] = f.loss;
        self->numbers[1] = (double)clt_trainer_steps(l.trainer);
        HOLDS(self, clt_store_check(l.store) == CLT_OK);
    }
    lab_close(&l);
    clt_dataset_free(set);
}

static void ranks_run_and_stop_together(void **state)
{
    rank ranks[3], alone[1];
    int stops[3] = {0};
    (void)state;
    run_ranks(alone, 1, fit_rank, NULL, 0);
    assert_int_equal(alone[0].status, CLT_OK);
    run_ranks(ranks, 3, fit_rank, stops, sizeof *stops);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(ranks[r].status, CLT_OK);
        assert_true(ranks[r].numbers[1] == 15);
        assert_true(ranks[r].numbers[0] == ranks[0].numbers[0]);
        assert_true(fabs(ranks[r].numbers[0] - alone[0].numbers[0]) < 1e-4);
    }
    stops[2] = 4;
    run_ranks(ranks, 3, fit_rank, stops, sizeof *stops);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(ranks[r].status, CLT_STOPPED);
        assert_true(ranks[r].numbers[1] == ranks[0].numbers[1]);
        assert_true(ranks[r].numbers[1] >= 4 && ranks[r].numbers[1] < 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_give_what_one_process_gives),
        cmocka_unit_test(ranks_that_differ_are_named),
        cmocka_unit_test(a_divergence_is_named),
        cmocka_unit_test(unequal_replicas_are_not_evaluated),
        cmocka_unit_test(unequal_starts_are_named),
        cmocka_unit_test(parameters_are_broadcast),
        cmocka_unit_test(ranks_run_and_stop_together),
    };
    make_samples(xs, labels, MOST, IN, CLASSES);
    for (int i = 0; i < MOST; i += 5)
        labels[i] = -100; /* now only the labels determine the loss' weight */
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
