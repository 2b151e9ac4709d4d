/* Ranks with reservoirs of their own, some of them empty. Ranks are threads of this program. */
#include "train/fit/reservoir_lab.h"
#include "train/lab_scratch.h"
#include "train/world.h"

enum { RANKS = 3, STEPS = 10, CAPACITY = 25, PUSHED = 4, HALF = 5 };

typedef struct plan {
    const char *devices;
    int begins;      /* step before which the rank begins to push; STEPS: never */
    int64_t steps;   /* clt_fit: the run's length */
    int64_t stop;    /* clt_fit: after so many calls of should_stop; 0: never */
    const char *dir; /* of checkpoints; NULL: none */
    int save;
    int64_t virtual_shards;
    int rebalance, zero;
    learnt got;
    clt_reservoir_stats stats;
    int epochs;
    /* while clt_fit runs */
    clt_dataset *d;
    int64_t asked;
    int number;
    rank *self;
} plan;

/* Ranks have different samples. */
static int64_t first_of(int number, int64_t push)
{
    return 1000 * (number + 1) + push * PUSHED;
}

static clt_status open_rank(rank *self, lab *l, clt_dataset **d)
{
    const plan *p = self->argument;
    clt_trainer_options options = trainer_options();
    clt_reservoir_options reservoir = reservoir_options();
    options.world = &self->world;
    options.comm_timeout = 60;
    options.virtual_shards = p->virtual_shards;
    options.rebalance = p->rebalance;
    options.zero = p->zero;
    reservoir.save = p->save;
    reservoir.seed = (uint64_t)self->number;
    const clt_status status = lab_of_rank(l, p->devices, classifier(IN, HIDDEN, CLASSES), &options);
    return status == CLT_OK ? reservoir_make(CAPACITY, &reservoir, d) : status;
}

static clt_status read_rank(const lab *l, learnt *w)
{
    clt_status status = clt_trainer_wait(l->trainer);
    if (status == CLT_OK)
        status = clt_store_get(l->store, "a.weight", w->a, sizeof w->a);
    return status == CLT_OK ? clt_store_get(l->store, "b.weight", w->b, sizeof w->b) : status;
}

static void close_rank(rank *self, lab *l, clt_dataset *d)
{
    if (self->status != CLT_OK)
        snprintf(self->message, sizeof self->message, "%s", clt_error_message());
    lab_close(l);
    clt_dataset_free(d);
}

static void step_rank(rank *self)
{
    plan *p = self->argument;
    lab l = {0};
    clt_dataset *d = NULL;
    double loss = 0;
    self->status = open_rank(self, &l, &d);
    if (self->status == CLT_OK)
        self->status = clt_trainer_set_reservoir(l.trainer, d, NULL);
    /* No rank has samples: there is no step. */
    if (self->status == CLT_OK) {
        self->status = clt_step_reservoir(l.trainer, 2, &loss);
        HOLDS(self, isnan(loss) && clt_trainer_steps(l.trainer) == 0);
    }
    for (int s = 0; s < STEPS && self->status == CLT_OK; s++) {
        if (s >= p->begins)
            self->status = push_made_up(d, first_of(self->number, s), PUSHED);
        if (self->status == CLT_OK)
            self->status = clt_step_reservoir(l.trainer, 1, &loss);
    }
    if (self->status == CLT_OK)
        self->status = read_rank(&l, &p->got);
    self->numbers[0] = loss;
    close_rank(self, &l, d);
}

