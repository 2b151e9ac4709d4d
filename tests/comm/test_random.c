/* Random collectives between devices of a process, and between ranks that are threads of it. */
#include "comm/random.h"

#include "comm/communicator/internal.h"

/* Makes a communicator for each rank in this process. Ranks share the devices in order. */
static void connect_ranks(const fixture *f, int ranks, const clt_comm_options *options,
                          void *shared, clt_comm **comms, driver *drivers)
{
    int counts[FIXTURE_MAX], first = 0;
    for (int r = 0; r < ranks; r++)
        counts[r] = f->count / ranks + (r < f->count % ranks);
    for (int r = 0; r < ranks; first += counts[r++]) {
        clt_comm_device devices[FIXTURE_MAX];
        clt_comm_ranks of;
        clt_comm_ranks_init(&of);
        of.rank = r;
        of.ranks = ranks;
        of.devices = counts;
        of.shared = shared;
        of.shared_bytes = clt_comm_shared_bytes(ranks);
        for (int d = 0; d < counts[r]; d++)
            fixture_device(f, first + d, &devices[d]);
        assert_int_equal(clt_comm_create_between(devices, counts[r], options, &of, &comms[r]),
                         CLT_OK);
        assert_int_equal(clt_comm_size(comms[r]), f->count);
        assert_int_equal(clt_comm_device_count(comms[r]), counts[r]);
        for (int d = 0; d < counts[r]; d++) {
            assert_int_equal(clt_comm_participant(comms[r], d), first + d);
            drivers[first + d].comm = comms[r];
            drivers[first + d].first = first;
        }
    }
}

static clt_comm_path path;

/* Runs all collectives. `threads` 0: devices use their own threads if the driver allows this, else
 * the communicator's. */
static void run_all(int devices, int ranks, bool one_context, bool transfer_queues, bool queued,
                    int threads, uint32_t seed)
{
    fixture f;
    clt_comm *comms[FIXTURE_MAX];
    clt_comm_options options;
    clt_comm_options_init(&options);
    options.path = path;
    options.threads = threads;
    options.max_in_flight = SLOTS;
    fixture_open(&f, devices, one_context, transfer_queues);
    static driver drivers[FIXTURE_MAX];
    pthread_t ids[FIXTURE_MAX];
    for (int d = 0; d < devices; d++)
        driver_open(&drivers[d], &f, d, 0, devices, seed);
    for (int d = 0; d < devices; d++)
        drivers[d].queued = queued;
    const size_t bytes = (size_t)clt_comm_shared_bytes(ranks);
    void *shared = NULL;
    if (bytes) {
        shared = aligned_alloc(4096, bytes);
        assert_non_null(shared);
        memset(shared, 0, bytes);
    }
    connect_ranks(&f, ranks, &options, shared, comms, drivers);
    for (int d = 0; d < devices; d++)
        assert_int_equal(pthread_create(&ids[d], NULL, drive, &drivers[d]), 0);
    for (int d = 0; d < devices; d++)
        pthread_join(ids[d], NULL);
    for (int d = 0; d < devices; d++) {
        assert_string_equal(drivers[d].message, "");
        assert_int_equal(drivers[d].errors, 0);
    }
    for (int r = 0; r < ranks; r++)
        clt_comm_destroy(comms[r]);
    free(shared);
    for (int d = 0; d < devices; d++)
        driver_close(&drivers[d]);
    fixture_close(&f);
}

static void run_ranks(int devices, int ranks, bool one_context, bool transfer_queues, int threads,
                      uint32_t seed)
{
    run_all(devices, ranks, one_context, transfer_queues, false, threads, seed);
}

static void run(int devices, bool one_context, bool transfer_queues, int threads, uint32_t seed)
{
    run_ranks(devices, 1, one_context, transfer_queues, threads, seed);
}

static void one_device(void **state)
{
    (void)state;
    run(1, false, false, 1, 5);
}

static void two_devices(void **state)
{
    (void)state;
    run(2, false, false, 1, 1);
}

