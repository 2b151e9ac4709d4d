/* Cases, goldens and refusals of softmax and log_softmax. */
#ifndef TESTS_OPS_SOFTMAX_CASES_H
#define TESTS_OPS_SOFTMAX_CASES_H

#include "ops/harness/golden.h"
#include "ops/harness/reference_nn.h"

typedef clt_value *softmax_builder(clt_value *x, int axis);

static const struct softmax_shape {
    int rank, axis;
    int64_t dims[4], batch;
} softmax_shapes[] = {
    {2, 1, {CLT_BATCH, 10}, 5},
    {2, 1, {CLT_BATCH, 1}, 1},
    {3, 1, {CLT_BATCH, 7, 3}, 3},
    {3, 2, {CLT_BATCH, 3, 5}, 2},
    {2, 0, {7, 5}, 1},
    {4, 1, {CLT_BATCH, 3, 2, 5}, 3},
    {2, 1, {CLT_BATCH, 257}, 17},
    {2, 1, {CLT_BATCH, 16}, 3},
    {3, 2, {CLT_BATCH, 3, 37}, 5},
    {2, 1, {CLT_BATCH, 2113}, 3},
    {2, 1, {CLT_BATCH, 4100}, 2},
    {3, 1, {CLT_BATCH, 5, 91}, 3},
};

static inline int softmax_axis(const op_case *c)
{
    return *(const int *)c->attr;
}

/* One vector of the operand x: elements first, first + step, .. below end. */
typedef struct softmax_vector {
    int64_t first, step, end;
    double log_sum, largest; /* of the vector's elements */
    double root;             /* square root of their number */
} softmax_vector;

/* Finds vector i. Returns false if there are no more. */
static inline bool softmax_vector_at(const op_case *c, int64_t n, const double *x, int64_t i,
                                     softmax_vector *v)
{
    const ref_vectors all = ref_vectors_of(c, softmax_axis(c), n);
    if (i >= all.outer * all.inner)
        return false;
    v->first = ref_first(&all, i);
    v->step = all.inner;
    v->end = v->first + all.classes * all.inner;
    v->log_sum = ref_log_sum(x + v->first, &all);
    v->largest = ref_largest(x + v->first, &all);
    v->root = sqrt((double)all.classes);
    return true;
}

/* One element of each row is so large that its exponential has no number in f32. It lies in the
 * last of four vectors of 4, 8 or 16 elements. */
static inline void softmax_check_peaks(op_test *test)
{
    enum { ROWS = 3, ELEMENTS = 128, PEAK = 60 };
    static const int axis = 1;
    static double numbers[ROWS * ELEMENTS];
    for (int i = 0; i < ROWS * ELEMENTS; i++)
        numbers[i] = i % ELEMENTS == PEAK ? 200 : i * 37 % 64 / 64.0;
    op_case c = {.text = "peaks", .n_in = 1, .batch = ROWS, .attr = &axis};
    c.in[0] = (op_operand){.dtype = CLT_F32,
                           .rank = 2,
                           .dims = {CLT_BATCH, ELEMENTS},
                           .gradient = true,
                           .set = numbers};
    op_check(test, &c, true);
}

static inline void softmax_check(op_test *test)
{
    softmax_check_peaks(test);
    for (size_t i = 0; i < sizeof softmax_shapes / sizeof *softmax_shapes; i++) {
        const struct softmax_shape *s = &softmax_shapes[i];
        char text[OP_TEXT];
        op_case c = {.text = text, .n_in = 1, .batch = s->batch, .attr = &s->axis};
        snprintf(text, sizeof text, "shape %d, axis %d", (int)i, s->axis);
        c.in[0] = (op_operand){.dtype = CLT_F32, .rank = s->rank, .gradient = true};
        memcpy(c.in[0].dims, s->dims, sizeof s->dims);
        op_check(test, &c, true);
    }
    op_report(test);
}

static inline void softmax_golden(op_test *test, op_golden *g)
{
    const int axis = (int)op_golden_number(g, "axis");
    op_golden_operand(g, "x", axis != 0);
    op_golden_results(g);
    g->c.attr = &axis;
    op_check(test, &g->c, false);
}

/* Checks a builder's answer for f32[Bx4]: NULL, with the status and a message that contains `part`;
 * or no error. */
static inline void softmax_build(softmax_builder *build, int axis, clt_status want,
                                 const char *part)
{
    clt_graph *g;
    OP_OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 2, (int64_t[]){CLT_BATCH, 4});
    clt_value *y = build(x, axis);
    if (want == CLT_OK) {
        assert_non_null(y);
    } else {
        assert_null(y);
        assert_int_equal(clt_graph_status(g), want);
        assert_non_null(strstr(clt_error_message(), part));
    }
    clt_graph_destroy(g);
}

static inline void softmax_check_axes(softmax_builder *build)
{
    softmax_build(build, 2, CLT_INVALID_ARGUMENT, "f32[Bx4] has no axis 2");
    softmax_build(build, -2, CLT_UNSUPPORTED, "depends on the batch");
    softmax_build(build, -1, CLT_OK, "");
}

#endif
