#include "ops/norm/norm_cases.h"

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    const norm_attr *a = c->attr;
    out[0] = clt_rms_norm(in[0], a->axes, in[1], a->eps);
}

static op_test test = {"rms_norm", 1, 0, build, norm_forward, norm_backward, 0};

static void test_shapes(void **state)
{
    (void)state;
    norm_check(&test, CLT_RMS_NORM_EPS, true);
}

static void golden(op_golden *g)
{
    norm_golden(&test, g, true);
}

static void test_goldens(void **state)
{
    (void)state;
    op_goldens("rms_norm", golden);
}

static void test_errors(void **state)
{
    clt_graph *g;
    (void)state;
    OP_OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 2, (int64_t[]){CLT_BATCH, 4});
    clt_value *w = clt_input(g, "w", CLT_F32, 1, (int64_t[]){3});
    assert_null(clt_rms_norm(x, 1, w, CLT_RMS_NORM_EPS));
    assert_int_equal(clt_graph_status(g), CLT_SHAPE);
    assert_non_null(strstr(clt_error_message(), "rms_norm: the weight f32[3] does not fit"));
    clt_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes),
                                       cmocka_unit_test(test_goldens),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
