/* Cases and references of layer norm and RMS norm. */
#ifndef TESTS_OPS_NORM_CASES_H
#define TESTS_OPS_NORM_CASES_H

#include "ops/harness/golden.h"
#include <cltrain/ops/norm.h>

/* Attributes of a case. x is operand 0; weight is 1 and bias 2, if there are any. */
typedef struct norm_attr {
    int axes;
    double eps;
    bool rms;
} norm_attr;

static inline int64_t norm_columns(const op_case *c)
{
    const norm_attr *a = c->attr;
    int64_t columns = 1;
    for (int k = c->in[0].rank - a->axes; k < c->in[0].rank; k++)
        columns *= c->in[0].dims[k];
    return columns;
}

typedef struct norm_row {
    double mean, rstd, root, largest; /* root: sqrt(elements); largest: of |x| */
} norm_row;

static inline norm_row norm_row_of(const op_case *c, const double *x)
{
    const norm_attr *a = c->attr;
    const int64_t n = norm_columns(c);
    norm_row row = {.root = sqrt((double)n)};
    double squares = 0;
    for (int64_t j = 0; j < n; j++) {
        row.mean += a->rms ? 0 : x[j] / (double)n;
        row.largest = fmax(row.largest, fabs(x[j]));
    }
    for (int64_t j = 0; j < n; j++)
        squares += (x[j] - row.mean) * (x[j] - row.mean);
    row.rstd = 1 / sqrt(squares / (double)n + a->eps);
    return row;
}

static inline void norm_forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                                double *const *bound)
{
    const int64_t columns = norm_columns(c), count = op_count(c, 0, n);
    for (int64_t i = 0; i < count; i += columns) {
        const norm_row row = norm_row_of(c, x[0] + i);
        for (int64_t j = 0; j < columns; j++) {
            const double h = (x[0][i + j] - row.mean) * row.rstd;
            const double w = x[1] ? x[1][j] : 1, b = x[2] ? x[2][j] : 0;
            y[0][i + j] = h * w + b;
            /* The mean has a rounding error of the largest element, which rstd magnifies. */
            if (bound)
                bound[0][i + j] = fabs(w) * (row.largest * row.rstd + row.root * fabs(h)) + fabs(b);
        }
    }
}

static inline void norm_backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                                 double *const *dx, double *const *bound)
{
    const norm_attr *a = c->attr;
    const int64_t columns = norm_columns(c), count = op_count(c, 0, n);
    const double rows = sqrt((double)(count / columns) + 1);
    for (int64_t i = 0; i < count; i += columns) {
        const norm_row row = norm_row_of(c, x[0] + i);
        const double slack = row.root + 1 + row.largest * row.rstd;
        double sum = 0, product = 0, terms = 0, products = 0;
        for (int64_t j = 0; j < columns; j++) {
            const double h = (x[0][i + j] - row.mean) * row.rstd, d = dy[0][i + j];
            const double g = d * (x[1] ? x[1][j] : 1);
            sum += a->rms ? 0 : g / (double)columns;
            terms += fabs(g) / (double)columns;
            product += g * h / (double)columns;
            products += fabs(g) * (fabs(h) + 1) / (double)columns;
            if (x[1]) {
                dx[1][j] += d * h;
                bound[1][j] += rows * fabs(d) * (fabs(h) * row.root + row.largest * row.rstd);
            }
            if (x[2]) {
                dx[2][j] += d;
                bound[2][j] += rows * fabs(d);
            }
        }
        for (int64_t j = 0; j < columns; j++) {
            const double h = (x[0][i + j] - row.mean) * row.rstd;
            const double g = dy[0][i + j] * (x[1] ? x[1][j] : 1);
            dx[0][i + j] = row.rstd * (g - sum - h * product);
            bound[0][i + j] = row.rstd * slack * (fabs(g) + terms + (fabs(h) + 1) * products);
        }
    }
}

static const struct norm_shape {
    int rank, axes;
    int64_t dims[4], batch;
    int affine; /* 2: weight and bias, 1: weight, 0: neither, -1: only bias, -2: like 2, without its
                   gradient */
    double mean;
} norm_shapes[] = {
    {2, 1, {CLT_BATCH, 10}, 5, 2, 0},    {2, 1, {CLT_BATCH, 1}, 3, 2, 0},
    {3, 2, {CLT_BATCH, 3, 37}, 5, 2, 0}, {2, 2, {6, 5}, 1, 2, 0},
    {2, 1, {CLT_BATCH, 48}, 4, 0, 0},    {2, 1, {CLT_BATCH, 48}, 3, -1, 0},
    {2, 1, {CLT_BATCH, 4100}, 2, 2, 0},  {2, 1, {CLT_BATCH, 96}, 9, 2, 1000},
    {2, 1, {CLT_BATCH, 10}, 150, -2, 0},
};

/* Checks all shapes. RMS norm leaves out shapes with a bias. */
static inline void norm_check(op_test *test, double eps, bool rms)
{
    for (size_t i = 0; i < sizeof norm_shapes / sizeof *norm_shapes; i++) {
        const struct norm_shape *s = &norm_shapes[i];
        const norm_attr attr = {s->axes, eps, rms};
        char text[OP_TEXT];
        op_case c = {.text = text, .n_in = rms ? 2 : 3, .batch = s->batch, .attr = &attr};
        snprintf(text, sizeof text, "shape %d", (int)i);
        if (clt_test_oclgrind() && i > 5)
            continue; /* takes minutes there */
        if (rms && s->affine < 0 && s->affine != -2)
            continue;
        c.in[0] = (op_operand){.dtype = CLT_F32, .rank = s->rank, .gradient = true};
        memcpy(c.in[0].dims, s->dims, sizeof s->dims);
        for (int k = 1; k < c.n_in; k++) {
            const bool there = s->affine == 2 || s->affine == -2 || s->affine == (k == 1 ? 1 : -1);
            c.in[k] = (op_operand){
                .dtype = CLT_F32, .rank = there ? s->axes : 0, .gradient = s->affine != -2};
            for (int d = 0; d < s->axes; d++)
                c.in[k].dims[d] = s->dims[s->rank - s->axes + d];
        }
        double *shifted = NULL;
        if (s->mean != 0) {
            shifted = op_array(op_count(&c, 0, s->batch));
            op_fill_operand(&c, 0, s->batch, shifted);
            for (int64_t j = 0; j < op_count(&c, 0, s->batch); j++)
                shifted[j] = (double)(float)(shifted[j] + s->mean);
            c.in[0].set = shifted;
        }
        op_check(test, &c, s->mean == 0);
        free(shifted);
    }
    op_report(test);
}

static inline void norm_golden(op_test *test, op_golden *g, bool rms)
{
    const norm_attr attr = {(int)op_golden_number(g, "axes"), op_golden_number(g, "eps"), rms};
    op_golden_operand(g, "x", true);
    if (op_golden_has(g, "w"))
        op_golden_operand(g, "w", false);
    if (op_golden_has(g, "b"))
        op_golden_operand(g, "b", false);
    op_golden_results(g);
    g->c.attr = &attr;
    op_check(test, &g->c, false);
}

#endif
