/* The convolutional layers of models/layers.c have PyTorch's parameter names, layouts and bounds of
 * the uniform initialisation. For a transposed convolution, fan in is counted from the second
 * dimension. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph/graph.h"
#include <cltrain/models.h>

static void check(clt_graph *g, const char *name, int rank, const int64_t *dims, double fan_in)
{
    const clt_value *value = clt_graph_find(g, name);
    assert_non_null(value);
    assert_int_equal(value->kind, CLT_VALUE_PARAMETER);
    assert_int_equal(value->type.rank, rank);
    for (int i = 0; i < rank; i++)
        assert_int_equal(value->type.dims[i], dims[i]);
    assert_int_equal(value->init.kind, CLT_INIT_UNIFORM);
    assert_true(fabs(value->init.a - 1 / sqrt(fan_in)) < 1e-12);
}

static clt_value *input(clt_graph *g, int rank)
{
    const int64_t dims[5] = {CLT_BATCH, 4, 9, 9, 9};
    clt_value *x = clt_input(g, rank == 3 ? "a" : rank == 4 ? "b" : "c", CLT_F32, rank, dims);
    assert_non_null(x);
    return x;
}

static void test_layers(void **state)
{
    clt_graph *g;
    clt_conv1d_options one;
    clt_conv_transpose2d_options up;
    clt_conv3d_options three;
    (void)state;
    assert_int_equal(clt_graph_create(&g), CLT_OK);
    clt_conv1d_options_init(&one);
    one.groups = 2;
    clt_conv_transpose2d_options_init(&up);
    up.groups = 2;
    up.stride[0] = up.stride[1] = 2;
    clt_conv3d_options_init(&three);
    three.groups = 2;
    clt_value *y = clt_layer_conv1d(g, input(g, 3), "one", 6, 3, &one);
    assert_non_null(y);
    assert_int_equal(clt_value_dim(y, 1), 6);
    clt_value *image = input(g, 4);
    y = clt_layer_conv_transpose2d(g, image, "up", 6, 2, &up);
    assert_non_null(y);
    assert_int_equal(clt_value_dim(y, 1), 6);
    assert_int_equal(clt_value_dim(y, 2), 18);
    y = clt_layer_conv3d(g, input(g, 5), "three", 6, 3, &three);
    assert_non_null(y);
    assert_int_equal(clt_value_dim(y, 1), 6);
    check(g, "one.weight", 3, (int64_t[]){6, 2, 3}, 2 * 3);
    check(g, "one.bias", 1, (int64_t[]){6}, 2 * 3);
    check(g, "up.weight", 4, (int64_t[]){4, 3, 2, 2}, 3 * 4);
    check(g, "up.bias", 1, (int64_t[]){6}, 3 * 4);
    check(g, "three.weight", 5, (int64_t[]){6, 2, 3, 3, 3}, 2 * 27);
    check(g, "three.bias", 1, (int64_t[]){6}, 2 * 27);
    /* Without options there is one group. */
    assert_non_null(clt_layer_conv_transpose2d(g, image, "plain", 6, 3, NULL));
    check(g, "plain.weight", 4, (int64_t[]){4, 6, 3, 3}, 6 * 9);
    clt_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
