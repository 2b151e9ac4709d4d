#include "ops/norm/softmax_cases.h"

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    out[0] = clt_log_softmax(in[0], softmax_axis(c));
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    softmax_vector v;
    for (int64_t i = 0; softmax_vector_at(c, n, x[0], i, &v); i++)
        for (int64_t j = v.first; j < v.end; j += v.step) {
            y[0][j] = x[0][j] - v.log_sum;
            if (bound)
                bound[0][j] =
                    fabs(x[0][j]) + fabs(v.largest) + fabs(v.log_sum - v.largest) + v.root;
        }
}

static void backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    softmax_vector v;
    for (int64_t i = 0; softmax_vector_at(c, n, x[0], i, &v); i++) {
        double total = 0, terms = 0;
        for (int64_t j = v.first; j < v.end; j += v.step) {
            total += dy[0][j];
            terms += fabs(dy[0][j]);
        }
        for (int64_t j = v.first; j < v.end; j += v.step) {
            const double p = exp(x[0][j] - v.log_sum);
            dx[0][j] = dy[0][j] - p * total;
            bound[0][j] = fabs(dy[0][j]) + p * terms * (8 + fabs(x[0][j] - v.largest) + v.root);
        }
    }
}

static op_test test = {"log_softmax", 1, 0, build, forward, backward, 0};

static void test_shapes(void **state)
{
    (void)state;
    softmax_check(&test);
}

static void golden(op_golden *g)
{
    softmax_golden(&test, g);
}

static void test_goldens(void **state)
{
    (void)state;
    op_goldens("log_softmax", golden);
}

static void test_errors(void **state)
{
    (void)state;
    softmax_check_axes(clt_log_softmax);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes),
                                       cmocka_unit_test(test_goldens),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