/* The same in one process: draws the parts of all ranks that have samples, and trains on them. */
static learnt in_one(const plan *plans, int ranks, double *loss)
{
    const clt_trainer_options options = trainer_options();
    lab l = lab_on_kept("cpu@1");
    clt_dataset *d[RANKS];
    int64_t parts[RANKS + 1];
    clt_step_result result;
    clt_step_result_init(&result);
    lab_store(&l, classifier(IN, HIDDEN, CLASSES), 7); /* the seed of lab_of_rank */
    lab_trainer(&l, &options);
    ok(clt_split(BATCH, ranks, NULL, 1, parts));
    for (int r = 0; r < ranks; r++) {
        clt_reservoir_options o = reservoir_options();
        o.seed = (uint64_t)r;
        d[r] = reservoir_open(CAPACITY, &o);
    }
    for (int s = 0; s < STEPS; s++) {
        float x[BATCH][IN];
        int32_t labels[BATCH];
        int64_t count = 0;
        for (int r = 0; r < ranks; r++) {
            const int64_t part = parts[r + 1] - parts[r], shape[] = {part, IN};
            clt_array fields[2];
            int64_t drawn;
            if (s >= plans[r].begins)
                ok(push_made_up(d[r], first_of(r, s), PUSHED));
            ok(clt_array_of(&fields[0], x[count], CLT_F32, 2, shape));
            ok(clt_array_of(&fields[1], labels + count, CLT_I32, 1, shape));
            ok(clt_dataset_draw(d[r], 11, s, parts[r], part, fields, 2, &drawn));
            count += drawn;
        }
        const clt_feed feeds[] = {{"x", -1, CLT_HOST(x)}, {"label", -1, CLT_HOST(labels)}};
        const clt_step_batch batch = lab_batch(feeds, count);
        ok(clt_trainer_step(l.trainer, &batch, NULL));
        ok(clt_trainer_result(l.trainer, s, &result));
        assert_int_equal(result.samples, count);
    }
    *loss = result.loss;
    const learnt w = read_learnt(&l);
    lab_close(&l);
    for (int r = 0; r < ranks; r++)
        clt_dataset_free(d[r]);
    return w;
}

static void expect_close(const learnt *got, const learnt *want)
{
    for (int i = 0; i < HIDDEN * IN; i++)
        assert_true(fabs(got->a[i] - want->a[i]) < 2e-4);
    for (int i = 0; i < CLASSES * HIDDEN; i++)
        assert_true(fabs(got->b[i] - want->b[i]) < 2e-4);
}

static void empty_ranks_take_part(void **state)
{
    (void)state;
    /* One rank never has samples, or later than others; ranks have several devices. */
    static const int begins[][RANKS] = {{0, STEPS, 0}, {0, 4, 2}, {0, 0, 0}, {STEPS, STEPS, 0}};
    for (size_t c = 0; c < sizeof begins / sizeof *begins; c++) {
        plan plans[RANKS];
        rank ranks[RANKS];
        double loss;
        for (int r = 0; r < RANKS; r++)
            plans[r] = (plan){.devices = "cpu@1", .begins = begins[c][r]};
        run_ranks(ranks, RANKS, step_rank, plans, sizeof *plans);
        const learnt want = in_one(plans, RANKS, &loss);
        for (int r = 0; r < RANKS; r++) {
            if (ranks[r].status != CLT_OK)
                fail_msg("rank %d: %s", r, ranks[r].message);
            same_learnt(&plans[r].got, &plans[0].got);
            assert_true(fabs(ranks[r].numbers[0] - loss) < 1e-4);
        }
        expect_close(&plans[0].got, &want);
    }
}

/* Devices of a rank divide its part. */
static void ranks_have_several_devices(void **state)
{
    (void)state;
    plan plans[] = {{.devices = "cpu@1,cpu@1", .begins = 0}, {.devices = "cpu@1", .begins = 3}};
    rank ranks[2];
    run_ranks(ranks, 2, step_rank, plans, sizeof *plans);
    for (int r = 0; r < 2; r++)
        if (ranks[r].status != CLT_OK)
            fail_msg("rank %d: %s", r, ranks[r].message);
    same_learnt(&plans[0].got, &plans[1].got);
}

/* --- clt_fit ---------------------------------------------------------------------------------- */

static int ask(void *user)
{
    plan *p = user;
    p->asked++;
    if (p->asked > p->begins && push_made_up(p->d, first_of(p->number, p->asked), PUSHED) != CLT_OK)
        HOLDS(p->self, false);
    return p->asked == p->stop;
}

static void on_epoch(void *user, const clt_progress *progress)
{
    ((plan *)user)->epochs += progress->epoch == 1;
}

static void fit_rank(rank *self)
{
    plan *p = self->argument;
    lab l = {0};
    clt_fit_options o;
    p->d = NULL;
    p->number = self->number;
    p->self = self;
    self->status = open_rank(self, &l, &p->d);
    clt_fit_options_init(&o);
    o.steps = p->steps;
    o.should_stop = ask;
    o.on_epoch = on_epoch;
    o.user = p;
    o.checkpoint_dir = p->dir;
    o.resume = 1;
    if (self->status == CLT_OK)
        self->status = clt_fit(l.trainer, p->d, NULL, &o);
    if (self->status == CLT_OK)
        self->status = read_rank(&l, &p->got);
    if (p->d) {
        clt_reservoir_stats_init(&p->stats);
        HOLDS(self, clt_dataset_reservoir_stats(p->d, &p->stats) == CLT_OK);
    }
    close_rank(self, &l, p->d);
}

