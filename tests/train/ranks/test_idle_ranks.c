/*
 * A rank loses its last device in clt_fit and waits, idle, while the others go on. Checkpoints have
 * the bits of a run that goes on there with fewer ranks, and all ranks get all reports. Ranks are
 * threads here.
 */
#include "train/ranks/split_rank.h"

#include "device/core/device.h"
#include "exec/testing/lose.h"
#include "train/core/trainer.h"

#ifdef CLT_TESTING
enum { BATCH = 5, STEPS = 7, EPOCHS = 2, MOST = RANKS_MOST };

/* A run of clt_fit on a rank. */
typedef struct run {
    const char *parallel, *folder;
    int64_t steps;
    int resume, zero;
    bool apart;   /* each rank is on a node of its own */
    int stops_at; /* should_stop is true from this step on; 0: never */
    int then;     /* after this step the device is named "then."; 0: never */
    clt_device *device;
    /* results */
    clt_status status;
    char message[1024];
    double losses[STEPS], tests[EPOCHS];
    int64_t reported, epochs, unknown, saves, saved_after, done;
    bool in_order;
    int own;
} run;

static clt_status make_trainer(run *r, int number, const clt_world *world, lab *l)
{
    CLT_TRY(clt_devices_open(runtime, clt_test_devices("pocl@1"), NULL, &l->devices, &l->n));
    r->device = l->devices[0];
    snprintf(r->device->label, sizeof r->device->label, "rank %d.", number);
    return make_split_trainer(r->parallel, r->zero, BATCH, 1, world, l);
}

static void on_step(void *user, const clt_progress *p)
{
    run *r = user;
    r->in_order = r->in_order && (!r->reported || p->step == r->reported + 1);
    r->reported = p->step;
    if (p->step <= STEPS)
        r->losses[p->step - 1] = p->loss;
    r->unknown += isnan(p->loss);
    if (p->step == r->then)
        snprintf(r->device->label, sizeof r->device->label, "then.");
}

static void on_epoch(void *user, const clt_progress *p)
{
    run *r = user;
    r->in_order = r->in_order && p->step == r->reported && p->n_test_means > 0 &&
                  p->test_means[0] == p->test_loss && isfinite(p->loss);
    if (p->epoch <= EPOCHS)
        r->tests[p->epoch - 1] = p->test_loss;
    r->epochs++;
}

/* The reports of all steps that a checkpoint has come before it. */
static void on_checkpoint(void *user)
{
    run *r = user;
    r->saves++;
    r->saved_after = r->reported;
}

static int should_stop(void *user)
{
    const run *r = user;
    return r->stops_at && r->reported >= r->stops_at;
}

static clt_status train(run *r, lab *l, clt_dataset *set)
{
    clt_fit_options fit;
    clt_fit_options_init(&fit);
    fit.steps = r->steps;
    fit.batch = BATCH;
    fit.shuffle = 0;
    fit.checkpoint_dir = r->folder;
    fit.checkpoint_every = 1;
    fit.resume = r->resume;
    fit.keep = r->steps > STEPS ? 2 : 0;
    fit.on_step = on_step;
    fit.on_epoch = on_epoch;
    fit.on_checkpoint = on_checkpoint;
    fit.should_stop = should_stop;
    fit.user = r;
    const clt_status status = clt_fit(l->trainer, set, set, &fit);
    snprintf(r->message, sizeof r->message, "%s", clt_error_message());
    return status;
}

