/* Requests in flight, abort, deadlines, wrong use, and allocations in a steady state. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <pthread.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "comm/fixture.h"
#include "comm/communicator/internal.h"
#include "support/references.h"

static void ok(clt_status status)
{
    if (status != CLT_OK)
        fail_msg("%s: %s", clt_status_name(status), clt_error_message());
}

static void pause_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

static clt_comm_op op_of(cl_mem mem, int64_t count)
{
    clt_comm_op op;
    clt_comm_op_init(&op);
    op.mem = mem;
    op.count = count;
    return op;
}

/* --- several in flight, one thread a device --- */

enum { BUCKETS = 5, STEPS = 1000 };
static const int64_t bucket_counts[BUCKETS] = {1, 300, 4096, 10007, 33};

typedef struct driver {
    const fixture *f;
    clt_comm *comm;
    int device, steps;
    cl_mem mem[BUCKETS];
    uint64_t errors;
    int64_t allocations; /* in the second half */
    char message[256];
} driver;

static bool drive_step(driver *v, int step)
{
    clt_comm_request *requests[BUCKETS];
    cl_event arrived[BUCKETS];
    for (int b = 0; b < BUCKETS; b++) {
        int32_t x = step * 10 + b + v->device * 100000;
        size_t bytes = (size_t)bucket_counts[b] * sizeof x;
        cl_event written;
        FIXTURE_CL(clEnqueueFillBuffer(v->f->queues[v->device], v->mem[b], &x, sizeof x, 0, bytes,
                                       0, NULL, &written));
        clt_comm_op op = op_of(v->mem[b], bucket_counts[b]);
        op.dtype = CLT_I32;
        clt_status status = clt_comm_start(v->comm, v->device, (int64_t)step * BUCKETS + b, &op, 1,
                                           &written, &requests[b]);
        clReleaseEvent(written);
        if (status != CLT_OK)
            return false;
    }
    for (int b = 0; b < BUCKETS; b++) {
        if (clt_comm_complete(requests[b], v->device, NULL, &arrived[b]) != CLT_OK)
            return false;
    }
    for (int b = 0; b < BUCKETS; b++) {
        int32_t want = 0, first, last;
        for (int d = 0; d < v->f->count; d++)
            want += step * 10 + b + d * 100000;
        cl_command_queue queue = v->f->queues[v->device];
        FIXTURE_CL(clEnqueueReadBuffer(queue, v->mem[b], CL_FALSE, 0, sizeof first, &first, 1,
                                       &arrived[b], NULL));
        FIXTURE_CL(clEnqueueReadBuffer(queue, v->mem[b], CL_TRUE,
                                       (size_t)(bucket_counts[b] - 1) * sizeof last, sizeof last,
                                       &last, 0, NULL, NULL));
        v->errors += first != want || last != want;
        clReleaseEvent(arrived[b]);
    }
    return true;
}

static void *drive(void *arg)
{
    driver *v = arg;
    for (int step = 0; step < v->steps; step++) {
        int64_t before = clt_alloc_count();
        if (!drive_step(v, step)) {
            snprintf(v->message, sizeof v->message, "%s", clt_error_message());
            v->errors++;
            break;
        }
        if (step >= v->steps / 2)
            v->allocations += clt_alloc_count() - before;
    }
    return NULL;
}

