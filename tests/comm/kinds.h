/*
 * Every kind of collective with every reduction and element type, and several counts and places.
 * Results are compared with a reference in long double that uses no code of the library. After each
 * collective, clt_comm_counts is compared with its formulas. Used by test_kinds.c and
 * tests/mpi/counts.c.
 *
 * Values are random and differ everywhere, so an element in a wrong place is found.
 */
#ifndef TESTS_COMM_KINDS_H
#define TESTS_COMM_KINDS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <cltrain/comm.h>

enum { KINDS = CLT_COMM_BARRIER + 1, TYPES = CLT_F64 + 1, KIND_MOST = 5, KIND_COUNT = 1031 };
enum { KIND_ROOM = (KIND_COUNT + 8) * KIND_MOST, KIND_BYTES = KIND_ROOM * 8 };

/* A collective as all participants know it. */
typedef struct kind_case {
    int number;
    clt_comm_kind kind;
    clt_dtype dtype;
    clt_comm_reduction reduction;
    int64_t count, offset, out_offset;
    int root;
    uint32_t empty; /* one bit for each participant */
    bool apart, host, measure, nan;
    bool nodes; /* several; set by the test */
} kind_case;

/* The memory of a participant on the host, before and after. */
typedef struct kind_data {
    char *mem, *out, *mem_after, *out_after;
} kind_data;

static inline bool kind_reduces(clt_comm_kind kind)
{
    return kind == CLT_COMM_ALL_REDUCE || kind == CLT_COMM_REDUCE ||
           kind == CLT_COMM_REDUCE_SCATTER;
}

static inline bool kind_has_blocks(clt_comm_kind kind)
{
    return kind == CLT_COMM_REDUCE_SCATTER || kind == CLT_COMM_ALL_GATHER;
}

/* --- elements --------------------------------------------------------------------------------- */

static inline double kind_half(uint16_t h)
{
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    const double size = exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
                        : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                       : ldexp(fraction, -24);
    return h & 0x8000 ? -size : size;
}

static inline double kind_get(clt_dtype dtype, const char *x, int64_t i)
{
    float f;
    double d;
    int32_t n;
    uint16_t h;
    switch (dtype) {
    case CLT_F32:
        memcpy(&f, x + 4 * i, 4);
        return (double)f;
    case CLT_F64:
        memcpy(&d, x + 8 * i, 8);
        return d;
    case CLT_I32:
        memcpy(&n, x + 4 * i, 4);
        return n;
    case CLT_F16:
        memcpy(&h, x + 2 * i, 2);
        return kind_half(h);
    case CLT_BF16: {
        memcpy(&h, x + 2 * i, 2);
        const uint32_t bits = (uint32_t)h << 16;
        memcpy(&f, &bits, 4);
        return (double)f;
    }
    default:
        return (unsigned char)x[i];
    }
}

static inline uint32_t kind_random(uint32_t *state)
{
    uint32_t x = *state += 0x9e3779b9u;
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}

/* Fills an array with random finite elements: floating-point ones of size 2^-4 to 2^4, integers of
 * all sizes. */
static inline void kind_fill(const kind_case *c, int participant, int array, char *x)
{
    uint32_t state = (uint32_t)(c->number * 64 + participant * 2 + array) * 2654435761u;
    const int size = clt_dtype_size(c->dtype);
    for (int64_t i = 0; i < KIND_ROOM; i++) {
        const uint32_t r = kind_random(&state);
        const double v = ldexp(1 + (double)(r >> 9) / (1 << 23), (int)(r & 7) - 4);
        const float f = (float)(r & 8 ? -v : v);
        const double d = (r & 8 ? -v : v) * (1 + ldexp(kind_random(&state), -60));
        uint32_t bits;
        memcpy(&bits, &f, 4);
        const uint16_t half =
            (uint16_t)((r & 8 ? 0x8000 : 0) | (11 + (r & 7)) << 10 | (r >> 9 & 1023));
        const uint16_t bfloat = (uint16_t)(bits >> 16);
        const void *from = c->dtype == CLT_F32    ? (const void *)&f
                           : c->dtype == CLT_F64  ? (const void *)&d
                           : c->dtype == CLT_F16  ? (const void *)&half
                           : c->dtype == CLT_BF16 ? (const void *)&bfloat
                                                  : (const void *)&r;
        memcpy(x + i * size, from, (size_t)size);
    }
}

static inline void kind_put_nan(clt_dtype dtype, char *x, int64_t i)
{
    const float f = NAN;
    const double d = NAN;
    const uint16_t half = 0x7e00, bfloat = 0x7fc0;
    if (dtype == CLT_F32)
        memcpy(x + 4 * i, &f, 4);
    else if (dtype == CLT_F64)
        memcpy(x + 8 * i, &d, 8);
    else if (dtype == CLT_F16 || dtype == CLT_BF16)
        memcpy(x + 2 * i, dtype == CLT_F16 ? &half : &bfloat, 2);
}

