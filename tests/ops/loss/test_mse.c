#include "ops/harness/golden.h"
#include "ops/harness/reference_nn.h"

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    (void)c;
    clt_mse(in[0], in[1], &out[0], &out[1]);
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    const int64_t count = op_count(c, 0, n);
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (x[0][i] - x[1][i]) * (x[0][i] - x[1][i]);
    y[0][0] = sum;
    y[1][0] = (double)count;
    if (bound)
        bound[0][0] = sum * sqrt((double)count);
}

static void backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    for (int64_t i = 0; i < op_count(c, 0, n); i++) {
        dx[0][i] = 2 * dy[0][0] * (x[0][i] - x[1][i]);
        dx[1][i] = -dx[0][i];
        bound[0][i] = bound[1][i] = fabs(dx[0][i]);
    }
}

static op_test test = {"mse", 2, 2, build, forward, backward, 0};

static const struct shape {
    int rank;
    int64_t dims[3], batch;
} shapes[] = {{2, {CLT_BATCH, 10}, 5}, {1, {CLT_BATCH}, 1},       {3, {CLT_BATCH, 3, 7}, 13},
              {2, {3, 5}, 1},          {2, {CLT_BATCH, 101}, 97}, {2, {3, 19001}, 1}};

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int target = 0; target < 2; target++) {
            const struct shape *s = &shapes[i];
            char text[OP_TEXT];
            op_case c = {.text = text, .n_in = 2, .batch = s->batch, .lead = 64 * target};
            snprintf(text, sizeof text, "shape %d%s", (int)i, target ? ", both" : "");
            for (int j = 0; j < 2; j++) {
                c.in[j] = (op_operand){.dtype = CLT_F32, .rank = s->rank, .gradient = !j || target};
                memcpy(c.in[j].dims, s->dims, sizeof s->dims);
            }
            const bool small = s->batch < 20 && s->dims[1] < 1000;
            if (!clt_test_oclgrind() || small)
                op_check(&test, &c, small);
        }
    op_report(&test);
}

static void golden(op_golden *g)
{
    const char *reduction = json_string_value(json_object_get(g->attributes, "reduction"));
    if (strcmp(reduction, "sum") != 0)
        return; /* the trainer divides the sum by the weight */
    op_golden_operand(g, "x", true);
    op_golden_operand(g, "t", true);
    op_golden_results(g);
    op_check(&test, &g->c, false);
}

static void test_goldens(void **state)
{
    (void)state;
    op_goldens("mse_loss", golden);
}

static void test_errors(void **state)
{
    clt_graph *g;
    clt_value *sum, *weight;
    (void)state;
    OP_OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 2, (int64_t[]){CLT_BATCH, 4});
    clt_value *t = clt_input(g, "t", CLT_F32, 2, (int64_t[]){CLT_BATCH, 5});
    assert_int_equal(clt_mse(x, t, &sum, &weight), CLT_SHAPE);
    assert_non_null(strstr(clt_error_message(), "f32[Bx4] and f32[Bx5]"));
    assert_null(sum);
    assert_null(weight);
    clt_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes),
                                       cmocka_unit_test(test_goldens),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
