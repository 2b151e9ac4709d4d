/* Buffers copied in chunks: bits, failures and aborts between two chunks, requests that overtake
 * each other. CPUs take this way where the path is CLT_COMM_PATH_STAGED. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

#include "comm/fixture.h"
#include "comm/internal.h"

enum { DEVICES = 3, CHUNK = 8192, ROOM = 150000 };

static void ok(clt_status status)
{
    if (status != CLT_OK)
        fail_msg("%s: %s", clt_status_name(status), clt_error_message());
}

/* 0: as in use. */
static void set_chunk(long long bytes)
{
#ifdef CLT_TESTING
    atomic_store(&clt_comm_testing_chunk_bytes, bytes);
#else
    (void)bytes;
#endif
}

static unsigned references(cl_mem mem)
{
    cl_uint n = 0;
    FIXTURE_CL(clGetMemObjectInfo(mem, CL_MEM_REFERENCE_COUNT, sizeof n, &n, NULL));
    return n;
}

/* --- the same bits as without chunks -----------------------------------------------------------
 */

typedef struct setting {
    clt_comm_kind kind;
    clt_dtype dtype;
    clt_comm_reduction reduction;
    int64_t count, offset, out_offset; /* out_offset -1: in place */
    int empty;                         /* a device; -1: none */
    int root;
} setting;

typedef struct bench {
    fixture f;
    clt_comm *comm;
    cl_mem mem[DEVICES], out[DEVICES];
} bench;

static void open_bench(bench *b, clt_comm_path path, bool one_context)
{
    clt_comm_options options;
    clt_comm_options_init(&options);
    options.path = path;
    options.threads = 1;
    fixture_open(&b->f, DEVICES, one_context, false);
    ok(fixture_comm(&b->f, &options, &b->comm));
    for (int d = 0; d < DEVICES; d++) {
        b->mem[d] = fixture_buffer(&b->f, d, ROOM * 8);
        b->out[d] = fixture_buffer(&b->f, d, ROOM * 8);
    }
}

static void close_bench(bench *b)
{
    clt_comm_destroy(b->comm);
    for (int d = 0; d < DEVICES; d++) {
        FIXTURE_CL(clFinish(b->f.queues[d]));
        assert_int_equal(references(b->mem[d]), 1);
        assert_int_equal(references(b->out[d]), 1);
        clReleaseMemObject(b->mem[d]);
        clReleaseMemObject(b->out[d]);
    }
    fixture_close(&b->f);
}

/* Bits of any kind, without NaN: their sums depend on the order. */
static void fill(const bench *b, const setting *s, int d, cl_mem mem, uint32_t random)
{
    static char x[ROOM * 8];
    const int64_t n = ROOM * 8 / clt_dtype_size(s->dtype);
    for (int64_t i = 0; i < n; i++) {
        random = random * 1664525u + 1013904223u;
        if (s->dtype == CLT_F64)
            ((double *)x)[i] = ldexp((double)(int32_t)random, (int)(random % 40) - 50);
        else if (s->dtype == CLT_F32)
            ((float *)x)[i] = ldexpf((float)(int32_t)random, (int)(random % 40) - 50);
        else if (s->dtype == CLT_I32)
            ((uint32_t *)x)[i] = random;
        else
            ((uint16_t *)x)[i] = (uint16_t)(random >> 16 & 0xbbff); /* finite and less than 2 */
    }
    FIXTURE_CL(clEnqueueWriteBuffer(b->f.queues[d], mem, CL_TRUE, 0, sizeof x, x, 0, NULL, NULL));
}

typedef struct outcome {
    char mem[DEVICES][ROOM * 8], out[DEVICES][ROOM * 8];
    double squares;
    int finite, contributors;
} outcome;

