/*
 * Exchanges without the host: bits, refusals and their reasons, failures. Devices of one context
 * use OpenCL's copies. Between contexts a function of this test replaces clEnqueueCopyBufferP2PAMD,
 * which no device here has.
 */
#include <time.h>

#include <cltrain/log.h>

#include "comm/settings.h"
#include "comm/transports/peer.h"

static void start_sums(const bench *b, int64_t count, bool on_host, float *host,
                       clt_comm_request **requests)
{
    for (int d = 0; d < DEVICES; d++) {
        clt_comm_op op;
        clt_comm_op_init(&op);
        if (on_host && d == 1)
            op.host = host;
        else
            op.mem = b->mem[d];
        op.count = count;
        op.flags = CLT_COMM_MEASURE;
        op.label = "bucket 9";
        ok(clt_comm_start(b->comm, d, -1, &op, 0, NULL, &requests[d]));
    }
}

static void fill_ones(const bench *b)
{
    const float one = 1;
    for (int d = 0; d < DEVICES; d++)
        FIXTURE_CL(clEnqueueFillBuffer(b->f.queues[d], b->mem[d], &one, sizeof one, 0,
                                       ROOM * sizeof one, 0, NULL, NULL));
}

static void expect(const bench *b, int device, int64_t count, float value)
{
    static float x[ROOM];
    FIXTURE_CL(clEnqueueReadBuffer(b->f.queues[device], b->mem[device], CL_TRUE, 0, sizeof x, x, 0,
                                   NULL, NULL));
    for (int64_t i = 0; i < ROOM; i++)
        if (x[i] != (i < count ? value : 1))
            fail_msg("element %d of device %d is %g", (int)i, device, (double)x[i]);
}

/* --- devices of one context ------------------------------------------------------------------- */

/* The former name of clt_comm_describe_transport stays for a while. */
static void check_alias(const clt_comm *comm)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    assert_ptr_equal(clt_comm_way(comm), clt_comm_describe_transport(comm));
#pragma GCC diagnostic pop
}

static void peers_give_the_same_bits(void **state)
{
    (void)state;
    bench plain, peers;
    open_bench(&plain, CLT_COMM_PATH_AUTO, true);
    open_bench(&peers, CLT_COMM_PATH_PEER, true);
    assert_non_null(strstr(clt_comm_describe_transport(peers.comm), "copies within their context"));
    assert_non_null(strstr(clt_comm_describe_transport(plain.comm), "mapped"));
    check_alias(peers.comm);
    assert_true(peers.comm->peers->measures);
    for (int t = 0; t < CLT_PEER_TYPES; t++)
        for (int r = 0; r < CLT_PEER_REDUCTIONS; r++)
            assert_int_equal(peers.comm->peers->reduces[t][r], t != CLT_U8);
    compare(&plain, &peers, 0);
    compare(&plain, &peers, 65536); /* several rounds */
    close_bench(&plain);
    close_bench(&peers);
}

/* If the data of one participant are in host memory, all data go through the host. */
static void data_on_the_host_goes_through_it(void **state)
{
    (void)state;
    enum { N = 70001 };
    static float host[N];
    bench b;
    clt_comm_request *requests[DEVICES];
    set_chunk(CHUNK);
    open_bench(&b, CLT_COMM_PATH_PEER, true);
    for (int round = 0; round < 4; round++) {
        fill_ones(&b);
        for (int i = 0; i < N; i++)
            host[i] = 5;
        start_sums(&b, N, round % 2, host, requests);
        for (int d = 0; d < DEVICES; d++) {
            clt_comm_result result;
            clt_comm_result_init(&result);
            ok(clt_comm_complete(requests[d], d, &result, NULL));
            const double sum = round % 2 ? 7 : 3;
            assert_true(result.sum_squares == sum * sum * N);
            if (round % 2 && d == 1)
                for (int i = 0; i < N; i++)
                    assert_true(host[i] == 7);
            else
                expect(&b, d, N, (float)sum);
        }
    }
    close_bench(&b);
    set_chunk(0);
}

