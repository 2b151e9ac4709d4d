/* Runs of clt_fit on a mesh over ranks, which are threads here: ranks that share a place of dp read
 * the same samples, stop together, and go on or end together when a device fails. */
#include "train/world.h"
#include "train/unsplit.h"

#include "train/lab_scratch.h"
#include "device/core/device.h"
#include "exec/testing/lose.h"
#include "train/core/trainer.h"
#include <cltrain/data.h>
#include <cltrain/fit.h>

enum { IN = 6, WIDE = 10, CLASSES = 3, MOST = 50, BATCH = 16, EPOCHS = 2, STEPS = 8 };

static float xs[MOST * IN];
static int32_t labels[MOST];

typedef struct course {
    const char *devices, *parallel;
    bool named;      /* devices have names of their own: "rank 0.1" */
    const char *dir; /* of checkpoints, every second step; NULL: none */
    int stops;       /* the step after which this rank wants to stop; 0: none */
    double losses[STEPS], test_losses[EPOCHS];
    int steps, epochs;
    float ended[WIDE * IN];
} course;

static void on_step(void *user, const clt_progress *p)
{
    course *c = user;
    c->losses[c->steps++ % STEPS] = p->loss;
}

static void on_epoch(void *user, const clt_progress *p)
{
    course *c = user;
    c->test_losses[c->epochs++ % EPOCHS] = p->test_loss;
}

static int should_stop(void *user)
{
    const course *c = user;
    return c->stops && c->steps + 1 >= c->stops;
}

static clt_status fit(clt_trainer *trainer, course *c)
{
    clt_dataset *set;
    clt_fit_options o;
    clt_status status = lab_samples(MOST, IN, xs, labels, 0, &set);
    clt_fit_options_init(&o);
    o.epochs = EPOCHS;
    o.batch = BATCH;
    o.on_step = on_step;
    o.on_epoch = on_epoch;
    o.should_stop = should_stop;
    o.checkpoint_dir = c->dir;
    o.checkpoint_every = 2;
    o.user = c;
    CLT_NEXT(status, clt_fit(trainer, set, set, &o));
    clt_dataset_free(set);
    return status;
}

static clt_status open_rank(lab *l, const course *c, const clt_world *world)
{
    clt_trainer_options o;
    clt_store_options store;
    clt_trainer_options_init(&o);
    clt_store_options_init(&store);
    o.batch = BATCH;
    o.optimizer = CLT_MOMENTUM;
    o.check_every = 2;
    o.comm_timeout = 60;
    o.world = store.world = world;
    store.parallel = c->parallel;
    store.seed = 3;
    l->graph = let_axes_idle(classifier(IN, WIDE, CLASSES));
    CLT_TRY(clt_devices_open(runtime, c->devices, NULL, &l->devices, &l->n));
    for (int d = 0; c->named && d < l->n; d++)
        snprintf(l->devices[d]->label, sizeof l->devices[d]->label, "rank %d.%d", world->rank, d);
    CLT_TRY(clt_store_create_with(l->graph, l->devices, l->n, &store, &l->store));
    return clt_trainer_create(l->graph, l->store, &o, &l->trainer);
}

/* Trains. A failure is kept in the rank's status and message. */
static void run_rank(rank *self)
{
    course *c = self->argument;
    lab l = {0};
    if (HOLDS(self, open_rank(&l, c, &self->world) == CLT_OK)) {
        self->status = fit(l.trainer, c);
        snprintf(self->message, sizeof self->message, "%s", clt_error_message());
        self->numbers[0] = (double)clt_trainer_steps(l.trainer);
        self->numbers[1] = l.trainer->all.own;
        if (self->status == CLT_OK)
            HOLDS(self, clt_store_get(l.store, "a.weight", c->ended, sizeof c->ended) == CLT_OK);
    }
    lab_close(&l);
}

static void ranks_of_a_place_read_the_same_samples(void **state)
{
    static const struct {
        int ranks;
        const char *devices, *parallel;
    } worlds[] = {{2, "cpu@1", "tp=2"}, {4, "cpu@1", "tp=4"}};
    course alone = {.devices = "cpu@1"};
    lab l = {0};
    (void)state;
    ok(open_rank(&l, &alone, NULL));
    ok(fit(l.trainer, &alone));
    ok(clt_store_get(l.store, "a.weight", alone.ended, sizeof alone.ended));
    lab_close(&l);
    assert_int_equal(alone.steps, STEPS);
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
        course courses[RANKS_MOST] = {0};
        rank ranks[RANKS_MOST];
        for (int r = 0; r < worlds[w].ranks; r++)
            courses[r] = (course){.devices = worlds[w].devices, .parallel = worlds[w].parallel};
        run_ranks(ranks, worlds[w].ranks, run_rank, courses, sizeof *courses);
        for (int r = 0; r < worlds[w].ranks; r++) {
            assert_int_equal(ranks[r].status, CLT_OK);
            assert_int_equal(courses[r].steps, STEPS);
            assert_memory_equal(courses[r].ended, alone.ended, sizeof alone.ended);
            assert_memory_equal(courses[r].losses, alone.losses, sizeof alone.losses);
            assert_memory_equal(courses[r].test_losses, alone.test_losses,
                                sizeof alone.test_losses);
        }
    }
}

