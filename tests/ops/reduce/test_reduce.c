/* sum, mean and max over axes, the batch among them, with mean_grad, max_count and max_grad. */
#include "ops/harness/golden.h"

typedef struct reduction {
    const char *name;
    clt_value *(*build)(clt_value *x, const int *axes, int n_axes, int keepdims);
} reduction;

enum { SUM, MEAN, MAX };

static const reduction reductions[] = {
    {"sum", clt_reduce_sum}, {"mean", clt_reduce_mean}, {"max", clt_reduce_max}};

/* A case's attribute. */
typedef struct reduce_case {
    int kind, n_axes, axes[4], keepdims;
} reduce_case;

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    const reduce_case *r = c->attr;
    out[0] = reductions[r->kind].build(in[0], r->axes, r->n_axes, r->keepdims);
}

static bool is_reduced(const op_case *c, int axis)
{
    const reduce_case *r = c->attr;
    for (int i = 0; i < r->n_axes; i++)
        if (axis == (r->axes[i] < 0 ? r->axes[i] + c->in[0].rank : r->axes[i]))
            return true;
    return r->n_axes == 0;
}

/* Returns the result to which an element belongs. Sets *results and *length to the number of
 * results and of their elements. */
static int64_t result_of(const op_case *c, int64_t at, int64_t n)
{
    int64_t index = 0, stride = 1;
    for (int k = c->in[0].rank - 1; k >= 0; k--) {
        const int64_t dim = op_dim(c, 0, k, n);
        if (!is_reduced(c, k)) {
            index += at % dim * stride;
            stride *= dim;
        }
        at /= dim;
    }
    return index;
}

static void sizes_of(const op_case *c, int64_t n, int64_t *results, int64_t *length)
{
    *results = *length = 1;
    for (int k = 0; k < c->in[0].rank; k++)
        *(is_reduced(c, k) ? length : results) *= op_dim(c, 0, k, n);
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    const int kind = ((const reduce_case *)c->attr)->kind;
    int64_t results, length;
    sizes_of(c, n, &results, &length);
    for (int64_t o = 0; o < results; o++) {
        y[0][o] = kind == MAX ? -INFINITY : 0;
        if (bound)
            bound[0][o] = 0;
    }
    for (int64_t i = 0; i < op_count(c, 0, n); i++) {
        const int64_t o = result_of(c, i, n);
        const double term = kind == MEAN ? x[0][i] / (double)length : x[0][i];
        if (kind != MAX)
            y[0][o] += term;
        else if (term > y[0][o] || isnan(term))
            y[0][o] = term;
        if (bound && kind != MAX)
            bound[0][o] += sqrt((double)length) * fabs(term);
    }
}

static void backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    const int kind = ((const reduce_case *)c->attr)->kind;
    int64_t results, length;
    sizes_of(c, n, &results, &length);
    double *y = op_array(results), *ties = op_array(results);
    forward(c, n, x, &y, NULL);
    for (int64_t i = 0; i < op_count(c, 0, n); i++)
        ties[result_of(c, i, n)] += x[0][i] == y[result_of(c, i, n)];
    for (int64_t i = 0; i < op_count(c, 0, n); i++) {
        const int64_t o = result_of(c, i, n);
        dx[0][i] = kind == SUM    ? dy[0][o]
                   : kind == MEAN ? dy[0][o] / (double)length
                                  : (x[0][i] == y[o] ? dy[0][o] : 0) / ties[o];
        bound[0][i] = fabs(dx[0][i]);
    }
    free(y);
    free(ties);
}

static op_test test_of(int kind)
{
    return (op_test){.op = reductions[kind].name,
                     .n_out = 1,
                     .build = build,
                     .forward = forward,
                     .backward = backward};
}

static const struct shape {
    int rank;
    int64_t dims[6], batch;
    int n_axes, axes[4], keepdims;
} shapes[] = {
    {2, {CLT_BATCH, 5}, 3, 1, {0}, 0},
    {2, {CLT_BATCH, 5}, 3, 1, {1}, 0},
    {2, {CLT_BATCH, 37}, 4, 1, {-1}, 1},
    {2, {CLT_BATCH, 5}, 3, 0, {0}, 0},
    {4, {CLT_BATCH, 3, 5, 7}, 4, 3, {0, 2, 3}, 1},
    {4, {CLT_BATCH, 3, 5, 7}, 2, 2, {1, 3}, 0},
    {4, {CLT_BATCH, 3, 5, 7}, 3, 2, {0, 2}, 1},
    {1, {CLT_BATCH}, 7, 1, {0}, 0},
    {1, {1}, 1, 1, {0}, 0},
    {2, {CLT_BATCH, 2111}, 5, 0, {0}, 1},
    {2, {9001, 2}, 1, 1, {0}, 0},
    {2, {-3, 5}, 3, 1, {0}, 0},
    {5, {3, 2, 4, 3, 2}, 1, 2, {1, 3}, 0},
    {3, {CLT_BATCH, 40, 130}, 2, 1, {2}, 0},
    {3, {CLT_BATCH, 7, 67}, 5, 1, {1}, 0},
    {2, {CLT_BATCH, 130}, 200, 1, {0}, 0},
    {4, {CLT_BATCH, 3, 2, 97}, 3, 2, {0, 2}, 1},
    {2, {500, 64}, 1, 1, {0}, 0},
    {2, {2, 9000}, 1, 1, {1}, 0},
    {5, {2, 3, 2, 3, 2}, 1, 3, {0, 2, 4}, 0},
    {6, {2, 3, 2, 3, 2, 3}, 1, 3, {0, 2, 4}, 0},
    {3, {CLT_BATCH, 2, 17}, 2500, 2, {0, 2}, 0},
    {3, {CLT_BATCH, 37, 70}, 9, 2, {0, 2}, 1},
    {2, {700, 601}, 1, 1, {0}, 0},
    {2, {CLT_BATCH, 17}, 3, 1, {0}, 0},
};

