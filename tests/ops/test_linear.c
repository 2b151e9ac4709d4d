#include "ops/golden.h"
#include "ops/reference_nn.h"

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    (void)c;
    out[0] = clt_linear(in[0], in[1], in[2]);
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    const int64_t k = op_dim(c, 1, 1, n), o = op_dim(c, 1, 0, n), m = op_count(c, 0, n) / k;
    ref_product(m, o, k, ref_plain(x[0], k), ref_transposed(x[1], k), y[0],
                bound ? bound[0] : NULL);
    for (int64_t i = 0; x[2] && i < m * o; i++) {
        y[0][i] += x[2][i % o];
        if (bound)
            bound[0][i] += fabs(x[2][i % o]) * sqrt((double)k + 1);
    }
}

static void backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    const int64_t k = op_dim(c, 1, 1, n), o = op_dim(c, 1, 0, n), m = op_count(c, 0, n) / k;
    ref_product(m, k, o, ref_plain(dy[0], o), ref_plain(x[1], k), dx[0], bound[0]);
    ref_product(o, k, m, ref_transposed(dy[0], o), ref_plain(x[0], k), dx[1], bound[1]);
    for (int64_t i = 0; dx[2] && i < m * o; i++) {
        dx[2][i % o] += dy[0][i];
        bound[2][i % o] += sqrt((double)m) * fabs(dy[0][i]);
    }
}

static op_test test = {"linear", 1, 0, build, forward, backward, 0};

/* Batch, K, O. */
static const int64_t shapes[][3] = {{5, 3, 7}, {1, 1, 1}, {7, 17, 13}, {4, 31, 16}, {13, 5, 49}};
static const int64_t large[][3] = {{67, 800, 128}, {256, 128, 10}, {29, 257, 101}};

static void check_shape(const int64_t *s, bool with_bias, bool wanted_x, bool differences)
{
    char text[OP_TEXT];
    snprintf(text, sizeof text, "batch %lld, %lld -> %lld%s", (long long)s[0], (long long)s[1],
             (long long)s[2], with_bias ? ", bias" : "");
    op_case c = {text,
                 3,
                 {{CLT_F32, 2, {CLT_BATCH, s[1]}, OP_RANDOM, wanted_x, NULL},
                  {CLT_F32, 2, {s[2], s[1]}, OP_RANDOM, true, NULL},
                  {CLT_F32, with_bias ? 1 : 0, {s[2]}, OP_RANDOM, true, NULL}},
                 s[0],
                 .attr = NULL};
    op_check(&test, &c, differences);
}

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check_shape(shapes[i], true, true, true);
        check_shape(shapes[i], false, i % 2, true);
    }
    for (size_t i = 0; !clt_test_oclgrind() && i < sizeof large / sizeof *large; i++)
        check_shape(large[i], true, true, false);
    op_report(&test);
}

static void test_rank3(void **state)
{
    const op_case c = {"[B,3,5]",
                       3,
                       {{CLT_F32, 3, {CLT_BATCH, 3, 5}, OP_RANDOM, true, NULL},
                        {CLT_F32, 2, {7, 5}, OP_RANDOM, true, NULL},
                        {CLT_F32, 1, {7}, OP_RANDOM, true, NULL}},
                       3,
                       .attr = NULL};
    (void)state;
    op_check(&test, &c, true);
}

static void golden(op_golden *g)
{
    op_golden_operand(g, "x", true);
    op_golden_operand(g, "w", false);
    if (op_golden_has(g, "b"))
        op_golden_operand(g, "b", false);
    op_golden_results(g);
    op_check(&test, &g->c, false);
}

static void test_goldens(void **state)
{
    (void)state;
    op_goldens("linear", golden);
}

static void test_errors(void **state)
{
    clt_graph *g;
    (void)state;
    OP_OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 2, (int64_t[]){CLT_BATCH, 4});
    clt_value *w = clt_input(g, "w", CLT_F32, 2, (int64_t[]){3, 5});
    assert_null(clt_linear(x, w, NULL));
    assert_int_equal(clt_graph_status(g), CLT_SHAPE);
    assert_non_null(strstr(clt_error_message(), "f32[3x5]"));
    assert_non_null(strstr(clt_error_message(), "f32[Bx4]"));
    assert_null(clt_linear(NULL, w, NULL));
    clt_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes), cmocka_unit_test(test_rank3),
                                       cmocka_unit_test(test_goldens),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