static void all_ranks_stop_together(void **state)
{
    for (int asks = 0; asks < 4; asks++) {
        course courses[4];
        rank ranks[4];
        (void)state;
        for (int r = 0; r < 4; r++)
            courses[r] =
                (course){.devices = "cpu@1", .parallel = "dp=2,tp=2", .stops = r == asks ? 3 : 0};
        run_ranks(ranks, 4, run_rank, courses, sizeof *courses);
        for (int r = 0; r < 4; r++) {
            assert_int_equal(ranks[r].status, CLT_STOPPED);
            assert_true(ranks[r].numbers[0] == ranks[0].numbers[0]);
        }
    }
}

#ifdef CLT_TESTING
/* Every rank says why the run cannot go on and what is saved, also one whose devices are well. */
static void a_lost_device_ends_all_ranks(void **state)
{
    static const char why[] = "because the model is divided along tp of the mesh; ";
    (void)state;
    for (int saves = 0; saves < 2; saves++) {
        const char *dir = saves ? in_scratch("run") : NULL;
        course courses[2];
        rank ranks[2];
        char where[600] = "; this run has no checkpoint to resume from";
        for (int r = 0; r < 2; r++)
            courses[r] =
                (course){.devices = "cpu@1,cpu@1", .parallel = "tp=4", .named = true, .dir = dir};
        if (saves)
            snprintf(where, sizeof where, "; resume from the last checkpoint, %s/step-00000002",
                     dir);
        clt_exec_testing_lose = "rank 0.1=3";
        run_ranks(ranks, 2, run_rank, courses, sizeof *courses);
        clt_exec_testing_lose = NULL;
        for (int r = 0; r < 2; r++) {
            assert_true(ranks[r].status != CLT_OK);
            if (!strstr(ranks[r].message, why) || !strstr(ranks[r].message, where))
                fail_msg("rank %d: %s", r, ranks[r].message);
        }
    }
}

/* A device of one rank fails. The other rank drops the device at the same place. */
static void a_place_leaves_all_ranks(void **state)
{
    static const char *const meshes[] = {"tp=2,dp=2", "tp=2,space=2"};
    course alone = {.devices = "cpu@1"};
    lab l = {0};
    (void)state;
    ok(open_rank(&l, &alone, NULL));
    ok(fit(l.trainer, &alone));
    ok(clt_store_get(l.store, "a.weight", alone.ended, sizeof alone.ended));
    lab_close(&l);
    for (int i = 0; i < 12; i++) {
        const int step = i / 2; /* 4 is the evaluation after the first epoch */
        course courses[2];
        rank ranks[2];
        char lose[32];
        for (int r = 0; r < 2; r++)
            courses[r] =
                (course){.devices = "cpu@1,cpu@1", .parallel = meshes[i % 2], .named = true};
        snprintf(lose, sizeof lose, "rank 1.%d=%d", step % 2, step);
        clt_exec_testing_lose = lose;
        run_ranks(ranks, 2, run_rank, courses, sizeof *courses);
        clt_exec_testing_lose = NULL;
        for (int r = 0; r < 2; r++) {
            if (ranks[r].status != CLT_OK)
                fail_msg("rank %d: %s", r, ranks[r].message);
            assert_int_equal(ranks[r].numbers[1], 1); /* device is left */
            assert_int_equal(courses[r].steps, STEPS);
            assert_int_equal(courses[r].epochs, EPOCHS);
            for (int s = 0; s < STEPS; s++)
                assert_true(fabs(courses[r].losses[s] - alone.losses[s]) < 1e-4);
            for (int k = 0; k < WIDE * IN; k++)
                assert_true(fabsf(courses[r].ended[k] - alone.ended[k]) < 1e-4f);
        }
        assert_memory_equal(courses[0].ended, courses[1].ended, sizeof courses[0].ended);
    }
}
#endif

static int set_up(void **state)
{
    make_samples(xs, labels, MOST, IN, CLASSES);
    return open_runtime_and_scratch(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_a_place_read_the_same_samples),
        cmocka_unit_test(all_ranks_stop_together),
#ifdef CLT_TESTING
        cmocka_unit_test(a_lost_device_ends_all_ranks),
        cmocka_unit_test(a_place_leaves_all_ranks),
#endif
    };
    return cmocka_run_group_tests(tests, set_up, close_runtime_and_scratch);
}
