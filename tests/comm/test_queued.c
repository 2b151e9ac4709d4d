/* CLT_COMM_QUEUED: devices that wait in their queues, how the waiting ends, and groups of
 * operations whose buffers the host's part finds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "comm/fixture.h"

enum { COUNT = 1000 };

typedef struct pair {
    fixture f;
    clt_comm *comm;
    cl_mem mem[2];
} pair;

static void ok(clt_status status)
{
    if (status != CLT_OK)
        fail_msg("%s", clt_error_message());
}

static void pair_open(pair *p, int max_in_flight, int timeout_ms)
{
    clt_comm_options options;
    clt_comm_options_init(&options);
    options.max_in_flight = max_in_flight;
    options.timeout_ms = timeout_ms;
    fixture_open(&p->f, 2, false, false);
    ok(fixture_comm(&p->f, &options, &p->comm));
    for (int d = 0; d < 2; d++)
        p->mem[d] = fixture_buffer(&p->f, d, COUNT * sizeof(float));
}

static void pair_close(pair *p)
{
    clt_comm_destroy(p->comm);
    for (int d = 0; d < 2; d++)
        clReleaseMemObject(p->mem[d]);
    fixture_close(&p->f);
}

static void fill(const pair *p, int device, float value)
{
    FIXTURE_CL(clEnqueueFillBuffer(p->f.queues[device], p->mem[device], &value, sizeof value, 0,
                                   COUNT * sizeof value, 0, NULL, NULL));
}

static clt_status enqueue(const pair *p, int device)
{
    clt_comm_request *request;
    clt_comm_op op;
    clt_comm_op_init(&op);
    op.count = COUNT;
    op.mem = p->mem[device];
    op.flags = CLT_COMM_QUEUED;
    CLT_TRY(clt_comm_start(p->comm, device, -1, &op, 0, NULL, &request));
    return clt_comm_complete(request, device, NULL, NULL);
}

/* Returns whether the devices of this machine wait in their queues. If so, clt_comm_complete
 * returns before the other device has started. Otherwise it would block. */
static bool waits_in_queues(void)
{
    pair p;
    cl_device_exec_capabilities can = 0;
    cl_device_type type = 0;
    char vendor[128] = "";
    cl_platform_id platform;
    pair_open(&p, 0, 0);
    const bool apart = p.f.devices[0] != p.f.devices[1];
    FIXTURE_CL(
        clGetDeviceInfo(p.f.devices[0], CL_DEVICE_EXECUTION_CAPABILITIES, sizeof can, &can, NULL));
    FIXTURE_CL(clGetDeviceInfo(p.f.devices[0], CL_DEVICE_TYPE, sizeof type, &type, NULL));
    FIXTURE_CL(
        clGetDeviceInfo(p.f.devices[0], CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL));
    FIXTURE_CL(clGetPlatformInfo(platform, CL_PLATFORM_VENDOR, sizeof vendor, vendor, NULL));
    pair_close(&p);
    return apart && (can & CL_EXEC_NATIVE_KERNEL) && (type & CL_DEVICE_TYPE_CPU) &&
           !strstr(vendor, "Intel");
}

static void expect_sum(const pair *p, int device, float value)
{
    float got[COUNT];
    FIXTURE_CL(clEnqueueReadBuffer(p->f.queues[device], p->mem[device], CL_TRUE, 0, sizeof got, got,
                                   0, NULL, NULL));
    for (int i = 0; i < COUNT; i++)
        if (got[i] != value)
            fail_msg("element %d of device %d is %g, not %g", i, device, (double)got[i],
                     (double)value);
}

/* One thread enqueues everything, then waits once. */
static void sums_follow_each_other_in_the_queues(void **state)
{
    (void)state;
    pair p;
    pair_open(&p, 0, 0);
    for (int d = 0; d < 2; d++)
        fill(&p, d, (float)(1 + d));
    for (int k = 0; k < 10; k++)
        for (int d = 0; d < 2; d++)
            ok(enqueue(&p, d));
    for (int d = 0; d < 2; d++)
        expect_sum(&p, d, 3 << 9);
    ok(clt_comm_finalize(p.comm));
    pair_close(&p);
}

static void finalize_waits_for_what_is_queued(void **state)
{
    (void)state;
    pair p;
    pair_open(&p, 0, 0);
    for (int d = 0; d < 2; d++)
        fill(&p, d, 2);
    for (int k = 0; k < 5; k++)
        for (int d = 0; d < 2; d++)
            ok(enqueue(&p, d));
    ok(clt_comm_finalize(p.comm));
    assert_int_equal(enqueue(&p, 0), CLT_STATE);
    for (int d = 0; d < 2; d++)
        expect_sum(&p, d, 64);
    pair_close(&p);
}

