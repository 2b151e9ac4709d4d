/* Slices replaced at indices: index_copy. */
#include "ops/index/index_cases.h"

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    const index_case *k = c->attr;
    out[0] = clt_index_copy(in[2], k->axis, in[0], in[1]);
}

/* Operands: indices, source, base. If several picks have the same place, the last one stays. */
static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    const index_sizes s = index_sizes_of(c, n);
    for (int64_t i = 0; i < op_count(c, 2, n); i++) {
        y[0][i] = x[2][i];
        if (bound)
            bound[0][i] = 0;
    }
    for (int64_t e = 0; e < s.outer * s.picks * s.inner; e++) {
        const int64_t place = index_place(c, &s, x[0], e);
        if (place >= 0)
            y[0][place] = x[1][e];
    }
    for (int64_t e = 0; e < s.outer * s.picks * s.inner; e++)
        if (index_place(c, &s, x[0], e) < 0)
            y[0][index_zero(&s, e)] = NAN;
}

static void backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    const index_sizes s = index_sizes_of(c, n);
    index_pick(c, n, x[0], dy[0], dx[1], bound[1]);
    for (int64_t i = 0; i < op_count(c, 2, n); i++) {
        dx[2][i] = dy[0][i];
        if (bound[2])
            bound[2][i] = 0;
    }
    for (int64_t e = 0; e < s.outer * s.picks * s.inner; e++) {
        const int64_t place = index_place(c, &s, x[0], e);
        if (place >= 0)
            dx[2][place] = 0;
    }
    for (int64_t e = 0; e < s.outer * s.picks * s.inner; e++)
        if (index_place(c, &s, x[0], e) < 0)
            dx[2][index_zero(&s, e)] = NAN;
}

static op_test copy_test = {"index_copy", 1, 0, build, forward, backward, 0};

enum { MOST_PICKS = 70 };

static const struct {
    int axis, rank;
    int64_t dims[4], picks, batch;
    int step; /* between indices, modulo the size; 0: all indices are equal */
} cases[] = {
    {1, 3, {CLT_BATCH, 5, 4}, 3, 3, 2},    {2, 3, {CLT_BATCH, 3, 6}, 2, 5, 5},
    {0, 2, {9, 16}, CLT_BATCH, 5, 2},      {1, 2, {3, 37}, 11, 1, 3},
    {1, 4, {2, 83, 5, 7}, 70, 1, 1},       {1, 3, {1, 40, 768}, 1, 1, 1},
    {1, 3, {2, 40, 1100}, 32, 1, 1},       {0, 1, {9}, 9, 1, 2},
    {1, 3, {CLT_BATCH, 7, 160}, 4, 33, 3}, {1, 3, {CLT_BATCH, 5, 20}, 6, 3, 0},
};

static op_case case_of(size_t i, index_case *k, double *indices, char *text)
{
    const int64_t size = cases[i].dims[cases[i].axis];
    op_case c = {.text = text, .n_in = 3, .batch = cases[i].batch, .attr = k};
    snprintf(text, OP_TEXT, "axis %d of shape %d", cases[i].axis, (int)i);
    *k = (index_case){.axis = cases[i].axis, .padding = -1, .array = 2};
    for (int p = 0; p < MOST_PICKS; p++)
        indices[p] = (double)((1 + (int64_t)p * cases[i].step) % size);
    c.in[0] = (op_operand){CLT_I32, 1, {cases[i].picks}, OP_LABELS, false, indices};
    for (int o = 1; o <= 2; o++) {
        c.in[o] = (op_operand){CLT_F32, cases[i].rank, {0}, OP_RANDOM, true, NULL};
        memcpy(c.in[o].dims, cases[i].dims, sizeof cases[i].dims);
    }
    c.in[1].dims[cases[i].axis] = cases[i].picks;
    c.classes = (int)size;
    return c;
}

/* Every place once, so that the gradient is a derivative. One place many times, for which PyTorch's
 * gradient of overwritten elements is no derivative. */
static void test_copy(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[OP_TEXT];
        double indices[MOST_PICKS];
        index_case k;
        const op_case c = case_of(i, &k, indices, text);
        if (!clt_test_oclgrind() || i == 0 || i == 3 || i == 9)
            op_check(&copy_test, &c, cases[i].step > 0);
    }
    op_report(&copy_test);
}

/* An index outside puts NaN at place 0, also if another index is 0. Nothing is written outside
 * (Oclgrind). */
static void test_outside(void **state)
{
    static const double indices[] = {4, 2147483647, 0, -1, 2};
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        char text[OP_TEXT];
        double unused[MOST_PICKS];
        index_case k;
        op_case c = case_of(wide ? 8 : 0, &k, unused, text);
        c.in[0].dims[0] = c.in[1].dims[1] = 5;
        c.in[0].set = indices;
        op_check(&copy_test, &c, false);
    }
}

static void test_errors(void **state)
{
    static const struct {
        int64_t picks, source;
        const char *says;
    } wrong[] = {{4, 3, "index_copy: the source is f32[Bx3], not f32[Bx4]"},
                 {CLT_BATCH, 3, "only one of the indices and the axes before"}};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        clt_graph *g;
        OP_OK(clt_graph_create(&g));
        clt_value *x = clt_input(g, "x", CLT_F32, 2, (int64_t[]){CLT_BATCH, 5});
        clt_value *index = clt_input(g, "i", CLT_I32, 1, &wrong[i].picks);
        clt_value *source = clt_input(g, "s", CLT_F32, 2, (int64_t[]){CLT_BATCH, wrong[i].source});
        assert_null(clt_index_copy(x, 1, index, source));
        assert_int_equal(clt_graph_status(g), CLT_SHAPE);
        if (!strstr(clt_error_message(), wrong[i].says))
            fail_msg("\"%s\" does not say \"%s\"", clt_error_message(), wrong[i].says);
        clt_graph_destroy(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_copy), cmocka_unit_test(test_outside),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
