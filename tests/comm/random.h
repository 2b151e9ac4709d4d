/*
 * Random collectives of random kinds, types, reductions, sizes and places, alone and in groups,
 * several in flight, one thread a device. Data are small integers, so that every result is exact
 * and is compared in full. For test_random.c and tests/mpi.
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
    COLLECTIVES = 1250,
    SLOTS = 6,
    GROUP = 3,
    BYTES = 48000,
    MESSAGES = 2,
    REGION = 300,
    RANKS_SEED = 100
};

/* What the devices agree on in operation `o` of collective `k`. */
typedef struct plan {
    clt_comm_kind kind;
    clt_dtype dtype;
    clt_comm_reduction reduction;
    int64_t count, offset;
    int root;
    uint32_t empty; /* a bit a device */
    bool apart, exclusive;
} plan;

static inline void draw(uint32_t seed, int a, int b, int c, uint32_t r[4])
{
    const uint32_t counter[4] = {(uint32_t)a, (uint32_t)b, (uint32_t)c, 0}, key[2] = {seed, 0};
    clt_philox(counter, key, r);
}

static const clt_dtype dtypes[] = {CLT_F32, CLT_F64, CLT_F16, CLT_BF16, CLT_I32};

/* Whether collective k is sends and receives. */
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

/* Elements of the longer one of input and output, in counts. */
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

/* Sums of four are exact in bf16, and means of up to four are integers. */
static inline int value(int k, int o, int device, int64_t i)
{
    return 12 * ((int)((i * 13 + device * 977 + k * 101 + o * 7) % 11) - 5);
}

/* --- elements of any type --------------------------------------------------------------------- */

static inline uint16_t half_of(double v)
{
    if (isinf(v))
        return v < 0 ? 0xfc00 : 0x7c00;
    if (v == 0)
        return 0;
    int exponent;
    const double m = frexp(fabs(v), &exponent); /* exact: few bits */
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

/* --- what is expected ------------------------------------------------------------------------- */

/* Element i of the reduction over the devices. */
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

/* Whether the operation writes element i (from its offset on) for the device, and what. */
static inline bool written(const plan *p, int k, int o, int devices, int device, int64_t i,
                           double *v)
{
    const int64_t block = p->count ? i / p->count : 0;
    switch (p->kind) {
    case CLT_COMM_ALL_REDUCE:
        *v = reduced(p, k, o, devices, i);
        return i >= 0 && i < p->count;
    case CLT_COMM_REDUCE:
        *v = reduced(p, k, o, devices, i);
        return i >= 0 && i < p->count && device == p->root;
    case CLT_COMM_REDUCE_SCATTER:
        *v = reduced(p, k, o, devices, p->apart ? i + device * p->count : i);
        return i >= 0 && p->count && (p->apart ? i < p->count : block == device);
    case CLT_COMM_ALL_GATHER:
        *v = value(k, o, (int)block, p->count ? i % p->count : 0);
        return i >= 0 && i < p->count * devices;
    case CLT_COMM_BROADCAST:
        *v = value(k, o, p->root, i);
        return i >= 0 && i < p->count;
    default:
        return false;
    }
}

/* Element i of the device's input. An all-gather in place has it in its own block. */
static inline double input(const plan *p, int k, int o, int device, int64_t i)
{
    if (p->kind == CLT_COMM_ALL_GATHER && !p->apart)
        i -= device * p->count;
    return i < 0 || (p->kind == CLT_COMM_ALL_GATHER && i >= p->count) ? -7 : value(k, o, device, i);
}

/* --- a device's thread ------------------------------------------------------------------------ */

typedef struct driver {
    const fixture *f;
    clt_comm *comm;
    int device;  /* participant */
    int first;   /* participant of the communicator's device 0 */
    int base;    /* participant of the fixture's device 0 */
    int total;   /* participants */
    bool queued; /* nobody waits for the host's part */
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
    const int64_t room = BYTES / clt_dtype_size(p.dtype);
    cl_mem mem = v->mem[k % SLOTS][o], out = v->out[k % SLOTS][o];
    for (int64_t i = 0; i < room; i++)
        put(p.dtype, scratch, i, input(&p, k, o, v->device, i - p.offset));
    write_all(v, mem, scratch);
    for (int64_t i = 0; i < room; i++)
        put(p.dtype, scratch, i, -7);
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

/* Message j of a to b: which elements of an f32 buffer's region for it. */
static inline int64_t message_count(uint32_t seed, int k, int a, int b, int j)
{
    uint32_t r[4];
    draw(seed, k, 100 + a * 8 + b, j, r);
    return r[0] % 3 ? (int64_t)(r[1] % REGION) : -1; /* -1: there is none */
}

static inline int64_t region(int peer, int j, bool received)
{
    return ((received ? FIXTURE_MAX * MESSAGES : 0) + peer * MESSAGES + j) * REGION;
}

/* The device's sends and receives as a list; their number. */
static inline int fill_exchange(const driver *v, int k, clt_comm_op *ops)
{
    int n = 0;
    for (int64_t i = 0; i < BYTES / 4; i++)
        ((float *)scratch)[i] = (float)value(k, 0, v->device, i);
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
    float *want = (float *)expected;
    for (int64_t i = 0; i < BYTES / 4; i++)
        want[i] = (float)value(k, 0, v->device, i);
    for (int peer = 0; peer < v->total; peer++)
        for (int j = 0; j < MESSAGES && peer != v->device; j++) {
            const int64_t count = message_count(v->seed, k, peer, v->device, j);
            for (int64_t i = 0; i < count; i++)
                want[region(peer, j, true) + i] =
                    (float)value(k, 0, peer, region(v->device, j, false) + i);
        }
    return differs(v, v->mem[k % SLOTS][0]);
}

/* Adds the sum of squares; a result that is not finite makes it infinite. */
static inline int check_op(const driver *v, int k, int o, double *squares)
{
    const plan p = plan_of(v->seed, k, o, v->total);
    const int64_t room = BYTES / clt_dtype_size(p.dtype);
    int errors = 0;
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < room; i++) {
            double w;
            const bool result =
                (side == 1) == p.apart && written(&p, k, o, v->total, v->device, i - p.offset, &w);
            put(p.dtype, expected, i,
                result ? w
                : side ? -7
                       : input(&p, k, o, v->device, i - p.offset));
        }
        errors += differs(v, (side ? v->out : v->mem)[k % SLOTS][o]);
    }
    for (int64_t i = 0; reduces(p.kind) && i < p.count * blocks(p.kind, v->total); i++) {
        double w = reduced(&p, k, o, v->total, i);
        if (p.dtype == CLT_I32 && isinf(w))
            w = w < 0 ? INT32_MIN : INT32_MAX;
        *squares += w * w;
    }
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
    if (v->queued) { /* what the host learns is not waited for */
        result.sum_squares = squares;
        result.finite = isfinite(squares);
    }
    /* Squares of the least integer are above 2^53. */
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