static void test_shapes(void **state)
{
    (void)state;
    for (int kind = SUM; kind <= MAX; kind++) {
        op_test t = test_of(kind);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            const struct shape *s = &shapes[i];
            char text[OP_TEXT];
            reduce_case r = {.kind = kind, .n_axes = s->n_axes, .keepdims = s->keepdims};
            op_case c = {.text = text, .n_in = 1, .batch = s->batch, .attr = &r};
            snprintf(text, sizeof text, "shape %d", (int)i);
            memcpy(r.axes, s->axes, sizeof r.axes);
            c.in[0] = (op_operand){.dtype = CLT_F32,
                                   .rank = s->rank,
                                   .fill = kind == MAX ? OP_DISTINCT : OP_RANDOM,
                                   .gradient = true};
            memcpy(c.in[0].dims, s->dims, sizeof s->dims);
            if (clt_test_oclgrind() &&
                (i == 9 || i == 10 || i == 13 || i == 15 || i == 18 || i > 20))
                continue;
            /* OP_DISTINCT repeats after 7919 elements, and differences do not work at ties. */
            op_check(&t, &c, i != 9 && i != 10 && i != 13 && i != 18 && i < 21);
        }
        op_report(&t);
    }
}

/* Equal maxima share the gradient, as in PyTorch's amax. */
static void test_ties(void **state)
{
    static const double numbers[] = {1, 3, 3, 2, -1, -1, -1, -1, 0, 5, 2, 5};
    const reduce_case r = {.kind = MAX, .n_axes = 1, .axes = {1}};
    const op_case c = {.text = "ties",
                       .n_in = 1,
                       .in = {{CLT_F32, 2, {3, 4}, OP_RANDOM, true, numbers}},
                       .batch = 1,
                       .attr = &r};
    op_test t = test_of(MAX);
    (void)state;
    op_check(&t, &c, false);
}

/* A NaN is the largest, wherever it is. No element of its row equals it, so the gradient is NaN, as
 * in PyTorch. A sum is NaN only with infinities of both signs. */
static void test_special_numbers(void **state)
{
    enum { ROWS = 7, COLUMNS = 43 };
    static double numbers[ROWS * COLUMNS];
    (void)state;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        numbers[i] = 0.25 * (double)(i * 7 % 301);
    numbers[0 * COLUMNS] = NAN;
    numbers[1 * COLUMNS + 42] = NAN;
    numbers[2 * COLUMNS + 20] = NAN;
    numbers[2 * COLUMNS + 21] = INFINITY;
    numbers[3 * COLUMNS + 5] = INFINITY;
    numbers[4 * COLUMNS + 6] = -INFINITY;
    numbers[5 * COLUMNS + 7] = INFINITY;
    numbers[5 * COLUMNS + 8] = -INFINITY;
    for (int i = 0; i < COLUMNS; i++)
        numbers[6 * COLUMNS + i] = -INFINITY;
    for (int kind = SUM; kind <= MAX; kind++)
        for (int axes = 0; axes < 4; axes++) {
            const reduce_case r = {.kind = kind, .n_axes = axes < 2, .axes = {axes}};
            op_case c = {.text = "special numbers",
                         .n_in = 1,
                         .in = {{CLT_F32, 2, {ROWS, COLUMNS}, OP_RANDOM, true, numbers}},
                         .batch = 1,
                         .attr = &r};
            if (axes == 3)
                c.in[0] = (op_operand){CLT_F32,   1,    {5 * COLUMNS},
                                       OP_RANDOM, true, numbers + 2 * COLUMNS + 22};
            op_test t = test_of(kind);
            op_check(&t, &c, false);
        }
}

static int wanted;

static void golden(op_golden *g)
{
    op_test t = test_of(wanted);
    const json_t *axes = json_object_get(g->attributes, "axes");
    reduce_case r = {.kind = wanted, .n_axes = (int)json_array_size(axes)};
    for (int i = 0; i < r.n_axes; i++)
        r.axes[i] = (int)json_integer_value(json_array_get(axes, (size_t)i));
    r.keepdims = (int)op_golden_number(g, "keepdims");
    op_golden_operand(g, "x", true);
    op_golden_results(g);
    g->c.attr = &r;
    op_check(&t, &g->c, false);
}

static void test_goldens(void **state)
{
    (void)state;
    for (wanted = SUM; wanted <= MAX; wanted++)
        op_goldens(reductions[wanted].name, golden);
}

static void refuse(const int *axes, int n_axes)
{
    clt_graph *g;
    OP_OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 2, (int64_t[]){CLT_BATCH, 3});
    assert_null(clt_reduce_mean(x, axes, n_axes, 0));
    assert_int_equal(clt_graph_status(g), CLT_SHAPE);
    assert_non_null(strstr(clt_error_message(), "f32[Bx3]"));
    clt_graph_destroy(g);
}

static void test_errors(void **state)
{
    (void)state;
    refuse((int[]){2}, 1);
    refuse((int[]){-3}, 1);
    refuse((int[]){1, -1}, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),          cmocka_unit_test(test_ties),
        cmocka_unit_test(test_special_numbers), cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
