/* A device of one rank fails, and all ranks continue without it. The result is that of a run
 * without this device. */
#include "train/world.h"

#include "exec/testing/lose.h"
#include "train/core/trainer.h"
#include <cltrain/data.h>
#include <cltrain/fit.h>

#ifdef CLT_TESTING
enum { IN = 12, CLASSES = 4, MOST = 40, WIDE = 16, EPOCHS = 3, BATCH = 9, STEPS = 15 };

static float xs[MOST * IN];
static int32_t labels[MOST];

/* A rank's devices, and the results of its run. */
typedef struct course {
    const char *devices;
    int needs; /* devices of this rank that must be left at the end */
    double losses[STEPS];
    int steps, unknown, epochs;
    float ended[WIDE * IN];
} course;

static clt_status open_rank(lab *l, const char *devices, const clt_world *world)
{
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.optimizer = CLT_MOMENTUM;
    options.batch = BATCH;
    options.poison = 1;
    options.comm_timeout = 60;
    options.world = world;
    return lab_of_rank(l, devices, classifier(IN, WIDE, CLASSES), &options);
}

static void on_step(void *user, const clt_progress *p)
{
    course *c = user;
    if (c->steps < STEPS)
        c->losses[c->steps] = p->loss;
    c->unknown += isnan(p->loss);
    c->steps += p->step == c->steps + 1; /* each step once, in order */
}

static void on_epoch(void *user, const clt_progress *p)
{
    course *c = user;
    c->epochs += isfinite(p->test_loss);
}

static clt_status fit(lab *l, course *c)
{
    clt_dataset *set;
    clt_fit_options options;
    clt_status status = lab_samples(MOST, IN, xs, labels, 0, &set);
    clt_fit_options_init(&options);
    options.epochs = EPOCHS;
    options.batch = BATCH;
    options.on_step = on_step;
    options.on_epoch = on_epoch;
    options.user = c;
    if (status == CLT_OK)
        status = clt_fit(l->trainer, set, set, &options);
    clt_dataset_free(set);
    return status;
}

static void run_rank(rank *self)
{
    course *c = self->argument;
    lab l = {0};
    if (HOLDS(self, open_rank(&l, c->devices, &self->world) == CLT_OK) &&
        HOLDS(self, fit(&l, c) == CLT_OK)) {
        HOLDS(self, l.trainer->all.own == c->needs);
        HOLDS(self, clt_trainer_steps(l.trainer) == STEPS);
        HOLDS(self, clt_store_check(l.store) == CLT_OK);
        HOLDS(self, clt_store_get(l.store, "a.weight", c->ended, sizeof c->ended) == CLT_OK);
    }
    lab_close(&l);
}

typedef struct run {
    const char *devices[2];
    const char *lose; /* "#1" */
    int needs[2];
} run;

static void the_others_go_on(void **state)
{
    /* The last part of one rank's devices, of the other rank's, or of both at once. */
    static const run runs[] = {{{"cpu", "cpu/2"}, "#1", {1, 1}},
                               {{"cpu/2", "cpu@1"}, "#1", {1, 1}},
                               {{"cpu/2", "cpu/2"}, "#1", {1, 1}}};
    course alone = {.devices = "cpu@1"};
    lab l = {0};
    (void)state;
    ok(open_rank(&l, alone.devices, NULL));
    ok(fit(&l, &alone));
    ok(clt_store_get(l.store, "a.weight", alone.ended, sizeof alone.ended));
    lab_close(&l);
    assert_int_equal(alone.steps, STEPS);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        for (int step = 0; step < 7; step++) { /* 5 is the evaluation after the first epoch */
            course courses[2] = {{.devices = runs[i].devices[0], .needs = runs[i].needs[0]},
                                 {.devices = runs[i].devices[1], .needs = runs[i].needs[1]}};
            rank ranks[2];
            char lose[32];
            snprintf(lose, sizeof lose, "%s=%d", runs[i].lose, step);
            clt_exec_testing_lose = lose;
            run_ranks(ranks, 2, run_rank, courses, sizeof *courses);
            clt_exec_testing_lose = NULL;
            assert_memory_equal(courses[0].ended, courses[1].ended, sizeof courses[0].ended);
            for (int r = 0; r < 2; r++) {
                assert_int_equal(courses[r].steps, STEPS);
                assert_int_equal(courses[r].epochs, EPOCHS);
                assert_int_equal(courses[r].unknown, 0);
                for (int s = 0; s < STEPS; s++)
                    assert_true(fabs(courses[r].losses[s] - alone.losses[s]) < 1e-4);
                for (int k = 0; k < WIDE * IN; k++)
                    assert_true(fabsf(courses[r].ended[k] - alone.ended[k]) < 1e-4f);
            }
        }
}