/* Several requests in flight share the scratch memory, and are completed in reverse order. */
static void requests_follow_each_other(void **state)
{
    (void)state;
    enum { N = 100003, REQUESTS = 5 };
    bench b;
    clt_comm_request *requests[REQUESTS][DEVICES];
    cl_mem mem[REQUESTS][DEVICES];
    set_chunk(65536);
    open_bench(&b, CLT_COMM_PATH_PEER, true);
    for (int k = 0; k < REQUESTS; k++)
        for (int d = 0; d < DEVICES; d++) {
            const float value = (float)(10 * k + d);
            clt_comm_op op;
            mem[k][d] = fixture_buffer(&b.f, d, N * 4);
            FIXTURE_CL(
                clEnqueueFillBuffer(b.f.queues[d], mem[k][d], &value, 4, 0, N * 4, 0, NULL, NULL));
            clt_comm_op_init(&op);
            op.mem = mem[k][d];
            op.count = N;
            ok(clt_comm_start(b.comm, d, k, &op, 0, NULL, &requests[k][d]));
        }
    for (int k = REQUESTS - 1; k >= 0; k--)
        for (int d = 0; d < DEVICES; d++) {
            static float x[N];
            ok(clt_comm_complete(requests[k][d], d, NULL, NULL));
            FIXTURE_CL(
                clEnqueueReadBuffer(b.f.queues[d], mem[k][d], CL_TRUE, 0, N * 4, x, 0, NULL, NULL));
            for (int i = 0; i < N; i++)
                if (x[i] != (float)(30 * k + 3))
                    fail_msg("request %d, element %d is %g", k, i, (double)x[i]);
            clReleaseMemObject(mem[k][d]);
        }
    ok(clt_comm_finalize(b.comm));
    close_bench(&b);
    set_chunk(0);
}

#ifdef CLT_TESTING
enum { SUMS = 4 };

/* Starts sums and a barrier in a group. The barrier goes through the host, so the sums do too. */
static void start_group(clt_comm *comm, int device, const cl_mem *mem, const int64_t *counts,
                        clt_comm_request **request)
{
    clt_comm_op ops[SUMS + 1];
    for (int i = 0; i <= SUMS; i++) {
        clt_comm_op_init(&ops[i]);
        ops[i].next = i < SUMS ? &ops[i + 1] : NULL;
        ops[i].mem = i < SUMS ? mem[i] : NULL;
        ops[i].count = i < SUMS ? counts[i] : 0;
    }
    ops[SUMS].kind = CLT_COMM_BARRIER;
    ok(clt_comm_start(comm, device, -1, ops, 0, NULL, request));
}

/* Device 0 starts a second request before the first is complete. The second one's first download
 * uses the staging memory of that size. The first one's last upload still reads this memory. */
static void downloads_wait_for_uploads_from_the_same_staging(void **state)
{
    enum { N = 1 << 20, BYTES = 4 * N };
    static const int64_t counts[2][SUMS] = {{N, N, N, N / 4}, {N / 4, 1, 1, 1}};
    static float x[N];
    fixture f;
    clt_comm *comm;
    clt_comm_options options;
    clt_comm_request *requests[2][2];
    cl_mem mem[2][2][SUMS]; /* by request and device */
    (void)state;
    set_chunk(2 * SUMS * BYTES);
    clt_comm_options_init(&options);
    options.path = CLT_COMM_PATH_PEER;
    fixture_open(&f, 2, true, false);
    ok(fixture_comm(&f, &options, &comm));
    for (int r = 0; r < 2; r++)
        for (int d = 0; d < 2; d++)
            for (int i = 0; i < SUMS; i++) {
                const float value = r ? 50 : 1;
                mem[r][d][i] = fixture_buffer(&f, d, BYTES);
                FIXTURE_CL(clEnqueueFillBuffer(f.queues[d], mem[r][d][i], &value, 4, 0, BYTES, 0,
                                               NULL, NULL));
            }
    for (int round = 1; round <= 20; round++) {
        for (int d = 0; d < 2; d++)
            start_group(comm, d, mem[0][d], counts[0], &requests[0][d]);
        start_group(comm, 0, mem[1][0], counts[1], &requests[1][0]);
        for (int d = 0; d < 2; d++)
            ok(clt_comm_complete(requests[0][d], d, NULL, NULL));
        start_group(comm, 1, mem[1][1], counts[1], &requests[1][1]);
        for (int d = 0; d < 2; d++)
            ok(clt_comm_complete(requests[1][d], d, NULL, NULL));
        for (int i = 0; i < 2 * SUMS; i++) {
            FIXTURE_CL(clEnqueueReadBuffer(f.queues[i % 2], mem[0][i % 2][i / 2], CL_TRUE, 0, BYTES,
                                           x, 0, NULL, NULL));
            for (int k = 0; k < counts[0][i / 2]; k++)
                if (x[k] != (float)(1 << round))
                    fail_msg("round %d, device %d, sum %d, element %d is %g", round, i % 2, i / 2,
                             k, (double)x[k]);
        }
    }
    clt_comm_destroy(comm);
    for (int r = 0; r < 2; r++)
        for (int d = 0; d < 2; d++)
            for (int i = 0; i < SUMS; i++)
                clReleaseMemObject(mem[r][d][i]);
    fixture_close(&f);
    set_chunk(0);
}
#endif

