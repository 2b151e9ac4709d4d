#include <limits.h>

#include "ops/conv/link_cases.h"

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    const link_shape *s = c->attr;
    clt_conv3d_options o;
    clt_conv3d_options_init(&o);
    for (int i = 0; i < 3; i++) {
        o.stride[i] = s->stride[i];
        o.padding[i] = s->padding[i];
        o.dilation[i] = s->dilation[i];
    }
    o.groups = s->groups;
    out[0] = clt_conv3d(in[0], in[1], in[2], &o);
}

static op_test test = {"conv3d", 1, 0, build, link_forward, link_backward, 0};

static const link_shape shapes[] = {
    {3, false, true, 3, 2, {4, 5, 6}, 3, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0}, {1, 1, 1}, 1},
    {3, false, true, 1, 1, {1, 1, 1}, 1, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0}, {1, 1, 1}, 1},
    {3, false, false, 2, 3, {7, 4, 5}, 5, {3, 2, 1}, {2, 1, 2}, {1, 0, 0}, {0}, {1, 1, 1}, 1},
    {3, false, true, 2, 4, {9, 6, 7}, 6, {2, 3, 2}, {3, 2, 1}, {2, 1, 0}, {0}, {2, 1, 2}, 2},
    {3, false, true, 2, 3, {2, 5, 5}, 3, {3, 3, 3}, {1, 1, 1}, {2, 1, 1}, {0}, {2, 1, 1}, 3},
    {3, false, true, 2, 17, {3, 7, 18}, 9, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0}, {1, 1, 1}, 1},
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
    link_golden(&test, g, 3, false);
}

static void test_goldens(void **state)
{
    (void)state;
    op_goldens("conv3d", golden);
}

static void refuse(int rank, const int64_t *w_dims, int64_t bias, clt_conv3d_options o,
                   const char *part)
{
    clt_graph *g;
    OP_OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, rank, (int64_t[]){CLT_BATCH, 4, 5, 5, 5});
    clt_value *w = clt_parameter(g, "w", 5, w_dims, (clt_init){0});
    clt_value *b = clt_parameter(g, "b", 1, &bias, (clt_init){0});
    link_refused(g, clt_conv3d(x, w, b, &o), part);
}

static void test_errors(void **state)
{
    static const int64_t fits[5] = {6, 4, 2, 2, 2}, other[5] = {6, 3, 2, 2, 2},
                         long_[5] = {6, 4, 2, 6, 2};
    clt_conv3d_options o, defaults;
    (void)state;
    clt_conv3d_options_init(&defaults);
    refuse(4, fits, 6, defaults, "must be [B, C, D, H, W]");
    refuse(5, other, 6, defaults, "f32[6x3x2x2x2] does not fit the operand f32[Bx4x5x5x5]");
    refuse(5, fits, 4, defaults, "the bias f32[4] does not fit");
    refuse(5, long_, 6, defaults, "is larger than f32[Bx4x5x5x5]");
    o = defaults;
    o.groups = 0;
    refuse(5, fits, 6, o, "groups is 0");
    o.groups = 2;
    refuse(5, fits, 6, o, "2 groups");
    o = defaults;
    o.stride[2] = 0;
    refuse(5, fits, 6, o, "stride[2] is 0; it must be");
    o = defaults;
    o.padding[0] = INT_MAX;
    refuse(5, fits, 6, o, "in a dimension");
    o.padding[0] = 1 << 29;
    refuse(5, fits, 6, o, "more than 2147483647 elements");
    o = defaults;
    o.struct_size = 3;
    refuse(5, fits, 6, o, "struct_size");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes),
                                       cmocka_unit_test(test_goldens),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