static void stress(int devices, bool one_context, clt_comm_path path, int threads, int poll_us,
                   int steps)
{
    fixture f;
    clt_comm *comm;
    clt_comm_options options;
    clt_comm_options_init(&options);
    options.path = path;
    options.threads = threads;
    options.wait_poll_us = poll_us;
    options.max_in_flight = BUCKETS; /* the ring wraps, and the limit is reached exactly */
    fixture_open(&f, devices, one_context, false);
    ok(fixture_comm(&f, &options, &comm));
    pthread_t ids[FIXTURE_MAX];
    driver drivers[FIXTURE_MAX];
    for (int d = 0; d < devices; d++) {
        drivers[d] = (driver){.f = &f, .comm = comm, .device = d, .steps = steps};
        for (int b = 0; b < BUCKETS; b++)
            drivers[d].mem[b] = fixture_buffer(&f, d, (size_t)bucket_counts[b] * sizeof(int32_t));
    }
    for (int d = 0; d < devices; d++)
        assert_int_equal(pthread_create(&ids[d], NULL, drive, &drivers[d]), 0);
    for (int d = 0; d < devices; d++)
        pthread_join(ids[d], NULL);
    for (int d = 0; d < devices; d++) {
        assert_string_equal(drivers[d].message, "");
        assert_int_equal(drivers[d].errors, 0);
        assert_int_equal(drivers[d].allocations, 0);
    }
    ok(clt_comm_finalize(comm));
    clt_comm_destroy(comm);
    for (int d = 0; d < devices; d++) {
        for (int b = 0; b < BUCKETS; b++) {
            assert_int_equal(references_left(drivers[d].mem[b]), 1);
            clReleaseMemObject(drivers[d].mem[b]);
        }
    }
    fixture_close(&f);
}

static void several_in_flight_mapped(void **state)
{
    (void)state;
    stress(2, false, CLT_COMM_PATH_MAPPED, 1, 0, STEPS);
}

static void several_in_flight_staged(void **state)
{
    (void)state;
    stress(2, true, CLT_COMM_PATH_STAGED, 2, 0, STEPS);
}

static void several_in_flight_three_devices_polling(void **state)
{
    (void)state;
    stress(3, false, CLT_COMM_PATH_AUTO, 1, 50, STEPS / 10);
}

/* --- abort --- */

typedef struct blocked {
    clt_comm *comm;
    clt_comm_request *request;
    int device;
    clt_status status;
    char message[256];
} blocked;

static void *complete_blocked(void *arg)
{
    blocked *b = arg;
    b->status = clt_comm_complete(b->request, b->device, NULL, NULL);
    snprintf(b->message, sizeof b->message, "%s", clt_error_message());
    return NULL;
}

typedef struct pair {
    fixture f;
    clt_comm *comm;
    cl_mem mem[2];
} pair;

static void pair_open(pair *p, const clt_comm_options *options)
{
    fixture_open(&p->f, 2, false, false);
    ok(fixture_comm(&p->f, options, &p->comm));
    const float zero = 0;
    for (int d = 0; d < 2; d++) {
        p->mem[d] = fixture_buffer(&p->f, d, 4096);
        FIXTURE_CL(clEnqueueFillBuffer(p->f.queues[d], p->mem[d], &zero, sizeof zero, 0, 4096, 0,
                                       NULL, NULL));
    }
}

static void pair_close(pair *p)
{
    clt_comm_destroy(p->comm);
    for (int d = 0; d < 2; d++) {
        FIXTURE_CL(clFinish(p->f.queues[d]));
        assert_int_equal(references_left(p->mem[d]), 1);
        clReleaseMemObject(p->mem[d]);
    }
    fixture_close(&p->f);
}

static void abort_wakes_a_blocked_complete(void **state)
{
    (void)state;
    for (int path = CLT_COMM_PATH_MAPPED; path <= CLT_COMM_PATH_STAGED; path++) {
        pair p;
        clt_comm_options options;
        clt_comm_options_init(&options);
        options.path = (clt_comm_path)path;
        pair_open(&p, &options);
        blocked b = {.comm = p.comm, .device = 0};
        clt_comm_op op = op_of(p.mem[0], 1024);
        ok(clt_comm_start(p.comm, 0, -1, &op, 0, NULL, &b.request));
        int done = 1;
        ok(clt_comm_test(b.request, 0, &done));
        assert_false(done);
        ok(clt_comm_status(p.comm));
        pthread_t id;
        assert_int_equal(pthread_create(&id, NULL, complete_blocked, &b), 0);
        pause_ms(30);
        clt_comm_abort(p.comm, CLT_DEVICE_LOST, "device 1 was unplugged");
        clt_comm_abort(p.comm, CLT_INTERNAL, "a later abort");
        pthread_join(id, NULL);
        assert_int_equal(b.status, CLT_ABORTED);
        assert_string_equal(b.message, "device 1 was unplugged");
        assert_int_equal(clt_comm_status(p.comm), CLT_DEVICE_LOST);
        assert_string_equal(clt_error_message(), "device 1 was unplugged");
        clt_comm_request *none;
        op.mem = p.mem[1];
        assert_int_equal(clt_comm_start(p.comm, 1, -1, &op, 0, NULL, &none), CLT_ABORTED);
        assert_int_equal(clt_comm_finalize(p.comm), CLT_ABORTED);
        pair_close(&p);
    }
}

