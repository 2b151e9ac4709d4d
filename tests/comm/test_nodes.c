/* Random collectives between the ranks of several nodes, and the messages about other ranks. */
#include "comm/nodes.h"

static void exchange_all(const fixture *f, owner *owners, int devices, int devices_a_rank,
                         uint32_t seed)
{
    static driver drivers[FIXTURE_MAX];
    pthread_t ids[FIXTURE_MAX];
    for (int d = 0; d < devices; d++) {
        driver_open(&drivers[d], f, d, 0, devices, seed);
        drivers[d].comm = owners[d / devices_a_rank].comm;
        drivers[d].first = d / devices_a_rank * devices_a_rank;
        assert_int_equal(pthread_create(&ids[d], NULL, drive, &drivers[d]), 0);
    }
    for (int d = 0; d < devices; d++)
        pthread_join(ids[d], NULL);
    for (int d = 0; d < devices; d++) {
        assert_string_equal(drivers[d].message, "");
        assert_int_equal(drivers[d].errors, 0);
    }
    for (int d = 0; d < devices; d++)
        driver_close(&drivers[d]);
}

static void run(int nodes, int ranks_a_node, int devices_a_rank, int main_thread, uint32_t seed)
{
    with_nodes(nodes, ranks_a_node, devices_a_rank, main_thread, 0, exchange_all, seed);
}

/* A rank's part in one collective. */
typedef struct step {
    pthread_t thread;
    clt_comm *comm;
    clt_comm_kind kind;
    useconds_t late;
    clt_status status;
    char message[512];
} step;

static void *take_step(void *arg)
{
    step *s = arg;
    float data[4] = {0};
    clt_comm_op op;
    clt_comm_request *request;
    usleep(s->late);
    clt_comm_op_init(&op);
    op.kind = s->kind;
    op.host = s->kind == CLT_COMM_BARRIER ? NULL : data;
    op.count = s->kind == CLT_COMM_BARRIER ? 0 : 4;
    op.peer = s->kind == CLT_COMM_SEND && clt_comm_participant(s->comm, 0) == 0;
    op.label = "a word";
    s->status = clt_comm_start(s->comm, 0, -1, &op, 0, NULL, &request);
    if (s->status == CLT_OK)
        s->status = clt_comm_complete(request, 0, NULL, NULL);
    snprintf(s->message, sizeof s->message, "%s", s->status == CLT_OK ? "" : clt_error_message());
    return NULL;
}

/* Runs a step at once on each rank whose bit in `who` is set. Rank `odd` starts another kind. */
static void take_steps(step *steps, owner *owners, int ranks, unsigned who, int odd,
                       clt_comm_kind kind)
{
    for (int r = 0; r < ranks; r++)
        steps[r] = (step){.comm = owners[r].comm, .kind = r == odd ? kind : CLT_COMM_ALL_REDUCE};
    for (int r = 0; r < ranks; r++)
        if (who >> r & 1)
            assert_int_equal(pthread_create(&steps[r].thread, NULL, take_step, &steps[r]), 0);
    for (int r = 0; r < ranks; r++)
        if (who >> r & 1)
            pthread_join(steps[r].thread, NULL);
}

static void expect_message(const char *message, const char *part)
{
    if (!strstr(message, part))
        fail_msg("\"%s\" lacks \"%s\"", message, part);
}

/* Rank 3 is the second rank of its node. Its first rank learns of the end, and informs the other
 * node, whose ranks wait without a deadline. */
static void abort_one(const fixture *f, owner *owners, int devices, int devices_a_rank,
                      uint32_t seed)
{
    step steps[4];
    (void)f;
    (void)devices;
    (void)devices_a_rank;
    (void)seed;
    clt_comm_abort(owners[3].comm, CLT_INTERNAL, "spoiled");
    take_steps(steps, owners, 4, 7, -1, CLT_COMM_ALL_REDUCE);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(steps[r].status, CLT_ABORTED);
        expect_message(steps[r].message, "rank 3: spoiled");
        assert_null(strstr(steps[r].message, "rank 2"));
        assert_int_equal(clt_comm_status(owners[r].comm), CLT_INTERNAL);
    }
}

/* Rank 0 leads its node and ends. Some of the others are in a collective already. */
static void destroy_one(const fixture *f, owner *owners, int devices, int devices_a_rank,
                        uint32_t seed)
{
    step steps[4];
    (void)f;
    (void)devices;
    (void)devices_a_rank;
    (void)seed;
    atomic_store(&owners[0].end, true);
    while (!atomic_load(&owners[0].gone))
        usleep(100);
    take_steps(steps, owners, 4, 14, -1, CLT_COMM_ALL_REDUCE);
    for (int r = 1; r < 4; r++) {
        assert_int_equal(steps[r].status, CLT_ABORTED);
        expect_message(steps[r].message, "rank 0: it destroyed its communicator");
    }
}

/* All ranks that came name the missing rank, `seed`. The deadline is long: its grace period, a
 * fourth, must cover the different start times of threads on a busy machine. */
static void miss_one(const fixture *f, owner *owners, int devices, int devices_a_rank,
                     uint32_t seed)
{
    step steps[4];
    char name[64];
    (void)f;
    (void)devices_a_rank;
    snprintf(name, sizeof name, " waited 3.2 s for rank %d: stopped, or much slower?", (int)seed);
    take_steps(steps, owners, devices, 15U & ~(1U << seed), -1, CLT_COMM_ALL_REDUCE);
    for (int r = 0; r < devices; r++)
        if (r != (int)seed) {
            assert_true(steps[r].status == CLT_TIMEOUT || steps[r].status == CLT_ABORTED);
            expect_message(steps[r].message, name);
            assert_int_equal(clt_comm_status(owners[r].comm), CLT_TIMEOUT);
        }
}

