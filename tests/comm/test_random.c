/*
 * Random collectives of random kinds, types, sizes and places, several in flight, one thread a
 * device. Data are small integers, so that every result is exact and is compared in full.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <pthread.h>
#include <cmocka.h>

#include "base/philox.h"
#include "comm/fixture.h"

enum { COLLECTIVES = 1500, SLOTS = 6, ROOM = 6000 };

/* Everything about collective k that the devices agree on, and what differs by device. */
typedef struct plan {
    clt_comm_kind kind;
    clt_dtype dtype;
    int64_t count, offset;
    int root;
    uint32_t empty; /* a bit a device */
    bool whole;     /* the count fills the buffer */
} plan;

static plan plan_of(uint32_t seed, int k, int devices)
{
    const clt_dtype dtypes[] = {CLT_F32, CLT_F64, CLT_I32};
    const uint32_t counter[4] = {(uint32_t)k, 0, 0, 0}, key[2] = {seed, 0};
    uint32_t r[4];
    clt_philox(counter, key, r);
    plan p = {.kind = r[0] % 4 ? CLT_COMM_ALL_REDUCE : CLT_COMM_BROADCAST,
              .dtype = dtypes[r[0] / 4 % 3],
              .root = (int)(r[0] / 16 % (uint32_t)devices),
              .whole = r[0] / 256 % 2};
    p.count = p.whole ? ROOM : (int64_t)(r[1] % (r[3] % 3 ? 64 : ROOM / 2));
    p.offset = p.whole ? 0 : (int64_t)(r[2] % (ROOM / 2));
    if (p.kind == CLT_COMM_ALL_REDUCE && r[3] / 3 % 4 == 0)
        p.empty = r[3] / 12 % (1u << devices);
    return p;
}

static int value(int k, int device, int64_t i)
{
    return (int)((i * 13 + device * 977 + k * 101) % 4001) - 2000;
}

static int want(const plan *p, int k, int devices, int64_t i)
{
    int sum = 0;
    if (p->kind == CLT_COMM_BROADCAST)
        return value(k, p->root, i);
    for (int d = 0; d < devices; d++)
        sum += p->empty >> d & 1 ? 0 : value(k, d, i);
    return sum;
}

static double get(clt_dtype dtype, const void *x, int64_t i)
{
    return dtype == CLT_F32   ? (double)((const float *)x)[i]
           : dtype == CLT_F64 ? ((const double *)x)[i]
                              : ((const int32_t *)x)[i];
}

static void put(clt_dtype dtype, void *x, int64_t i, int v)
{
    if (dtype == CLT_F32)
        ((float *)x)[i] = (float)v;
    else if (dtype == CLT_F64)
        ((double *)x)[i] = v;
    else
        ((int32_t *)x)[i] = v;
}

typedef struct driver {
    const fixture *f;
    clt_comm *comm;
    int device, errors;
    uint32_t seed;
    cl_mem mem[SLOTS][3]; /* by type: each exactly ROOM elements */
    char message[256];
} driver;

static int type_index(clt_dtype dtype)
{
    return dtype == CLT_F32 ? 0 : dtype == CLT_F64 ? 1 : 2;
}

static clt_status begin(driver *v, int k, clt_comm_request **request)
{
    plan p = plan_of(v->seed, k, v->f->count);
    cl_mem mem = v->mem[k % SLOTS][type_index(p.dtype)];
    size_t size = (size_t)clt_dtype_size(p.dtype);
    static _Thread_local double host[ROOM];
    for (int64_t i = 0; i < ROOM; i++)
        put(p.dtype, host, i,
            i < p.offset || i >= p.offset + p.count ? -7 : value(k, v->device, i - p.offset));
    FIXTURE_CL(clEnqueueWriteBuffer(v->f->queues[v->device], mem, CL_TRUE, 0, ROOM * size, host, 0,
                                    NULL, NULL));
    clt_comm_op op;
    clt_comm_op_init(&op);
    op.kind = p.kind;
    op.dtype = p.dtype;
    op.count = p.count;
    op.offset = p.offset;
    op.root = p.root;
    op.mem = mem;
    op.flags = p.empty >> v->device & 1 ? CLT_COMM_EMPTY : 0;
    if (p.kind == CLT_COMM_ALL_REDUCE)
        op.flags += CLT_COMM_MEASURE + (k % 5 == 0 ? CLT_COMM_EXCLUSIVE : 0);
    return clt_comm_start(v->comm, v->device, k, &op, 0, NULL, request);
}