/* A user event holds back the transfers, so that they are under way for as long as the test
 * needs. */
static void abort_while_transfers_are_under_way(void **state)
{
    (void)state;
    for (int path = CLT_COMM_PATH_MAPPED; path <= CLT_COMM_PATH_STAGED; path++) {
        pair p;
        cl_int error;
        clt_comm_options options;
        clt_comm_options_init(&options);
        options.path = (clt_comm_path)path;
        pair_open(&p, &options);
        cl_event gate = clCreateUserEvent(p.f.contexts[0], &error);
        FIXTURE_CL(error);
        blocked b = {.comm = p.comm, .device = 0};
        clt_comm_request *other;
        clt_comm_op op = op_of(p.mem[0], 1024);
        ok(clt_comm_start(p.comm, 0, -1, &op, 1, &gate, &b.request));
        op.mem = p.mem[1];
        ok(clt_comm_start(p.comm, 1, -1, &op, 0, NULL, &other));
        pthread_t id;
        assert_int_equal(pthread_create(&id, NULL, complete_blocked, &b), 0);
        pause_ms(30);
        clt_comm_abort(p.comm, CLT_STOPPED, "stopped by the user");
        pthread_join(id, NULL);
        assert_int_equal(b.status, CLT_ABORTED);
        assert_string_equal(b.message, "stopped by the user");
        assert_int_equal(clt_comm_complete(other, 1, NULL, NULL), CLT_ABORTED);
        FIXTURE_CL(clSetUserEventStatus(gate, CL_COMPLETE));
        clReleaseEvent(gate);
        pair_close(&p);
    }
}

#ifdef CLT_TESTING
static void a_failed_transfer_aborts_with_its_device(void **state)
{
    (void)state;
    pair p;
    pair_open(&p, NULL);
    clt_comm_request *requests[2];
    atomic_store(&clt_comm_testing_waits_until_fault, 1);
    for (int d = 0; d < 2; d++) {
        clt_comm_op op = op_of(p.mem[d], 1024);
        op.label = "bucket 9";
        ok(clt_comm_start(p.comm, d, -1, &op, 0, NULL, &requests[d]));
    }
    for (int d = 0; d < 2; d++) {
        assert_int_equal(clt_comm_complete(requests[d], d, NULL, NULL), CLT_ABORTED);
        assert_non_null(strstr(clt_error_message(), "device 1"));
        assert_non_null(strstr(clt_error_message(), "bucket 9"));
    }
    assert_int_equal(clt_comm_status(p.comm), CLT_OPENCL);
    pair_close(&p);
}
#endif