static void abort_ends_the_waiting(void **state)
{
    (void)state;
    pair p;
    pair_open(&p, 0, 0);
    ok(enqueue(&p, 0));
    clt_comm_abort(p.comm, CLT_DEVICE_LOST, "enough");
    FIXTURE_CL(clFinish(p.f.queues[0]));
    assert_int_equal(clt_comm_status(p.comm), CLT_DEVICE_LOST);
    assert_int_equal(enqueue(&p, 1), CLT_ABORTED);
    assert_non_null(strstr(clt_error_message(), "enough"));
    pair_close(&p);
}

static void destroy_ends_the_waiting(void **state)
{
    (void)state;
    pair p;
    pair_open(&p, 0, 0);
    ok(enqueue(&p, 0));
    ok(enqueue(&p, 0));
    pair_close(&p);
}

static void a_deadline_ends_the_waiting(void **state)
{
    (void)state;
    pair p;
    pair_open(&p, 0, 40);
    ok(enqueue(&p, 0));
    FIXTURE_CL(clFinish(p.f.queues[0]));
    assert_int_equal(clt_comm_status(p.comm), CLT_TIMEOUT);
    assert_non_null(strstr(clt_error_message(), "device 0"));
    pair_close(&p);
}

static void a_device_cannot_run_ahead_without_end(void **state)
{
    (void)state;
    pair p;
    int ahead = 0;
    pair_open(&p, 2, 0);
    while (ahead < 100 && enqueue(&p, 0) == CLT_OK)
        ahead++;
    assert_int_equal(ahead, 4); /* twice the number that may be in flight */
    assert_non_null(strstr(clt_error_message(), "ahead"));
    ok(clt_comm_status(p.comm));
    for (int k = 0; k < ahead; k++)
        ok(enqueue(&p, 1));
    ok(clt_comm_finalize(p.comm));
    pair_close(&p);
}

/* A caller that asks for results on the host waits for them. */
static void a_result_is_waited_for(void **state)
{
    (void)state;
    pair p;
    clt_comm_request *requests[2];
    pair_open(&p, 0, 0);
    for (int d = 0; d < 2; d++) {
        clt_comm_op op;
        fill(&p, d, 1);
        clt_comm_op_init(&op);
        op.count = COUNT;
        op.mem = p.mem[d];
        op.flags = CLT_COMM_QUEUED + CLT_COMM_MEASURE;
        ok(clt_comm_start(p.comm, d, -1, &op, 0, NULL, &requests[d]));
    }
    for (int d = 0; d < 2; d++) {
        clt_comm_result result;
        clt_comm_result_init(&result);
        ok(clt_comm_complete(requests[d], d, &result, NULL));
        assert_true(result.finite);
        assert_true(result.sum_squares == 4.0 * COUNT);
        expect_sum(&p, d, 2);
    }
    pair_close(&p);
}

/* --- groups of operations --------------------------------------------------------------------- */

/* Sums of different sizes, of ranges of three buffers, whose order is not that in which they were
 * made. */
enum { BUFFERS = 3, ROOM = 64, RANGES = 5 };

static const struct {
    int buffer, first, count;
} ranges[RANGES] = {{2, 0, 20}, {0, 8, 16}, {1, 0, ROOM}, {2, 30, 34}, {0, 40, 1}};

static float start_value(int device, int buffer, int element)
{
    return (float)(1000 * device + 100 * buffer + element);
}

static void make_buffers(const fixture *f, cl_mem mem[2][BUFFERS])
{
    for (int d = 0; d < 2; d++)
        for (int b = 0; b < BUFFERS; b++) {
            float values[ROOM];
            for (int i = 0; i < ROOM; i++)
                values[i] = start_value(d, b, i);
            mem[d][b] = fixture_buffer(f, d, sizeof values);
            FIXTURE_CL(clEnqueueWriteBuffer(f->queues[d], mem[d][b], CL_TRUE, 0, sizeof values,
                                            values, 0, NULL, NULL));
        }
}

/* Compares all elements and releases the buffers. Expected values begin as the start values. */
static void expect_values(const fixture *f, cl_mem mem[2][BUFFERS],
                          float expected[2][BUFFERS][ROOM])
{
    for (int d = 0; d < 2; d++)
        for (int b = 0; b < BUFFERS; b++) {
            float got[ROOM];
            FIXTURE_CL(clEnqueueReadBuffer(f->queues[d], mem[d][b], CL_TRUE, 0, sizeof got, got, 0,
                                           NULL, NULL));
            for (int i = 0; i < ROOM; i++)
                if (got[i] != expected[d][b][i])
                    fail_msg("element %d of buffer %d of device %d is %g, not %g", i, b, d,
                             (double)got[i], (double)expected[d][b][i]);
            clReleaseMemObject(mem[d][b]);
        }
}

static void start_values(float expected[2][BUFFERS][ROOM])
{
    for (int d = 0; d < 2; d++)
        for (int b = 0; b < BUFFERS; b++)
            for (int i = 0; i < ROOM; i++)
                expected[d][b][i] = start_value(d, b, i);
}