/* Nothing that needs a device works on an idle rank, and nothing that needs all ranks on others. */
static void check_afterwards(rank *self, run *r, lab *l, clt_dataset *set)
{
    float data[WIDE * IN];
    clt_step_batch batch;
    clt_position position = {0, 0};
    int64_t seed;
    int redo;
    const bool idle = l->trainer->all.own == 0;
    const clt_status wanted = idle ? CLT_STATE : CLT_OK;
    clt_step_batch_init(&batch);
    if (!r->parallel || !strcmp(r->parallel, "dp=2"))
        HOLDS(self, clt_store_get(l->store, "a.weight", data, sizeof data) == wanted);
    HOLDS(self, clt_store_check(l->store) == wanted);
    if (!idle)
        return;
    HOLDS(self, clt_store_set(l->store, "a.weight", data, sizeof data) == CLT_STATE);
    HOLDS(self, clt_trainer_step(l->trainer, &batch, NULL) == CLT_STATE);
    HOLDS(self, clt_trainer_evaluate(l->trainer, &batch, NULL, NULL) == CLT_STATE);
    HOLDS(self, clt_trainer_save(l->trainer, r->folder, position, 1, 1, 1, NULL) == CLT_STATE);
    HOLDS(self, clt_trainer_restore(l->trainer, r->folder, &position, &seed) == CLT_STATE);
    HOLDS(self, clt_trainer_broadcast(l->trainer, 0) == CLT_STATE);
    HOLDS(self, clt_trainer_recover(l->trainer, &redo) == CLT_STATE);
    HOLDS(self, train(r, l, set) == CLT_STATE);
}

static void fit_rank(rank *self)
{
    run *r = self->argument;
    lab l = {0};
    clt_dataset *set = NULL;
    if (r->apart) {
        self->world.node_rank = 0;
        self->world.node_ranks = 1;
    }
    r->in_order = true;
    if (HOLDS(self, make_data(&set) == CLT_OK) &&
        HOLDS(self, make_trainer(r, self->number, &self->world, &l) == CLT_OK)) {
        r->status = train(r, &l, set);
        r->done = clt_trainer_steps(l.trainer);
        r->own = l.trainer->all.own;
        if (r->status == CLT_OK && l.store->rest) {
            char message[1024];
            snprintf(message, sizeof message, "%s", r->message);
            check_afterwards(self, r, &l, set);
            snprintf(r->message, sizeof r->message, "%s", message);
        }
        if (r->status == CLT_OK)
            HOLDS(self, clt_trainer_finish(l.trainer) == CLT_OK);
    }
    lab_close(&l);
    clt_dataset_free(set);
}

/* Runs on `n` ranks. `lose` as clt_exec_testing_lose. */
static void fit_on(int n, const run *like, const char *lose, run *runs)
{
    rank ranks[MOST];
    for (int r = 0; r < n; r++)
        runs[r] = *like;
    clt_exec_testing_lose = lose;
    run_ranks(ranks, n, fit_rank, runs, sizeof *runs);
    clt_exec_testing_lose = NULL;
}

/* --- bits ------------------------------------------------------------------------------------ */

static void same_file(const char *one, const char *other, int64_t step, const char *name)
{
    char path[600], *data[2];
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/step-%08lld/%s", i ? other : one, (long long)step, name);
        FILE *file = fopen(path, "rb");
        if (!file)
            fail_msg("there is no %s", path);
        data[i] = calloc(1, 1 << 20);
        bytes[i] = fread(data[i], 1, 1 << 20, file);
        fclose(file);
    }
    if (bytes[0] != bytes[1] || memcmp(data[0], data[1], bytes[0]))
        fail_msg("%s of step %lld differs between %s and %s", name, (long long)step, one, other);
    free(data[0]);
    free(data[1]);
}

typedef struct idle_case {
    const char *parallel, *smaller;
    int ranks, left, lost;
    int idle[MOST]; /* by rank */
    int zero;
} idle_case;

static void check_reports(const idle_case *k, const run *runs, int64_t at)
{
    for (int r = 0; r < k->ranks; r++) {
        if (runs[r].status != CLT_OK)
            fail_msg("%s without rank %d from step %lld on: rank %d: %s",
                     k->parallel ? k->parallel : "dp", k->lost, (long long)at, r, runs[r].message);
        assert_int_equal(runs[r].own, !k->idle[r]);
        assert_int_equal(runs[r].done, STEPS);
        assert_int_equal(runs[r].reported, STEPS);
        assert_int_equal(runs[r].epochs, EPOCHS);
        assert_int_equal(runs[r].unknown, 0);
        assert_int_equal(runs[r].saves, STEPS);
        assert_int_equal(runs[r].saved_after, STEPS);
        assert_true(runs[r].in_order);
        assert_memory_equal(runs[r].losses, runs[0].losses, sizeof runs[0].losses);
        assert_memory_equal(runs[r].tests, runs[0].tests, sizeof runs[0].tests);
    }
}

