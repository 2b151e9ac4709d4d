/* add, sub, mul and div with every kind of broadcasting, scale and copy. Their gradients test
 * expand and sum for operands that were broadcast, also along the batch. */
#include "ops/harness/golden.h"

typedef struct binary {
    const char *name;
    clt_value *(*build)(clt_value *a, clt_value *b);
    char symbol;
} binary;

static const binary binaries[] = {
    {"add", clt_add, '+'}, {"sub", clt_sub, '-'}, {"mul", clt_mul, '*'}, {"div", clt_div, '/'}};

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    out[0] = ((const binary *)c->attr)->build(in[0], in[1]);
}

/* Dimensions of the result. own_index gives the element of operand i for element `at` of the
 * result. */
typedef struct broadcast {
    int rank;
    int64_t dims[CLT_MAX_RANK], count;
} broadcast;

static int64_t own_dim(const op_case *c, int i, const broadcast *r, int axis, int64_t n)
{
    const int own = axis - (r->rank - c->in[i].rank);
    return own < 0 ? 1 : op_dim(c, i, own, n);
}

static broadcast broadcast_of(const op_case *c, int64_t n)
{
    broadcast r = {.rank = c->in[0].rank > c->in[1].rank ? c->in[0].rank : c->in[1].rank,
                   .count = 1};
    for (int k = 0; k < r.rank; k++) {
        r.dims[k] =
            own_dim(c, 0, &r, k, n) == 1 ? own_dim(c, 1, &r, k, n) : own_dim(c, 0, &r, k, n);
        /* There may be no image at all: a dimension of 1 that repeats along the batch does not make
         * one. */
        for (int i = 0; i < 2; i++)
            if (own_dim(c, i, &r, k, n) == 0)
                r.dims[k] = 0;
        r.count *= r.dims[k];
    }
    return r;
}

static int64_t own_index(const op_case *c, int i, const broadcast *r, int64_t at, int64_t n)
{
    int64_t index = 0, stride = 1;
    for (int k = r->rank - 1; k >= 0; k--) {
        const int64_t dim = own_dim(c, i, r, k, n);
        index += dim == 1 ? 0 : at % r->dims[k] * stride;
        at /= r->dims[k];
        stride *= dim;
    }
    return index;
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    const broadcast r = broadcast_of(c, n);
    const char symbol = ((const binary *)c->attr)->symbol;
    for (int64_t i = 0; i < r.count; i++) {
        const double a = x[0][own_index(c, 0, &r, i, n)], b = x[1][own_index(c, 1, &r, i, n)];
        y[0][i] = symbol == '+' ? a + b : symbol == '-' ? a - b : symbol == '*' ? a * b : a / b;
        if (bound)
            bound[0][i] = symbol == '+' || symbol == '-' ? fabs(a) + fabs(b) : fabs(y[0][i]);
    }
}

static void backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    const broadcast r = broadcast_of(c, n);
    const char symbol = ((const binary *)c->attr)->symbol;
    for (int64_t i = 0; i < r.count; i++) {
        const int64_t at[] = {own_index(c, 0, &r, i, n), own_index(c, 1, &r, i, n)};
        const double a = x[0][at[0]], b = x[1][at[1]];
        const double slopes[] = {symbol == '*'   ? b
                                 : symbol == '/' ? 1 / b
                                                 : 1,
                                 symbol == '*'   ? a
                                 : symbol == '/' ? -a / (b * b)
                                 : symbol == '-' ? -1
                                                 : 1};
        for (int k = 0; k < 2; k++) {
            const double terms = (double)r.count / (double)op_count(c, k, n);
            dx[k][at[k]] += dy[0][i] * slopes[k];
            bound[k][at[k]] += sqrt(terms) * fabs(dy[0][i] * slopes[k]);
        }
    }
}

static op_test test_of(const binary *b)
{
    return (op_test){
        .op = b->name, .n_out = 1, .build = build, .forward = forward, .backward = backward};
}

static const struct shapes {
    int rank[2];
    int64_t dims[2][6], batch;
} shapes[] = {
    {{2, 2}, {{CLT_BATCH, 5}, {CLT_BATCH, 5}}, 3},
    {{2, 1}, {{CLT_BATCH, 33}, {33}}, 7},
    {{1, 2}, {{5}, {CLT_BATCH, 5}}, 4},
    {{3, 3}, {{CLT_BATCH, 3, 1}, {CLT_BATCH, 1, 5}}, 3},
    {{3, 2}, {{CLT_BATCH, 1, 19}, {2, 1}}, 5},
    {{2, 2}, {{1, 7}, {CLT_BATCH, 1}}, 6},
    {{1, 2}, {{1}, {CLT_BATCH, 2100}}, 3},
    {{2, 3}, {{3, 1}, {7, 1, 2}}, 1},
    {{1, 1}, {{1}, {1}}, 1},
    {{1, 1}, {{257}, {257}}, 1},
    {{6, 6}, {{2, 1, 3, 1, 2, 1}, {1, 3, 1, 2, 1, 5}}, 1},
    {{2, 2}, {{-2, 3}, {1, 3}}, 3},
    {{2, 2}, {{CLT_BATCH, 3}, {CLT_BATCH, 3}}, 1},
    {{4, 4}, {{CLT_BATCH, 2, 3, 3}, {1, 2, 1, 1}}, 17},
    {{4, 4}, {{CLT_BATCH, 2, 3, 4}, {1, 2, 1, 1}}, 3},
    {{2, 1}, {{CLT_BATCH, 36}, {36}}, 3},
};

