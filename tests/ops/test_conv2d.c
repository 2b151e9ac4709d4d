#include <limits.h>

#include "ops/conv_cases.h"
#include "ops/golden.h"

static const conv_shape shapes[] = {
    {3, 1, 5, 5, 2, 3, 3, {{1, 1}, {0, 0}, {1, 1}, 1}, true, false},
    {1, 1, 1, 1, 1, 1, 1, {{1, 1}, {0, 0}, {1, 1}, 1}, true, false},
    {3, 2, 7, 5, 3, 3, 2, {{2, 1}, {1, 1}, {1, 1}, 1}, false, false},
    {2, 3, 6, 7, 5, 2, 3, {{1, 2}, {0, 2}, {2, 1}, 1}, true, false},
    {3, 4, 5, 5, 6, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 2}, true, false},
    {2, 3, 5, 4, 3, 3, 3, {{2, 2}, {1, 1}, {1, 1}, 3}, false, false},
    {2, 3, 4, 4, 6, 2, 2, {{1, 1}, {0, 0}, {1, 1}, 3}, true, false},
    {2, 1, 3, 3, 2, 5, 5, {{4, 4}, {3, 3}, {1, 1}, 1}, true, false},
    {2, 2, 9, 9, 1, 3, 3, {{3, 3}, {2, 2}, {3, 3}, 1}, true, false},
    {2, 16, 5, 6, 17, 3, 3, {{1, 1}, {1, 0}, {1, 1}, 1}, true, false},
    {5, 1, 28, 28, 20, 3, 3, {{1, 1}, {0, 0}, {1, 1}, 1}, true, true},
    {5, 20, 13, 13, 50, 5, 5, {{1, 1}, {0, 0}, {1, 1}, 1}, true, true},
    {3, 13, 17, 19, 11, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 1}, true, true},
    {2, 4, 6, 7, 8, 3, 3, {{2, 3}, {1, 2}, {2, 3}, 2}, true, false},
    {2, 2, 7, 7, 4, 2, 2, {{3, 4}, {0, 1}, {1, 1}, 1}, true, false},
    {3, 64, 9, 9, 33, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 1}, true, true},
    {2, 64, 20, 20, 40, 3, 3, {{1, 1}, {0, 2}, {1, 1}, 1}, true, true},
    /* Winograd's weight gradient: edges of tiles and of vectors of channels, few pixels. */
    {2, 2, 5, 7, 3, 3, 3, {{1, 1}, {2, 1}, {1, 1}, 1}, true, false},
    {3, 65, 5, 5, 17, 3, 3, {{1, 1}, {2, 2}, {1, 1}, 1}, true, true},
    {19, 1, 6, 6, 65, 3, 3, {{1, 1}, {0, 0}, {1, 1}, 1}, false, true},
    {2, 16, 4, 4, 16, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 1}, true, false},
    /* Bands of several lines, parted by strides; channels in several passes. */
    {2, 130, 33, 35, 19, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 1}, true, true},
    {2, 24, 61, 47, 26, 5, 3, {{2, 3}, {2, 1}, {1, 2}, 2}, true, true},
    {1, 34, 6, 6, 7, 6, 6, {{1, 1}, {5, 5}, {1, 1}, 1}, true, true},
    {2, 5, 6, 7, 4, 1, 1, {{3, 2}, {0, 0}, {1, 1}, 1}, true, false},
    {2, 3, 4, 5, 4, 2, 2, {{3, 3}, {1, 1}, {2, 2}, 1}, true, false},
    /* Lines too long for what copies them into local memory; as many taps. */
    {1, 1, 1, 50000, 1, 1, 2, {{1, 1}, {0, 0}, {1, 1}, 1}, true, true},
    {2, 1, 33, 34, 2, 33, 33, {{1, 1}, {0, 0}, {1, 1}, 1}, true, true},
};

/* For every tile of the kernels for GPUs. */
static const conv_shape tiled[] = {
    {3, 6, 11, 9, 70, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 2}, true, true},
    {2, 5, 12, 16, 20, 3, 2, {{2, 1}, {1, 0}, {1, 2}, 1}, false, true},
    {2, 8, 8, 8, 132, 1, 1, {{1, 1}, {0, 0}, {1, 1}, 1}, true, true},
};