static void destroyed_with_exchanges_under_way(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        bench b;
        clt_comm_request *requests[DEVICES];
        open_bench(&b, CLT_COMM_PATH_PEER, true);
        for (int k = 0; k < i; k++)
            start_sums(&b, 100003, false, NULL, requests);
        if (i == 5)
            clt_comm_abort(b.comm, CLT_STOPPED, "stopped by the test");
        for (int d = 0; d < DEVICES && i == 5; d++)
            assert_int_equal(clt_comm_complete(requests[d], d, NULL, NULL), CLT_ABORTED);
        close_bench(&b);
    }
}

#ifdef CLT_TESTING
/* The next exchange reports a device's failure. */
static void a_failed_exchange_aborts_with_its_device(void **state)
{
    (void)state;
    bench b;
    clt_comm_request *requests[DEVICES];
    open_bench(&b, CLT_COMM_PATH_PEER, true);
    start_sums(&b, 100003, false, NULL, requests);
    for (int d = 0; d < DEVICES; d++)
        ok(clt_comm_complete(requests[d], d, NULL, NULL));
    atomic_store(&clt_comm_testing_waits_until_fault, 1);
    start_sums(&b, 100003, false, NULL, requests);
    for (int d = 0; d < DEVICES; d++) {
        assert_int_equal(clt_comm_complete(requests[d], d, NULL, NULL), CLT_ABORTED);
        assert_non_null(strstr(clt_error_message(), "device 1"));
        assert_non_null(strstr(clt_error_message(), "bucket 9"));
    }
    atomic_store(&clt_comm_testing_waits_until_fault, -1);
    close_bench(&b);
}
#endif

/* --- refusals --------------------------------------------------------------------------------- */

static void refuse(const fixture *f, const char *why)
{
    clt_comm *comm = NULL;
    clt_comm_options options;
    clt_comm_options_init(&options);
    options.path = CLT_COMM_PATH_PEER;
    assert_int_equal(fixture_comm(f, &options, &comm), CLT_UNSUPPORTED);
    if (!strstr(clt_error_message(), why))
        fail_msg("'%s', not '%s'", clt_error_message(), why);
    assert_null(comm);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    fixture f;
    fixture_open(&f, 2, false, false);
    refuse(&f, "devices 0 and 1 have a context each and no cl_amd_copy_buffer_p2p");
    fixture_close(&f);
    fixture_open(&f, 1, true, false);
    refuse(&f, "several devices");
    fixture_close(&f);
}

#ifdef CLT_TESTING
/* --- different contexts, with a replacement of AMD's extension -------------------------------- */

enum { RIGHT, WRONG, STALE, FAILING, SLOW };
static int behaviour;
static int calls;
static cl_int failure = CL_INVALID_OPERATION;

