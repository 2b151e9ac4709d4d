/* Linear maps from images to images as lists of products, for the tests of adaptive pooling and
 * upsampling. */
#ifndef TESTS_OPS_RESAMPLE_CASES_H
#define TESTS_OPS_RESAMPLE_CASES_H

#include "ops/harness/golden.h"

enum { RESAMPLE_TAPS = 64 };

/* The elements and weights that make up one element of an axis of the result. */
typedef struct ref_taps {
    int count;
    int64_t at[RESAMPLE_TAPS];
    double weight[RESAMPLE_TAPS];
} ref_taps;

/* Returns the taps of element i of the result's axis 0 (rows) or 1 (columns). The operand has `in`
 * elements on it. */
typedef ref_taps ref_axis(const void *attr, int axis, int64_t in, int64_t i);

/* A case: shapes, and the taps of elements. */
typedef struct resample_map {
    int64_t n, c, h, w;
    int64_t oh, ow;
    ref_axis *axis;
    const void *attr;
} resample_map;

/* Visits all products once: computes y and its bound from x, or dx and its bound from dy. */
static inline void resample_pass(const op_case *c, int64_t n, const double *x, const double *dy,
                                 double *out, double *bound)
{
    const resample_map *m = c->attr;
    const int64_t h = op_dim(c, 0, 2, n), w = op_dim(c, 0, 3, n), planes = n * op_dim(c, 0, 1, n);
    for (int64_t plane = 0; plane < planes; plane++)
        for (int64_t oy = 0; oy < m->oh; oy++) {
            const ref_taps ty = m->axis(m->attr, 0, h, oy);
            for (int64_t ox = 0; ox < m->ow; ox++) {
                const ref_taps tx = m->axis(m->attr, 1, w, ox);
                const int64_t to = (plane * m->oh + oy) * m->ow + ox;
                const double scale = sqrt((double)(ty.count * tx.count));
                double sum = 0, terms = 0;
                for (int i = 0; i < ty.count; i++)
                    for (int j = 0; j < tx.count; j++) {
                        const int64_t at = (plane * h + ty.at[i]) * w + tx.at[j];
                        const double weight = ty.weight[i] * tx.weight[j];
                        const double term = weight * (x ? x[at] : dy[to]);
                        sum += term;
                        terms += fabs(term);
                        if (!x) {
                            out[at] += term;
                            bound[at] += scale * fabs(term);
                        }
                    }
                if (x) {
                    out[to] = sum;
                    if (bound)
                        bound[to] = scale * terms;
                }
            }
        }
}

static inline void resample_forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                                    double *const *bound)
{
    resample_pass(c, n, x[0], NULL, y[0], bound ? bound[0] : NULL);
}

static inline void resample_backward(const op_case *c, int64_t n, double *const *x,
                                     double *const *dy, double *const *dx, double *const *bound)
{
    (void)x;
    resample_pass(c, n, NULL, dy[0], dx[0], bound[0]);
}

static inline op_case resample_case(const resample_map *m, char *text)
{
    snprintf(text, OP_TEXT, "%lldx%lldx%lldx%lld to %lldx%lld", (long long)m->n, (long long)m->c,
             (long long)m->h, (long long)m->w, (long long)m->oh, (long long)m->ow);
    return (op_case){.text = text,
                     .n_in = 1,
                     .in = {{CLT_F32, 4, {CLT_BATCH, m->c, m->h, m->w}, OP_RANDOM, true, NULL}},
                     .batch = m->n,
                     .attr = m};
}

static inline void resample_check(op_test *test, const resample_map *m)
{
    char text[OP_TEXT];
    const op_case c = resample_case(m, text);
    if (!clt_test_oclgrind() || m->c * m->oh * m->ow + m->c * m->h * m->w <= 400)
        op_check(test, &c, true);
}

/* Checks that a builder refused `y`, with a message that contains `part`. Destroys the graph. */
static inline void resample_refused(clt_graph *g, const clt_value *y, const char *part)
{
    assert_null(y);
    assert_int_not_equal(clt_graph_status(g), CLT_OK);
    if (!strstr(clt_error_message(), part))
        fail_msg("\"%s\" does not say \"%s\"", clt_error_message(), part);
    clt_graph_destroy(g);
}

static inline clt_value *resample_input(clt_graph **g, int rank, const int64_t *dims)
{
    OP_OK(clt_graph_create(g));
    return clt_input(*g, "x", CLT_F32, rank, dims);
}

#endif
