/* Elements by indices: gather and scatter_add. */
#include "ops/index/index_cases.h"

static void build_gather(const op_case *c, clt_value *const *in, clt_value **out)
{
    const index_case *k = c->attr;
    out[0] = clt_gather(in[1], k->axis - c->in[1].rank, in[0]);
}

static void build_scatter(const op_case *c, clt_value *const *in, clt_value **out)
{
    const index_case *k = c->attr;
    out[0] = clt_scatter_add(in[2], k->axis, in[0], in[1]);
}

static op_test gather = {"gather", 1, 0, build_gather, index_forward_pick, index_backward_pick, 0};
static op_test scatter = {"scatter_add",      1, 0, build_scatter, index_forward_sum,
                          index_backward_sum, 0};

static const struct {
    int axis, rank;
    int64_t dims[4], picks, batch;
} shapes[] = {{1, 2, {CLT_BATCH, 7}, 1, 5},    {1, 3, {CLT_BATCH, 5, 4}, 9, 3},
              {2, 3, {CLT_BATCH, 3, 6}, 4, 2}, {0, 1, {33}, 70, 1},
              {0, 2, {5, 19}, 8, 1},           {1, 4, {2, 3, 5, 1}, 2, 1},
              {1, 2, {CLT_BATCH, 300}, 3, 2}};

static op_case case_of(size_t i, index_case *k, int array, char *text)
{
    op_case c = {.text = text, .n_in = array + 1, .batch = shapes[i].batch, .attr = k};
    snprintf(text, OP_TEXT, "axis %d of shape %d", shapes[i].axis, (int)i);
    *k = (index_case){.axis = shapes[i].axis, .padding = -1, .array = array, .each = true};
    for (int o = 0; o <= array; o++) {
        c.in[o] = (op_operand){o ? CLT_F32 : CLT_I32,     shapes[i].rank, {0},
                               o ? OP_RANDOM : OP_LABELS, o > 0,          NULL};
        memcpy(c.in[o].dims, shapes[i].dims, sizeof shapes[i].dims);
        if (o != array)
            c.in[o].dims[shapes[i].axis] = shapes[i].picks;
    }
    c.classes = (int)shapes[i].dims[shapes[i].axis];
    return c;
}

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char text[OP_TEXT];
        index_case k;
        if (clt_test_oclgrind() && i != 1 && i != 4)
            continue;
        const op_case picks = case_of(i, &k, 1, text);
        op_check(&gather, &picks, true);
        const op_case sums = case_of(i, &k, 2, text);
        op_check(&scatter, &sums, true);
    }
    op_report(&gather);
    op_report(&scatter);
}

/* An index outside the axis picks NaN, and adds NaN to element 0 of its line. */
static void test_no_place(void **state)
{
    static const double indices[] = {0, 7, 2, -1, 6};
    char text[OP_TEXT];
    index_case k;
    (void)state;
    for (int array = 1; array <= 2; array++) {
        op_case c = case_of(0, &k, array, text);
        c.in[0].set = indices;
        op_check(array == 1 ? &gather : &scatter, &c, false);
    }
}

/* The indices are shorter than x on another axis. torch.gather then takes x's first elements. */
static void build_short(const op_case *c, clt_value *const *in, clt_value **out)
{
    (void)c;
    out[0] = clt_gather(in[1], 1, in[0]);
}

static void forward_short(const op_case *c, int64_t n, double *const *x, double *const *y,
                          double *const *bound)
{
    (void)c;
    (void)bound;
    for (int64_t b = 0; b < n; b++)
        for (int m = 0; m < 2; m++)
            for (int i = 0; i < 3; i++)
                y[0][(b * 2 + m) * 3 + i] =
                    x[1][(b * 4 + (int64_t)x[0][(b * 2 + m) * 3 + i]) * 5 + i];
}

static void backward_short(const op_case *c, int64_t n, double *const *x, double *const *dy,
                           double *const *dx, double *const *bound)
{
    (void)c;
    for (int64_t b = 0; b < n; b++)
        for (int m = 0; m < 2; m++)
            for (int i = 0; i < 3; i++) {
                const int64_t at = (b * 2 + m) * 3 + i, place = (b * 4 + (int64_t)x[0][at]) * 5 + i;
                dx[1][place] += dy[0][at];
                bound[1][place] += 2 * fabs(dy[0][at]);
            }
}

static void test_short(void **state)
{
    op_test t = {"gather", 1, 0, build_short, forward_short, backward_short, 0};
    const op_case c = {.text = "shorter indices",
                       .n_in = 2,
                       .in = {{CLT_I32, 3, {CLT_BATCH, 2, 3}, OP_LABELS, false, NULL},
                              {CLT_F32, 3, {CLT_BATCH, 4, 5}, OP_RANDOM, true, NULL}},
                       .batch = 3,
                       .classes = 4};
    (void)state;
    op_check(&t, &c, true);
}

static void refuse(const int64_t *index, int rank, clt_dtype dtype, int axis, bool add,
                   const char *part)
{
    clt_graph *g;
    OP_OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 3, (int64_t[]){CLT_BATCH, 4, 3});
    clt_value *i = clt_input(g, "i", dtype, rank, index);
    clt_value *s = clt_input(g, "s", CLT_F32, 3, (int64_t[]){CLT_BATCH, 2, 3});
    assert_null(add ? clt_scatter_add(x, axis, i, s) : clt_gather(x, axis, i));
    if (!strstr(clt_error_message(), part))
        fail_msg("\"%s\" does not say \"%s\"", clt_error_message(), part);
    clt_graph_destroy(g);
}

static void test_errors(void **state)
{
    (void)state;
    refuse((int64_t[]){CLT_BATCH, 2, 3}, 3, CLT_F32, 1, false, "must be i32, not f32[Bx2x3]");
    refuse((int64_t[]){CLT_BATCH, 2}, 2, CLT_I32, 1, false, "i32[Bx2] do not fit f32[Bx4x3]");
    refuse((int64_t[]){CLT_BATCH, 2, 4}, 3, CLT_I32, 1, false, "on all axes but 1");
    refuse((int64_t[]){2, 4, 3}, 3, CLT_I32, 1, false, "do not fit");
    refuse((int64_t[]){CLT_BATCH, 4, 3}, 3, CLT_I32, 0, false, "is the batch");
    refuse((int64_t[]){CLT_BATCH, 4, 3}, 3, CLT_I32, 3, false,
           "axis 3 of f32[Bx4x3] does not exist");
    refuse((int64_t[]){CLT_BATCH, 4, 3}, 3, CLT_I32, 1, true,
           "the source f32[Bx2x3] does not fit the indices i32[Bx4x3]");
    refuse((int64_t[]){CLT_BATCH, 2, 2}, 3, CLT_I32, 1, true, "do not fit f32[Bx4x3]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes),
                                       cmocka_unit_test(test_no_place),
                                       cmocka_unit_test(test_short), cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
