/* Convolutions and transposed convolutions of one to three dimensions as lists of products, for
 * tests of all of them except conv2d. */
#ifndef TESTS_OPS_LINK_CASES_H
#define TESTS_OPS_LINK_CASES_H

#include "ops/harness/golden.h"

/* Spatial dimensions are depth, height, width. Unused leading dimensions are 1. */
typedef struct link_shape {
    int dims;
    bool transposed, bias;
    int64_t n, c, size[3], o, kernel[3];
    int stride[3], padding[3], more[3], dilation[3], groups; /* more: output_padding */
} link_shape;

static inline int64_t link_out(const link_shape *s, int axis)
{
    const int64_t reach = s->dilation[axis] * (s->kernel[axis] - 1);
    return s->transposed ? (s->size[axis] - 1) * s->stride[axis] - 2 * s->padding[axis] + reach +
                               s->more[axis] + 1
                         : (s->size[axis] + 2 * s->padding[axis] - reach - 1) / s->stride[axis] + 1;
}

/* Products of a convolution: an element of its operand times an element of its weight is added to
 * an element of its result. In a transposed convolution, operand and result change places. */
typedef struct link_sums {
    const double *a, *b; /* two of operand, weight and result, by index */
    double *to, *bound;  /* the third one */
    double scale;
    int which; /* 0: sums of the convolution's result, 1: of its operand, 2: of its weight */
} link_sums;

static inline void link_add(const link_sums *s, int64_t x, int64_t w, int64_t y)
{
    const double term = s->which == 0   ? s->a[x] * s->b[w]
                        : s->which == 1 ? s->a[y] * s->b[w]
                                        : s->a[x] * s->b[y];
    const int64_t to = s->which == 0 ? y : s->which == 1 ? x : w;
    s->to[to] += term;
    if (s->bound)
        s->bound[to] += s->scale * fabs(term);
}

static inline void link_visit(const link_shape *s, int64_t n, const link_sums *sums)
{
    /* Sizes of the convolution: operand `in` with `wide` channels, result `out` with `narrow`
     * channels. */
    int64_t in[3], out[3], taps = 1, out_plane = 1;
    const int64_t narrow = s->transposed ? s->c : s->o, wide = s->transposed ? s->o : s->c;
    for (int i = 0; i < 3; i++) {
        in[i] = s->transposed ? link_out(s, i) : s->size[i];
        out[i] = s->transposed ? s->size[i] : link_out(s, i);
        taps *= s->kernel[i];
        out_plane *= out[i];
    }
    const int64_t group = wide / s->groups;
    for (int64_t y = 0; y < n * narrow * out_plane; y++) {
        const int64_t image = y / out_plane / narrow, channel = y / out_plane % narrow;
        const int64_t first = channel / (narrow / s->groups) * group, at = y % out_plane;
        for (int64_t k = 0; k < group * taps; k++) {
            int64_t x = image * wide + first + k / taps, p = at, tap = k % taps, where[3];
            bool inside = true;
            for (int i = 2; i >= 0; i--) {
                where[i] =
                    p % out[i] * s->stride[i] - s->padding[i] + tap % s->kernel[i] * s->dilation[i];
                inside = inside && where[i] >= 0 && where[i] < in[i];
                p /= out[i];
                tap /= s->kernel[i];
            }
            for (int i = 0; i < 3; i++)
                x = x * in[i] + where[i];
            if (inside)
                link_add(sums, x, channel * group * taps + k, y);
        }
    }
}

static inline double link_taps(const link_shape *s)
{
    return (double)(s->kernel[0] * s->kernel[1] * s->kernel[2]);
}

static inline double link_plane(const link_shape *s)
{
    return (double)(link_out(s, 0) * link_out(s, 1) * link_out(s, 2));
}

static inline void link_forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                                double *const *bound)
{
    const link_shape *s = c->attr;
    const int64_t plane = (int64_t)link_plane(s);
    const double scale = sqrt((double)(s->c / s->groups) * link_taps(s) + 1);
    const link_sums sums = {x[0], x[1], y[0], bound ? bound[0] : NULL, scale, s->transposed};
    memset(y[0], 0, sizeof(double) * (size_t)(n * s->o * plane));
    link_visit(s, n, &sums);
    for (int64_t i = 0; x[2] && i < n * s->o * plane; i++) {
        const double b = x[2][i / plane % s->o];
        y[0][i] += b;
        if (bound)
            bound[0][i] += scale * (fabs(b) + (s->transposed ? fabs(y[0][i]) : 0));
    }
}

