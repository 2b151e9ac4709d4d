/*
 * Reservoirs of MPI ranks, run by mpiexec: `reservoir LEVEL`, MPI's level of thread support
 * (single, multiple). The last rank has no samples at first. With multiple, a thread of each rank
 * trains while the main thread pushes and uses MPI itself.
 */
#include <mpi.h>
#include <pthread.h>

#include "train/fit/reservoir_lab.h"

#include <cltrain/mpi.h>

enum { STEPS = 12, LATE = 4, CAPACITY = 30, PUSHED = 3 };

static clt_world world;
static bool threads;

static lab lab_of_world(void)
{
    clt_trainer_options options = trainer_options();
    options.world = &world;
    options.comm_timeout = 60;
    lab l = lab_on_kept("pocl@1");
    lab_store(&l, classifier(IN, HIDDEN, CLASSES), 4);
    lab_trainer(&l, &options);
    return l;
}

/* Checks that all ranks have learnt the same bits. */
static void compare_ranks(const lab *l)
{
    static learnt all[16];
    const learnt own = read_learnt(l);
    MPI_Allgather(&own, sizeof own, MPI_BYTE, all, sizeof own, MPI_BYTE, MPI_COMM_WORLD);
    for (int r = 1; r < world.ranks; r++)
        same_learnt(&all[r], &all[0]);
}

static bool late(void)
{
    return world.rank == world.ranks - 1;
}

static void loop(void **state)
{
    (void)state;
    lab l = lab_of_world();
    const clt_reservoir_options options = reservoir_options();
    clt_dataset *d = reservoir_open(CAPACITY, &options);
    clt_step_result result;
    double loss = 0;
    int64_t parts[17];
    clt_step_result_init(&result);
    ok(clt_split(BATCH, world.ranks, NULL, 1, parts));
    ok(clt_trainer_set_reservoir(l.trainer, d, NULL));
    ok(clt_step_reservoir(l.trainer, 2, &loss));
    assert_true(isnan(loss));
    for (int s = 0; s < STEPS; s++) {
        if (!late() || s >= LATE)
            ok(push_made_up(d, 1000 * world.rank + s * PUSHED, PUSHED));
        ok(clt_step_reservoir(l.trainer, 1, NULL));
        ok(clt_trainer_result(l.trainer, s, &result));
        assert_int_equal(result.samples, s < LATE ? parts[world.ranks - 1] : BATCH);
    }
    compare_ranks(&l);
    ok(clt_trainer_finish(l.trainer));
    lab_close(&l);
    clt_dataset_free(d);
}

/* --- restoring -------------------------------------------------------------------------------- */

static char folder[] = "/tmp/cltrain-reservoir-XXXXXX"; /* of all ranks */

/* Makes three steps. Each must have `samples`. */
static void three_steps(const lab *l, int64_t samples, double *losses)
{
    clt_step_result result;
    clt_step_result_init(&result);
    for (int i = 0; i < 3; i++) {
        ok(clt_step_reservoir(l->trainer, 1, &losses[i]));
        ok(clt_trainer_result(l->trainer, clt_trainer_steps(l->trainer) - 1, &result));
        assert_int_equal(result.samples, samples);
    }
}

/* A rank whose reservoir was empty takes part without samples again. */
static void empty_again(void **state)
{
    (void)state;
    lab l = lab_of_world();
    clt_reservoir_options options = reservoir_options();
    options.save = 1;
    clt_dataset *d = reservoir_open(CAPACITY, &options);
    double before[3], between[3], after[3];
    int64_t parts[17];
    ok(clt_split(BATCH, world.ranks, NULL, 1, parts));
    ok(clt_trainer_set_reservoir(l.trainer, d, NULL));
    if (!late())
        ok(push_made_up(d, 1000 * world.rank, 10));
    three_steps(&l, parts[world.ranks - 1], before);
    ok(clt_trainer_save_state(l.trainer, folder, 0));
    MPI_Barrier(MPI_COMM_WORLD);
    three_steps(&l, parts[world.ranks - 1], before);
    if (late())
        ok(push_made_up(d, 0, 10));
    three_steps(&l, BATCH, between);
    ok(clt_trainer_restore_state(l.trainer, folder));
    assert_int_equal(stats_of(d).kept, late() ? 0 : 10);
    three_steps(&l, parts[world.ranks - 1], after);
    assert_memory_equal(before, after, sizeof before);
    compare_ranks(&l);

    /* No rank restores if one cannot. */
    char file[200];
    snprintf(file, sizeof file, "%s/reservoirs/rank-%d/step-00000003", folder, world.rank);
    const int64_t steps = clt_trainer_steps(l.trainer);
    if (late())
        assert_int_equal(remove(file), 0);
    MPI_Barrier(MPI_COMM_WORLD);
    const clt_status status = clt_trainer_restore_state(l.trainer, folder);
    assert_int_equal(status, late() ? CLT_NOT_FOUND : CLT_ABORTED);
    assert_int_equal(clt_trainer_steps(l.trainer), steps);
    three_steps(&l, parts[world.ranks - 1], after);
    compare_ranks(&l);
    ok(clt_trainer_finish(l.trainer));
    lab_close(&l);
    clt_dataset_free(d);
}