static void run_fit(plan *plans, int count, clt_status want)
{
    rank ranks[RANKS];
    run_ranks(ranks, count, fit_rank, plans, sizeof *plans);
    for (int r = 0; r < count; r++) {
        if (ranks[r].status != want)
            fail_msg("rank %d: %s: %s", r, clt_status_name(ranks[r].status), ranks[r].message);
        if (want == CLT_OK)
            same_learnt(&plans[r].got, &plans[0].got);
    }
}

static void fit_waits_for_a_rank(void **state)
{
    (void)state;
    plan plans[RANKS];
    for (int r = 0; r < RANKS; r++) /* only the last one gets samples, after a while */
        plans[r] = (plan){.devices = "cpu@1", .begins = r < 2 ? 1000000 : 5, .steps = STEPS};
    run_fit(plans, RANKS, CLT_OK);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(plans[r].epochs, 1);
        assert_int_equal(plans[r].stats.kept > 0, r == 2);
        assert_true(plans[r].asked >= 5 + STEPS);
    }
    for (int r = 0; r < RANKS; r++) /* a rank stops while all wait */
        plans[r] = (plan){.devices = "cpu@1", .begins = 1000000, .steps = STEPS, .stop = r ? 0 : 4};
    run_fit(plans, RANKS, CLT_STOPPED);
}

static void ranks_resume_with_the_same_bits(void **state)
{
    (void)state;
    for (int zero = 0; zero < 2; zero++) { /* with zero 1 all ranks restore together */
        char dir[4200];
        plan whole[2], first[2], second[2], three[RANKS];
        snprintf(dir, sizeof dir, "%s/ranks%d", scratch, zero);
        for (int r = 0; r < 2; r++) {
            whole[r] = (plan){.devices = "cpu@1", .steps = STEPS, .save = 1, .zero = zero};
            first[r] = second[r] = whole[r];
            first[r].dir = second[r].dir = dir;
            first[r].steps = HALF;
        }
        run_fit(whole, 2, CLT_OK);
        run_fit(first, 2, CLT_OK);
        for (int r = 0; r < 2; r++)
            second[r].asked = first[r].asked;
        run_fit(second, 2, CLT_OK);
        same_learnt(&whole[0].got, &second[0].got);
        for (int r = 0; r < 2; r++)
            assert_memory_equal(&whole[r].stats, &second[r].stats, sizeof whole[r].stats);

        rank ranks[RANKS];
        for (int r = 0; r < RANKS; r++) {
            three[r] = second[0];
            three[r].steps = 2 * STEPS;
        }
        run_ranks(ranks, RANKS, fit_rank, three, sizeof *three);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(ranks[r].status, CLT_MISMATCH);
            if (!strstr(ranks[r].message, "has reservoirs of 2 ranks, and this run has 3"))
                fail_msg("%s", ranks[r].message);
        }
    }
}

static void combinations_are_refused(void **state)
{
    (void)state;
    static const char *const words[] = {"leave out virtual_shards", "leave out rebalance"};
    for (int c = 0; c < 2; c++) {
        plan plans[2];
        rank ranks[2];
        for (int r = 0; r < 2; r++)
            plans[r] = (plan){.devices = "cpu@1",
                              .steps = STEPS,
                              .virtual_shards = c ? 0 : 4,
                              .rebalance = c == 1};
        for (int k = 0; k < 2; k++) {
            run_ranks(ranks, 2, k ? fit_rank : step_rank, plans, sizeof *plans);
            for (int r = 0; r < 2; r++) {
                assert_int_equal(ranks[r].status, CLT_UNSUPPORTED);
                if (!strstr(ranks[r].message, words[c]))
                    fail_msg("%s", ranks[r].message);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_ranks_take_part),
        cmocka_unit_test(ranks_have_several_devices),
        cmocka_unit_test(fit_waits_for_a_rank),
        cmocka_unit_test(ranks_resume_with_the_same_bits),
        cmocka_unit_test(combinations_are_refused),
    };
    return cmocka_run_group_tests(tests, open_runtime_and_scratch, close_runtime_and_scratch);
}
