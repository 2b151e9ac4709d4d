/* Buffers that are copied in chunks: bits, failures and aborts between two chunks, requests that
 * overtake each other. With CLT_COMM_PATH_STAGED, CPUs use this transport too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "comm/settings.h"

static void chunks_give_the_same_bits(void **state)
{
    (void)state;
    for (int context = 0; context < 2; context++) {
        bench plain, piped;
        open_bench(&plain, CLT_COMM_PATH_AUTO, context);
        open_bench(&piped, CLT_COMM_PATH_STAGED, context);
        assert_false(plain.comm->piped);
        assert_true(piped.comm->piped);
        compare(&plain, &piped, 0);
        close_bench(&plain);
        close_bench(&piped);
    }
}

/* A result that overlaps its input in the same buffer. */
static void a_result_may_overlap_its_input(void **state)
{
    (void)state;
    enum { N = 50000, SHIFT = 999 };
    static float x[N + SHIFT];
    bench b;
    clt_comm_request *requests[DEVICES];
    set_chunk(CHUNK);
    open_bench(&b, CLT_COMM_PATH_STAGED, true);
    for (int d = 0; d < DEVICES; d++) {
        clt_comm_op op;
        for (int i = 0; i < N; i++)
            x[i] = (float)(i + d);
        FIXTURE_CL(
            clEnqueueWriteBuffer(b.f.queues[d], b.mem[d], CL_TRUE, 0, N * 4, x, 0, NULL, NULL));
        clt_comm_op_init(&op);
        op.mem = op.out = b.mem[d];
        op.out_offset = SHIFT;
        op.count = N;
        ok(clt_comm_start(b.comm, d, -1, &op, 0, NULL, &requests[d]));
    }
    for (int d = 0; d < DEVICES; d++) {
        ok(clt_comm_complete(requests[d], d, NULL, NULL));
        FIXTURE_CL(clEnqueueReadBuffer(b.f.queues[d], b.mem[d], CL_TRUE, SHIFT * 4, N * 4, x, 0,
                                       NULL, NULL));
        for (int i = 0; i < N; i++)
            if (x[i] != (float)(3 * i + 3))
                fail_msg("element %d is %g", i, (double)x[i]);
    }
    close_bench(&b);
    set_chunk(0);
}

/* --- aborts between chunks -------------------------------------------------------------------- */

static void start_sums(const bench *b, int64_t count, clt_comm_request **requests)
{
    for (int d = 0; d < DEVICES; d++) {
        clt_comm_op op;
        clt_comm_op_init(&op);
        op.mem = b->mem[d];
        op.count = count;
        op.label = "bucket 9";
        ok(clt_comm_start(b->comm, d, -1, &op, 0, NULL, &requests[d]));
    }
}

#ifdef CLT_TESTING
/* Fails at each chunk of each device. */
static void a_failed_chunk_aborts_with_its_device(void **state)
{
    (void)state;
    enum { N = 65536, CHUNKS = N * 4 / (CHUNK * 4) };
    set_chunk(4 * CHUNK);
    for (int failing = 0; failing < DEVICES * CHUNKS; failing++) {
        bench b;
        clt_comm_request *requests[DEVICES];
        open_bench(&b, CLT_COMM_PATH_STAGED, failing % 2);
        atomic_store(&clt_comm_testing_waits_until_fault, failing);
        start_sums(&b, N, requests);
        for (int d = 0; d < DEVICES; d++) {
            assert_int_equal(clt_comm_complete(requests[d], d, NULL, NULL), CLT_ABORTED);
            assert_non_null(strstr(clt_error_message(), "comm: device "));
            assert_non_null(strstr(clt_error_message(), "bucket 9"));
        }
        assert_int_equal(clt_comm_status(b.comm), CLT_OPENCL);
        close_bench(&b);
    }
    atomic_store(&clt_comm_testing_waits_until_fault, -1);
    set_chunk(0);
}

static void an_abort_between_chunks_ends_it(void **state)
{
    (void)state;
    set_chunk(131072);
    for (int groups = 0; groups < 3; groups++) {
        bench b;
        clt_comm_request *requests[DEVICES];
        open_bench(&b, CLT_COMM_PATH_STAGED, true);
        atomic_store(&clt_comm_testing_groups_until_abort, groups);
        start_sums(&b, 100003, requests);
        for (int d = 0; d < DEVICES; d++) {
            assert_int_equal(clt_comm_complete(requests[d], d, NULL, NULL), CLT_ABORTED);
            assert_string_equal(clt_error_message(), "stopped by the test");
        }
        assert_int_equal(clt_comm_status(b.comm), CLT_STOPPED);
        close_bench(&b);
    }
    atomic_store(&clt_comm_testing_groups_until_abort, -1);
    set_chunk(0);
}

#endif