static void run_group(clt_comm *comm, clt_comm_op *const first[2])
{
    clt_comm_request *requests[2];
    for (int d = 0; d < 2; d++)
        ok(clt_comm_start(comm, d, -1, first[d], 0, NULL, &requests[d]));
    for (int d = 0; d < 2; d++)
        ok(clt_comm_complete(requests[d], d, NULL, NULL));
}

static void a_group_sums_buffers_in_any_order(void **state)
{
    (void)state;
    for (int queued = 0; queued < 2; queued++) {
        fixture f;
        clt_comm *comm;
        cl_mem mem[2][BUFFERS];
        clt_comm_op ops[2][RANGES];
        float expected[2][BUFFERS][ROOM];
        fixture_open(&f, 2, false, queued);
        ok(fixture_comm(&f, NULL, &comm));
        make_buffers(&f, mem);
        start_values(expected);
        for (int d = 0; d < 2; d++)
            for (int k = 0; k < RANGES; k++) {
                clt_comm_op *op = &ops[d][k];
                clt_comm_op_init(op);
                op->mem = mem[d][ranges[k].buffer];
                op->offset = ranges[k].first;
                op->count = ranges[k].count;
                op->flags = CLT_COMM_EXCLUSIVE + (queued ? CLT_COMM_QUEUED : 0);
                op->next = k + 1 < RANGES ? op + 1 : NULL;
                for (int i = ranges[k].first; i < ranges[k].first + ranges[k].count; i++)
                    expected[d][ranges[k].buffer][i] =
                        start_value(0, ranges[k].buffer, i) + start_value(1, ranges[k].buffer, i);
            }
        run_group(comm, (clt_comm_op *const[]){ops[0], ops[1]});
        ok(clt_comm_finalize(comm));
        expect_values(&f, mem, expected);
        clt_comm_destroy(comm);
        fixture_close(&f);
    }
}

/* Device 0 sends a range of buffer 2 and receives one of buffer 0, and sends another of buffer 0.
 */
static void messages_use_buffers_in_any_order(void **state)
{
    (void)state;
    enum { N = 7 };
    fixture f;
    clt_comm *comm;
    cl_mem mem[2][BUFFERS];
    float expected[2][BUFFERS][ROOM];
    fixture_open(&f, 2, false, false);
    ok(fixture_comm(&f, NULL, &comm));
    make_buffers(&f, mem);
    start_values(expected);
    static const struct {
        int kind, buffer, first;
    } messages[2][3] = {
        {{CLT_COMM_SEND, 2, 10}, {CLT_COMM_RECEIVE, 0, 50}, {CLT_COMM_SEND, 0, 20}},
        {{CLT_COMM_RECEIVE, 1, 0}, {CLT_COMM_RECEIVE, 0, 31}, {CLT_COMM_SEND, 2, 57}}};
    clt_comm_op ops[2][3];
    for (int d = 0; d < 2; d++)
        for (int k = 0; k < 3; k++) {
            clt_comm_op *op = &ops[d][k];
            clt_comm_op_init(op);
            op->kind = (clt_comm_kind)messages[d][k].kind;
            op->peer = 1 - d;
            op->mem = mem[d][messages[d][k].buffer];
            op->offset = messages[d][k].first;
            op->count = N;
            op->flags = CLT_COMM_EXCLUSIVE;
            op->next = k < 2 ? op + 1 : NULL;
        }
    for (int i = 0; i < N; i++) {
        expected[1][1][0 + i] = start_value(0, 2, 10 + i);
        expected[1][0][31 + i] = start_value(0, 0, 20 + i);
        expected[0][0][50 + i] = start_value(1, 2, 57 + i);
    }
    run_group(comm, (clt_comm_op *const[]){ops[0], ops[1]});
    ok(clt_comm_finalize(comm));
    expect_values(&f, mem, expected);
    clt_comm_destroy(comm);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest everywhere[] = {
        cmocka_unit_test(a_result_is_waited_for),
        cmocka_unit_test(messages_use_buffers_in_any_order),
    };
    const struct CMUnitTest in_queues[] = {
        cmocka_unit_test(sums_follow_each_other_in_the_queues),
        cmocka_unit_test(finalize_waits_for_what_is_queued),
        cmocka_unit_test(abort_ends_the_waiting),
        cmocka_unit_test(destroy_ends_the_waiting),
        cmocka_unit_test(a_deadline_ends_the_waiting),
        cmocka_unit_test(a_device_cannot_run_ahead_without_end),
        cmocka_unit_test(a_result_is_waited_for),
        cmocka_unit_test(a_group_sums_buffers_in_any_order),
        cmocka_unit_test(messages_use_buffers_in_any_order),
    };
    if (waits_in_queues())
        return cmocka_run_group_tests(in_queues, NULL, NULL);
    return cmocka_run_group_tests(everywhere, NULL, NULL);
}
