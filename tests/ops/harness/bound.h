/*
 * A case of an operator's test, its graph, and a plan of the graph on the device. For harness.h.
 */
#ifndef TESTS_OPS_BOUND_H
#define TESTS_OPS_BOUND_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "exec/exec.h"
#include "ops/harness/half.h"
#include "ops/harness/settled.h"
#include "ops/harness/trains.h"
#include "ops/harness/variants.h"
#include "ops/harness/compared.h"
#include "passes/passes.h"
#include "support/devices.h"
#include <cltrain/ops.h>

enum { OP_MAX_IN = 6, OP_MAX_OUT = 2, OP_TEXT = 64 };

typedef enum op_fill {
    OP_RANDOM,   /* in [-1, 1) */
    OP_DISTINCT, /* 7919 numbers, at least 1 / 64 apart, so that maxima have no kinks nearby */
    OP_AWAY,     /* random, at least 0.1 from zero */
    OP_LABELS    /* i32 in 0 .. classes - 1; every third one ignored if `ignored` */
} op_fill;

typedef struct op_operand {
    clt_dtype dtype; /* F32 or I32 */
    int rank;
    int64_t dims[CLT_MAX_RANK]; /* negative: a multiple of the batch */
    op_fill fill;
    bool gradient;     /* the gradient is computed and checked */
    const double *set; /* numbers to use instead of `fill`, for the full batch */
} op_operand;

/* One call of the operator under test. */
typedef struct op_case {
    const char *text;
    int n_in;
    op_operand in[OP_MAX_IN];
    int64_t batch;
    const void *attr; /* data of the test */
    /* Numbers for the full batch from another implementation, or NULL; see golden.h. */
    const double *dy_set[OP_MAX_OUT], *y_set[OP_MAX_OUT], *dx_set[OP_MAX_IN];
    int classes, ignored; /* OP_LABELS: number of classes; whether some are ignored (-100) */
    bool sharp;           /* in 16 bits: results are rounded once, at the end */
    bool kinks;           /* leave out 16 bits: rounding of intermediate values moves a maximum */
    int lead;             /* NaN elements before each operand in its buffer */
    bool trains;          /* run as a training step, in which random numbers are drawn */
} op_case;

/* Arrays are by operand or output, NULL for a missing operand. The reference sets each element of
 * `bound` to sqrt(K) times the sum of the absolute terms of the element; NULL: not needed. */
typedef struct op_test {
    const char *op;
    int n_out;
    unsigned no_gradient; /* bit o: output o has no gradient */
    void (*build)(const op_case *c, clt_value *const *in, clt_value **out);
    void (*forward)(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound);
    void (*backward)(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound);
    double worst; /* largest error so far, in eps times the bound */
} op_test;

/* All results of the reference for one batch count. */
typedef struct op_expected {
    double *x[OP_MAX_IN], *y[OP_MAX_OUT], *y_bound[OP_MAX_OUT];
    double *dy[OP_MAX_OUT], *dx[OP_MAX_IN], *dx_bound[OP_MAX_IN];
} op_expected;

/* --- sizes and numbers ---------------------------------------------------------------------- */

static inline int64_t op_dim(const op_case *c, int operand, int axis, int64_t n)
{
    return clt_dim(c->in[operand].dims[axis], n);
}

static inline int64_t op_count(const op_case *c, int operand, int64_t n)
{
    int64_t count = 1;
    for (int i = 0; i < c->in[operand].rank; i++)
        count *= op_dim(c, operand, i, n);
    return count;
}

static inline double op_uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(float)((double)(*state >> 40) / 8388608.0 - 1.0);
}

static inline double *op_array(int64_t count)
{
    double *array = calloc((size_t)count + 1, sizeof *array);
    assert_non_null(array);
    return array;
}

void op_fill_operand(const op_case *c, int operand, int64_t n, double *to);

/* --- the device ----------------------------------------------------------------------------- */

extern clt_runtime *op_runtime;
extern clt_device **op_devices;

int op_setup(void **state);

int op_teardown(void **state);

/* A graph of one operator, bound to the device. */
typedef struct op_bound {
    clt_graph *graph;
    clt_value *in[OP_MAX_IN], *out[OP_MAX_OUT];
    clt_buckets buckets;
    clt_plan *plan;
    clt_replica replica;
    clt_arena arena;
    clt_exec *exec;
    op_half half; /* rounding to 16 bits */
} op_bound;

void op_build_graph(const op_test *t, const op_case *c, clt_dtype precision, op_bound *b);

/* Builds the programs one after the other. exec would call the compiler from several threads at
 * once, and Oclgrind's compiler crashes then. */
void op_build_programs(const clt_plan *plan);

/* Makes the case's graph and its plan. Returns false if there is no such tile. */
bool op_make_plan(const op_test *t, const op_case *c, const op_mode *mode, op_bound *b);

/* Compiles the plan's kernels. */
void op_make_exec(op_bound *b);

bool op_bind(const op_test *t, const op_case *c, const op_mode *mode, op_bound *b);

/* Also frees plans that were not bound. */
void op_unbind(op_bound *b);

/* Makes a buffer of exactly these numbers behind `lead` others. */
cl_mem op_upload(const clt_value *value, const double *numbers, int64_t n, int lead);

const double *op_numbers(const clt_value *value, double *const *x, double *const *dy);

#endif
