/* relu, leaky_relu, sigmoid, tanh, gelu and gelu_tanh with their gradients. */
#include "ops/harness/golden.h"

typedef struct activation {
    const char *name;
    clt_value *(*build)(clt_value *x);
    double (*value)(double x, double slope), (*slope)(double x, double slope);
    double terms; /* the larger one of the ULPs that OpenCL allows for its functions, divided by 8,
                     and of terms */
} activation;

static double relu(double x, double s)
{
    (void)s;
    return x > 0 ? x : 0;
}

static double relu_slope(double x, double s)
{
    (void)s;
    return x > 0 ? 1 : 0;
}

static double leaky(double x, double s)
{
    return x > 0 ? x : s * x;
}

static double leaky_slope(double x, double s)
{
    return x > 0 ? 1 : s;
}

static double sigmoid(double x, double s)
{
    (void)s;
    return 1 / (1 + exp(-x));
}

static double sigmoid_slope(double x, double s)
{
    return sigmoid(x, s) * sigmoid(-x, s);
}

static double tanh_(double x, double s)
{
    (void)s;
    return tanh(x);
}

static double tanh_slope(double x, double s)
{
    (void)s;
    return 1 / (cosh(x) * cosh(x));
}

static double gelu(double x, double s)
{
    (void)s;
    return 0.5 * x * erfc(-x * sqrt(0.5));
}

static double gelu_slope(double x, double s)
{
    (void)s;
    return 0.5 * erfc(-x * sqrt(0.5)) + x * exp(-0.5 * x * x) / sqrt(2 * acos(-1));
}

static double inner(double x)
{
    return sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x);
}

static double gelu_tanh(double x, double s)
{
    (void)s;
    return 0.5 * x * (1 + tanh(inner(x)));
}

static double gelu_tanh_slope(double x, double s)
{
    (void)s;
    const double t = tanh(inner(x)), du = sqrt(2 / acos(-1)) * (1 + 3 * 0.044715 * x * x);
    return 0.5 * (1 + t) + 0.5 * x * du / (cosh(inner(x)) * cosh(inner(x)));
}

/* The slope of leaky_relu in the case that is built. */
static double slope;

static clt_value *build_leaky(clt_value *x)
{
    return clt_leaky_relu(x, slope);
}

static const activation activations[] = {
    {"relu", clt_relu, relu, relu_slope, 1},
    {"leaky_relu", build_leaky, leaky, leaky_slope, 1},
    {"sigmoid", clt_sigmoid, sigmoid, sigmoid_slope, 2},
    {"tanh", clt_tanh, tanh_, tanh_slope, 2},
    {"gelu", clt_gelu, gelu, gelu_slope, 3},
    {"gelu_tanh", clt_gelu_tanh, gelu_tanh, gelu_tanh_slope, 3},
};

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    const activation *a = c->attr;
    out[0] = a->build(in[0]);
}

/* The terms of 1 - y^2, 1 + erf(x), .. have size 1 even if their sum is small. */
static double bound_of(const activation *a, double x)
{
    return a->terms > 1 ? a->terms * fmax(1, fabs(x)) : fabs(x);
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    const activation *a = c->attr;
    for (int64_t i = 0; i < op_count(c, 0, n); i++) {
        y[0][i] = a->value(x[0][i], slope);
        if (bound)
            bound[0][i] = bound_of(a, x[0][i]);
    }
}

static void backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    const activation *a = c->attr;
    for (int64_t i = 0; i < op_count(c, 0, n); i++) {
        dx[0][i] = dy[0][i] * a->slope(x[0][i], slope);
        if (bound)
            bound[0][i] = fabs(dy[0][i]) * (a->terms > 1 ? a->terms * fmax(1, fabs(x[0][i])) : 1);
    }
}

static op_test test_of(const activation *a)
{
    return (op_test){
        .op = a->name, .n_out = 1, .build = build, .forward = forward, .backward = backward};
}

static void shapes(void **state)
{
    static const int64_t sizes[][3] = {{1, 1, 1},   {3, 5, 7},   {3, 5, 1},
                                       {17, 16, 1}, {2, 257, 1}, {64, 4, 4}};
    (void)state;
    for (size_t k = 0; k < sizeof activations / sizeof *activations; k++) {
        op_test t = test_of(&activations[k]);
        slope = 0.1;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const op_case c = {
                .text = "batch",
                .n_in = 1,
                .in = {{CLT_F32, 3, {CLT_BATCH, sizes[i][1], sizes[i][2]}, OP_AWAY, true, NULL}},
                .batch = sizes[i][0],
                .attr = &activations[k]};
            op_check(&t, &c, i < 2);
        }
        op_report(&t);
    }
}

