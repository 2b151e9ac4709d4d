#include "ops/harness/harness.h"

static const double eps = 1e-3;

/* The axis of a case. The elements of its vectors are `inner` apart. */
static int axis_of(const op_case *c)
{
    return *(const int *)c->attr;
}

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    out[0] = clt_cosine_similarity(in[0], in[1], axis_of(c), eps);
}

typedef struct vectors {
    int64_t count, size, inner;
} vectors;

static vectors vectors_of(const op_case *c, int64_t n)
{
    const int axis = axis_of(c) < 0 ? axis_of(c) + c->in[0].rank : axis_of(c);
    vectors v = {.size = op_dim(c, 0, axis, n), .inner = 1};
    for (int k = axis + 1; k < c->in[0].rank; k++)
        v.inner *= op_dim(c, 0, k, n);
    v.count = op_count(c, 0, n) / v.size;
    return v;
}

/* Returns the place of element j of vector i. b may have one vector for all images. */
static int64_t at(const op_case *c, const vectors *v, int operand, int64_t i, int64_t j, int64_t n)
{
    const int64_t all = op_count(c, operand, n);
    return ((i / v->inner * v->size + j) * v->inner + i % v->inner) % all;
}

typedef struct sums {
    double ab, aa, bb, length_a, length_b;
} sums;

static sums sums_of(const op_case *c, const vectors *v, int64_t i, int64_t n, double *const *x)
{
    sums s = {0, 0, 0, 0, 0};
    for (int64_t j = 0; j < v->size; j++) {
        const double a = x[0][at(c, v, 0, i, j, n)], b = x[1][at(c, v, 1, i, j, n)];
        s.ab += a * b;
        s.aa += a * a;
        s.bb += b * b;
    }
    s.length_a = fmax(sqrt(s.aa), eps);
    s.length_b = fmax(sqrt(s.bb), eps);
    return s;
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    const vectors v = vectors_of(c, n);
    for (int64_t i = 0; i < v.count; i++) {
        const sums s = sums_of(c, &v, i, n, x);
        y[0][i] = s.ab / (s.length_a * s.length_b);
        if (bound)
            bound[0][i] = 2 * sqrt((double)v.size);
    }
}

static void backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    const vectors v = vectors_of(c, n);
    for (int64_t i = 0; i < v.count; i++) {
        const sums s = sums_of(c, &v, i, n, x);
        const double cosine = s.ab / (s.length_a * s.length_b);
        for (int64_t j = 0; j < v.size; j++) {
            const int64_t ka = at(c, &v, 0, i, j, n), kb = at(c, &v, 1, i, j, n);
            const double own_a = s.length_a > eps ? cosine * x[0][ka] / s.aa : 0;
            const double own_b = s.length_b > eps ? cosine * x[1][kb] / s.bb : 0;
            const double of_b = x[1][kb] / (s.length_a * s.length_b);
            const double of_a = x[0][ka] / (s.length_a * s.length_b);
            const double terms = 4 * sqrt((double)v.size) * fabs(dy[0][i]);
            dx[0][ka] += dy[0][i] * (of_b - own_a);
            dx[1][kb] += dy[0][i] * (of_a - own_b);
            bound[0][ka] += terms * (fabs(of_b) + 1 / s.length_a);
            bound[1][kb] += terms * (fabs(of_a) + 1 / s.length_b);
        }
    }
}

static op_test test = {"cosine_similarity", 1, 0, build, forward, backward, 0};

static void test_shapes(void **state)
{
    static const struct {
        int rank[2], axis;
        int64_t dims[2][3], batch;
    } cases[] = {
        {{2, 2}, 1, {{CLT_BATCH, 16, 0}, {CLT_BATCH, 16, 0}}, 5},
        {{2, 1}, -1, {{CLT_BATCH, 37, 0}, {37, 0, 0}}, 3},
        {{3, 3}, 1, {{CLT_BATCH, 3, 5}, {CLT_BATCH, 3, 5}}, 3},
        {{2, 2}, 0, {{7, 3, 0}, {7, 3, 0}}, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[OP_TEXT];
        op_case c = {.text = text, .n_in = 2, .batch = cases[i].batch, .attr = &cases[i].axis};
        snprintf(text, sizeof text, "case %d", (int)i);
        for (int k = 0; k < 2; k++) {
            c.in[k] = (op_operand){.dtype = CLT_F32, .rank = cases[i].rank[k], .gradient = true};
            memcpy(c.in[k].dims, cases[i].dims[k], sizeof cases[i].dims[k]);
        }
        if (!clt_test_oclgrind() || !i)
            op_check(&test, &c, true);
    }
    op_report(&test);
}

/* Vectors that are 0, or shorter than eps. */
static void test_short(void **state)
{
    static const double a[] = {0, 0, 1, 2, 1e-4, 0}, b[] = {3, 4, 0, 0, 1e-4, -1e-4};
    static const int axis = 1;
    const op_case c = {
        .text = "short",
        .n_in = 2,
        .in = {{CLT_F32, 2, {3, 2}, OP_RANDOM, true, a}, {CLT_F32, 2, {3, 2}, OP_RANDOM, true, b}},
        .batch = 1,
        .attr = &axis};
    (void)state;
    op_check(&test, &c, false);
}

static void fails(const int64_t *dims, int axis, double least, clt_status want, const char *message)
{
    clt_graph *g;
    OP_OK(clt_graph_create(&g));
    clt_value *a = clt_input(g, "a", CLT_F32, 2, (int64_t[]){CLT_BATCH, 4});
    assert_null(clt_cosine_similarity(a, clt_input(g, "b", CLT_F32, 2, dims), axis, least));
    assert_int_equal(clt_graph_status(g), want);
    if (!strstr(clt_error_message(), message))
        fail_msg("\"%s\" does not say \"%s\"", clt_error_message(), message);
    clt_graph_destroy(g);
}

static void test_errors(void **state)
{
    const int64_t same[] = {CLT_BATCH, 4}, other[] = {CLT_BATCH, 5}, rows[] = {3, 4};
    (void)state;
    fails(other, 1, eps, CLT_SHAPE, "axis 1 of f32[Bx4] and f32[Bx5] is not one size");
    fails(same, 0, eps, CLT_SHAPE, "axis 0 of f32[Bx4] and f32[Bx4] is not one size");
    fails(same, 2, eps, CLT_SHAPE, "cosine_similarity: f32[Bx4] has no axis 2");
    fails(same, 1, 0, CLT_INVALID_ARGUMENT, "cosine_similarity: eps is 0");
    fails(rows, 1, eps, CLT_SHAPE, "mul: f32[Bx4] and f32[3x4] do not broadcast");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_short),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
