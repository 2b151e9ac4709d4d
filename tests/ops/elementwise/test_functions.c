/* silu, swiglu, exp, log, sqrt, rsqrt, abs, pow, pow_scalar and clamp with their gradients. */
#include "ops/harness/pointwise.h"

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double silu(double x)
{
    return x * sigmoid(x);
}

static double silu_slope(double x)
{
    return sigmoid(x) * (1 + x * sigmoid(-x));
}

/* Defines a function of one operand by its name. */
#define UNARY(NAME, BUILD, VALUE, SLOPE)                                                           \
    static clt_value *build_##NAME(clt_value *const *in)                                           \
    {                                                                                              \
        clt_value *x = in[0];                                                                      \
        return BUILD;                                                                              \
    }                                                                                              \
    static double value_##NAME(const double *in)                                                   \
    {                                                                                              \
        const double x = in[0];                                                                    \
        return VALUE;                                                                              \
    }                                                                                              \
    static double slope_##NAME(const double *in, int operand)                                      \
    {                                                                                              \
        const double x = in[0];                                                                    \
        (void)operand;                                                                             \
        return SLOPE;                                                                              \
    }

UNARY(exp, clt_exp(x), x > 88.73 ? INFINITY : exp(x), exp(x))
UNARY(log, clt_ln(x), log(x), 1 / x)
UNARY(sqrt, clt_sqrt(x), sqrt(x), 0.5 / sqrt(x))
UNARY(rsqrt, clt_rsqrt(x), 1 / sqrt(x), -0.5 / (x * sqrt(x)))
UNARY(abs, clt_abs(x), fabs(x), x > 0 ? 1 : -1)
UNARY(silu, clt_silu(x), silu(x), silu_slope(x))
UNARY(clamp, clt_clamp(x, -0.5, 0.25), x<-0.5 ? -0.5 : x> 0.25 ? 0.25 : x,
      x >= -0.5 && x <= 0.25 ? 1 : 0)
UNARY(above, clt_clamp(x, -0.5, INFINITY), x < -0.5 ? -0.5 : x, x >= -0.5 ? 1 : 0)
UNARY(square, clt_pow_scalar(x, 2), x *x, 2 * x)
UNARY(cube, clt_pow_scalar(x, 3), x *x *x, 3 * x * x)
UNARY(reciprocal, clt_pow_scalar(x, -1), 1 / x, -1 / (x * x))
UNARY(fourth, clt_pow_scalar(x, 4), x *x *x *x, 4 * x * x * x)
UNARY(power, clt_pow_scalar(x, 2.5), pow(x, 2.5), 2.5 * pow(x, 1.5))

static clt_value *build_swiglu(clt_value *const *in)
{
    return clt_swiglu(in[0], in[1]);
}

static double value_swiglu(const double *x)
{
    return silu(x[0]) * x[1];
}

static double slope_swiglu(const double *x, int operand)
{
    return operand ? silu(x[0]) : silu_slope(x[0]) * x[1];
}

static clt_value *build_pow(clt_value *const *in)
{
    return clt_pow(in[0], in[1]);
}

static double value_pow(const double *x)
{
    return pow(x[0], x[1]);
}

static double slope_pow(const double *x, int operand)
{
    return operand ? pow(x[0], x[1]) * log(x[0]) : x[1] * pow(x[0], x[1] - 1);
}

/* The terms of 1 + x (1 - s), with s = sigmoid(x), and the functions' own errors. */
static double silu_bound(const double *x, int operand)
{
    (void)operand;
    return 2 * fmax(1, fabs(x[0]));
}

static double swiglu_bound(const double *x, int operand)
{
    return silu_bound(x, 0) * (operand ? 1 : fabs(x[1]));
}

/* OpenCL allows 16 ulp. The rounding of p - 1 counts for log(x) of them. */
static double power_bound(const double *x)
{
    return 2 * fabs(pow(x[0], 2.5));
}

static double pow_bound(const double *x)
{
    return 2 * fabs(value_pow(x));
}

static double pow_slope_bound(const double *x, int operand)
{
    return operand ? 3 * fabs(slope_pow(x, 1))
                   : 3 * fabs(slope_pow(x, 0)) * (1 + fabs(log(fabs(x[0]))));
}

#define ROW(NAME, ...)                                                                             \
    {                                                                                              \
        .name = #NAME, .n_in = 1, .build = build_##NAME, .value = value_##NAME,                    \
        .slope = slope_##NAME, .gradients = 1, __VA_ARGS__                                         \
    }

static double twice_rsqrt(const double *x, int operand)
{
    (void)operand;
    return 1 / (x[0] * sqrt(x[0]));
}

static double thrice_fourth(const double *x, int operand)
{
    return 3 * fabs(slope_fourth(x, operand));
}

static double thrice_power(const double *x, int operand)
{
    return 3 * fabs(slope_power(x, operand));
}