/* Cases without a batch, and with slopes that do not preserve the operand's sign. */
static void odd_cases(void **state)
{
    static const double slopes[] = {0, -0.5, 1};
    op_test t = test_of(&activations[1]);
    (void)state;
    for (int i = 0; i < 3; i++) {
        const op_case c = {.text = "slope",
                           .n_in = 1,
                           .in = {{CLT_F32, 2, {13, 3}, OP_AWAY, true, NULL}},
                           .batch = 1,
                           .attr = &activations[1]};
        slope = slopes[i];
        op_check(&t, &c, true);
    }
}

static const activation *wanted;

static void golden(op_golden *g)
{
    op_test t = test_of(wanted);
    const json_t *form = json_object_get(g->attributes, "approximate");
    const json_t *number = json_object_get(g->attributes, "slope");
    slope = number ? json_number_value(number) : 0;
    if (form && (wanted->build == clt_gelu) != !strcmp(json_string_value(form), "none"))
        return;
    op_golden_operand(g, "x", true);
    op_golden_results(g);
    g->c.attr = wanted;
    op_check(&t, &g->c, false);
}

static void goldens(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof activations / sizeof *activations; k++) {
        wanted = &activations[k];
        op_goldens(k == 5 ? "gelu" : wanted->name, golden);
    }
}

/* A NaN is passed on, so that training stops. */
static void nan_stays(void **state)
{
    static const double numbers[] = {NAN, 1, -1, INFINITY};
    op_test t = test_of(&activations[0]);
    const op_case c = {.text = "NaN",
                       .n_in = 1,
                       .in = {{CLT_F32, 1, {4}, OP_RANDOM, false, numbers}},
                       .batch = 1,
                       .attr = &activations[0]};
    (void)state;
    op_bound b;
    op_expected e;
    op_bind(&t, &c, &op_as_device, &b);
    op_expect(&t, &c, &b, 1, &e);
    e.y[0][0] = NAN;
    op_run(&t, &c, &b, 1, &e);
    op_forget(&e);
    op_unbind(&b);
}

/* Sweeps the whole range, including numbers that are not finite. The bounds in ULPs are those of
 * clkernels/core/batch_blocked/math.clh, and those that OpenCL allows. 1 + erf(x) cancels for
 * negative x. */
static void sweep_forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                          double *const *bound)
{
    const activation *a = c->attr;
    for (int64_t i = 0; i < op_count(c, 0, n); i++) {
        y[0][i] = a->value(x[0][i], slope);
        if (bound)
            bound[0][i] = a->build == clt_gelu ? 2 * fabs(x[0][i]) : 0.75 * fabs(y[0][i]);
    }
}

static void whole_range(void **state)
{
    enum { LEAST = -20, MOST = 8, STEPS = 19, COUNT = 2 * (MOST - LEAST) * STEPS + 5 };
    static const int swept[] = {2, 3, 4};
    static double numbers[COUNT];
    int count = 0;
    (void)state;
    for (int e = LEAST; e < MOST; e++)
        for (int k = 0; k < STEPS; k++) {
            numbers[count] = (double)(float)ldexp(1 + (double)k / STEPS, e);
            numbers[count + 1] = -numbers[count];
            count += 2;
        }
    for (int k = 0; k < 3; k++) {
        const activation *a = &activations[swept[k]];
        op_test t = test_of(a);
        numbers[count] = NAN;
        numbers[count + 1] = INFINITY;
        numbers[count + 2] = a->build == clt_gelu ? 0 : -INFINITY;
        numbers[count + 3] = 88.7;
        numbers[count + 4] = -88.7;
        const op_case c = {.text = "whole range",
                           .n_in = 1,
                           .in = {{CLT_F32, 1, {COUNT}, OP_RANDOM, false, numbers}},
                           .batch = 1,
                           .attr = a};
        t.forward = sweep_forward;
        t.backward = NULL;
        op_check(&t, &c, false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),    cmocka_unit_test(odd_cases),   cmocka_unit_test(goldens),
        cmocka_unit_test(nan_stays), cmocka_unit_test(whole_range),
    };
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
