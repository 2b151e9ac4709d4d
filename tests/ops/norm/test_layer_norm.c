#include "ops/norm/norm_cases.h"

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    const norm_attr *a = c->attr;
    out[0] = clt_layer_norm(in[0], a->axes, in[1], in[2], a->eps);
}

static op_test test = {"layer_norm", 1, 0, build, norm_forward, norm_backward, 0};

static void test_shapes(void **state)
{
    (void)state;
    norm_check(&test, CLT_NORM_EPS, false);
}

static void golden(op_golden *g)
{
    norm_golden(&test, g, false);
}

static void test_goldens(void **state)
{
    (void)state;
    op_goldens("layer_norm", golden);
}

/* Checks that a wrong operand or attribute is refused with the status, and named in the message. */
static void refuse(int axes, int64_t weight, int64_t bias, double eps, clt_status want,
                   const char *part)
{
    clt_graph *g;
    OP_OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 3, (int64_t[]){CLT_BATCH, 3, 4});
    clt_value *w = clt_input(g, "w", CLT_F32, 1, &weight);
    clt_value *b = clt_input(g, "b", CLT_F32, 1, &bias);
    assert_null(clt_layer_norm(x, axes, w, b, eps));
    assert_int_equal(clt_graph_status(g), want);
    if (!strstr(clt_error_message(), part))
        fail_msg("\"%s\" does not name \"%s\"", clt_error_message(), part);
    clt_graph_destroy(g);
}

static void test_errors(void **state)
{
    clt_graph *g;
    (void)state;
    refuse(0, 4, 4, 1e-5, CLT_INVALID_ARGUMENT, "axes is 0; it must be an integer of 1 to 8");
    refuse(4, 4, 4, 1e-5, CLT_INVALID_ARGUMENT, "no last 4 axes");
    refuse(3, 4, 4, 1e-5, CLT_SHAPE, "may depend on the batch");
    refuse(1, 5, 4, 1e-5, CLT_SHAPE, "the weight f32[5] does not fit f32[Bx3x4]: f32[4]");
    refuse(1, 4, 3, 1e-5, CLT_SHAPE, "the bias f32[3]");
    refuse(2, 4, 4, 1e-5, CLT_SHAPE, "f32[3x4] is needed");
    refuse(1, 4, 4, -1, CLT_INVALID_ARGUMENT, "eps is -1; it must be a number of at least 0");
    refuse(1, 4, 4, (double)NAN, CLT_INVALID_ARGUMENT, "eps");
    OP_OK(clt_graph_create(&g));
    clt_value *labels = clt_input(g, "labels", CLT_I32, 2, (int64_t[]){CLT_BATCH, 3});
    assert_null(clt_layer_norm(labels, 1, NULL, NULL, 1e-5));
    assert_non_null(strstr(clt_error_message(), "must be f32"));
    clt_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes),
                                       cmocka_unit_test(test_goldens),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