static double twice_fourth(const double *x)
{
    return 2 * fabs(value_fourth(x));
}

static const pointwise functions[] = {
    ROW(exp, .least = {-5}, .range = {10}),
    ROW(log, .least = {0.05}, .range = {4}),
    ROW(sqrt, .least = {0.05}, .range = {4}),
    ROW(rsqrt, .slope_bound = twice_rsqrt, .least = {0.05}, .range = {4}),
    ROW(abs, .fill = {OP_AWAY}),
    ROW(silu, .slope_bound = silu_bound, .least = {-6}, .range = {12}),
    ROW(clamp, .fill = {OP_RANDOM}),
    ROW(above, .fill = {OP_RANDOM}),
    ROW(square, .fill = {OP_RANDOM}),
    ROW(cube, .fill = {OP_RANDOM}),
    ROW(reciprocal, .fill = {OP_AWAY}),
    ROW(fourth, .value_bound = twice_fourth, .slope_bound = thrice_fourth, .fill = {OP_AWAY}),
    ROW(power, .value_bound = power_bound, .slope_bound = thrice_power, .least = {0.05},
        .range = {4}),
    {.name = "swiglu",
     .n_in = 2,
     .build = build_swiglu,
     .value = value_swiglu,
     .slope = slope_swiglu,
     .slope_bound = swiglu_bound,
     .gradients = 3,
     .least = {-6},
     .range = {12}},
    {.name = "pow",
     .n_in = 2,
     .build = build_pow,
     .value = value_pow,
     .slope = slope_pow,
     .value_bound = pow_bound,
     .slope_bound = pow_slope_bound,
     .all_shapes = true,
     .gradients = 3,
     .least = {0.05},
     .range = {4}},
};

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        pw_check_all(&functions[i]);
}

/* --- the whole range ------------------------------------------------------------------------ */

static void check_numbers(const pointwise *p, const double *numbers, int count)
{
    op_test t = pw_test(p);
    op_case c = {.text = "numbers",
                 .n_in = 1,
                 .in = {{CLT_F32, 1, {count}, OP_RANDOM, false, numbers}},
                 .batch = 1,
                 .attr = p};
    t.backward = NULL;
    op_check(&t, &c, false);
}

/* Within 3 ulp, of which half an ulp is the result's own rounding. The unit is up to two ulp. */
static double ulps(const pointwise *p, const double *x)
{
    return 3.0 / 8 * fabs(p->value(x));
}

static double exp_bound(const double *x)
{
    return ulps(&functions[0], x);
}

static double log_bound(const double *x)
{
    return ulps(&functions[1], x);
}

static double sqrt_bound(const double *x)
{
    return ulps(&functions[2], x);
}

static double rsqrt_bound(const double *x)
{
    return 2 * ulps(&functions[3], x);
}

/* Every binade of normal numbers with a tight bound, and numbers that are not finite. */
static void test_whole_range(void **state)
{
    enum { LEAST = -126, MOST = 128, STEPS = 7, COUNT = (MOST - LEAST) * STEPS + 6 + 400 };
    static double (*const bounds[])(const double *) = {exp_bound, log_bound, sqrt_bound,
                                                       rsqrt_bound};
    static double numbers[COUNT];
    (void)state;
    for (int k = 0; k < 4; k++) {
        pointwise p = functions[k];
        int count = 0;
        p.value_bound = bounds[k];
        for (int e = LEAST; k && e < MOST; e++)
            for (int s = 0; s < STEPS; s++)
                numbers[count++] = (double)(float)ldexp(1 + (double)s / STEPS, e);
        for (int i = 0; i < 400; i++) /* exp: all arguments with a result; log: near 1 */
            numbers[count++] = (double)(float)(k ? 0.8 + i / 1000.0 : -86.5 + i * 0.4375);
        numbers[count++] = NAN;
        numbers[count++] = INFINITY;
        numbers[count++] = 0;
        numbers[count++] = k ? -1 : -110;
        numbers[count++] = k ? -INFINITY : 200;
        if (clt_test_oclgrind())
            check_numbers(&p, numbers + count - 37, 37);
        else
            check_numbers(&p, numbers, count);
    }
}

/* NaN and infinity through the other functions. Bounds of clamp allow infinity. */
static void test_not_finite(void **state)
{
    static const double numbers[] = {NAN, INFINITY, -INFINITY, 0};
    (void)state;
    for (size_t i = 4; i < 9; i++)
        if (i != 5) /* -infinity times 0 is NaN, as in PyTorch and in the reference */
            check_numbers(&functions[i], numbers, 4);
    check_numbers(&functions[5], numbers, 4);
}