static void destroy_with_requests_in_flight(void **state)
{
    (void)state;
    for (int path = CLT_COMM_PATH_MAPPED; path <= CLT_COMM_PATH_STAGED; path++) {
        pair p;
        clt_comm_options options;
        clt_comm_options_init(&options);
        options.path = (clt_comm_path)path;
        pair_open(&p, &options);
        blocked b = {.comm = p.comm, .device = 0};
        clt_comm_request *unused;
        clt_comm_op op = op_of(p.mem[0], 1024);
        ok(clt_comm_start(p.comm, 0, -1, &op, 0, NULL, &b.request));
        ok(clt_comm_start(p.comm, 0, -1, &op, 0, NULL, &unused));
        op.mem = p.mem[1];
        if (path == CLT_COMM_PATH_STAGED) /* the first request is done, the second is not */
            ok(clt_comm_start(p.comm, 1, -1, &op, 0, NULL, &unused));
        else
            op.mem = NULL;
        pthread_t id;
        assert_int_equal(pthread_create(&id, NULL, complete_blocked, &b), 0);
        if (op.mem)
            pthread_join(id, NULL);
        else
            pause_ms(30);
        clt_comm_destroy(p.comm);
        if (!op.mem)
            pthread_join(id, NULL);
        assert_int_equal(b.status, op.mem ? CLT_OK : CLT_ABORTED);
        p.comm = NULL;
        pair_close(&p);
    }
}

static void a_deadline_names_what_is_missing(void **state)
{
    (void)state;
    pair p;
    clt_comm_options options;
    clt_comm_options_init(&options);
    options.timeout_ms = 40;
    pair_open(&p, &options);
    clt_comm_request *request;
    clt_comm_op op = op_of(p.mem[0], 1024);
    op.label = "bucket 3 (fc1.weight)";
    ok(clt_comm_start(p.comm, 0, -1, &op, 0, NULL, &request));
    assert_int_equal(clt_comm_complete(request, 0, NULL, NULL), CLT_TIMEOUT);
    assert_non_null(strstr(clt_error_message(), "(bucket 3 (fc1.weight)): device 0 ("));
    assert_non_null(strstr(clt_error_message(), ") waited 0.04 s for device 1 ("));
    assert_int_equal(clt_comm_status(p.comm), CLT_TIMEOUT);
    pair_close(&p);
}

/* --- wrong use --- */

static void expect(clt_status got, clt_status want, const char *part)
{
    if (got != want || !strstr(clt_error_message(), part))
        fail_msg("%s (%s), not %s with '%s'", clt_status_name(got), clt_error_message(),
                 clt_status_name(want), part);
}

