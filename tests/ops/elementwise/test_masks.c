/* Comparisons, logic and where: by themselves, in chains that fuse, and with broadcasting. */
#include "ops/harness/pointwise.h"

/* Converts a mask to f32, which the harness reads; and f32 to a mask. */
static clt_value *seen(clt_value *mask)
{
    return clt_cast(mask, CLT_F32);
}

static clt_value *mask(clt_value *x)
{
    return clt_cast(x, CLT_U8);
}

#define COMPARISON(NAME, SYMBOL)                                                                   \
    static clt_value *build_##NAME(clt_value *const *in)                                           \
    {                                                                                              \
        return seen(clt_##NAME(in[0], in[1]));                                                     \
    }                                                                                              \
    static double value_##NAME(const double *x)                                                    \
    {                                                                                              \
        return x[0] SYMBOL x[1];                                                                   \
    }

#define LOGIC(NAME, VALUE)                                                                         \
    static clt_value *build_##NAME(clt_value *const *in)                                           \
    {                                                                                              \
        return seen(clt_##NAME(mask(in[0]), mask(in[1])));                                         \
    }                                                                                              \
    static double value_##NAME(const double *x)                                                    \
    {                                                                                              \
        return VALUE;                                                                              \
    }

COMPARISON(eq, ==)
COMPARISON(ne, !=)
COMPARISON(lt, <)
COMPARISON(le, <=)
COMPARISON(gt, >)
COMPARISON(ge, >=)
LOGIC(logical_and, x[0] != 0 && x[1] != 0)
LOGIC(logical_or, x[0] != 0 || x[1] != 0)
LOGIC(logical_xor, (x[0] != 0) != (x[1] != 0))

static clt_value *build_not(clt_value *const *in)
{
    return seen(clt_logical_not(mask(in[0])));
}

static double value_not(const double *x)
{
    return x[0] == 0;
}

/* Masks with numbers above 1 are compared as numbers, also with f32. */
static clt_value *build_mixed(clt_value *const *in)
{
    return seen(clt_lt(mask(in[0]), in[1]));
}

static clt_value *build_where(clt_value *const *in)
{
    return clt_where(mask(in[0]), in[1], in[2]);
}

static double value_where(const double *x)
{
    return x[0] != 0 ? x[1] : x[2];
}

static double slope_where(const double *x, int operand)
{
    return operand == 1 ? x[0] != 0 : operand == 2 ? x[0] == 0 : 0;
}

/* where(!(a < b), silu(a), c): one kernel with f32 operands. */
static clt_value *build_chain(clt_value *const *in)
{
    return clt_where(clt_logical_not(clt_lt(in[0], in[1])), clt_scale(in[0], 3), in[2]);
}

static double value_chain(const double *x)
{
    return x[0] < x[1] ? x[2] : 3 * x[0];
}

static double slope_chain(const double *x, int operand)
{
    const bool first = !(x[0] < x[1]);
    return operand == 0 ? 3 * first : operand == 2 ? !first : 0;
}

/* A chain that ends in a mask: (a * b > c) as bytes. */
static clt_value *build_to_mask(clt_value *const *in)
{
    return seen(clt_gt(clt_mul(in[0], in[1]), in[2]));
}

static double value_to_mask(const double *x)
{
    return (double)((float)x[0] * (float)x[1]) > x[2];
}

#define ROW(NAME, N, ...)                                                                          \
    {                                                                                              \
        .name = #NAME, .n_in = N, .build = build_##NAME, .value = value_##NAME, __VA_ARGS__        \
    }
#define THREE                                                                                      \
    {                                                                                              \
        OP_LABELS, OP_LABELS, OP_RANDOM                                                            \
    }

static const pointwise rows[] = {
    ROW(eq, 2, .fill = THREE),
    ROW(ne, 2, .fill = THREE),
    ROW(lt, 2, .fill = THREE),
    ROW(le, 2, .fill = THREE),
    ROW(gt, 2, .fill = THREE),
    ROW(ge, 2, .fill = THREE),
    ROW(logical_and, 2, .fill = THREE),
    ROW(logical_or, 2, .fill = THREE),
    ROW(logical_xor, 2, .fill = THREE),
    ROW(not, 1, .fill = THREE),
    {.name = "lt of a mask", .n_in = 2, .build = build_mixed, .value = value_lt, .fill = THREE},
    ROW(where, 3, .all_shapes = true, .slope = slope_where, .gradients = 6,
        .fill = {OP_LABELS, OP_RANDOM, OP_RANDOM}),
    ROW(chain, 3, .slope = slope_chain, .gradients = 5,
        .fill = {OP_RANDOM, OP_DISTINCT, OP_RANDOM}),
    ROW(to_mask, 3, .fill = {OP_LABELS, OP_LABELS, OP_AWAY}),
};

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        pw_check_all(&rows[i]);
}

/* Vectors of a flat iteration, longer than a work-item's share, whose last bytes are no whole
 * vector. */
static void test_long(void **state)
{
    static const pw_shape one = {{1, 1, 1}, {{2051}, {2051}, {2051}}, 1};
    (void)state;
    for (size_t i = 9; !clt_test_oclgrind() && i < sizeof rows / sizeof *rows; i++) {
        op_test t = pw_test(&rows[i]);
        pw_check(&rows[i], &t, &one, false);
    }
}

/* With NaN, only != holds. The operand that `where` does not take has no influence, also on the
 * gradient. */
static void test_nan(void **state)
{
    static const double a[] = {NAN, 1, NAN, INFINITY, 0}, b[] = {1, NAN, NAN, INFINITY, -0.0};
    static const double choice[] = {0, 1, 0, 1, 1}, nan_else[] = {NAN, 2, NAN, 3, INFINITY};
    static const double other[] = {5, NAN, 6, NAN, NAN};
    (void)state;
    for (size_t i = 0; i < 6; i++) {
        op_test t = pw_test(&rows[i]);
        const op_case c = {
            .text = "NaN",
            .n_in = 2,
            .in = {{CLT_F32, 1, {5}, OP_RANDOM, false, a}, {CLT_F32, 1, {5}, OP_RANDOM, false, b}},
            .batch = 1,
            .attr = &rows[i]};
        op_check(&t, &c, false);
    }
    op_test t = pw_test(&rows[11]);
    const op_case c = {.text = "what is not taken",
                       .n_in = 3,
                       .in = {{CLT_F32, 1, {5}, OP_RANDOM, false, choice},
                              {CLT_F32, 1, {5}, OP_RANDOM, true, nan_else},
                              {CLT_F32, 1, {5}, OP_RANDOM, true, other}},
                       .batch = 1,
                       .attr = &rows[11]};
    op_check(&t, &c, false);
}

static void test_fusion(void **state)
{
    (void)state;
    for (int masked = 0; masked < 2; masked++) {
        const pointwise *p = &rows[12 + masked];
        op_test t = pw_test(p);
        op_case c = {.text = "fused", .n_in = 3, .batch = 3, .attr = p};
        op_bound b;
        int fused = 0, others = 0;
        for (int i = 0; i < 3; i++)
            c.in[i] = (op_operand){CLT_F32, 2, {CLT_BATCH, 5}, OP_RANDOM, false, NULL};
        op_bind(&t, &c, &op_as_device, &b);
        for (int i = 0; i < b.plan->n_nodes; i++) {
            const char *name = b.plan->nodes[i].node->op->name;
            fused += !strcmp(name, "fused_elementwise");
            others +=
                strcmp(name, "fused_elementwise") && strcmp(name, "scale") && strcmp(name, "cast");
        }
        assert_int_equal(fused, 1);
        assert_int_equal(others, 0);
        op_unbind(&b);
    }
}

static void fails(clt_value *(*make)(clt_value *f, clt_value *m), const char *message)
{
    clt_graph *g;
    OP_OK(clt_graph_create(&g));
    clt_value *f = clt_input(g, "f", CLT_F32, 2, (int64_t[]){CLT_BATCH, 4});
    clt_value *m = clt_input(g, "m", CLT_U8, 2, (int64_t[]){CLT_BATCH, 4});
    assert_null(make(f, m));
    assert_int_not_equal(clt_graph_status(g), CLT_OK);
    if (!strstr(clt_error_message(), message))
        fail_msg("\"%s\" does not say \"%s\"", clt_error_message(), message);
    clt_graph_destroy(g);
}

static clt_value *no_mask(clt_value *f, clt_value *m)
{
    (void)m;
    return clt_where(f, f, f);
}

static clt_value *chosen_mask(clt_value *f, clt_value *m)
{
    return clt_where(m, f, m);
}

static clt_value *logic_of_floats(clt_value *f, clt_value *m)
{
    return clt_logical_and(m, f);
}

static clt_value *compared_labels(clt_value *f, clt_value *m)
{
    (void)m;
    return clt_eq(f, clt_input(f->graph, "labels", CLT_I32, 1, (int64_t[]){4}));
}

static clt_value *added_mask(clt_value *f, clt_value *m)
{
    return clt_add(f, m);
}

static clt_value *apart(clt_value *f, clt_value *m)
{
    return clt_where(m, f, clt_input(f->graph, "other", CLT_F32, 1, (int64_t[]){3}));
}

static void test_errors(void **state)
{
    (void)state;
    fails(no_mask, "where: operand 0 is f32[Bx4], no mask of u8");
    fails(chosen_mask, "where: operand 2 is u8[Bx4]; cast it to f32 first");
    fails(logic_of_floats, "logical_and: operand 1 is f32[Bx4], no mask of u8");
    fails(compared_labels, "eq: operand 1 is i32[4]; cast it to f32 first");
    fails(added_mask, "add: operand 1 is u8[Bx4]; cast it to f32 first");
    fails(apart, "where: u8[Bx4] and f32[3] do not broadcast");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes), cmocka_unit_test(test_long),   cmocka_unit_test(test_nan),
        cmocka_unit_test(test_fusion), cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