/* Replaces the extension, whose contract is: a queue of either context, and different contexts.
 * Reads the source with a queue of its own context, since no driver here copies between two
 * contexts. */
static cl_int CL_API_CALL copy_between(cl_command_queue queue, cl_mem from, cl_mem to,
                                       size_t from_offset, size_t to_offset, size_t bytes,
                                       cl_uint wait_count, const cl_event *wait_list,
                                       cl_event *event)
{
    cl_context contexts[3];
    cl_device_id device;
    cl_int error;
    calls++;
    if (clGetMemObjectInfo(from, CL_MEM_CONTEXT, sizeof *contexts, &contexts[0], NULL) ||
        clGetMemObjectInfo(to, CL_MEM_CONTEXT, sizeof *contexts, &contexts[1], NULL) ||
        clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof *contexts, &contexts[2], NULL) ||
        contexts[0] == contexts[1] || (contexts[2] != contexts[0] && contexts[2] != contexts[1]))
        return CL_INVALID_CONTEXT;
    if (behaviour == FAILING)
        return failure;
    if (behaviour == SLOW) {
        const struct timespec pause = {0, 50000000};
        nanosleep(&pause, NULL);
    }
    char *x = malloc(bytes);
    assert_non_null(x);
    FIXTURE_CL(clGetContextInfo(contexts[0], CL_CONTEXT_DEVICES, sizeof device, &device, NULL));
    cl_command_queue reader = clCreateCommandQueue(contexts[0], device, 0, &error);
    FIXTURE_CL(error);
    FIXTURE_CL(clEnqueueReadBuffer(reader, from, CL_TRUE, from_offset, bytes, x, 0, NULL, NULL));
    clReleaseCommandQueue(reader);
    if (behaviour == WRONG)
        x[bytes / 2] = (char)(x[bytes / 2] + 1);
    if (behaviour != STALE || calls < 2)
        error = clEnqueueWriteBuffer(queue, to, CL_TRUE, to_offset, bytes, x, wait_count, wait_list,
                                     event);
    free(x);
    return error;
}

static void extension(int does)
{
    behaviour = does;
    calls = 0;
    clt_peer_testing_copy = copy_between;
}

static void the_extension_gives_the_same_bits(void **state)
{
    (void)state;
    bench plain, peers;
    extension(RIGHT);
    open_bench(&plain, CLT_COMM_PATH_AUTO, false);
    open_bench(&peers, CLT_COMM_PATH_PEER, false);
    assert_non_null(strstr(clt_comm_describe_transport(peers.comm), "by cl_amd_copy_buffer_p2p"));
    assert_int_equal(peers.comm->peers->one_context, false);
    calls = 0;
    compare(&plain, &peers, 65536);
    assert_true(calls > 0);
    close_bench(&plain);
    close_bench(&peers);
    clt_peer_testing_copy = NULL;
}

static void wrong_copies_are_refused(void **state)
{
    (void)state;
    fixture f;
    fixture_open(&f, 2, false, false);
    extension(WRONG);
    refuse(&f, "a copy from device 0 to device 1 is wrong");
    extension(STALE);
    refuse(&f, "a copy from device 0 to device 1 is wrong");
    extension(FAILING);
    refuse(&f, "failed: CL_INVALID_OPERATION (-59)");
    clt_peer_testing_copy = NULL;
    fixture_close(&f);
}

/* The copy function fails after the probe. */
static void a_copy_that_fails_aborts(void **state)
{
    (void)state;
    bench b;
    clt_comm_request *requests[DEVICES];
    extension(RIGHT);
    open_bench(&b, CLT_COMM_PATH_PEER, false);
    extension(FAILING);
    failure = CL_OUT_OF_RESOURCES;
    start_sums(&b, 100003, false, NULL, requests);
    for (int d = 0; d < DEVICES; d++) {
        assert_int_equal(clt_comm_complete(requests[d], d, NULL, NULL), CLT_ABORTED);
        assert_non_null(strstr(clt_error_message(), "CL_OUT_OF_RESOURCES"));
    }
    failure = CL_INVALID_OPERATION;
    close_bench(&b);
    clt_peer_testing_copy = NULL;
}