/* A NaN is not within the bounds, so it has no gradient, as in PyTorch. */
static void test_clamp_edges(void **state)
{
    static const double numbers[] = {NAN, -0.5, 0.25, INFINITY, -INFINITY, 0};
    const pointwise *p = &functions[6];
    op_test t = pw_test(p);
    const op_case c = {.text = "edges",
                       .n_in = 1,
                       .in = {{CLT_F32, 1, {6}, OP_RANDOM, true, numbers}},
                       .batch = 1,
                       .attr = p};
    (void)state;
    assert_string_equal(p->name, "clamp");
    op_check(&t, &c, false);
}

/* Gradients for base 0 or exponent 0, as in PyTorch. */
static double edge_slope(const double *x, int operand)
{
    if (operand)
        return x[0] == 0 && x[1] >= 0 ? 0 : pow(x[0], x[1]) * log(x[0]);
    return x[1] == 0 ? 0 : x[1] * pow(x[0], x[1] - 1);
}

static double edge_bound(const double *x, int operand)
{
    return 3 * fabs(edge_slope(x, operand));
}

static void test_pow_edges(void **state)
{
    static const double base[] = {0, 0, 0, 2, -2, -2, 1, 3}, exponent[] = {0, 2, 1, 0, 3, 2, 5, -2};
    pointwise p = functions[14];
    (void)state;
    p.slope = edge_slope;
    p.slope_bound = edge_bound;
    op_test t = pw_test(&p);
    const op_case c = {.text = "edges",
                       .n_in = 2,
                       .in = {{CLT_F32, 1, {8}, OP_RANDOM, true, base},
                              {CLT_F32, 1, {8}, OP_RANDOM, true, exponent}},
                       .batch = 1,
                       .attr = &p};
    assert_string_equal(p.name, "pow");
    op_check(&t, &c, false);
}

static void check_power(double exponent, const char *op)
{
    clt_graph *g;
    OP_OK(clt_graph_create(&g));
    clt_value *y = clt_pow_scalar(clt_input(g, "x", CLT_F32, 1, (int64_t[]){4}), exponent);
    assert_non_null(y);
    assert_string_equal(y->producer->op->name, op);
    clt_graph_destroy(g);
}

/* Exponents with their own operators. */
static void test_exponents(void **state)
{
    (void)state;
    check_power(2, "square");
    check_power(3, "cube");
    check_power(0.5, "sqrt");
    check_power(-0.5, "rsqrt");
    check_power(-1, "reciprocal");
    check_power(-2, "pow_scalar");
}

/* Exponent 0: the result is 1, and there is no gradient. */
static void test_exponent_zero(void **state)
{
    clt_graph *g;
    clt_value *dx = NULL;
    (void)state;
    OP_OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 1, (int64_t[]){4});
    clt_value *y = clt_pow_scalar(x, 0), *dy = clt_input(g, "dy", CLT_F32, 1, (int64_t[]){4});
    OP_OK(clt_autodiff(g, &y, &dy, 1, &x, 1, &dx));
    assert_null(dx);
    clt_graph_destroy(g);
}

static void fails(clt_value *(*make)(clt_value *x), clt_dtype dtype, const char *message)
{
    clt_graph *g;
    OP_OK(clt_graph_create(&g));
    assert_null(make(clt_input(g, "x", dtype, 2, (int64_t[]){CLT_BATCH, 4})));
    assert_int_not_equal(clt_graph_status(g), CLT_OK);
    if (!strstr(clt_error_message(), message))
        fail_msg("\"%s\" does not say \"%s\"", clt_error_message(), message);
    clt_graph_destroy(g);
}

static clt_value *reversed(clt_value *x)
{
    return clt_clamp(x, 1, -1);
}

static clt_value *no_number(clt_value *x)
{
    return clt_clamp(x, 0, NAN);
}

static clt_value *endless(clt_value *x)
{
    return clt_pow_scalar(x, INFINITY);
}

static clt_value *apart(clt_value *x)
{
    return clt_swiglu(x, clt_input(x->graph, "other", CLT_F32, 1, (int64_t[]){5}));
}

static void test_errors(void **state)
{
    (void)state;
    fails(reversed, CLT_F32, "clamp: 1 to -1 is no range");
    fails(no_number, CLT_F32, "clamp: max is nan; it must be a number");
    fails(endless, CLT_F32, "pow_scalar: exponent is inf; it must be a finite number");
    fails(apart, CLT_F32, "swiglu: f32[Bx4] and f32[5] do not broadcast");
    fails(clt_exp, CLT_I32, "exp: operand 0 is i32[Bx4]; cast it to f32 first");
    fails(clt_silu, CLT_U8, "silu: operand 0 is u8[Bx4]; cast it to f32 first");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),      cmocka_unit_test(test_whole_range),
        cmocka_unit_test(test_not_finite),  cmocka_unit_test(test_pow_edges),
        cmocka_unit_test(test_exponents),   cmocka_unit_test(test_exponent_zero),
        cmocka_unit_test(test_clamp_edges), cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
