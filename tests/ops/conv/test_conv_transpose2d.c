#include <limits.h>

#include "ops/conv/link_cases.h"

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    const link_shape *s = c->attr;
    clt_conv_transpose2d_options o;
    clt_conv_transpose2d_options_init(&o);
    for (int i = 0; i < 2; i++) {
        o.stride[i] = s->stride[1 + i];
        o.padding[i] = s->padding[1 + i];
        o.output_padding[i] = s->more[1 + i];
        o.dilation[i] = s->dilation[1 + i];
    }
    o.groups = s->groups;
    out[0] = clt_conv_transpose2d(in[0], in[1], in[2], &o);
}

static op_test test = {"conv_transpose2d", 1, 0, build, link_forward, link_backward, 0};

static const link_shape shapes[] = {
    {2, true, true, 3, 4, {1, 5, 4}, 6, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {0}, {1, 1, 1}, 1},
    {2, true, true, 1, 1, {1, 1, 1}, 1, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0}, {1, 1, 1}, 1},
    {2, true, false, 2, 3, {1, 4, 7}, 5, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {0, 1, 1}, {1, 1, 1}, 1},
    {2, true, true, 17, 4, {1, 3, 5}, 6, {1, 3, 2}, {1, 3, 1}, {0, 2, 0}, {0, 2, 0}, {1, 2, 3}, 2},
    {2, true, false, 2, 3, {1, 5, 6}, 3, {1, 4, 3}, {1, 2, 1}, {0, 1, 1}, {0}, {1, 1, 1}, 3},
    {2, true, true, 2, 8, {1, 9, 16}, 20, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {0}, {1, 1, 1}, 1},
};

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        link_check(&test, &shapes[i]);
    op_report(&test);
}

static void golden(op_golden *g)
{
    link_golden(&test, g, 2, true);
}

static void test_goldens(void **state)
{
    (void)state;
    op_goldens("conv_transpose2d", golden);
}

static void refuse(int rank, const int64_t *w_dims, int64_t bias, clt_conv_transpose2d_options o,
                   const char *part)
{
    clt_graph *g;
    OP_OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, rank, (int64_t[]){CLT_BATCH, 4, 5, 5});
    clt_value *w = clt_parameter(g, "w", 4, w_dims, (clt_init){0});
    clt_value *b = clt_parameter(g, "b", 1, &bias, (clt_init){0});
    link_refused(g, clt_conv_transpose2d(x, w, b, &o), part);
}

static void test_errors(void **state)
{
    static const int64_t fits[4] = {4, 3, 2, 2}, other[4] = {3, 4, 2, 2}, long_[4] = {4, 3, 2, 9};
    clt_conv_transpose2d_options o, defaults;
    (void)state;
    clt_conv_transpose2d_options_init(&defaults);
    refuse(3, fits, 3, defaults, "must be [B, C, H, W]");
    refuse(4, other, 4, defaults, "f32[3x4x2x2] does not fit the operand f32[Bx4x5x5]");
    refuse(4, fits, 4, defaults, "the bias f32[4] does not fit");
    o = defaults;
    o.groups = 3;
    refuse(4, fits, 3, o, "3 groups");
    o.groups = 0;
    refuse(4, fits, 3, o, "groups is 0");
    o = defaults;
    o.stride[1] = 0;
    refuse(4, fits, 3, o, "stride 1x0");
    o = defaults;
    o.output_padding[0] = 1;
    refuse(4, fits, 3, o, "output_padding 1x0");
    o = defaults;
    o.padding[0] = 3;
    refuse(4, fits, 3, o, "nothing is left");
    o = defaults;
    o.padding[0] = -1;
    refuse(4, fits, 3, o, "padding -1x0");
    o = defaults;
    o.dilation[1] = INT_MAX;
    refuse(4, long_, 3, o, "larger than 2147483647 in a dimension");
    o = defaults;
    o.stride[0] = o.stride[1] = 10000;
    refuse(4, fits, 3, o, "more than 2147483647 elements");
    o = defaults;
    o.struct_size = 3;
    refuse(4, fits, 3, o, "struct_size");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes),
                                       cmocka_unit_test(test_goldens),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