/* --- ranges of a participant ------------------------------------------------------------------ */

static inline int64_t kind_whole(const kind_case *c, int total)
{
    return c->count * (kind_has_blocks(c->kind) ? total : 1);
}

/* Returns the first element that a participant reads, and sets the number of elements. */
static inline int64_t kind_reads(const kind_case *c, int total, int who, int64_t *count)
{
    *count = c->kind == CLT_COMM_REDUCE_SCATTER ? kind_whole(c, total) : c->count;
    return c->offset + (c->kind == CLT_COMM_ALL_GATHER && !c->apart ? who * c->count : 0);
}

/* Returns the first element that a participant writes, in `out` if the case is `apart`. *first is
 * its place in the whole result. */
static inline int64_t kind_writes(const kind_case *c, int total, int who, int64_t *count,
                                  int64_t *first)
{
    const bool block = c->kind == CLT_COMM_REDUCE_SCATTER;
    const bool none = (c->kind == CLT_COMM_REDUCE && who != c->root) ||
                      (c->kind == CLT_COMM_BROADCAST && who == c->root && !c->apart);
    *count = none ? 0 : c->kind == CLT_COMM_ALL_GATHER ? kind_whole(c, total) : c->count;
    *first = block ? who * c->count : 0;
    return (c->apart ? c->out_offset : c->offset) + (block && !c->apart ? who * c->count : 0);
}

/* --- the reference ---------------------------------------------------------------------------- */

/* Returns element i of the result. *slack is the allowed difference, *whole the exact integer. */
static inline long double kind_reduced(const kind_case *c, const kind_data *all, int total,
                                       int64_t i, long double *slack, uint32_t *whole)
{
    const bool least = c->reduction == CLT_COMM_MIN, most = c->reduction == CLT_COMM_MAX;
    long double value = 0, sizes = 0;
    bool nan = false;
    int n = 0;
    *whole = 0;
    for (int p = 0; p < total; p++) {
        if (c->empty >> p & 1)
            continue;
        const long double v = (long double)kind_get(c->dtype, all[p].mem, c->offset + i);
        nan = nan || isnan(v);
        value = !n ? v : least ? fminl(value, v) : most ? fmaxl(value, v) : value + v;
        *whole += (uint32_t)(int32_t)(c->dtype == CLT_I32 ? v : 0);
        sizes += fabsl(v);
        n++;
    }
    if (!n && (least || most)) {
        value = c->dtype == CLT_I32 ? (long double)INT32_MAX : (long double)INFINITY;
        value = least ? value : c->dtype == CLT_I32 ? (long double)INT32_MIN : -value;
    }
    const long double unit = c->dtype == CLT_F64 ? DBL_EPSILON : FLT_EPSILON;
    const long double rounds = c->dtype == CLT_F16 ? 0x1p-11L : c->dtype == CLT_BF16 ? 0x1p-8L : 0;
    *slack = least || most || !n ? 0 : n * unit * sizes;
    if (c->reduction == CLT_COMM_MEAN && n) {
        value /= n;
        *slack = *slack / n + unit * fabsl(value);
        *whole = (uint32_t)((int32_t)*whole / n);
    }
    if (least || most || !n)
        *whole = c->dtype == CLT_I32 ? (uint32_t)(int32_t)value : 0;
    else
        *slack += rounds * fabsl(value) + (rounds > 0 ? 0x1p-24L : 0);
    /* Each node rounds its own sum. Parts of a mean travel as f32. */
    if (c->nodes && c->reduction == CLT_COMM_SUM)
        *slack += (1 + rounds) * rounds * sizes;
    return nan ? (long double)NAN : value;
}

static inline void kind_check_reduced(const kind_case *c, const kind_data *all, int total, int who,
                                      const char *x, int64_t at, int64_t i)
{
    long double slack;
    uint32_t whole;
    const long double want = kind_reduced(c, all, total, i, &slack, &whole);
    const double got = kind_get(c->dtype, x, at);
    const bool right = isnan(want)           ? isnan(got)
                       : c->dtype == CLT_I32 ? (uint32_t)(int32_t)got == whole
                       : isinf(want)         ? (long double)got == want
                                             : fabsl((long double)got - want) <= slack;
    if (!right)
        fail_msg("case %d: %s of %s, reduction %d, participant %d of %d, element %lld: %.17g, not "
                 "%.17Lg (+- %.3Lg)",
                 c->number, clt_comm_kind_name(c->kind), clt_dtype_name(c->dtype),
                 (int)c->reduction, who, total, (long long)i, got,
                 c->dtype == CLT_I32 ? (long double)(int32_t)whole : want, slack);
}