static clt_status end(driver *v, int k, clt_comm_request *request)
{
    plan p = plan_of(v->seed, k, v->f->count);
    clt_comm_result result;
    cl_event arrived;
    clt_comm_result_init(&result);
    clt_status status = clt_comm_complete(request, v->device, &result, &arrived);
    if (status != CLT_OK)
        return status;
    static _Thread_local double host[ROOM];
    size_t size = (size_t)clt_dtype_size(p.dtype);
    FIXTURE_CL(clEnqueueReadBuffer(v->f->queues[v->device], v->mem[k % SLOTS][type_index(p.dtype)],
                                   CL_TRUE, 0, ROOM * size, host, 1, &arrived, NULL));
    clReleaseEvent(arrived);
    double squares = 0;
    for (int64_t i = 0; i < ROOM; i++) {
        bool inside = i >= p.offset && i < p.offset + p.count;
        int w = inside ? want(&p, k, v->f->count, i - p.offset) : -7;
        squares += inside ? (double)w * w : 0;
        v->errors += get(p.dtype, host, i) != w;
    }
    if (p.kind == CLT_COMM_ALL_REDUCE)
        v->errors += result.sum_squares != squares || !result.finite;
    return CLT_OK;
}

static void *drive(void *arg)
{
    driver *v = arg;
    clt_comm_request *requests[SLOTS];
    int started = 0;
    clt_status status = CLT_OK;
    for (int k = 0; k < COLLECTIVES && status == CLT_OK; k++) {
        /* How far a device runs ahead differs by device and changes. */
        int ahead = 1 + (k / 7 + v->device * 3) % SLOTS;
        for (; started < COLLECTIVES && started < k + ahead && status == CLT_OK; started++)
            status = begin(v, started, &requests[started % SLOTS]);
        if (status == CLT_OK)
            status = end(v, k, requests[k % SLOTS]);
    }
    if (status != CLT_OK) {
        snprintf(v->message, sizeof v->message, "%s", clt_error_message());
        clt_comm_abort(v->comm, status, v->message);
    }
    return NULL;
}

static void run(int devices, bool one_context, bool transfer_queues, int threads, uint32_t seed)
{
    fixture f;
    clt_comm *comm;
    clt_comm_options options;
    clt_comm_options_init(&options);
    options.threads = threads;
    options.max_in_flight = SLOTS;
    fixture_open(&f, devices, one_context, transfer_queues);
    assert_int_equal(fixture_comm(&f, &options, &comm), CLT_OK);
    static driver drivers[FIXTURE_MAX];
    pthread_t ids[FIXTURE_MAX];
    const size_t sizes[3] = {sizeof(float), sizeof(double), sizeof(int32_t)};
    for (int d = 0; d < devices; d++) {
        drivers[d] = (driver){.f = &f, .comm = comm, .device = d, .seed = seed};
        for (int i = 0; i < SLOTS * 3; i++)
            drivers[d].mem[i / 3][i % 3] = fixture_buffer(&f, d, ROOM * sizes[i % 3]);
    }
    for (int d = 0; d < devices; d++)
        assert_int_equal(pthread_create(&ids[d], NULL, drive, &drivers[d]), 0);
    for (int d = 0; d < devices; d++)
        pthread_join(ids[d], NULL);
    for (int d = 0; d < devices; d++) {
        assert_string_equal(drivers[d].message, "");
        assert_int_equal(drivers[d].errors, 0);
    }
    clt_comm_destroy(comm);
    for (int d = 0; d < devices; d++) {
        for (int i = 0; i < SLOTS * 3; i++)
            clReleaseMemObject(drivers[d].mem[i / 3][i % 3]);
    }
    fixture_close(&f);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_devices),
        cmocka_unit_test(two_devices_of_one_context_with_transfer_queues),
        cmocka_unit_test(three_devices),
        cmocka_unit_test(four_devices_of_one_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