static void test_shapes(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof binaries / sizeof *binaries; k++) {
        op_test t = test_of(&binaries[k]);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            char text[OP_TEXT];
            op_case c = {.text = text, .n_in = 2, .batch = shapes[i].batch, .attr = &binaries[k]};
            snprintf(text, sizeof text, "shapes %d", (int)i);
            for (int o = 0; o < 2; o++) {
                c.in[o] = (op_operand){
                    .dtype = CLT_F32, .rank = shapes[i].rank[o], .fill = OP_AWAY, .gradient = true};
                memcpy(c.in[o].dims, shapes[i].dims[o], sizeof shapes[i].dims[o]);
            }
            op_check(&t, &c, k == 3 ? i == 3 : i != 6);
        }
        op_report(&t);
    }
}

static const binary *wanted;

static void golden(op_golden *g)
{
    op_test t = test_of(wanted);
    op_golden_operand(g, "a", false);
    op_golden_operand(g, "b", false);
    op_golden_results(g);
    g->c.attr = wanted;
    op_check(&t, &g->c, false);
}

static void test_goldens(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof binaries / sizeof *binaries; k++) {
        wanted = &binaries[k];
        op_goldens(wanted->name, golden);
    }
}

/* --- one operand ------------------------------------------------------------------------------ */

typedef struct line {
    double factor, term;
} line;

static void build_line(const op_case *c, clt_value *const *in, clt_value **out)
{
    const line *l = c->attr;
    out[0] = l->factor == 1 && l->term == 0 ? clt_copy(in[0])
             : l->term != 0                 ? clt_add_scalar(in[0], l->term)
                                            : clt_scale(in[0], l->factor);
}

static void forward_line(const op_case *c, int64_t n, double *const *x, double *const *y,
                         double *const *bound)
{
    const line *l = c->attr;
    for (int64_t i = 0; i < op_count(c, 0, n); i++) {
        y[0][i] = x[0][i] * l->factor + l->term;
        if (bound)
            bound[0][i] = fabs(x[0][i] * l->factor) + fabs(l->term);
    }
}

static void backward_line(const op_case *c, int64_t n, double *const *x, double *const *dy,
                          double *const *dx, double *const *bound)
{
    const line *l = c->attr;
    (void)x;
    for (int64_t i = 0; i < op_count(c, 0, n); i++) {
        dx[0][i] = dy[0][i] * l->factor;
        bound[0][i] = fabs(dx[0][i]);
    }
}

static void test_lines(void **state)
{
    static const line lines[] = {{2.5, 0}, {1, -0.75}, {1, 0}};
    (void)state;
    for (size_t k = 0; k < sizeof lines / sizeof *lines; k++) {
        op_test t = {.op = k == 2 ? "copy" : "scale",
                     .n_out = 1,
                     .build = build_line,
                     .forward = forward_line,
                     .backward = backward_line};
        const op_case c = {.text = "lines",
                           .n_in = 1,
                           .in = {{CLT_F32, 2, {CLT_BATCH, 13}, OP_RANDOM, true, NULL}},
                           .batch = 5,
                           .attr = &lines[k]};
        op_check(&t, &c, true);
        op_report(&t);
    }
}

static void refuse(const int64_t *a, const int64_t *b, clt_dtype dtype, const char *part)
{
    clt_graph *g;
    OP_OK(clt_graph_create(&g));
    assert_null(clt_mul(clt_input(g, "a", CLT_F32, 2, a), clt_input(g, "b", dtype, 2, b)));
    assert_int_not_equal(clt_graph_status(g), CLT_OK);
    if (!strstr(clt_error_message(), part))
        fail_msg("\"%s\" does not say \"%s\"", clt_error_message(), part);
    clt_graph_destroy(g);
}

static void test_errors(void **state)
{
    (void)state;
    refuse((int64_t[]){CLT_BATCH, 3}, (int64_t[]){CLT_BATCH, 4}, CLT_F32, "f32[Bx4]");
    refuse((int64_t[]){CLT_BATCH, 3}, (int64_t[]){2, 3}, CLT_F32, "do not broadcast");
    refuse((int64_t[]){CLT_BATCH, 3}, (int64_t[]){CLT_BATCH, 3}, CLT_I32, "cast it to f32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