/* An event fails while the reducer waits for it. */
static void a_device_that_fails_between_contexts_aborts(void **state)
{
    (void)state;
    for (int failing = 0; failing < 2 * DEVICES; failing += 2) {
        bench b;
        clt_comm_request *requests[DEVICES];
        extension(RIGHT);
        open_bench(&b, CLT_COMM_PATH_PEER, false);
        atomic_store(&clt_comm_testing_waits_until_fault, failing);
        start_sums(&b, 100003, false, NULL, requests);
        for (int d = 0; d < DEVICES; d++) {
            assert_int_equal(clt_comm_complete(requests[d], d, NULL, NULL), CLT_ABORTED);
            assert_non_null(strstr(clt_error_message(), "bucket 9"));
        }
        close_bench(&b);
    }
    atomic_store(&clt_comm_testing_waits_until_fault, -1);
    clt_peer_testing_copy = NULL;
}

/* --- choosing a transport for devices with their own memory ----------------------------------- */

static char log_lines[8192];

static void keep_line(void *user, clt_log_level level, const char *line)
{
    (void)user;
    (void)level;
    strncat(log_lines, line, sizeof log_lines - strlen(log_lines) - 1);
}

static void choose(int does, bool peers, const char *why)
{
    bench b;
    clt_comm_request *requests[DEVICES];
    extension(does);
    *log_lines = '\0';
    open_bench(&b, CLT_COMM_PATH_AUTO, false);
    if (!strstr(clt_comm_describe_transport(b.comm), why))
        fail_msg("'%s', not '%s'", clt_comm_describe_transport(b.comm), why);
    assert_int_equal(b.comm->peers != NULL, peers);
    if (!peers && !strstr(log_lines, why))
        fail_msg("'%s' is not in the log", why);
    /* Either method gives the right sum. */
    fill_ones(&b);
    start_sums(&b, 50001, false, NULL, requests);
    for (int d = 0; d < DEVICES; d++)
        ok(clt_comm_complete(requests[d], d, NULL, NULL));
    for (int d = 0; d < DEVICES; d++)
        expect(&b, d, 50001, 3);
    close_bench(&b);
    clt_peer_testing_copy = NULL;
}

static void the_faster_correct_way_is_taken(void **state)
{
    (void)state;
    clt_log_set(keep_line, NULL, CLT_LOG_DEBUG);
    clt_peer_testing_probe_all = 1;
    choose(SLOW, false, "by cl_amd_copy_buffer_p2p an all-reduce of 8 MiB takes");
    choose(WRONG, false, "is wrong");
    choose(FAILING, false, "CL_INVALID_OPERATION");
    bench b;
    *log_lines = '\0';
    open_bench(&b, CLT_COMM_PATH_AUTO, true);
    assert_non_null(strstr(log_lines, "GB/s, through the host at"));
    assert_non_null(strstr(clt_comm_describe_transport(b.comm),
                           b.comm->peers ? "context: 8 MiB in" : "an all-reduce of 8 MiB takes"));
    close_bench(&b);
    clt_peer_testing_probe_all = 0;
    clt_log_set(NULL, NULL, CLT_LOG_ERROR);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peers_give_the_same_bits),
        cmocka_unit_test(data_on_the_host_goes_through_it),
        cmocka_unit_test(requests_follow_each_other),
        cmocka_unit_test(destroyed_with_exchanges_under_way),
        cmocka_unit_test(what_cannot_be_is_refused),
#ifdef CLT_TESTING
        cmocka_unit_test(downloads_wait_for_uploads_from_the_same_staging),
        cmocka_unit_test(a_failed_exchange_aborts_with_its_device),
        cmocka_unit_test(the_extension_gives_the_same_bits),
        cmocka_unit_test(wrong_copies_are_refused),
        cmocka_unit_test(a_copy_that_fails_aborts),
        cmocka_unit_test(a_device_that_fails_between_contexts_aborts),
        cmocka_unit_test(the_faster_correct_way_is_taken),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
