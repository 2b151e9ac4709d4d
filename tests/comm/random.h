/*
 * Random collectives of random kinds, types, reductions, sizes and places. They run alone and in
 * groups, with several in flight and a thread for each device. Data are small integers, so every
 * result is exact and compared in full. Used by test_random.c and tests/mpi.
 */
#ifndef TESTS_COMM_RANDOM_H
#define TESTS_COMM_RANDOM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <cmocka.h>

#include "base/philox.h"
#include "comm/fixture.h"

enum {
    SLOTS = 6,
    GROUP = 3,
    BYTES = 48000,
    MESSAGES = 2,
    REGION = 300,
    RANKS_SEED = 100,
    PERIOD = 11
};

/* Collectives of a run: kinds, types and sizes repeat soon, schedules do not. */
static inline int collectives(void)
{
    return getenv("CLT_TEST_ALL") ? 1250 : 400;
}

/* Operation `o` of collective `k`, as all devices know it. */
typedef struct plan {
    clt_comm_kind kind;
    clt_dtype dtype;
    clt_comm_reduction reduction;
    int64_t count, offset;
    int root;
    uint32_t empty; /* one bit for each device */
    bool apart, exclusive;
} plan;

static inline void draw(uint32_t seed, int a, int b, int c, uint32_t r[4])
{
    const uint32_t counter[4] = {(uint32_t)a, (uint32_t)b, (uint32_t)c, 0}, key[2] = {seed, 0};
    clt_philox(counter, key, r);
}

static const clt_dtype dtypes[] = {CLT_F32, CLT_F64, CLT_F16, CLT_BF16, CLT_I32};

/* Returns whether collective k consists of sends and receives. */
static inline bool exchanges(uint32_t seed, int k)
{

    uint32_t r[4];
    draw(seed, k, 99, 0, r);
    return r[0] % 6 == 0;
}

static inline int operations(uint32_t seed, int k)
{
    uint32_t r[4];
    draw(seed, k, 98, 0, r);
    return r[0] % 3 ? 1 : 1 + (int)(r[1] % GROUP);
}

static inline bool reduces(clt_comm_kind kind)
{
    return kind == CLT_COMM_ALL_REDUCE || kind == CLT_COMM_REDUCE ||
           kind == CLT_COMM_REDUCE_SCATTER;
}

/* Returns the elements of the longer one of input and output, as a multiple of count. */
static inline int blocks(clt_comm_kind kind, int devices)
{
    return kind == CLT_COMM_REDUCE_SCATTER || kind == CLT_COMM_ALL_GATHER ? devices : 1;
}

static inline plan plan_of(uint32_t seed, int k, int o, int devices)
{
    const clt_comm_kind kinds[] = {CLT_COMM_ALL_REDUCE, CLT_COMM_REDUCE_SCATTER,
                                   CLT_COMM_ALL_GATHER, CLT_COMM_BROADCAST,
                                   CLT_COMM_REDUCE,     CLT_COMM_BARRIER};
    uint32_t r[4], s[4];
    draw(seed, k, o, 0, r);
    draw(seed, k, o, 1, s);
    plan p = {.kind = kinds[r[0] % 6],
              .dtype = dtypes[r[0] / 6 % 5],
              .root = (int)(r[0] / 64 % (uint32_t)devices),
              .apart = r[0] / 256 % 3 == 0,
              .exclusive = r[0] / 1024 % 5 == 0};
    const int64_t room = BYTES / clt_dtype_size(p.dtype);
    const bool whole = r[3] % 2;
    if (reduces(p.kind)) {
        p.reduction = (clt_comm_reduction)(s[0] % 4);
        if (s[0] / 4 % 4 == 0)
            p.empty = s[1] % (1u << devices);
    }
    if (p.kind == CLT_COMM_BARRIER)
        return p;
    p.count = whole ? room / blocks(p.kind, devices)
                    : (int64_t)(r[1] % (s[2] % 3 ? 64 : (uint32_t)room / 2 / (uint32_t)devices));
    p.offset = whole ? 0 : (int64_t)(r[2] % ((uint32_t)room / 2));
    return p;
}

/* Returns an input element. Sums of four are exact in bf16, and means of up to four are
 * integers. */
static inline int value(int k, int o, int device, int64_t i)
{
    return 12 * ((int)((i * 13 + device * 977 + k * 101 + o * 7) % PERIOD) - 5);
}

/* --- elements of any type --------------------------------------------------------------------- */

static inline uint16_t half_of(double v)
{
    if (isinf(v))
        return v < 0 ? 0xfc00 : 0x7c00;
    if (v == 0)
        return 0;
    int exponent;
    const double m = frexp(fabs(v), &exponent); /* exact, since v has few bits */
    return (uint16_t)((v < 0 ? 0x8000 : 0) | (exponent + 14) << 10 | ((int)(m * 2048) & 0x3ff));
}

