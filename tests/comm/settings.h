/* Collectives of every kind that run on two communicators over the same devices, and must give the
 * same bits. */
#ifndef TESTS_COMM_SETTINGS_H
#define TESTS_COMM_SETTINGS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "comm/fixture.h"
#include "comm/communicator/internal.h"
#include "support/references.h"

enum { DEVICES = 3, CHUNK = 8192, ROOM = 150000 };

static inline void ok(clt_status status)
{
    if (status != CLT_OK)
        fail_msg("%s: %s", clt_status_name(status), clt_error_message());
}

/* Sets the chunk size. 0 is the library's default. */
static inline void set_chunk(long long bytes)
{
#ifdef CLT_TESTING
    atomic_store(&clt_comm_testing_chunk_bytes, bytes);
#else
    (void)bytes;
#endif
}

/* --- comparing two communicators -------------------------------------------------------------- */

typedef struct setting {
    clt_comm_kind kind;
    clt_dtype dtype;
    clt_comm_reduction reduction;
    int64_t count, offset, out_offset; /* out_offset -1: in place */
    int empty;                         /* a device without data; -1 for none */
    int root;
} setting;

typedef struct bench {
    fixture f;
    clt_comm *comm;
    cl_mem mem[DEVICES], out[DEVICES];
} bench;

static inline void open_bench(bench *b, clt_comm_path path, bool one_context)
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

static inline void close_bench(bench *b)
{
    clt_comm_destroy(b->comm);
    for (int d = 0; d < DEVICES; d++) {
        FIXTURE_CL(clFinish(b->f.queues[d]));
        assert_int_equal(references_left(b->mem[d]), 1);
        assert_int_equal(references_left(b->out[d]), 1);
        clReleaseMemObject(b->mem[d]);
        clReleaseMemObject(b->out[d]);
    }
    fixture_close(&b->f);
}

/* Fills a buffer with random bits but without NaN, since the sum of two NaN depends on the
 * order. */
static inline void fill(const bench *b, const setting *s, int d, cl_mem mem, uint32_t random)
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
            ((uint16_t *)x)[i] = (uint16_t)(random >> 16 & 0xbbff); /* finite and below 2 */
    }
    FIXTURE_CL(clEnqueueWriteBuffer(b->f.queues[d], mem, CL_TRUE, 0, sizeof x, x, 0, NULL, NULL));
}

typedef struct outcome {
    char mem[DEVICES][ROOM * 8], out[DEVICES][ROOM * 8];
    double squares;
    int finite, contributors;
} outcome;

static inline void run(const bench *b, const setting *s, outcome *o)
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

/* Runs all settings on both communicators, and compares the bits. The second one uses chunks of
 * `chunk` bytes (0: two sizes in turn). */
static inline void compare(const bench *a, const bench *b, long long chunk)
{
    static outcome first, second;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        run(a, &settings[i], &first);
        set_chunk(chunk ? chunk : i % 2 ? CHUNK : 131072 + 64);
        run(b, &settings[i], &second);
        set_chunk(0);
        if (memcmp(&first, &second, sizeof first))
            fail_msg("setting %d differs", (int)i);
    }
}

#endif
