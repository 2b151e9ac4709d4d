/*
 * The MPI objects that trainers and the planner hold, run by mpiexec: `finish LEVEL CASE`.
 *
 *     all   all ranks pass clt_trainer_finish, and no communicator is left
 *     one   the last rank destroys its trainer without it: the others learn this and end
 *     now   as `one`, but no function can be set for MPI_Finalize: receives are cancelled at once
 *
 * In all cases the world is opened twice. The first time one rank fails, so all fail and nothing
 * is left. This program intercepts MPI's functions and counts communicators.
 */
#include <mpi.h>
#include <unistd.h>

#include "train/lab.h"
#include <cltrain/mpi.h>

static int alive;   /* communicators that this rank made and did not free */
static int refuses; /* let this rank's next split fail, after it took part */
static int now;     /* let MPI_Comm_create_keyval fail */
static int cancelled;

/* Replaces MPI's function for the libraries. */
#define COUNTED __attribute__((visibility("default")))

static int refused(int result, MPI_Comm *comm)
{
    if (!refuses || result != MPI_SUCCESS)
        return result;
    refuses = 0;
    PMPI_Comm_free(comm);
    return MPI_ERR_OTHER;
}

static int made(int result, const MPI_Comm *comm)
{
    alive += result == MPI_SUCCESS && *comm != MPI_COMM_NULL;
    return result;
}

COUNTED int MPI_Comm_dup(MPI_Comm from, MPI_Comm *out)
{
    return made(PMPI_Comm_dup(from, out), out);
}

COUNTED int MPI_Comm_split(MPI_Comm from, int color, int order, MPI_Comm *out)
{
    return made(refused(PMPI_Comm_split(from, color, order, out), out), out);
}

COUNTED int MPI_Comm_split_type(MPI_Comm from, int type, int order, MPI_Info info, MPI_Comm *out)
{
    return made(refused(PMPI_Comm_split_type(from, type, order, info, out), out), out);
}

COUNTED int MPI_Comm_free(MPI_Comm *comm)
{
    alive--;
    return PMPI_Comm_free(comm);
}

COUNTED int MPI_Comm_create_keyval(MPI_Comm_copy_attr_function *copy,
                                   MPI_Comm_delete_attr_function *end, int *key, void *extra)
{
    return now ? MPI_ERR_OTHER : PMPI_Comm_create_keyval(copy, end, key, extra);
}

COUNTED int MPI_Cancel(MPI_Request *request)
{
    cancelled++;
    return PMPI_Cancel(request);
}

static clt_world world;
static int everybody;

static clt_trainer_options trainer_options(void)
{
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.batch = 64;
    options.world = &world;
    options.comm_timeout = 60;
    return options;
}

static void step(clt_trainer *trainer)
{
    float x[32 * 20];
    int32_t labels[32];
    make_samples(x, labels, 32, 20, 4);
    const clt_feed feeds[] = {{.name = "x", .device = -1, .array = CLT_HOST(x)},
                              {.name = "label", .device = -1, .array = CLT_HOST(labels)}};
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = 64 / world.ranks;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    ok(clt_trainer_step(trainer, &batch, NULL));
    ok(clt_trainer_wait(trainer)); /* the samples are valid until here */
}

static void ends(void **state)
{
    (void)state;
    lab l = lab_on("pocl@1", NULL);
    lab_store(&l, classifier(20, 16, 4), 3);
    const clt_trainer_options options = trainer_options();
    const int before = alive, last = world.rank == world.ranks - 1;
    const int nodes = (world.ranks + world.node_ranks - 1) / world.node_ranks;
    lab_trainer(&l, &options);
    for (int i = 0; i < 3; i++)
        step(l.trainer);
    if (everybody) {
        ok(clt_trainer_finish(l.trainer));
    } else if (last) {
        sleep(1);
    } else {
        assert_int_equal(clt_trainer_finish(l.trainer), CLT_ABORTED);
        assert_non_null(strstr(clt_error_message(), "destroyed its communicator"));
    }
    lab_close(&l);
    /* The first ranks of several nodes have a communicator, which then stays until MPI_Finalize. */
    const int held = !everybody && nodes > 1 && world.node_rank == 0;
    assert_int_equal(alive - before, held);
    if (now)
        assert_int_equal(cancelled > 0, held);
}

static void planner(void **state)
{
    (void)state;
    lab l = lab_on("pocl@1", NULL);
    clt_planner *made_by;
    l.graph = classifier(20, 16, 4);
    const clt_trainer_options options = trainer_options();
    const int before = alive;
    ok(clt_planner_create(l.graph, l.devices, l.n, &options, NULL, &made_by));
    clt_planner_destroy(made_by);
    lab_close(&l);
    assert_int_equal(alive, before);
}

/* Checks that no world is opened: MPI_Comm_split fails on the last rank. */
static void expect_no_world(void)
{
    int rank = 0, ranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int last = rank == ranks - 1;
    refuses = last;
    const clt_status status = clt_world_open_mpi(MPI_COMM_WORLD, &world);
    const char *says = last ? "MPI_Comm_split" : "another rank failed";
    if (status == (last ? CLT_MPI : CLT_ABORTED) && strstr(clt_error_message(), says) && !alive)
        return;
    fprintf(stderr, "rank %d: %s (%s), %d communicators are left\n", rank, clt_status_name(status),
            clt_error_message(), alive);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv)
{
    int level = argc > 1 && !strcmp(argv[1], "multiple") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, level, &level);
    everybody = argc > 2 && !strcmp(argv[2], "all");
    now = argc > 2 && !strcmp(argv[2], "now");
    expect_no_world();
    if (clt_world_open_mpi(MPI_COMM_WORLD, &world) != CLT_OK)
        MPI_Abort(MPI_COMM_WORLD, 1);
    const struct CMUnitTest all[] = {cmocka_unit_test(ends), cmocka_unit_test(planner)};
    const struct CMUnitTest one[] = {cmocka_unit_test(ends)};
    const int failed = everybody ? cmocka_run_group_tests(all, open_runtime, close_runtime)
                                 : cmocka_run_group_tests(one, open_runtime, close_runtime);
    if (failed)
        MPI_Abort(MPI_COMM_WORLD, 1);
    clt_world_close(&world);
    if (everybody && alive)
        fprintf(stderr, "rank %d still has %d communicators\n", world.rank, alive);
    const int left = everybody && alive;
    MPI_Finalize();
    return left;
}