/* The rank's device fails when `at` steps are done. 3: in the evaluation after the first epoch, or
 * in the step after it. */
static void check_case(const idle_case *k, int64_t at)
{
    static run runs[MOST], there[MOST];
    char *dir = strdup(in_scratch("lost")), *other = strdup(in_scratch("there")), lose[32];
    const run like = {.parallel = k->parallel, .folder = dir, .steps = STEPS, .zero = k->zero};
    scratch_remove_tree(dir);
    scratch_remove_tree(other);
    snprintf(lose, sizeof lose, "rank %d.=%lld", k->lost, (long long)at);
    fit_on(k->ranks, &like, lose, runs);
    check_reports(k, runs, at);
    run then = like;
    then.folder = other;
    then.steps = at;
    if (at)
        fit_on(k->ranks, &then, NULL, there);
    then.steps = STEPS;
    then.resume = 1;
    then.parallel = k->smaller;
    then.zero = 0;
    fit_on(k->left, &then, NULL, there);
    for (int r = 0; r < k->left; r++)
        assert_int_equal(there[r].status, CLT_OK);
    assert_memory_equal(runs[0].losses + at, there[0].losses + at,
                        (size_t)(STEPS - at) * sizeof *there[0].losses);
    if (at < 6) /* else the second epoch's evaluation is before the checkpoint */
        assert_memory_equal(&runs[0].tests[1], &there[0].tests[1], sizeof(double));
    for (int64_t step = at + 1; step <= STEPS; step++) {
        same_file(dir, other, step, "model.safetensors");
        same_file(dir, other, step, "optimizer.safetensors");
    }
    /* All ranks together can go on from there. */
    then = like;
    then.resume = 1;
    then.steps = STEPS + 2;
    fit_on(k->ranks, &then, NULL, there);
    for (int r = 0; r < k->ranks; r++)
        assert_int_equal(there[r].status, CLT_OK);
    free(dir);
    free(other);
}

static void the_others_go_on(void **state)
{
    static const idle_case cases[] = {
        {.ranks = 2, .left = 1, .lost = 0, .idle = {1, 0}},
        {.ranks = 2, .left = 1, .lost = 1, .idle = {0, 1}},
        {.parallel = "dp=2", .ranks = 2, .left = 1, .lost = 0, .idle = {1, 0}},
        {.ranks = 3, .left = 2, .lost = 0, .idle = {1, 0, 0}},
        {.ranks = 4, .left = 3, .lost = 2, .idle = {0, 0, 1, 0}},
        {.parallel = "dp=2,tp=2",
         .smaller = "tp=2",
         .ranks = 4,
         .left = 2,
         .lost = 1,
         .idle = {1, 1, 0, 0}},
        {.parallel = "tp=2,dp=2",
         .smaller = "tp=2",
         .ranks = 4,
         .left = 2,
         .lost = 3,
         .idle = {0, 1, 0, 1}}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int64_t at = 0; at < STEPS; at += i < 2 ? 1 : 3)
            check_case(&cases[i], at);
}

/* --- one after the other --------------------------------------------------------------------- */

static void several_ranks_leave(void **state)
{
    static run runs[3];
    const run like = {.folder = in_scratch("several"), .steps = STEPS};
    (void)state;
    rank ranks[3];
    /* Rank 2 fails in step 5 or 6, when rank 0 is idle since step 2. */
    for (int r = 0; r < 3; r++)
        runs[r] = like;
    runs[0].then = 1;
    runs[2].then = 4;
    clt_exec_testing_lose = "then.=0";
    run_ranks(ranks, 3, fit_rank, runs, sizeof *runs);
    clt_exec_testing_lose = NULL;
    const idle_case k = {.ranks = 3, .idle = {1, 0, 1}};
    check_reports(&k, runs, 1);
}