static void bad_arguments_change_nothing(void **state)
{
    (void)state;
    pair p;
    clt_comm_options options;
    clt_comm_options_init(&options);
    options.max_in_flight = 2;
    pair_open(&p, &options);
    clt_comm_request *r = NULL, *first[2], *second[2];
    clt_comm_op op = op_of(p.mem[0], 1025);
    expect(clt_comm_start(p.comm, 0, -1, &op, 0, NULL, &r), CLT_INVALID_ARGUMENT, "1024");
    op = op_of(p.mem[1], 16);
    expect(clt_comm_start(p.comm, 0, -1, &op, 0, NULL, &r), CLT_INVALID_ARGUMENT, "context");
    op = op_of(p.mem[0], 1024);
    expect(clt_comm_start(p.comm, 2, -1, &op, 0, NULL, &r), CLT_INVALID_ARGUMENT, "no device 2");
    expect(clt_comm_start(p.comm, 0, -1, &op, 1, NULL, &r), CLT_INVALID_ARGUMENT, "wait list");
    op.struct_size = 3;
    expect(clt_comm_start(p.comm, 0, -1, &op, 0, NULL, &r), CLT_INVALID_ARGUMENT, "struct_size");
    op = op_of(NULL, 4);
    expect(clt_comm_start(p.comm, 0, -1, &op, 0, NULL, &r), CLT_INVALID_ARGUMENT, "no buffer");
    op = op_of(p.mem[0], -1);
    expect(clt_comm_start(p.comm, 0, -1, &op, 0, NULL, &r), CLT_INVALID_ARGUMENT, "-1");
    op = op_of(p.mem[0], 1024);
    op.reduction = (clt_comm_reduction)4;
    expect(clt_comm_start(p.comm, 0, -1, &op, 0, NULL, &r), CLT_INVALID_ARGUMENT, "reduction");
    expect(clt_comm_supports(p.comm, 0, &op), CLT_INVALID_ARGUMENT, "reduction");
    op = op_of(p.mem[0], 1024);
    op.dtype = CLT_U8;
    expect(clt_comm_start(p.comm, 0, -1, &op, 0, NULL, &r), CLT_UNSUPPORTED, "u8");
    op = op_of(p.mem[0], 1024);
    op.kind = CLT_COMM_ALL_GATHER; /* the result of two devices has twice as many elements */
    expect(clt_comm_start(p.comm, 0, -1, &op, 0, NULL, &r), CLT_INVALID_ARGUMENT, "0 to 2048");
    op.flags = CLT_COMM_EMPTY;
    expect(clt_comm_start(p.comm, 0, -1, &op, 0, NULL, &r), CLT_INVALID_ARGUMENT, "all-gather");
    op = op_of(p.mem[0], 1024);
    op.kind = CLT_COMM_SEND;
    expect(clt_comm_start(p.comm, 0, -1, &op, 0, NULL, &r), CLT_INVALID_ARGUMENT, "participant 0");
    clt_comm_op with = op_of(p.mem[0], 1024);
    op.peer = 1;
    op.next = &with;
    expect(clt_comm_start(p.comm, 0, -1, &op, 0, NULL, &r), CLT_INVALID_ARGUMENT, "in a group");
    op = op_of(p.mem[0], 1024);
    op.kind = CLT_COMM_BROADCAST;
    op.root = 2;
    expect(clt_comm_start(p.comm, 0, -1, &op, 0, NULL, &r), CLT_INVALID_ARGUMENT, "root 2");
    assert_null(r);
    ok(clt_comm_status(p.comm));

    for (int d = 0; d < 2; d++) {
        op = op_of(p.mem[d], 1024);
        ok(clt_comm_supports(p.comm, d, &op));
        ok(clt_comm_start(p.comm, d, 0, &op, 0, NULL, &first[d]));
        op = op_of(p.mem[d], 0);
        ok(clt_comm_start(p.comm, d, 1, &op, 0, NULL, &second[d]));
        expect(clt_comm_start(p.comm, d, 2, &op, 0, NULL, &r), CLT_STATE, "in flight");
    }
    expect(clt_comm_finalize(p.comm), CLT_STATE, "collective 0");
    expect(clt_comm_reserve(p.comm, 0, 4096, 1), CLT_STATE, "in flight");
    ok(clt_comm_complete(second[1], 1, NULL, NULL)); /* in any order */
    ok(clt_comm_complete(first[1], 1, NULL, NULL));
    expect(clt_comm_complete(first[1], 1, NULL, NULL), CLT_STATE, "before");
    ok(clt_comm_complete(first[0], 0, NULL, NULL));
    ok(clt_comm_complete(second[0], 0, NULL, NULL));
    ok(clt_comm_reserve(p.comm, 0, 4096, 1));
    ok(clt_comm_finalize(p.comm));
    expect(clt_comm_start(p.comm, 0, -1, &op, 0, NULL, &r), CLT_STATE, "finalized");
    pair_close(&p);
}

static void devices_that_disagree_abort(void **state)
{
    (void)state;
    pair p;
    clt_comm_request *request, *none;
    pair_open(&p, NULL);
    clt_comm_op op = op_of(p.mem[0], 1024);
    op.label = "bucket 0";
    ok(clt_comm_start(p.comm, 0, -1, &op, 0, NULL, &request));
    op = op_of(p.mem[1], 1000);
    op.label = "bucket 1";
    expect(clt_comm_start(p.comm, 1, -1, &op, 0, NULL, &none), CLT_MISMATCH, "bucket 1");
    expect(clt_comm_complete(request, 0, NULL, NULL), CLT_ABORTED, "f32 x 1000");
    pair_close(&p);

    pair_open(&p, NULL);
    op = op_of(p.mem[0], 1024);
    expect(clt_comm_start(p.comm, 0, 7, &op, 0, NULL, &none), CLT_MISMATCH, "collective 7");
    pair_close(&p);
}

