#include "ops/pool/resample_cases.h"

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    const resample_map *m = c->attr;
    out[0] = clt_adaptive_avg_pool2d(in[0], (int)m->oh, (int)m->ow);
}

/* Returns torch.nn.AdaptiveAvgPool2d's window. attr: the sizes of the result. */
static ref_taps window(const void *attr, int axis, int64_t in, int64_t i)
{
    const double out = ((const int *)attr)[axis];
    const int64_t begin = (int64_t)floor((double)(i * in) / out);
    const int64_t end = (int64_t)ceil((double)((i + 1) * in) / out);
    ref_taps t = {.count = (int)(end - begin)};
    assert_true(t.count >= 1 && t.count <= RESAMPLE_TAPS);
    for (int k = 0; k < t.count; k++) {
        t.at[k] = begin + k;
        t.weight[k] = 1.0 / t.count;
    }
    return t;
}

static op_test test = {"adaptive_avg_pool2d", 1, 0, build, resample_forward, resample_backward, 0};

static void check(int64_t n, int64_t c, int64_t h, int64_t w, int oh, int ow)
{
    const int out[2] = {oh, ow};
    const resample_map m = {n, c, h, w, oh, ow, window, out};
    resample_check(&test, &m);
}

static void test_shapes(void **state)
{
    (void)state;
    /* Global pooling; planes shorter and longer than vectors. */
    check(3, 5, 1, 1, 1, 1);
    check(17, 3, 7, 7, 1, 1);
    check(1, 2, 3, 5, 1, 1);
    check(2, 3, 33, 16, 1, 1);
    /* Windows that divide evenly, windows that overlap, and more windows than elements. */
    check(3, 2, 8, 12, 4, 3);
    check(17, 3, 6, 5, 4, 3);
    check(1, 1, 3, 4, 5, 9);
    check(2, 2, 5, 37, 4, 36);
    check(2, 1, 9, 40, 1, 3);
    op_report(&test);
}

static void golden(op_golden *g)
{
    int out[2];
    op_golden_pair(g, "size", out);
    op_golden_operand(g, "x", true);
    op_golden_results(g);
    const int64_t *x = g->c.in[0].dims;
    const resample_map m = {g->c.batch, x[1], x[2], x[3], out[0], out[1], window, out};
    g->c.attr = &m;
    op_check(&test, &g->c, false);
}

static void test_goldens(void **state)
{
    (void)state;
    op_goldens("adaptive_avg_pool2d", golden);
}

static void refuse(int rank, int height, int width, const char *part)
{
    clt_graph *g;
    clt_value *x = resample_input(&g, rank, (int64_t[]){CLT_BATCH, 4, 5, 5});
    resample_refused(g, clt_adaptive_avg_pool2d(x, height, width), part);
}

static void test_errors(void **state)
{
    clt_graph *g;
    (void)state;
    refuse(4, 0, 3, "result 0x3");
    refuse(4, 2, -1, "result 2x-1");
    refuse(4, 2, INT32_MAX, "result 2x2147483647");
    refuse(4, 1 << 24, 1 << 24, "more than 2147483647 elements");
    refuse(3, 1, 1, "f32[Bx4x5] must be [B, C, H, W]");
    OP_OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_I32, 4, (int64_t[]){CLT_BATCH, 4, 5, 5});
    resample_refused(g, clt_adaptive_avg_pool2d(x, 1, 1), "f32");
    x = resample_input(&g, 4, (int64_t[]){CLT_BATCH, 4, 1, 5});
    x = clt_reshape(x, 4, (int64_t[]){1, 4, CLT_BATCH, 5});
    resample_refused(g, clt_adaptive_avg_pool2d(x, 1, 1), "constant H and W");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes),
                                       cmocka_unit_test(test_goldens),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