/* Returns element i of a copied result. */
static inline const char *kind_copied(const kind_case *c, const kind_data *all, int total,
                                      int64_t i)
{
    const int from = c->kind == CLT_COMM_BROADCAST ? c->root : (int)(i / c->count);
    int64_t count;
    const int64_t first = kind_reads(c, total, from, &count);
    const int64_t at = first + (c->kind == CLT_COMM_BROADCAST ? i : i % c->count);
    return all[from].mem + at * clt_dtype_size(c->dtype);
}

/* Compares the memory of a participant of this process after a collective. Adds the squares of its
 * result to *squares, unless another participant has the same result. */
static inline void kind_check(const kind_case *c, const kind_data *all, int total, int who,
                              double *squares, bool *finite)
{
    const kind_data *d = &all[who];
    const size_t size = (size_t)clt_dtype_size(c->dtype);
    int64_t count = 0, first = 0, at = 0;
    if (c->kind != CLT_COMM_BARRIER)
        at = kind_writes(c, total, who, &count, &first);
    const char *x = c->apart ? d->out_after : d->mem_after;
    const char *before = c->apart ? d->out : d->mem;
    assert_memory_equal(c->apart ? d->mem_after : d->out_after, c->apart ? d->mem : d->out,
                        KIND_BYTES);
    assert_memory_equal(x, before, (size_t)at * size);
    const size_t end = (size_t)(at + count) * size;
    assert_memory_equal(x + end, before + end, KIND_BYTES - end);
    for (int64_t i = 0; i < count; i++) {
        if (kind_reduces(c->kind)) {
            const double v = kind_get(c->dtype, x, at + i);
            kind_check_reduced(c, all, total, who, x, at + i, first + i);
            *squares += v * v;
            *finite = *finite && isfinite(v);
        } else if (memcmp(x + (size_t)(at + i) * size, kind_copied(c, all, total, i), size)) {
            fail_msg("case %d: %s of %s: element %lld of participant %d is another's", c->number,
                     clt_comm_kind_name(c->kind), clt_dtype_name(c->dtype), (long long)i, who);
        }
    }
}

/* --- cases ------------------------------------------------------------------------------------ */

static inline void kind_vary(kind_case *c, int total)
{
    static const int64_t counts[] = {5, 0, 257, 1, KIND_COUNT};
    uint32_t state = (uint32_t)c->number * 7919u;
    c->count = counts[c->number % 5];
    c->root = (int)(kind_random(&state) % (uint32_t)total);
    c->host = kind_random(&state) % 4 == 0;
    c->apart = !c->host && kind_random(&state) % 2;
    c->offset = kind_random(&state) % 3 ? kind_random(&state) % 8 : 0;
    c->out_offset = kind_random(&state) % 8;
    if (kind_reduces(c->kind)) {
        c->measure = kind_random(&state) % 2;
        c->nan = c->dtype != CLT_I32 && kind_random(&state) % 4 == 0;
        if (kind_random(&state) % 3 == 0)
            c->empty = kind_random(&state) % (1u << total);
    }
}

/* Sets the case after *c, whose number is -1 at first. Returns false behind the last case. All
 * kinds come `rounds` times with all types and reductions, except sends and receives. */
static inline bool kind_next(kind_case *c, int total, int rounds)
{
    for (int number = c->number + 1; number < rounds * KINDS * TYPES * 4; number++) {
        *c = (kind_case){.number = number,
                         .nodes = c->nodes,
                         .kind = (clt_comm_kind)(number / 4 / TYPES % KINDS),
                         .dtype = (clt_dtype)(number / 4 % TYPES),
                         .reduction = (clt_comm_reduction)(number % 4)};
        const bool message = c->kind == CLT_COMM_SEND || c->kind == CLT_COMM_RECEIVE;
        if (message || (kind_reduces(c->kind) && c->dtype == CLT_U8) ||
            (!kind_reduces(c->kind) && c->reduction) ||
            (c->kind == CLT_COMM_BARRIER && c->dtype != CLT_F32))
            continue;
        kind_vary(c, total);
        if (c->kind == CLT_COMM_BARRIER)
            c->count = c->offset = c->apart = c->host = 0;
        return true;
    }
    return false;
}

static inline void kind_op(const kind_case *c, int who, clt_comm_op *op)
{
    clt_comm_op_init(op);
    op->kind = c->kind;
    op->dtype = c->dtype;
    op->reduction = c->reduction;
    op->count = c->count;
    op->offset = c->offset;
    op->out_offset = c->out_offset;
    op->root = c->root;
    op->flags = (c->empty >> who & 1 ? CLT_COMM_EMPTY : 0) + (c->measure ? CLT_COMM_MEASURE : 0) +
                (c->number % 3 ? CLT_COMM_EXCLUSIVE : 0);
    op->vote = 1 << who;
}

