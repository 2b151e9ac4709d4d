#include "ops/golden.h"
#include "ops/reference_nn.h"

static int axis_of(const op_case *c)
{
    return *(const int *)c->attr;
}

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    out[0] = clt_softmax(in[0], axis_of(c));
}

static double largest_of(const double *x, const ref_vectors *v)
{
    double largest = -INFINITY;
    for (int64_t j = 0; j < v->classes; j++)
        largest = fmax(largest, x[j * v->inner]);
    return largest;
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    const ref_vectors v = ref_vectors_of(c, axis_of(c), n);
    for (int64_t i = 0; i < v.outer * v.inner; i++) {
        const int64_t first = i / v.inner * v.classes * v.inner + i % v.inner;
        const double *at = x[0] + first;
        const double sum = ref_log_sum(at, &v), largest = largest_of(at, &v);
        for (int64_t j = 0; j < v.classes; j++) {
            const double value = exp(at[j * v.inner] - sum);
            y[0][first + j * v.inner] = value;
            /* exp magnifies the rounding of its argument. */
            if (bound)
                bound[0][first + j * v.inner] =
                    value * (4 + fabs(at[j * v.inner] - largest) + sqrt((double)v.classes));
        }
    }
}

static void backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    const ref_vectors v = ref_vectors_of(c, axis_of(c), n);
    for (int64_t i = 0; i < v.outer * v.inner; i++) {
        const int64_t first = i / v.inner * v.classes * v.inner + i % v.inner;
        const double sum = ref_log_sum(x[0] + first, &v), largest = largest_of(x[0] + first, &v);
        double total = 0, terms = 0;
        for (int64_t j = 0; j < v.classes; j++) {
            const int64_t at = first + j * v.inner;
            const double y = exp(x[0][at] - sum);
            total += y * dy[0][at];
            terms += fabs(y * dy[0][at]);
        }
        for (int64_t j = 0; j < v.classes; j++) {
            const int64_t at = first + j * v.inner;
            const double y = exp(x[0][at] - sum);
            dx[0][at] = y * (dy[0][at] - total);
            bound[0][at] = y * (fabs(dy[0][at]) + terms) *
                           (8 + fabs(x[0][at] - largest) + sqrt((double)v.classes));
        }
    }
}

static op_test test = {"softmax", 1, 0, build, forward, backward, 0};

static const struct shape {
    int rank, axis;
    int64_t dims[4], batch;
} shapes[] = {
    {2, 1, {CLT_BATCH, 10}, 5},   {2, 1, {CLT_BATCH, 1}, 1}, {3, 1, {CLT_BATCH, 7, 3}, 3},
    {3, 2, {CLT_BATCH, 3, 5}, 2}, {2, 0, {7, 5}, 1},         {4, 1, {CLT_BATCH, 3, 2, 5}, 3},
    {2, 1, {CLT_BATCH, 257}, 17},
};

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *s = &shapes[i];
        char text[OP_TEXT];
        op_case c = {.text = text, .n_in = 1, .batch = s->batch, .attr = &s->axis};
        snprintf(text, sizeof text, "shape %d, axis %d", (int)i, s->axis);
        c.in[0] = (op_operand){.dtype = CLT_F32, .rank = s->rank, .gradient = true};
        memcpy(c.in[0].dims, s->dims, sizeof s->dims);
        op_check(&test, &c, true);
    }
    op_report(&test);
}

static void golden(op_golden *g)
{
    const int axis = (int)op_golden_number(g, "axis");
    op_golden_operand(g, "x", axis != 0);
    op_golden_results(g);
    g->c.attr = &axis;
    op_check(&test, &g->c, false);
}

static void test_goldens(void **state)
{
    (void)state;
    op_goldens("softmax", golden);
}

static void test_errors(void **state)
{
    clt_graph *g;
    (void)state;
    OP_OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 2, (int64_t[]){CLT_BATCH, 4});
    assert_null(clt_softmax(x, 2));
    assert_int_equal(clt_graph_status(g), CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "f32[Bx4] has no axis 2"));
    clt_graph_destroy(g);

    OP_OK(clt_graph_create(&g));
    x = clt_input(g, "x", CLT_F32, 2, (int64_t[]){CLT_BATCH, 4});
    assert_null(clt_softmax(x, -2));
    assert_int_equal(clt_graph_status(g), CLT_UNSUPPORTED);
    assert_non_null(strstr(clt_error_message(), "depends on the batch"));
    clt_graph_destroy(g);

    OP_OK(clt_graph_create(&g));
    x = clt_input(g, "x", CLT_F32, 2, (int64_t[]){CLT_BATCH, 4});
    assert_non_null(clt_softmax(x, -1));
    clt_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes),
                                       cmocka_unit_test(test_goldens),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