static inline void link_backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                                 double *const *dx, double *const *bound)
{
    const link_shape *s = c->attr;
    const int64_t plane = (int64_t)link_plane(s);
    const double in_plane = (double)(s->size[0] * s->size[1] * s->size[2]);
    const double of_x = sqrt((double)(s->o / s->groups) * link_taps(s));
    const double of_w = sqrt((double)n * (s->transposed ? in_plane : (double)plane));
    const link_sums to_x = {dy[0], x[1], dx[0], bound[0], of_x, !s->transposed};
    const link_sums to_w = {
        s->transposed ? dy[0] : x[0], s->transposed ? x[0] : dy[0], dx[1], bound[1], of_w, 2};
    link_visit(s, n, &to_x);
    link_visit(s, n, &to_w);
    for (int64_t i = 0; dx[2] && i < n * s->o * plane; i++) {
        dx[2][i / plane % s->o] += dy[0][i];
        bound[2][i / plane % s->o] += sqrt((double)(n * plane)) * fabs(dy[0][i]);
    }
}

static inline void link_check(op_test *test, const link_shape *s)
{
    char text[OP_TEXT];
    const int64_t first = s->transposed ? s->c : s->o;
    const int64_t second = (s->transposed ? s->o : s->c) / s->groups;
    /* Images with groups, and deep images, take long on Oclgrind. */
    const int64_t few = s->groups > 1 || s->size[0] > 4 ? 1 : 2;
    const int64_t n = clt_test_oclgrind() && s->n > few ? few : s->n;
    op_case c = {.text = text,
                 .n_in = 3,
                 .in = {{CLT_F32, 2 + s->dims, {CLT_BATCH, s->c}, OP_RANDOM, true, NULL},
                        {CLT_F32, 2 + s->dims, {first, second}, OP_RANDOM, true, NULL},
                        {CLT_F32, s->bias ? 1 : 0, {s->o}, OP_RANDOM, true, NULL}},
                 .batch = n,
                 .attr = s};
    for (int i = 0; i < s->dims; i++) {
        c.in[0].dims[2 + i] = s->size[3 - s->dims + i];
        c.in[1].dims[2 + i] = s->kernel[3 - s->dims + i];
    }
    snprintf(text, sizeof text, "%lldx%lldx%lldx%lldx%lld, %lld of %lldx%lldx%lld", (long long)n,
             (long long)s->c, (long long)s->size[0], (long long)s->size[1], (long long)s->size[2],
             (long long)s->o, (long long)s->kernel[0], (long long)s->kernel[1],
             (long long)s->kernel[2]);
    const double work = (double)(s->n * s->c * s->o / s->groups) * link_taps(s) * link_plane(s);
    /* Volumes take long on Oclgrind. */
    if (!clt_test_oclgrind() || work < (s->dims == 3 ? 9e3 : 3e4))
        op_check(test, &c, work < 1e5);
}

/* Reads an attribute with one number for each dimension into the last numbers. */
static inline void link_golden_numbers(const op_golden *g, const char *name, int dims, int *numbers)
{
    const json_t *value = json_object_get(g->attributes, name);
    for (int i = 0; value && i < dims; i++)
        numbers[3 - dims + i] = (int)json_integer_value(json_array_get(value, (size_t)i));
}

/* Checks a case of PyTorch's. */
static inline void link_golden(op_test *test, op_golden *g, int dims, bool transposed)
{
    link_shape s = {.dims = dims,
                    .transposed = transposed,
                    .bias = true,
                    .size = {1, 1, 1},
                    .kernel = {1, 1, 1},
                    .stride = {1, 1, 1},
                    .dilation = {1, 1, 1}};
    op_golden_operand(g, "x", true);
    op_golden_operand(g, "w", false);
    op_golden_operand(g, "b", false);
    op_golden_results(g);
    s.n = g->c.batch;
    s.c = g->c.in[0].dims[1];
    s.o = g->c.in[2].dims[0];
    for (int i = 0; i < dims; i++) {
        s.size[3 - dims + i] = g->c.in[0].dims[2 + i];
        s.kernel[3 - dims + i] = g->c.in[1].dims[2 + i];
    }
    link_golden_numbers(g, "stride", dims, s.stride);
    link_golden_numbers(g, "padding", dims, s.padding);
    link_golden_numbers(g, "output_padding", dims, s.more);
    link_golden_numbers(g, "dilation", dims, s.dilation);
    s.groups = (int)op_golden_number(g, "groups");
    g->c.attr = &s;
    op_check(test, &g->c, false);
}

/* Checks that a builder refused `y`, with a message that contains `part`. Destroys the graph. */
static inline void link_refused(clt_graph *g, const clt_value *y, const char *part)
{
    assert_null(y);
    assert_int_not_equal(clt_graph_status(g), CLT_OK);
    if (!strstr(clt_error_message(), part))
        fail_msg("\"%s\" does not say \"%s\"", clt_error_message(), part);
    clt_graph_destroy(g);
}

#endif