static void bad_communicators_are_refused(void **state)
{
    (void)state;
    fixture f;
    clt_comm *comm = NULL;
    clt_comm_options options;
    fixture_open(&f, 1, false, false);
    clt_comm_options_init(&options);
    options.threads = -1;
    expect(fixture_comm(&f, &options, &comm), CLT_INVALID_ARGUMENT, "threads");
    clt_comm_options_init(&options);
    options.path = 9;
    expect(fixture_comm(&f, &options, &comm), CLT_INVALID_ARGUMENT, "path");
    expect(clt_comm_create(NULL, 0, NULL, &comm), CLT_INVALID_ARGUMENT, "at least one");
    clt_comm_device device;
    clt_comm_device_init(&device);
    expect(clt_comm_create(&device, 1, NULL, &comm), CLT_INVALID_ARGUMENT, "lacks");
    cl_int error;
    cl_command_queue unordered = clCreateCommandQueue(
        f.contexts[0], f.devices[0], CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, &error);
    if (error == CL_SUCCESS) {
        device.context = f.contexts[0];
        device.device = f.devices[0];
        device.compute = unordered;
        expect(clt_comm_create(&device, 1, NULL, &comm), CLT_UNSUPPORTED, "in order");
        clReleaseCommandQueue(unordered);
    }
    assert_null(comm);
    clt_comm_destroy(NULL);
    fixture_close(&f);
}

static void groups_must_agree(void **state)
{
    (void)state;
    pair p;
    clt_comm_request *r = NULL;
    pair_open(&p, NULL);
    clt_comm_op op = op_of(p.mem[0], 16), more = op_of(p.mem[0], 16);
    op.next = &more;
    ok(clt_comm_start(p.comm, 0, -1, &op, 0, NULL, &r));
    op = op_of(p.mem[1], 16);
    expect(clt_comm_start(p.comm, 1, -1, &op, 0, NULL, &r), CLT_MISMATCH, "of 2");
    pair_close(&p);
}

static void sends_and_receives_must_agree(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 2; wrong++) {
        pair p;
        clt_comm_request *r[2] = {NULL, NULL};
        pair_open(&p, NULL);
        clt_comm_op op = op_of(p.mem[0], 16);
        op.kind = CLT_COMM_SEND;
        op.peer = 1;
        ok(clt_comm_start(p.comm, 0, -1, &op, 0, NULL, &r[0]));
        op = op_of(p.mem[1], wrong ? 17 : 0);
        op.kind = wrong ? CLT_COMM_RECEIVE : CLT_COMM_BARRIER;
        ok(clt_comm_start(p.comm, 1, -1, &op, 0, NULL, &r[1]));
        expect(clt_comm_complete(r[0], 0, NULL, NULL), CLT_ABORTED,
               wrong ? "x 17" : "no such receive");
        expect(clt_comm_complete(r[1], 1, NULL, NULL), CLT_ABORTED, "participant 0");
        expect(clt_comm_status(p.comm), CLT_MISMATCH, "participant 0");
        pair_close(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_in_flight_mapped),
        cmocka_unit_test(several_in_flight_staged),
        cmocka_unit_test(several_in_flight_three_devices_polling),
        cmocka_unit_test(abort_wakes_a_blocked_complete),
        cmocka_unit_test(abort_while_transfers_are_under_way),
#ifdef CLT_TESTING
        cmocka_unit_test(a_failed_transfer_aborts_with_its_device),
#endif
        cmocka_unit_test(destroy_with_requests_in_flight),
        cmocka_unit_test(a_deadline_names_what_is_missing),
        cmocka_unit_test(bad_arguments_change_nothing),
        cmocka_unit_test(groups_must_agree),
        cmocka_unit_test(sends_and_receives_must_agree),
        cmocka_unit_test(devices_that_disagree_abort),
        cmocka_unit_test(bad_communicators_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