static void two_devices_of_one_context_with_transfer_queues(void **state)
{
    (void)state;
    run(2, true, true, 2, 2);
}

static void three_devices(void **state)
{
    (void)state;
    run(3, false, false, 2, 3);
}

static void four_devices_of_one_context(void **state)
{
    (void)state;
    run(4, true, false, 1, 4);
}

static void two_devices_by_their_threads(void **state)
{
    (void)state;
    run(2, false, false, 0, 9);
}

static void four_devices_by_their_threads(void **state)
{
    (void)state;
    run(4, false, false, 0, 12);
}

static void two_devices_of_one_context_queued(void **state)
{
    (void)state;
    run_all(2, 1, true, true, true, 0, 14);
}

/* Devices that may share threads queue nothing. */
static void queued_changes_nothing_elsewhere(void **state)
{
    (void)state;
    run_all(3, 1, false, false, true, 0, 15);
}

#ifdef CLT_TESTING
/* Buffers have twelve chunks of four pieces each. */
static void in_chunks(int devices, int ranks, bool one_context, bool transfer_queues, uint32_t seed)
{
    atomic_store(&clt_comm_testing_chunk_bytes, BYTES / 12);
    atomic_store(&clt_tasks_testing_piece, BYTES / 48 / 4);
    path = CLT_COMM_PATH_STAGED;
    run_ranks(devices, ranks, one_context, transfer_queues, 1, seed);
    path = CLT_COMM_PATH_AUTO;
    atomic_store(&clt_comm_testing_chunk_bytes, 0);
    atomic_store(&clt_tasks_testing_piece, 0);
}

static void two_devices_in_chunks(void **state)
{
    (void)state;
    in_chunks(2, 1, true, true, 16);
}

static void three_devices_in_chunks(void **state)
{
    (void)state;
    in_chunks(3, 1, false, false, 17);
}

/* Exchanges in several rounds without the host. Sends and receives go through staging. */
static void by_peers(int devices, bool transfer_queues, uint32_t seed)
{
    atomic_store(&clt_comm_testing_chunk_bytes, BYTES / 6);
    atomic_store(&clt_tasks_testing_piece, BYTES / 48 / 4);
    path = CLT_COMM_PATH_PEER;
    run(devices, true, transfer_queues, 1, seed);
    path = CLT_COMM_PATH_AUTO;
    atomic_store(&clt_comm_testing_chunk_bytes, 0);
    atomic_store(&clt_tasks_testing_piece, 0);
}

static void two_peers(void **state)
{
    (void)state;
    by_peers(2, true, 19);
}

static void three_peers(void **state)
{
    (void)state;
    by_peers(3, false, 20);
}

static void two_ranks_in_chunks(void **state)
{
    (void)state;
    in_chunks(3, 2, false, false, 18);
}
#endif

static void two_ranks(void **state)
{
    (void)state;
    run_ranks(2, 2, false, false, 1, 6);
}

static void two_ranks_with_one_device_and_two(void **state)
{
    (void)state;
    run_ranks(3, 2, false, true, 2, 7);
}

static void four_ranks(void **state)
{
    (void)state;
    run_ranks(4, 4, false, false, 1, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_device),
        cmocka_unit_test(two_devices),
        cmocka_unit_test(two_devices_of_one_context_with_transfer_queues),
        cmocka_unit_test(three_devices),
        cmocka_unit_test(four_devices_of_one_context),
        cmocka_unit_test(two_devices_by_their_threads),
        cmocka_unit_test(four_devices_by_their_threads),
        cmocka_unit_test(two_devices_of_one_context_queued),
        cmocka_unit_test(queued_changes_nothing_elsewhere),
#ifdef CLT_TESTING
        cmocka_unit_test(two_devices_in_chunks),
        cmocka_unit_test(three_devices_in_chunks),
        cmocka_unit_test(two_ranks_in_chunks),
        cmocka_unit_test(two_peers),
        cmocka_unit_test(three_peers),
#endif
        cmocka_unit_test(two_ranks),
        cmocka_unit_test(two_ranks_with_one_device_and_two),
        cmocka_unit_test(four_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