/* Gives rank 0 the samples before `middle`, and rank 1 the others. */
static clt_step_batch batch_of(const rank *self, int64_t middle, clt_feed feeds[2])
{
    const int64_t first = self->number ? middle : 0;
    feeds[0] = (clt_feed){"x", -1, CLT_HOST(xs + first * IN)};
    feeds[1] = (clt_feed){"label", -1, CLT_HOST(labels + first)};
    clt_step_batch batch = lab_batch(feeds, self->number ? BATCH - middle : middle);
    batch.first = first;
    batch.total = BATCH;
    return batch;
}

/* Rank 0 failed in step 3, between the updates of its devices. Rank 1 had finished that step and
 * was in the next one. */
static void fail_behind(rank *self, lab *l, const clt_step_batch *batch)
{
    float zeros[WIDE * IN] = {0}, want[WIDE * IN], have[WIDE * IN];
    clt_trainer *t = l->trainer;
    int redo = -1;
    if (!HOLDS(self, clt_store_get(l->store, "a.weight", want, sizeof want) == CLT_OK))
        return;
    if (self->number == 0) {
        const clt_slot *slot = clt_buckets_find(&l->store->layout, "a.weight");
        HOLDS(self,
              clt_replica_write(&l->store->replicas[0], l->store->replicas[0].values[slot->bucket],
                                slot->offset, slot->bytes, zeros) == CLT_OK);
        t->steps = 2;
        t->devices[0].done = t->devices[0].begun = 2;
        atomic_store(&t->lost, 1);
        t->exchange.collectives.stop(t->exchange.collectives.self, CLT_DEVICE_LOST,
                                     "as if it had failed");
    } else {
        HOLDS(self, clt_trainer_step(t, batch, NULL) == CLT_ABORTED);
        HOLDS(self, strstr(clt_error_message(), "as if it had failed") != NULL);
    }
    if (!HOLDS(self, clt_trainer_recover(t, &redo) == CLT_OK))
        return;
    HOLDS(self, redo == self->number);
    HOLDS(self, clt_trainer_steps(t) == 3);
    HOLDS(self, t->all.own == (self->number ? 2 : 1));
    HOLDS(self, clt_store_get(l->store, "a.weight", have, sizeof have) == CLT_OK);
    HOLDS(self, !memcmp(want, have, sizeof want));
    HOLDS(self, clt_store_check(l->store) == CLT_OK);
}

static void behind_rank(rank *self)
{
    lab l = {0};
    clt_feed feeds[2];
    clt_step_batch batch = batch_of(self, 5, feeds);
    if (HOLDS(self, open_rank(&l, "cpu/2", &self->world) == CLT_OK)) {
        for (int s = 0; s < 3; s++)
            HOLDS(self, clt_trainer_step(l.trainer, &batch, NULL) == CLT_OK);
        HOLDS(self, clt_trainer_wait(l.trainer) == CLT_OK);
        fail_behind(self, &l, &batch);
        if (!*self->failed) {
            batch = batch_of(self, 3, feeds);
            HOLDS(self, clt_trainer_step(l.trainer, &batch, NULL) == CLT_OK);
            HOLDS(self, clt_store_check(l.store) == CLT_OK);
        }
    }
    lab_close(&l);
}

static void what_one_rank_updated_becomes_all(void **state)
{
    rank ranks[2];
    (void)state;
    run_ranks(ranks, 2, behind_rank, NULL, 0);
}

/* Rank 1 has no device left, so all ranks fail and name rank 1. */
static void only_rank(rank *self)
{
    lab l = {0};
    clt_feed feeds[2];
    int redo;
    const clt_step_batch batch = batch_of(self, 5, feeds);
    if (HOLDS(self, open_rank(&l, self->number ? "cpu@1" : "cpu", &self->world) == CLT_OK)) {
        const clt_status status = clt_trainer_step(l.trainer, &batch, NULL);
        HOLDS(self, status == (self->number ? CLT_DEVICE_LOST : CLT_ABORTED));
        HOLDS(self, strstr(clt_error_message(), "clEnqueueNDRangeKernel") != NULL);
        HOLDS(self, clt_trainer_recover(l.trainer, &redo) == CLT_STATE);
    }
    lab_close(&l);
}

static void the_only_device_of_a_rank(void **state)
{
    rank ranks[2];
    (void)state;
    clt_exec_testing_lose = "#0=0";
    run_ranks(ranks, 2, only_rank, NULL, 0);
    clt_exec_testing_lose = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_others_go_on),
        cmocka_unit_test(what_one_rank_updated_becomes_all),
        cmocka_unit_test(the_only_device_of_a_rank),
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