static void destroyed_with_chunks_under_way(void **state)
{
    (void)state;
    set_chunk(CHUNK);
    for (int i = 0; i < 8; i++) {
        bench b;
        clt_comm_request *requests[DEVICES];
        open_bench(&b, CLT_COMM_PATH_STAGED, i % 2);
        for (int k = 0; k < i; k++)
            start_sums(&b, 65537, requests);
        close_bench(&b);
    }
    set_chunk(0);
}

/* --- several requests ------------------------------------------------------------------------- */

/* Requests of two communicators over the same queues are completed in reverse order. */
static void devices_may_be_in_two_communicators(void **state)
{
    (void)state;
    enum { N = 30000, REQUESTS = 6 };
    static float x[N];
    bench b;
    clt_comm *comms[2];
    clt_comm_options options;
    clt_comm_request *requests[REQUESTS][DEVICES];
    cl_mem mem[REQUESTS][DEVICES];
    set_chunk(CHUNK);
    open_bench(&b, CLT_COMM_PATH_STAGED, true);
    clt_comm_options_init(&options);
    options.path = CLT_COMM_PATH_STAGED;
    comms[0] = b.comm;
    ok(fixture_comm(&b.f, &options, &comms[1]));
    for (int k = 0; k < REQUESTS; k++)
        for (int d = 0; d < DEVICES; d++) {
            clt_comm_op op;
            const float value = (float)(10 * k + d);
            mem[k][d] = fixture_buffer(&b.f, d, N * 4);
            FIXTURE_CL(
                clEnqueueFillBuffer(b.f.queues[d], mem[k][d], &value, 4, 0, N * 4, 0, NULL, NULL));
            clt_comm_op_init(&op);
            op.mem = mem[k][d];
            op.count = N;
            ok(clt_comm_start(comms[k % 2], d, k / 2, &op, 0, NULL, &requests[k][d]));
        }
    assert_int_equal(clt_comm_finalize(b.comm), CLT_STATE);
    for (int k = REQUESTS - 1; k >= 0; k--)
        for (int d = 0; d < DEVICES; d++) {
            ok(clt_comm_complete(requests[k][d], d, NULL, NULL));
            FIXTURE_CL(
                clEnqueueReadBuffer(b.f.queues[d], mem[k][d], CL_TRUE, 0, N * 4, x, 0, NULL, NULL));
            for (int i = 0; i < N; i++)
                if (x[i] != (float)(30 * k + 3))
                    fail_msg("request %d, element %d is %g", k, i, (double)x[i]);
            clReleaseMemObject(mem[k][d]);
        }
    ok(clt_comm_finalize(comms[1]));
    clt_comm_destroy(comms[1]);
    close_bench(&b);
    set_chunk(0);
}

/* The event of clt_comm_complete and later commands in the queue wait for the last upload. */
static void what_follows_sees_the_result(void **state)
{
    (void)state;
    enum { N = 120000 };
    bench b;
    set_chunk(CHUNK);
    open_bench(&b, CLT_COMM_PATH_STAGED, false);
    for (int round = 0; round < 40; round++) {
        clt_comm_request *requests[DEVICES];
        cl_event arrived[DEVICES], copied;
        for (int d = 0; d < DEVICES; d++) {
            const float value = (float)(round + d);
            FIXTURE_CL(
                clEnqueueFillBuffer(b.f.queues[d], b.mem[d], &value, 4, 0, N * 4, 0, NULL, NULL));
        }
        start_sums(&b, N, requests);
        for (int d = 0; d < DEVICES; d++)
            ok(clt_comm_complete(requests[d], d, NULL, round % 2 ? &arrived[d] : NULL));
        for (int d = 0; d < DEVICES; d++) {
            float last;
            FIXTURE_CL(clEnqueueCopyBuffer(b.f.queues[d], b.mem[d], b.out[d], (N - 1) * 4, 0, 4,
                                           round % 2 ? 1u : 0u, round % 2 ? &arrived[d] : NULL,
                                           &copied));
            FIXTURE_CL(clEnqueueReadBuffer(b.f.queues[d], b.out[d], CL_TRUE, 0, 4, &last, 1,
                                           &copied, NULL));
            assert_true(last == (float)(3 * round + 3));
            clReleaseEvent(copied);
            if (round % 2)
                clReleaseEvent(arrived[d]);
        }
    }
    close_bench(&b);
    set_chunk(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_give_the_same_bits),
        cmocka_unit_test(a_result_may_overlap_its_input),
#ifdef CLT_TESTING
        cmocka_unit_test(a_failed_chunk_aborts_with_its_device),
        cmocka_unit_test(an_abort_between_chunks_ends_it),
#endif
        cmocka_unit_test(destroyed_with_chunks_under_way),
        cmocka_unit_test(devices_may_be_in_two_communicators),
        cmocka_unit_test(what_follows_sees_the_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
