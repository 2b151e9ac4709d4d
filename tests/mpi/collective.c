/*
 * Collectives of the graph over MPI ranks, run by mpiexec: `collective DEVICES MICRO-BATCHES`. Each
 * rank opens the list DEVICES for itself. The gradient is that of the whole batch. Replicas and
 * states have the same bits on all ranks, and a repeated run ends with the same bits. The bytes
 * that MPI gets during steps are those of clt_comm_counts: steps exchange nothing outside the table
 * of collectives.
 */
#include "mpi/wired.h"

#include "train/normalised.h"

#include <cltrain/mpi.h>

enum { STEPS = 8, ALL = NET_PARAMETERS + 2 * NET_WIDE };

static clt_world world;
static clt_comm *comm; /* the trainer's */
static clt_status (*connect_ranks)(void *, int, const clt_comm_device *, int,
                                   const clt_comm_options *, clt_comm **);
static const char *devices;
static int accumulate;

static clt_status connect_and_keep(void *user, int color, const clt_comm_device *list, int count,
                                   const clt_comm_options *options, clt_comm **made)
{
    const clt_status status = connect_ranks(user, color, list, count, options, made);
    comm = status == CLT_OK ? *made : NULL;
    return status;
}

/* Returns the calls of all kinds over MPI and shared memory, and the bytes given to MPI. */
static int64_t count_all(double *sent)
{
    int64_t calls = 0;
    *sent = 0;
    for (int k = 0; k <= CLT_COMM_BARRIER; k++)
        for (int t = CLT_COMM_SHARED_MEMORY; t <= CLT_COMM_MPI; t++) {
            clt_comm_count c;
            clt_comm_count_init(&c);
            ok(clt_comm_counts(comm, (clt_comm_kind)k, (clt_comm_transport)t, &c));
            *sent += t == CLT_COMM_MPI ? c.sent : 0;
            calls += c.calls;
        }
    return calls;
}

/* Runs a step and waits for its results. */
static void step_counted(lab *l, const clt_step_batch *batch)
{
    double before, after;
    const int64_t calls = count_all(&before);
    const long long given = wired;
    watching = 1;
    ok(clt_trainer_step(l->trainer, batch, NULL));
    ok(clt_trainer_wait(l->trainer));
    watching = 0;
    assert_true(count_all(&after) > calls);
    assert_true(after - before == (double)(wired - given));
    assert_int_equal(uncounted, 0);
}

/* Returns this rank's part of the samples. Parts are uneven, and one rank has none in some
 * steps. */
static clt_step_batch part_of(int step, clt_feed feeds[2])
{
    int64_t first = 0, count = 0, left = NET_MOST;
    clt_step_batch batch;
    for (int r = 0; r <= world.rank; r++) {
        first += count;
        count = r + 1 == world.ranks ? left : step % 3 == 2 && r == 0 ? 0 : left / (r + 2);
        left -= count;
    }
    clt_step_batch_init(&batch);
    feeds[0] = (clt_feed){"x", -1, CLT_HOST(net_xs + first * NET_IN)};
    feeds[1] = (clt_feed){"label", -1, CLT_HOST(net_labels + first)};
    batch.count = count;
    batch.first = first;
    batch.total = step % 2 ? NET_MOST : 0;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    return batch;
}

static void check_gradient(lab *l, const float *before)
{
    double p[NET_PARAMETERS], want[NET_PARAMETERS], error;
    for (int i = 0; i < NET_PARAMETERS; i++)
        p[i] = (double)before[i];
    net_gradient(p, NULL, NET_MOST, want);
    for (int d = 0; d < l->n; d++) {
        ok(net_error(l->trainer, d, want, &error));
        assert_true(error < 2e-6);
    }
}

static void train(float *values)
{
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.optimizer = CLT_MOMENTUM;
    options.batch = 4 * NET_MOST;
    options.accumulate = accumulate;
    options.comm_timeout = 120;
    options.check_every = 1;
    options.poison = 1;
    options.world = &world;
    lab l = lab_on_kept(devices);
    lab_store(&l, net_graph(), 5);
    lab_trainer(&l, &options);
    for (int s = 0; s < STEPS; s++) {
        clt_feed feeds[2];
        const clt_step_batch batch = part_of(s, feeds);
        ok(net_read(l.store, values));
        step_counted(&l, &batch);
        if (accumulate == 1)
            check_gradient(&l, values);
        ok(clt_store_check(l.store));
    }
    ok(net_read(l.store, values));
    ok(clt_store_get(l.store, "running", values + NET_PARAMETERS, NET_WIDE * sizeof *values));
    ok(clt_store_get(l.store, "own", values + NET_PARAMETERS + NET_WIDE,
                     NET_WIDE * sizeof *values));
    ok(clt_trainer_finish(l.trainer));
    lab_close(&l);
}

static void ranks_train_as_one(void **state)
{
    float first[ALL], again[ALL], all[8 * ALL];
    (void)state;
    train(first);
    MPI_Allgather(first, ALL, MPI_FLOAT, all, ALL, MPI_FLOAT, MPI_COMM_WORLD);
    for (int r = 0; r < world.ranks; r++)
        assert_memory_equal(all + r * ALL, all, sizeof first);
    train(again);
    assert_memory_equal(first, again, sizeof first);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_train_as_one)};
    if (argc != 3)
        return 2;
    devices = argv[1];
    accumulate = atoi(argv[2]);
    MPI_Init(&argc, &argv);
    net_make_samples();
    int failed = clt_world_open_mpi(MPI_COMM_WORLD, &world) != CLT_OK || world.ranks > 8;
    connect_ranks = world.connect;
    world.connect = connect_and_keep;
    if (!failed)
        failed = cmocka_run_group_tests(tests, open_runtime, close_runtime);
    clt_world_close(&world);
    if (failed)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Finalize();
    return 0;
}
