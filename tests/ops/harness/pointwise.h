/* Operators that compute a function of up to three broadcast operands, element by element.
 * Reference and gradient come from the function and its slopes. For harness.h. */
#ifndef TESTS_OPS_POINTWISE_H
#define TESTS_OPS_POINTWISE_H

#include "ops/harness/harness.h"

enum { PW_MOST = 3, PW_SET = 4096 };

/* A case's attribute. Bounds are in the units that are multiplied by 8 eps; NULL: |value|,
 * |slope|. */
typedef struct pointwise {
    const char *name;
    int n_in;
    clt_value *(*build)(clt_value *const *in);
    double (*value)(const double *x);
    double (*slope)(const double *x, int operand);
    double (*value_bound)(const double *x);
    double (*slope_bound)(const double *x, int operand);
    bool all_shapes;
    unsigned gradients;    /* bit i: operand i has a gradient */
    double least[PW_MOST]; /* least number of operand i, and the range from there; */
    double range[PW_MOST]; /* range 0: [-1, 1) */
    op_fill fill[PW_MOST]; /* if the range is 0 */
} pointwise;

typedef struct pw_index {
    int rank;
    int64_t dims[CLT_MAX_RANK], count;
} pw_index;

static inline int64_t pw_dim(const op_case *c, int i, int rank, int axis, int64_t n)
{
    const int own = axis - (rank - c->in[i].rank);
    return own < 0 ? 1 : op_dim(c, i, own, n);
}

/* Returns the result's dimensions. */
static inline pw_index pw_result(const op_case *c, int64_t n)
{
    pw_index r = {.count = 1};
    for (int i = 0; i < c->n_in; i++)
        r.rank = c->in[i].rank > r.rank ? c->in[i].rank : r.rank;
    for (int k = 0; k < r.rank; k++) {
        r.dims[k] = 1;
        for (int i = 0; i < c->n_in; i++)
            if (pw_dim(c, i, r.rank, k, n) != 1)
                r.dims[k] = pw_dim(c, i, r.rank, k, n);
        r.count *= r.dims[k];
    }
    return r;
}

/* Returns the element of operand i that contributes to element `at` of the result. */
static inline int64_t pw_at(const op_case *c, int i, const pw_index *r, int64_t at, int64_t n)
{
    int64_t index = 0, stride = 1;
    for (int k = r->rank - 1; k >= 0; k--) {
        const int64_t dim = pw_dim(c, i, r->rank, k, n);
        index += dim == 1 ? 0 : at % r->dims[k] * stride;
        at /= r->dims[k];
        stride *= dim;
    }
    return index;
}

static inline void pw_build(const op_case *c, clt_value *const *in, clt_value **out)
{
    out[0] = ((const pointwise *)c->attr)->build(in);
}

static inline void pw_gather(const op_case *c, const pw_index *r, int64_t at, int64_t n,
                             double *const *x, double *here)
{
    for (int i = 0; i < c->n_in; i++)
        here[i] = x[i][pw_at(c, i, r, at, n)];
}

static inline void pw_forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                              double *const *bound)
{
    const pointwise *p = c->attr;
    const pw_index r = pw_result(c, n);
    double here[PW_MOST];
    for (int64_t i = 0; i < r.count; i++) {
        pw_gather(c, &r, i, n, x, here);
        y[0][i] = p->value(here);
        if (bound)
            bound[0][i] = p->value_bound ? p->value_bound(here) : fabs(y[0][i]);
    }
}

static inline void pw_backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                               double *const *dx, double *const *bound)
{
    const pointwise *p = c->attr;
    const pw_index r = pw_result(c, n);
    double here[PW_MOST];
    for (int64_t i = 0; i < r.count; i++) {
        pw_gather(c, &r, i, n, x, here);
        for (int k = 0; k < c->n_in; k++) {
            if (!c->in[k].gradient)
                continue;
            const int64_t at = pw_at(c, k, &r, i, n);
            const double slope = p->slope(here, k);
            const double size = p->slope_bound ? p->slope_bound(here, k) : fabs(slope);
            dx[k][at] += dy[0][i] * slope;
            bound[k][at] +=
                sqrt((double)r.count / (double)op_count(c, k, n)) * fabs(dy[0][i]) * size;
        }
    }
}

static inline op_test pw_test(const pointwise *p)
{
    return (op_test){.op = p->name,
                     .n_out = 1,
                     .no_gradient = p->gradients ? 0 : 1,
                     .build = pw_build,
                     .forward = pw_forward,
                     .backward = p->gradients ? pw_backward : NULL};
}

/* Shapes of up to three operands. */
typedef struct pw_shape {
    int rank[PW_MOST];
    int64_t dims[PW_MOST][4], batch;
} pw_shape;

static inline void pw_check(const pointwise *p, op_test *t, const pw_shape *s, bool differences)
{
    static double sets[PW_MOST][PW_SET];
    char text[OP_TEXT];
    op_case c = {.text = text, .n_in = p->n_in, .batch = s->batch, .attr = p, .classes = 3};
    snprintf(text, sizeof text, "rank %d, batch %lld, %lld", s->rank[0], (long long)s->batch,
             (long long)s->dims[0][1]);
    for (int i = 0; i < p->n_in; i++) {
        uint64_t state = 5 + (uint64_t)i;
        c.in[i] = (op_operand){.dtype = CLT_F32,
                               .rank = s->rank[i],
                               .fill = p->fill[i],
                               .gradient = p->gradients >> i & 1};
        memcpy(c.in[i].dims, s->dims[i], sizeof s->dims[i]);
        assert_true(op_count(&c, i, s->batch) <= PW_SET);
        if (p->range[i] == 0)
            continue;
        for (int j = 0; j < PW_SET; j++)
            sets[i][j] = (double)(float)(p->least[i] + (op_uniform(&state) + 1) / 2 * p->range[i]);
        c.in[i].set = sets[i];
    }
    op_check(t, &c, differences);
}

static const pw_shape pw_shapes[] = {
    {{2, 2, 2}, {{CLT_BATCH, 7}, {CLT_BATCH, 7}, {CLT_BATCH, 7}}, 3},
    {{3, 3, 3}, {{CLT_BATCH, 16, 3}, {CLT_BATCH, 16, 3}, {CLT_BATCH, 16, 3}}, 5},
    {{1, 1, 1}, {{257}, {257}, {257}}, 1},
    {{3, 1, 3}, {{CLT_BATCH, 3, 20}, {20}, {CLT_BATCH, 3, 1}}, 3},
    {{2, 3, 1}, {{3, 1}, {CLT_BATCH, 1, 19}, {1}}, 4},
    {{1, 2, 2}, {{1}, {CLT_BATCH, 36}, {1, 36}}, 3},
};

/* Checks shapes. Kernels are built for every expression and every way to broadcast. One operator of
 * each number of operands has all shapes, the others a flat and a broadcast one. */
static inline void pw_check_all(const pointwise *p)
{
    op_test t = pw_test(p);
    const size_t count = p->n_in > 1 ? sizeof pw_shapes / sizeof *pw_shapes : 3;
    for (size_t i = 0; i < count; i++)
        if (i == 0 || (i == 3 && (p->all_shapes || !clt_test_oclgrind())) ||
            (!clt_test_oclgrind() && (p->all_shapes || p->n_in == 1)))
            pw_check(p, &t, &pw_shapes[i], i == 0 || i == 3);
    op_report(&t);
}

#endif