/* With a tile that cuts all three sums into four slices. */
static const conv_shape sliced[] = {
    {1, 30, 4, 4, 29, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 1}, true, true},
    {2, 30, 7, 5, 90, 3, 3, {{2, 2}, {1, 1}, {1, 1}, 1}, true, true},
};
enum { SLICED_TILE = 20 };

static void test_shapes(void **state)
{
    (void)state;
    conv_check_all(shapes, sizeof shapes / sizeof *shapes);
    conv_check(&shapes[0], false, 0, 0);
    for (int i = 0; i < (clt_test_oclgrind() ? 1 : 2); i++)
        conv_check(&sliced[i], true, SLICED_TILE, 1000);
    for (int i = 0; !clt_test_oclgrind() && i < 3; i++)
        conv_check(&tiled[i], true, 1 + i, 3);
    op_report(&conv_test);
}

static void golden(op_golden *g)
{
    ref_conv a;
    op_golden_pair(g, "stride", a.stride);
    op_golden_pair(g, "padding", a.padding);
    op_golden_pair(g, "dilation", a.dilation);
    a.groups = (int)op_golden_number(g, "groups");
    op_golden_operand(g, "x", true);
    op_golden_operand(g, "w", false);
    if (op_golden_has(g, "b"))
        op_golden_operand(g, "b", false);
    op_golden_results(g);
    g->c.attr = &a;
    op_check(&conv_test, &g->c, false);
}

static void test_goldens(void **state)
{
    (void)state;
    op_goldens("conv2d", golden);
}

static void refuse(const int64_t *w_dims, int stride, int groups, int padding, const char *part)
{
    clt_graph *g;
    clt_conv2d_options o;
    clt_conv2d_options_init(&o);
    o.stride[1] = stride;
    o.groups = groups;
    o.padding[0] = padding;
    OP_OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 4, (int64_t[]){CLT_BATCH, 4, 5, 5});
    clt_value *w = clt_input(g, "w", CLT_F32, 4, w_dims);
    assert_null(clt_conv2d(x, w, NULL, &o));
    assert_int_not_equal(clt_graph_status(g), CLT_OK);
    if (!strstr(clt_error_message(), part))
        fail_msg("\"%s\" does not say \"%s\"", clt_error_message(), part);
    clt_graph_destroy(g);
}

static void test_errors(void **state)
{
    (void)state;
    refuse((int64_t[]){2, 3, 3, 3}, 1, 1, 0, "f32[2x3x3x3] does not fit the operand f32[Bx4x5x5]");
    refuse((int64_t[]){3, 2, 3, 3}, 1, 2, 0, "2 groups");
    refuse((int64_t[]){2, 4, 6, 3}, 1, 1, 0, "is larger than f32[Bx4x5x5]");
    refuse((int64_t[]){2, 4, 3, 3}, 0, 1, 0, "stride 1x0");
    refuse((int64_t[]){2, 4, 3, 3}, 1, 0, 0, "groups is 0");
    refuse((int64_t[]){2, 4, 3, 3}, 1, 1, INT_MAX, "padding 2147483647x0 is larger than");
    refuse((int64_t[]){2, 4, 3, 3}, 1, 1, 1 << 30, "padding 1073741824x0 is larger than");
    refuse((int64_t[]){2, 4, 3, 3}, 1, 1, 1 << 29, "more than 2147483647 elements");
}

/* Images of a tensor without a batch: they lie plain beside those of a batch that lie in lanes. */
static void test_no_batch(void **state)
{
    static const ref_conv attr = {{1, 1}, {1, 1}, {1, 1}, 1};
    const op_case c = {"no batch",
                       3,
                       {{CLT_F32, 4, {3, 4, 7, 6}, OP_RANDOM, true, NULL},
                        {CLT_F32, 4, {5, 4, 3, 3}, OP_RANDOM, true, NULL},
                        {CLT_F32, 1, {5}, OP_RANDOM, true, NULL}},
                       3,
                       .attr = &attr};
    (void)state;
    op_check(&conv_test, &c, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes), cmocka_unit_test(test_no_batch),
        cmocka_unit_test(test_goldens), cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