static inline uint16_t bfloat_of(double v)
{
    const float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static inline void put(clt_dtype dtype, void *x, int64_t i, double v)
{
    switch (dtype) {
    case CLT_F32:
        ((float *)x)[i] = (float)v;
        break;
    case CLT_F64:
        ((double *)x)[i] = v;
        break;
    case CLT_F16:
        ((uint16_t *)x)[i] = half_of(v);
        break;
    case CLT_BF16:
        ((uint16_t *)x)[i] = bfloat_of(v);
        break;
    default:
        ((int32_t *)x)[i] = isinf(v) ? (v < 0 ? INT32_MIN : INT32_MAX) : (int32_t)v;
    }
}

/* --- expected results ------------------------------------------------------------------------- */

/* Fills elements [first, end) with a cycle of PERIOD values. Computing each element separately took
 * most of a test's time. */
static inline void put_cycle(clt_dtype dtype, void *x, int64_t first, int64_t end,
                             const double cycle[PERIOD], int64_t phase)
{
    const size_t size = (size_t)clt_dtype_size(dtype);
    const int64_t head = end - first < PERIOD ? end : first + PERIOD;
    for (int64_t i = first; i < head; i++)
        put(dtype, x, i, cycle[(i - first + phase) % PERIOD]);
    for (int64_t have = PERIOD; have < end - first; have *= 2) {
        const int64_t more = have < end - first - have ? have : end - first - have;
        char *begin = (char *)x + (size_t)first * size;
        memcpy(begin + (size_t)have * size, begin, (size_t)more * size);
    }
}

static inline void put_all(clt_dtype dtype, void *x, double v)
{
    const double cycle[PERIOD] = {v, v, v, v, v, v, v, v, v, v, v};
    put_cycle(dtype, x, 0, BYTES / clt_dtype_size(dtype), cycle, 0);
}

static inline void values_of(int k, int o, int device, double cycle[PERIOD])
{
    for (int i = 0; i < PERIOD; i++)
        cycle[i] = value(k, o, device, i);
}

/* Returns element i of the reduction over the devices. */
static inline double reduced(const plan *p, int k, int o, int devices, int64_t i)
{
    int n = 0;
    double all = p->reduction == CLT_COMM_MIN   ? INFINITY
                 : p->reduction == CLT_COMM_MAX ? -INFINITY
                                                : 0;
    for (int d = 0; d < devices; d++) {
        if (p->empty >> d & 1)
            continue;
        const double v = value(k, o, d, i);
        n++;
        all = p->reduction == CLT_COMM_MIN   ? fmin(all, v)
              : p->reduction == CLT_COMM_MAX ? fmax(all, v)
                                             : all + v;
    }
    return p->reduction == CLT_COMM_MEAN && n ? all / n : all;
}

static inline void sums_of(const plan *p, int k, int o, int devices, double cycle[PERIOD])
{
    for (int i = 0; i < PERIOD; i++)
        cycle[i] = reduced(p, k, o, devices, i);
}

/* Writes the device's input into a buffer of -7. For an all-gather in place, the input is the
 * device's own block. */
static inline void put_input(const plan *p, int k, int o, int device, void *x)
{
    const int64_t room = BYTES / clt_dtype_size(p->dtype);
    const bool block = p->kind == CLT_COMM_ALL_GATHER;
    const int64_t first = p->offset + (block && !p->apart ? device * p->count : 0);
    double cycle[PERIOD];
    values_of(k, o, device, cycle);
    put_all(p->dtype, x, -7);
    put_cycle(p->dtype, x, first, block ? first + p->count : room, cycle, 0);
}

/* Writes the operation's result on the device over the old content of the buffer. */
static inline void put_result(const plan *p, int k, int o, int devices, int device, void *x)
{
    const int64_t count = p->count, first = p->offset, skip = device * count;
    double cycle[PERIOD];
    sums_of(p, k, o, devices, cycle);
    switch (p->kind) {
    case CLT_COMM_ALL_REDUCE:
        put_cycle(p->dtype, x, first, first + count, cycle, 0);
        break;
    case CLT_COMM_REDUCE:
        if (device == p->root)
            put_cycle(p->dtype, x, first, first + count, cycle, 0);
        break;
    case CLT_COMM_REDUCE_SCATTER: {
        const int64_t at = first + (p->apart ? 0 : skip);
        put_cycle(p->dtype, x, at, at + count, cycle, skip);
        break;
    }
    case CLT_COMM_ALL_GATHER:
        for (int d = 0; d < devices; d++) {
            values_of(k, o, d, cycle);
            put_cycle(p->dtype, x, first + d * count, first + (d + 1) * count, cycle, 0);
        }
        break;
    case CLT_COMM_BROADCAST:
        values_of(k, o, p->root, cycle);
        put_cycle(p->dtype, x, first, first + count, cycle, 0);
        break;
    default:
        break;
    }
}

/* Returns the sum of squares of all elements that a reduction produces. */
static inline double squares_of(const plan *p, int k, int o, int devices)
{
    const int64_t count = p->count * blocks(p->kind, devices);
    double sum = 0;
    for (int i = 0; i < PERIOD && i < count; i++) {
        double w = reduced(p, k, o, devices, i);
        if (p->dtype == CLT_I32 && isinf(w))
            w = w < 0 ? INT32_MIN : INT32_MAX;
        sum += w * w * (double)((count - i + PERIOD - 1) / PERIOD);
    }
    return sum;
}

/* --- a device's thread ------------------------------------------------------------------------ */

typedef struct driver {
    const fixture *f;
    clt_comm *comm;
    int device;  /* number of the participant */
    int first;   /* participant of the communicator's device 0 */
    int base;    /* participant of the fixture's device 0 */
    int total;   /* number of participants */
    bool queued; /* results for the host are not waited for */
    int errors;
    uint32_t seed;
    cl_mem mem[SLOTS][GROUP], out[SLOTS][GROUP];
    char message[256];
} driver;

static _Thread_local double scratch[BYTES / 8], expected[BYTES / 8];

static inline void write_all(const driver *v, cl_mem mem, const void *from)
{
    FIXTURE_CL(clEnqueueWriteBuffer(v->f->queues[v->device - v->base], mem, CL_TRUE, 0, BYTES, from,
                                    0, NULL, NULL));
}

static inline int differs(const driver *v, cl_mem mem)
{
    FIXTURE_CL(clEnqueueReadBuffer(v->f->queues[v->device - v->base], mem, CL_TRUE, 0, BYTES,
                                   scratch, 0, NULL, NULL));
    return memcmp(scratch, expected, BYTES) != 0;
}

static inline void fill_op(const driver *v, int k, int o, clt_comm_op *op)
{
    const plan p = plan_of(v->seed, k, o, v->total);
    cl_mem mem = v->mem[k % SLOTS][o], out = v->out[k % SLOTS][o];
    put_input(&p, k, o, v->device, scratch);
    write_all(v, mem, scratch);
    put_all(p.dtype, scratch, -7);
    write_all(v, out, scratch);
    clt_comm_op_init(op);
    op->kind = p.kind;
    op->dtype = p.dtype;
    op->reduction = p.reduction;
    op->count = p.count;
    op->offset = p.offset;
    op->root = p.root;
    op->mem = mem;
    op->out = p.apart ? out : NULL;
    op->out_offset = p.offset;
    op->flags = (p.empty >> v->device & 1 ? CLT_COMM_EMPTY : 0) +
                (reduces(p.kind) ? CLT_COMM_MEASURE : 0) + (p.exclusive ? CLT_COMM_EXCLUSIVE : 0) +
                (v->queued ? CLT_COMM_QUEUED : 0);
}

/* Returns the number of elements of message j from a to b. */
static inline int64_t message_count(uint32_t seed, int k, int a, int b, int j)
{
    uint32_t r[4];
    draw(seed, k, 100 + a * 8 + b, j, r);
    return r[0] % 3 ? (int64_t)(r[1] % REGION) : -1; /* -1: there is no message */
}

static inline int64_t region(int peer, int j, bool received)
{
    return ((received ? FIXTURE_MAX * MESSAGES : 0) + peer * MESSAGES + j) * REGION;
}

/* Lists the device's sends and receives. Returns their number. */
static inline int fill_exchange(const driver *v, int k, clt_comm_op *ops)
{
    int n = 0;
    double cycle[PERIOD];
    values_of(k, 0, v->device, cycle);
    put_cycle(CLT_F32, scratch, 0, BYTES / 4, cycle, 0);
    write_all(v, v->mem[k % SLOTS][0], scratch);
    for (int way = 0; way < 2; way++)
        for (int peer = 0; peer < v->total; peer++)
            for (int j = 0; j < MESSAGES && peer != v->device; j++) {
                const int64_t count = way ? message_count(v->seed, k, peer, v->device, j)
                                          : message_count(v->seed, k, v->device, peer, j);
                if (count < 0)
                    continue;
                clt_comm_op_init(&ops[n]);
                ops[n].kind = way ? CLT_COMM_RECEIVE : CLT_COMM_SEND;
                ops[n].count = count;
                ops[n].peer = peer;
                ops[n].mem = v->mem[k % SLOTS][0];
                ops[n++].offset = region(peer, j, way);
            }
    if (!n) {
        clt_comm_op_init(&ops[n]);
        ops[n++].kind = CLT_COMM_BARRIER;
    }
    return n;
}

static inline int check_exchange(const driver *v, int k)
{
    double cycle[PERIOD];
    values_of(k, 0, v->device, cycle);
    put_cycle(CLT_F32, expected, 0, BYTES / 4, cycle, 0);
    for (int peer = 0; peer < v->total; peer++)
        for (int j = 0; j < MESSAGES && peer != v->device; j++) {
            const int64_t count = message_count(v->seed, k, peer, v->device, j);
            const int64_t to = region(peer, j, true);
            values_of(k, 0, peer, cycle);
            put_cycle(CLT_F32, expected, to, to + count, cycle, region(v->device, j, false));
        }
    return differs(v, v->mem[k % SLOTS][0]);
}

/* Checks operation `o`. Adds the sum of squares to *squares, which becomes infinite if a result is
 * not finite. */
static inline int check_op(const driver *v, int k, int o, double *squares)
{
    const plan p = plan_of(v->seed, k, o, v->total);
    int errors = 0;
    for (int side = 0; side < 2; side++) {
        if (side)
            put_all(p.dtype, expected, -7);
        else
            put_input(&p, k, o, v->device, expected);
        if ((side == 1) == p.apart)
            put_result(&p, k, o, v->total, v->device, expected);
        errors += differs(v, (side ? v->out : v->mem)[k % SLOTS][o]);
    }
    if (reduces(p.kind))
        *squares += squares_of(&p, k, o, v->total);
    return errors;
}

static inline clt_status begin(driver *v, int k, clt_comm_request **request)
{
    clt_comm_op ops[2 * FIXTURE_MAX * MESSAGES + 1];
    int n = operations(v->seed, k);
    if (exchanges(v->seed, k))
        n = fill_exchange(v, k, ops);
    else
        for (int o = 0; o < n; o++)
            fill_op(v, k, o, &ops[o]);
    for (int o = 1; o < n; o++)
        ops[o - 1].next = &ops[o];
    if (v->queued)
        ops[0].flags |= CLT_COMM_QUEUED;
    return clt_comm_start(v->comm, v->device - v->first, k, ops, 0, NULL, request);
}

static inline clt_status end(driver *v, int k, clt_comm_request *request)
{
    clt_comm_result result;
    cl_event arrived;
    clt_comm_result_init(&result);
    clt_status status =
        clt_comm_complete(request, v->device - v->first, v->queued ? NULL : &result, &arrived);
    if (status != CLT_OK)
        return status;
    FIXTURE_CL(clWaitForEvents(1, &arrived));
    clReleaseEvent(arrived);
    double squares = 0;
    int errors = 0;
    if (exchanges(v->seed, k))
        errors = check_exchange(v, k);
    else
        for (int o = 0; o < operations(v->seed, k); o++)
            errors += check_op(v, k, o, &squares);
    if (v->queued) { /* results for the host are not waited for */
        result.sum_squares = squares;
        result.finite = isfinite(squares);
    }
    /* The square of the least integer is above 2^53. */
    const bool exact = squares < 0x1p53;
    errors += exact ? result.sum_squares != squares || !result.finite
                    : isfinite(squares) && fabs(result.sum_squares - squares) > 1e-12 * squares;
    errors += isinf(squares) && result.finite;
    if (errors && !v->errors)
        snprintf(v->message, sizeof v->message, "collective %d: %d errors", k, errors);
    v->errors += errors;
    return CLT_OK;
}

static inline void *drive(void *arg)
{
    driver *v = arg;
    clt_comm_request *requests[SLOTS];
    const int all = collectives();
    int started = 0;
    clt_status status = CLT_OK;
    for (int k = 0; k < all && status == CLT_OK; k++) {
        /* How far a device runs ahead depends on the device and changes. */
        int ahead = 1 + (k / 7 + v->device * 3) % SLOTS;
        for (; started < all && started < k + ahead && status == CLT_OK; started++)
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

static inline void driver_open(driver *v, const fixture *f, int device, int base, int total,
                               uint32_t seed)
{
    *v = (driver){.f = f, .device = device, .base = base, .total = total, .seed = seed};
    for (int i = 0; i < SLOTS * GROUP; i++) {
        v->mem[i / GROUP][i % GROUP] = fixture_buffer(f, device - base, BYTES);
        v->out[i / GROUP][i % GROUP] = fixture_buffer(f, device - base, BYTES);
    }
}

static inline void driver_close(driver *v)
{
    for (int i = 0; i < SLOTS * GROUP; i++) {
        clReleaseMemObject(v->mem[i / GROUP][i % GROUP]);
        clReleaseMemObject(v->out[i / GROUP][i % GROUP]);
    }
}

#endif
