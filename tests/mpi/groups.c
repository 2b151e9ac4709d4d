/*
 * Communicators of some ranks, run by mpiexec: `groups LEVEL`, on 4 ranks. Requests of all groups
 * are under way at once, and ranks complete them in different orders. With MPI on one thread, that
 * thread must therefore serve all groups by turns. Messages name ranks by their numbers in the
 * world. A send within a group costs the other ranks nothing.
 */
#include "mpi/wired.h"

#include "comm/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cltrain/mpi.h>

enum { RANKS = 4, GROUPS = 4, COUNT = 30011, REQUESTS = 5 };

/* The color of each rank. Group 2 has all ranks, group 3 leaves out the first. */
static const int colors[GROUPS][RANKS] = {{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 0}, {-1, 7, 7, 7}};

static clt_world world;
static clt_comm *comms[GROUPS];
static fixture f;

static void check(clt_status status)
{
    if (status != CLT_OK)
        fail_msg("rank %d: %s: %s", world.rank, clt_status_name(status), clt_error_message());
}

static float value_of(int rank, int group, int request, int i)
{
    return (float)((rank + 1) * (group + 3) % 11 + request + i % 5);
}

static float sum_of(int group, int request, int i)
{
    float sum = 0;
    for (int r = 0; r < RANKS; r++)
        sum += colors[group][r] == colors[group][world.rank] ? value_of(r, group, request, i) : 0;
    return sum;
}

static void connect_groups(int timeout_ms)
{
    clt_comm_device device;
    clt_comm_options options;
    clt_comm_options_init(&options);
    options.timeout_ms = timeout_ms;
    fixture_device(&f, 0, &device);
    for (int g = 0; g < GROUPS; g++) {
        int members = 0;
        check(world.connect(world.user, colors[g][world.rank], &device, 1, &options, &comms[g]));
        for (int r = 0; r < RANKS; r++)
            members += colors[g][r] == colors[g][world.rank];
        if (colors[g][world.rank] < 0)
            assert_null(comms[g]);
        else
            assert_int_equal(clt_comm_size(comms[g]), members);
    }
}

static void start(int group, int request, float *data, clt_comm_request **started)
{
    clt_comm_op op;
    clt_comm_op_init(&op);
    op.kind = CLT_COMM_ALL_REDUCE;
    op.host = data;
    op.count = COUNT;
    for (int i = 0; i < COUNT; i++)
        data[i] = value_of(world.rank, group, request, i);
    check(clt_comm_start(comms[group], 0, -1, &op, 0, NULL, started));
}

static void sums_in_any_order(void **state)
{
    static float data[GROUPS][REQUESTS][COUNT];
    clt_comm_request *started[GROUPS][REQUESTS];
    (void)state;
    connect_groups(60000);
    for (int n = 0; n < REQUESTS; n++)
        for (int g = 0; g < GROUPS; g++)
            if (comms[g])
                start(g, n, data[g][n], &started[g][n]);
    for (int turn = 0; turn < GROUPS; turn++) {
        const int g = (world.rank + turn) % GROUPS;
        for (int n = 0; n < REQUESTS && comms[g]; n++) {
            check(clt_comm_complete(started[g][n], 0, NULL, NULL));
            for (int i = 0; i < COUNT; i++)
                assert_true(data[g][n][i] == sum_of(g, n, i));
        }
    }
    for (int g = 0; g < GROUPS; g++)
        if (comms[g])
            check(clt_comm_finalize(comms[g]));
    for (int g = 0; g < GROUPS; g++)
        clt_comm_destroy(comms[g]);
}

/* Rank 3 does not come to the sum of ranks 1 and 3. */
static void a_missing_rank_is_named(void **state)
{
    static float data[COUNT];
    clt_comm_request *started;
    char all[RANKS], here = 0;
    (void)state;
    connect_groups(1000);
    if (world.rank == 1) {
        start(1, 0, data, &started);
        assert_true(clt_comm_complete(started, 0, NULL, NULL) != CLT_OK);
        if (!strstr(clt_error_message(), "rank 1") || !strstr(clt_error_message(), "for rank 3"))
            fail_msg("%s", clt_error_message());
    }
    check(world.gather(world.user, &here, 1, all));
    for (int g = 0; g < GROUPS; g++)
        clt_comm_destroy(comms[g]);
}

/* Returns the calls of all kinds and transports that this rank's communicators have made. */
static int64_t calls_made(void)
{
    int64_t calls = 0;
    for (int g = 0; g < GROUPS; g++)
        for (int k = 0; comms[g] && k <= CLT_COMM_BARRIER; k++)
            for (int t = 0; t < CLT_COMM_TRANSPORTS; t++) {
                clt_comm_count c;
                clt_comm_count_init(&c);
                check(clt_comm_counts(comms[g], (clt_comm_kind)k, (clt_comm_transport)t, &c));
                calls += c.calls;
            }
    return calls;
}

/* Rank 0 sends to rank 1 in group 0. Ranks 2 and 3 send no bytes and make no calls meanwhile. */
static void a_send_reaches_its_receiver_alone(void **state)
{
    enum { BYTES = COUNT * (int)sizeof(float), WORDS = 4000 };
    static float data[COUNT];
    clt_comm_request *started;
    clt_comm_op op;
    char all[RANKS], here = 0;
    (void)state;
    connect_groups(60000);
    clt_comm_op_init(&op);
    op.kind = world.rank ? CLT_COMM_RECEIVE : CLT_COMM_SEND;
    op.peer = 1 - world.rank;
    op.host = data;
    op.count = COUNT;
    for (int i = 0; i < COUNT; i++)
        data[i] = world.rank ? 0 : (float)i;
    check(world.gather(world.user, &here, 1, all)); /* all are ready */
    const int64_t calls = calls_made();
    const long long sent = wired;
    watching = 1;
    if (world.rank < 2) {
        check(clt_comm_start(comms[0], 0, -1, &op, 0, NULL, &started));
        check(clt_comm_complete(started, 0, NULL, NULL));
    }
    PMPI_Barrier(MPI_COMM_WORLD);
    watching = 0;
    assert_int_equal(uncounted, 0);
    const long long given = wired - sent;
    const bool between = world.node_ranks == 1; /* ranks 0 and 1 are nodes */
    const long long least = between && !world.rank ? BYTES : 0;
    if (world.rank >= 2)
        assert_true(given == 0 && calls_made() == calls);
    else
        assert_true(calls_made() > calls && given >= least && given <= least + WORDS * between);
    for (int i = 0; i < COUNT && world.rank == 1; i++)
        assert_true(data[i] == (float)i);
    for (int g = 0; g < GROUPS; g++)
        if (comms[g])
            check(clt_comm_finalize(comms[g]));
    for (int g = 0; g < GROUPS; g++)
        clt_comm_destroy(comms[g]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_in_any_order),
                                       cmocka_unit_test(a_send_reaches_its_receiver_alone),
                                       cmocka_unit_test(a_missing_rank_is_named)};
    int given, failed;
    if (argc != 2)
        return 2;
    const int level = strcmp(argv[1], "multiple") ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE;
    MPI_Init_thread(&argc, &argv, level, &given);
    if (given < level || clt_world_open_mpi(MPI_COMM_WORLD, &world) != CLT_OK ||
        world.ranks != RANKS)
        MPI_Abort(MPI_COMM_WORLD, 2);
    fixture_open(&f, 1, false, false);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed)
        MPI_Abort(MPI_COMM_WORLD, 1);
    fixture_close(&f);
    clt_world_close(&world);
    MPI_Finalize();
    return 0;
}