/* Rank 1 starts a request of another kind, `seed`. */
static void differ(const fixture *f, owner *owners, int devices, int devices_a_rank, uint32_t seed)
{
    step steps[4];
    (void)f;
    (void)devices_a_rank;
    take_steps(steps, owners, devices, (1U << devices) - 1, 1, (clt_comm_kind)seed);
    for (int r = 0; r < devices; r++) {
        assert_true(steps[r].status == CLT_MISMATCH || steps[r].status == CLT_ABORTED);
        expect_message(steps[r].message, "brings a word, rank ");
        expect_message(steps[r].message, "something else");
        assert_int_equal(clt_comm_status(owners[r].comm), CLT_MISMATCH);
    }
}

/* Ranks end as soon as they have the last result, without clt_comm_finalize. No other rank
 * fails. */
static void end_at_once(const fixture *f, owner *owners, int devices, int devices_a_rank,
                        uint32_t seed)
{
    step steps[4];
    (void)f;
    (void)devices_a_rank;
    (void)seed;
    for (int r = 0; r < devices; r++) {
        steps[r] = (step){.comm = owners[r].comm, .late = (useconds_t)r * 3000};
        assert_int_equal(pthread_create(&steps[r].thread, NULL, take_step, &steps[r]), 0);
    }
    for (int r = 0; r < devices; r++) {
        pthread_join(steps[r].thread, NULL);
        atomic_store(&owners[r].end, true);
        assert_string_equal(steps[r].message, "");
    }
}

static void two_nodes(void **state)
{
    (void)state;
    run(2, 1, 1, 0, 21);
}

static void two_nodes_of_two_ranks(void **state)
{
    (void)state;
    run(2, 2, 1, 0, 22);
}

static void two_nodes_of_two_devices_on_one_thread(void **state)
{
    (void)state;
    run(2, 1, 2, 1, 23);
}

static void three_nodes(void **state)
{
    (void)state;
    run(3, 1, 1, 1, 24);
}

static void ranks_are_called_by_their_numbers_among_all(void **state)
{
    (void)state;
    with_nodes(2, 2, 1, 0, 0, abort_one, 0);
    with_nodes(2, 2, 1, 1, 0, abort_one, 0);
}

static void the_end_of_a_first_rank_is_told(void **state)
{
    (void)state;
    with_nodes(2, 2, 1, 0, 0, destroy_one, 0);
    with_nodes(2, 2, 1, 1, 0, destroy_one, 0);
    with_nodes(4, 1, 1, 0, 0, destroy_one, 0);
}

static void a_deadline_names_the_missing_rank_on_all_nodes(void **state)
{
    (void)state;
    for (uint32_t missing_rank = 0; missing_rank < 4; missing_rank++) {
        with_nodes(2, 2, 1, 0, 3200, miss_one, missing_rank);
        with_nodes(2, 2, 1, 1, 3200, miss_one, missing_rank);
    }
    with_nodes(4, 1, 1, 0, 3200, miss_one, 2);
}

static void other_kinds_are_a_mismatch(void **state)
{
    (void)state;
    for (int main_thread = 0; main_thread < 2; main_thread++) {
        with_nodes(2, 1, 1, main_thread, 0, differ, CLT_COMM_SEND);
        with_nodes(2, 1, 1, main_thread, 0, differ, CLT_COMM_BARRIER);
        with_nodes(4, 1, 1, main_thread, 0, differ, CLT_COMM_BARRIER);
        with_nodes(2, 2, 1, main_thread, 0, differ, CLT_COMM_BARRIER);
    }
}

static void an_orderly_end_disturbs_nobody(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        with_nodes(2, 2, 1, i % 2, 0, end_at_once, 0);
        with_nodes(3, 1, 1, i % 2, 0, end_at_once, 0);
    }
}

static void impossible_nodes_are_refused(void **state)
{
    fixture f;
    clt_comm_device device;
    clt_comm_ranks ranks;
    clt_comm_bridge bridge;
    clt_comm *comm;
    const int counts[] = {1, 1};
    (void)state;
    fixture_open(&f, 1, false, false);
    fixture_device(&f, 0, &device);
    clt_comm_ranks_init(&ranks);
    ranks.ranks = 2;
    ranks.devices = counts;
    ranks.node_ranks = 1;
    ranks.bridge = &bridge;
    clt_comm_bridge_init(&bridge);
    bridge.nodes = 2; /* without functions */
    assert_int_equal(clt_comm_create_between(&device, 1, NULL, &ranks, &comm),
                     CLT_INVALID_ARGUMENT);
    network net = {.nodes = 2};
    cable c = {.network = &net};
    bridge_open(&bridge, &c, counts);
    bridge.node = 2;
    assert_int_equal(clt_comm_create_between(&device, 1, NULL, &ranks, &comm),
                     CLT_INVALID_ARGUMENT);
    bridge.node = 0;
    bridge.nodes = 1000;
    assert_int_equal(clt_comm_create_between(&device, 1, NULL, &ranks, &comm), CLT_UNSUPPORTED);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_nodes),
        cmocka_unit_test(two_nodes_of_two_ranks),
        cmocka_unit_test(two_nodes_of_two_devices_on_one_thread),
        cmocka_unit_test(three_nodes),
        cmocka_unit_test(ranks_are_called_by_their_numbers_among_all),
        cmocka_unit_test(the_end_of_a_first_rank_is_told),
        cmocka_unit_test(a_deadline_names_the_missing_rank_on_all_nodes),
        cmocka_unit_test(other_kinds_are_a_mismatch),
        cmocka_unit_test(an_orderly_end_disturbs_nobody),
        cmocka_unit_test(impossible_nodes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
