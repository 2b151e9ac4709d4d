/* Depthwise convolution: the variant `depthwise` of conv2d and its gradients. */
#include "ops/conv/conv_cases.h"

/* Depthwise shapes. Every third one is tested with all heights of a block. Rows that float4 fits or
 * not, several kernels per channel, strides, dilation, wide padding; kernels that need several
 * groups; sums in slices. */
static const conv_shape depthwise[] = {
    {2, 4, 8, 8, 4, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 4}, true, false},
    {2, 3, 7, 16, 6, 3, 3, {{2, 2}, {1, 1}, {1, 1}, 3}, true, false},
    {2, 2, 7, 7, 2, 5, 3, {{3, 2}, {2, 3}, {1, 2}, 2}, false, false},
    {1, 2, 9, 12, 2, 3, 3, {{1, 1}, {2, 2}, {2, 2}, 2}, true, false},
    {3, 2, 5, 8, 2, 3, 5, {{1, 1}, {4, 4}, {1, 1}, 2}, true, false},
    {2, 2, 12, 12, 2, 7, 7, {{1, 1}, {3, 3}, {1, 1}, 2}, true, true},
    {3, 2, 64, 48, 2, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 2}, true, true},
};

/* Shapes that the depthwise kernels decline: many kernels per channel, large kernels and, in the
 * data gradient, large strides. */
static const conv_shape not_depthwise[] = {
    {2, 2, 4, 4, 20, 2, 2, {{1, 1}, {0, 0}, {1, 1}, 2}, true, false},
    {1, 2, 10, 10, 2, 9, 9, {{1, 1}, {4, 4}, {1, 1}, 2}, true, true},
    {2, 2, 7, 6, 2, 3, 3, {{5, 5}, {1, 1}, {1, 1}, 2}, true, false},
};

static void test_shapes(void **state)
{
    (void)state;
    op_only_chosen = true; /* ops.conv2d tests the others */
    conv_check_all(depthwise, clt_test_oclgrind() ? 3 : sizeof depthwise / sizeof *depthwise);
    if (clt_test_oclgrind())
        return;
    conv_check_all(not_depthwise, sizeof not_depthwise / sizeof *not_depthwise);
    for (size_t i = 0; i < sizeof depthwise / sizeof *depthwise; i += 3)
        conv_check(&depthwise[i], true, 1, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shapes)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