/* Fills the inputs of all participants, including those of other processes. */
static inline void kind_inputs(const kind_case *c, kind_data *all, int total)
{
    for (int p = 0; p < total; p++) {
        kind_fill(c, p, 0, all[p].mem);
        kind_fill(c, p, 1, all[p].out);
        if (c->nan && c->count)
            kind_put_nan(c->dtype, all[p].mem, c->offset + (p * 3 + c->number) % c->count);
    }
}

static inline void kind_data_open(kind_data *all, int total)
{
    for (int p = 0; p < total; p++)
        for (int k = 0; k < 4; k++) {
            char *memory = calloc(1, KIND_BYTES);
            assert_non_null(memory);
            *(k == 0   ? &all[p].mem
              : k == 1 ? &all[p].out
              : k == 2 ? &all[p].mem_after
                       : &all[p].out_after) = memory;
        }
}

static inline void kind_data_close(kind_data *all, int total)
{
    for (int p = 0; p < total; p++) {
        free(all[p].mem);
        free(all[p].out);
        free(all[p].mem_after);
        free(all[p].out_after);
    }
}

/* --- counts ----------------------------------------------------------------------------------- */

typedef struct kind_counts {
    clt_comm_count of[KINDS][CLT_COMM_TRANSPORTS];
} kind_counts;

static inline void kind_counts_read(clt_comm *comm, kind_counts *counts)
{
    for (int k = 0; k < KINDS; k++)
        for (int t = 0; t < CLT_COMM_TRANSPORTS; t++) {
            clt_comm_count *c = &counts->of[k][t];
            clt_comm_count_init(c);
            assert_int_equal(clt_comm_counts(comm, (clt_comm_kind)k, (clt_comm_transport)t, c),
                             CLT_OK);
        }
}

/* The expected counts of a transport. */
typedef struct kind_expected {
    int64_t calls, payload;
    double sent;
} kind_expected;

/* Returns the counts of the header's formulas: n bytes in the whole tensor, and g participants of
 * the transport. */
static inline kind_expected kind_formula(const kind_case *c, int total, int g)
{
    const int passes = c->kind == CLT_COMM_ALL_REDUCE ? 2 : c->kind == CLT_COMM_BARRIER ? 0 : 1;
    const int64_t n = kind_whole(c, total) * clt_dtype_size(c->dtype);
    return (kind_expected){1, n, (double)passes * (g - 1) / g * (double)n};
}

/* Returns by how much a kind's count over a transport grew. */
static inline kind_expected kind_grown(const kind_counts *before, const kind_counts *after,
                                       int kind, int t)
{
    const clt_comm_count *x = &before->of[kind][t], *y = &after->of[kind][t];
    return (kind_expected){y->calls - x->calls, y->payload - x->payload, y->sent - x->sent};
}

static inline void kind_expect(int number, const char *where, kind_expected got, kind_expected want)
{
    if (got.calls != want.calls || got.payload != want.payload ||
        fabs(got.sent - want.sent) > 1e-9 * (fabs(want.sent) + 1))
        fail_msg("case %d, %s: %lld calls, %lld bytes of payload, %.3f sent; not %lld, %lld, %.3f",
                 number, where, (long long)got.calls, (long long)got.payload, got.sent,
                 (long long)want.calls, (long long)want.payload, want.sent);
}

/* Checks the counts after a collective. Each transport counts one call of the kind: the process of
 * `devices`, shared memory if the node has several ranks, and MPI if there are several nodes, where
 * this process sent `bridged` bytes. No other count changes. */
static inline void kind_check_counts(const kind_case *c, const kind_counts *before,
                                     const kind_counts *after, int total, int devices,
                                     int node_ranks, int nodes, double bridged)
{
    int within = 0;
    for (int k = 0; k < KINDS; k++)
        for (int t = 0; t < CLT_COMM_TRANSPORTS; t++) {
            const kind_expected none = {0};
            const kind_expected got = kind_grown(before, after, k, t);
            kind_expected want = none;
            const bool same = k == (int)c->kind;
            if (same && t < CLT_COMM_SHARED_MEMORY && got.calls) {
                want = kind_formula(c, total, devices);
                within++;
            } else if (same && t == CLT_COMM_SHARED_MEMORY && node_ranks > 1) {
                want = kind_formula(c, total, node_ranks);
            } else if (same && t == CLT_COMM_MPI && nodes > 1) {
                want = kind_formula(c, total, nodes);
                want.sent = bridged;
            }
            kind_expect(c->number, clt_comm_transport_name((clt_comm_transport)t), got, want);
        }
    assert_int_equal(within, 1);
}

#endif