/* Then nobody has the other half of the model. */
static void a_part_is_lost_at_last(void **state)
{
    static run runs[4];
    rank ranks[4];
    (void)state;
    for (int r = 0; r < 4; r++)
        runs[r] = (run){.parallel = "dp=2,tp=2", .folder = in_scratch("part"), .steps = STEPS};
    runs[0].then = 1;
    runs[3].then = 4;
    clt_exec_testing_lose = "then.=0";
    run_ranks(ranks, 4, fit_rank, runs, sizeof *runs);
    clt_exec_testing_lose = NULL;
    for (int r = 0; r < 4; r++) {
        if (runs[r].status == CLT_OK || !strstr(runs[r].message, "divided along tp of the mesh") ||
            !strstr(runs[r].message, "resume from the last checkpoint, "))
            fail_msg("rank %d: %s", r, runs[r].message);
        assert_int_equal(runs[r].status == CLT_DEVICE_LOST, r == 3);
        assert_true(runs[r].reported >= 4);
    }
}

/* --- the end --------------------------------------------------------------------------------- */

/* Each rank can stop all: an idle one, and one that trains. */
static void any_rank_stops_all(void **state)
{
    static run runs[3];
    rank ranks[3];
    (void)state;
    for (int n = 2; n <= 3; n++)
        for (int stops = 0; stops < 2; stops++) {
            scratch_remove_tree(in_scratch("stopped"));
            for (int r = 0; r < n; r++)
                runs[r] = (run){.folder = in_scratch("stopped"), .steps = 1 << 20};
            runs[stops].stops_at = 9;
            clt_exec_testing_lose = "rank 0.=4";
            run_ranks(ranks, n, fit_rank, runs, sizeof *runs);
            clt_exec_testing_lose = NULL;
            for (int r = 0; r < n; r++) {
                assert_int_equal(runs[r].status, CLT_STOPPED);
                assert_non_null(strstr(runs[r].message, "stopped after step "));
                assert_string_equal(runs[r].message, runs[0].message);
                assert_int_equal(runs[r].done, runs[0].done);
                assert_int_equal(runs[r].reported, runs[0].done);
                assert_int_equal(runs[r].saved_after, runs[0].done);
            }
        }
}

/* What the other ranks do not have is gone, so all end. */
static void some_losses_end_the_run(void **state)
{
    static const struct {
        run like;
        const char *says;
    } cases[] = {{{.zero = 1}, "a shard of the optimizer's state went with the device"},
                 {{.zero = 3}, "zero 3 divides the model along dp"},
                 {{.parallel = "tp=2"}, "the model is divided along tp of the mesh"},
                 {{.apart = true}, "ranks on several nodes cannot go on without it"}};
    static run runs[2];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int lost = 0; lost < 2; lost++) {
            run like = cases[i].like;
            char lose[32];
            like.folder = in_scratch("ended");
            like.steps = STEPS;
            scratch_remove_tree(like.folder);
            snprintf(lose, sizeof lose, "rank %d.=4", lost);
            fit_on(2, &like, lose, runs);
            for (int r = 0; r < 2; r++)
                if (runs[r].status == CLT_OK || !strstr(runs[r].message, cases[i].says) ||
                    !strstr(runs[r].message, "resume from the last checkpoint, "))
                    fail_msg("case %zu, rank %d: %s", i, r, runs[r].message);
        }
}

/* All devices fail at once. */
static void nobody_is_left(void **state)
{
    static run runs[2];
    const run like = {.folder = in_scratch("nobody"), .steps = STEPS};
    (void)state;
    fit_on(2, &like, "rank =4", runs);
    for (int r = 0; r < 2; r++) {
        assert_int_not_equal(runs[r].status, CLT_OK);
        assert_non_null(strstr(runs[r].message, "training cannot go on without it"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_others_go_on),        cmocka_unit_test(several_ranks_leave),
        cmocka_unit_test(a_part_is_lost_at_last),  cmocka_unit_test(any_rank_stops_all),
        cmocka_unit_test(some_losses_end_the_run), cmocka_unit_test(nobody_is_left),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
#else
int main(void)
{
    return 0; /* without the tests' hooks no device fails */
}
#endif