static void run(const bench *b, const setting *s, outcome *o)
{
    clt_comm_request *requests[DEVICES];
    memset(o, 0, sizeof *o);
    for (int d = 0; d < DEVICES; d++) {
        clt_comm_op op;
        fill(b, s, d, b->mem[d], (uint32_t)d * 7919 + 1);
        fill(b, s, d, b->out[d], (uint32_t)d * 104729 + 5);
        clt_comm_op_init(&op);
        op.kind = s->kind;
        op.dtype = s->dtype;
        op.reduction = s->reduction;
        op.count = s->count;
        op.mem = b->mem[d];
        op.offset = s->offset;
        op.root = s->root;
        if (s->out_offset >= 0) {
            op.out = b->out[d];
            op.out_offset = s->out_offset;
        }
        if (s->kind != CLT_COMM_ALL_GATHER && s->kind != CLT_COMM_BROADCAST)
            op.flags = CLT_COMM_MEASURE + (d == s->empty ? CLT_COMM_EMPTY : 0);
        ok(clt_comm_start(b->comm, d, -1, &op, 0, NULL, &requests[d]));
    }
    for (int d = 0; d < DEVICES; d++) {
        clt_comm_result result;
        clt_comm_result_init(&result);
        ok(clt_comm_complete(requests[d], d, &result, NULL));
        o->squares = result.sum_squares;
        o->finite = result.finite;
        o->contributors = result.contributors;
        FIXTURE_CL(clEnqueueReadBuffer(b->f.queues[d], b->mem[d], CL_TRUE, 0, ROOM * 8, o->mem[d],
                                       0, NULL, NULL));
        FIXTURE_CL(clEnqueueReadBuffer(b->f.queues[d], b->out[d], CL_TRUE, 0, ROOM * 8, o->out[d],
                                       0, NULL, NULL));
    }
}

static void chunks_give_the_same_bits(void **state)
{
    (void)state;
    static const setting settings[] = {
        {CLT_COMM_ALL_REDUCE, CLT_F32, CLT_COMM_SUM, 100003, 0, -1, -1, 0},
        {CLT_COMM_ALL_REDUCE, CLT_F32, CLT_COMM_MEAN, 100003, 41, 1013, 1, 0},
        {CLT_COMM_ALL_REDUCE, CLT_F64, CLT_COMM_SUM, 70001, 3, 5, -1, 0},
        {CLT_COMM_ALL_REDUCE, CLT_F16, CLT_COMM_SUM, 99991, 1, -1, -1, 0},
        {CLT_COMM_ALL_REDUCE, CLT_BF16, CLT_COMM_MAX, 99991, 1, 7, 2, 0},
        {CLT_COMM_ALL_REDUCE, CLT_I32, CLT_COMM_SUM, 100003, 17, -1, -1, 0},
        {CLT_COMM_ALL_REDUCE, CLT_F32, CLT_COMM_SUM, 1, 2, -1, -1, 0},
        {CLT_COMM_ALL_REDUCE, CLT_F32, CLT_COMM_SUM, 0, 0, -1, -1, 0},
        {CLT_COMM_REDUCE, CLT_F32, CLT_COMM_SUM, 100003, 9, -1, -1, 2},
        {CLT_COMM_REDUCE, CLT_BF16, CLT_COMM_SUM, 100003, 9, 1, 0, 1},
        {CLT_COMM_REDUCE_SCATTER, CLT_F32, CLT_COMM_SUM, 40009, 11, -1, -1, 0},
        {CLT_COMM_REDUCE_SCATTER, CLT_F16, CLT_COMM_MIN, 40009, 11, 3, 1, 0},
        {CLT_COMM_ALL_GATHER, CLT_F32, CLT_COMM_SUM, 40009, 11, -1, -1, 0},
        {CLT_COMM_ALL_GATHER, CLT_I32, CLT_COMM_SUM, 40009, 11, 5, -1, 0},
        {CLT_COMM_BROADCAST, CLT_F32, CLT_COMM_SUM, 100003, 13, -1, -1, 1},
        {CLT_COMM_BROADCAST, CLT_F64, CLT_COMM_SUM, 100003, 13, 1, -1, 2},
    };
    static outcome whole, chunks;
    for (int context = 0; context < 2; context++) {
        bench plain, piped;
        open_bench(&plain, CLT_COMM_PATH_AUTO, context);
        open_bench(&piped, CLT_COMM_PATH_STAGED, context);
        assert_false(plain.comm->piped);
        assert_true(piped.comm->piped);
        for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
            run(&plain, &settings[i], &whole);
            set_chunk(i % 2 ? CHUNK : 131072 + 64);
            run(&piped, &settings[i], &chunks);
            set_chunk(0);
            if (memcmp(&whole, &chunks, sizeof whole))
                fail_msg("setting %d differs", (int)i);
        }
        close_bench(&plain);
        close_bench(&piped);
    }
}

/* A result that overlaps its input elsewhere in the same buffer. */
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

/* --- in the middle -----------------------------------------------------------------------------
 */

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
/* Whichever chunk of whichever device it is that cannot be had. */
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

/* --- several -----------------------------------------------------------------------------------
 */

/* Requests of two communicators over the same queues, completed in the reverse order. */
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

/* complete's event, and what comes behind it in the queue, stand behind the last upload. */
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