/* --- meshes ----------------------------------------------------------------------------------- */

/* Ranks that compute one sample together would each draw another one. All ranks are told. */
static void meshes_are_refused(void **state)
{
    (void)state;
    static const char *const meshes[] = {"tp=2", "pp=2"};
    for (int k = 0; k < 2 && world.ranks == 2; k++) {
        clt_store_options stored;
        clt_trainer_options options = trainer_options();
        clt_dataset *d = reservoir_open(CAPACITY, NULL);
        lab l = lab_on_kept("pocl@1");
        l.graph = classifier(IN, HIDDEN, CLASSES);
        clt_shard(l.graph, "a.*", CLT_AXIS_TENSOR, 0, 1, NULL);
        clt_shard(l.graph, "b.weight", CLT_AXIS_TENSOR, 1, 1, NULL);
        if (k)
            ok(clt_cut_before(l.graph, "b"));
        clt_store_options_init(&stored);
        stored.seed = 4;
        stored.parallel = meshes[k];
        stored.world = &world;
        ok(clt_store_create_with(l.graph, l.devices, l.n, &stored, &l.store));
        options.world = &world;
        options.comm_timeout = 60;
        options.accumulate = k ? 2 : 1;
        lab_trainer(&l, &options);
        ok(push_made_up(d, 1000 * world.rank, PUSHED));
        assert_int_equal(clt_trainer_set_reservoir(l.trainer, d, NULL), CLT_UNSUPPORTED);
        if (!strstr(clt_error_message(), "leave out axes of the mesh besides dp, or train on one"))
            fail_msg("%s", clt_error_message());
        ok(clt_trainer_finish(l.trainer));
        lab_close(&l);
        clt_dataset_free(d);
    }
}

/* --- training in a thread --------------------------------------------------------------------- */

typedef struct training {
    lab l;
    clt_dataset *d;
    clt_fit_options options;
    clt_status status;
    char message[512];
} training;

static void *train(void *user)
{
    training *t = user;
    t->status = clt_fit(t->l.trainer, t->d, NULL, &t->options);
    snprintf(t->message, sizeof t->message, "%s", clt_error_message());
    return NULL;
}

static void background(void **state)
{
    (void)state;
    training t = {.l = lab_of_world(), .d = reservoir_open(CAPACITY, NULL)};
    pthread_t thread;
    clt_fit_options_init(&t.options);
    t.options.steps = STEPS;
    if (!threads) { /* the main thread trains */
        if (!late())
            ok(push_made_up(t.d, 1000 * world.rank, PUSHED));
        train(&t);
    } else {
        assert_int_equal(pthread_create(&thread, NULL, train, &t), 0);
        for (int i = 0; i < 20; i++) {
            int sum = 0;
            if (!late())
                ok(push_made_up(t.d, 1000 * world.rank + i * PUSHED, PUSHED));
            MPI_Allreduce(&i, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            assert_int_equal(sum, i * world.ranks);
        }
        pthread_join(thread, NULL);
    }
    if (t.status != CLT_OK)
        fail_msg("%s", t.message);
    assert_int_equal(clt_trainer_steps(t.l.trainer), STEPS);
    compare_ranks(&t.l);
    ok(clt_trainer_finish(t.l.trainer));
    lab_close(&t.l);
    clt_dataset_free(t.d);
}

int main(int argc, char **argv)
{
    int level;
    threads = argc > 1 && !strcmp(argv[1], "multiple");
    MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
    if (clt_world_open_mpi(MPI_COMM_WORLD, &world) != CLT_OK) {
        fprintf(stderr, "%s\n", clt_error_message());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (!world.rank && !mkdtemp(folder))
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Bcast(folder, sizeof folder, MPI_CHAR, 0, MPI_COMM_WORLD);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loop),
        cmocka_unit_test(empty_again),
        cmocka_unit_test(meshes_are_refused),
        cmocka_unit_test(background),
    };
    if (cmocka_run_group_tests(tests, open_runtime,
                               close_runtime)) /* others may wait for this rank */
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (!world.rank && system(command) != 0)
        fprintf(stderr, "%s was not deleted\n", folder);
    clt_world_close(&world);
    MPI_Finalize();
    return 0;
}
