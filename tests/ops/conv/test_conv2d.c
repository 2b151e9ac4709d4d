#include <limits.h>

#include "ops/conv/conv_cases.h"
#include "ops/harness/golden.h"

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
    /* Products of gathered inputs: phases of the input's gradient, some without a tap. */
    {3, 17, 9, 7, 19, 3, 3, {{2, 2}, {1, 1}, {1, 1}, 1}, true, true},
    {5, 16, 7, 6, 20, 1, 1, {{2, 2}, {0, 0}, {1, 1}, 1}, true, false},
    {2, 33, 9, 11, 16, 4, 3, {{3, 2}, {2, 1}, {1, 2}, 1}, false, true},
    /* Bands of several lines, separated by strides; channels in several passes. */
    {2, 130, 33, 35, 19, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 1}, true, true},
    {2, 24, 61, 47, 26, 5, 3, {{2, 3}, {2, 1}, {1, 2}, 2}, true, true},
    {1, 34, 6, 6, 7, 6, 6, {{1, 1}, {5, 5}, {1, 1}, 1}, true, true},
    {2, 5, 6, 7, 4, 1, 1, {{3, 2}, {0, 0}, {1, 1}, 1}, true, false},
    {2, 3, 4, 5, 4, 2, 2, {{3, 3}, {1, 1}, {2, 2}, 1}, true, false},
    /* Lines too long for the kernels that copy them into local memory, with equally many taps. */
    {1, 1, 1, 50000, 1, 1, 2, {{1, 1}, {0, 0}, {1, 1}, 1}, true, true},
    {2, 1, 33, 34, 2, 33, 33, {{1, 1}, {0, 0}, {1, 1}, 1}, true, true},
};

/* Shapes for every tile of the kernels for GPUs. */
static const conv_shape tiled[] = {
    {3, 6, 11, 9, 70, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 2}, true, true},
    {2, 5, 12, 16, 20, 3, 2, {{2, 1}, {1, 0}, {1, 2}, 1}, false, true},
    {2, 8, 8, 8, 132, 1, 1, {{1, 1}, {0, 0}, {1, 1}, 1}, true, true},
};

/* Shapes for a tile that cuts all three sums into four slices. */
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

/* Emulated matrix units: odd sizes, strides that leave classes of pixels, groups, and no bias. */
static void test_matrix_units(void **state)
{
    static const conv_shape list[] = {
        {2, 5, 7, 9, 18, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 1}, true, true},
        {3, 6, 11, 9, 20, 3, 2, {{2, 1}, {1, 0}, {1, 2}, 2}, false, true},
        {2, 9, 8, 8, 33, 1, 1, {{1, 1}, {0, 0}, {1, 1}, 1}, true, true},
        {2, 3, 9, 8, 4, 3, 3, {{2, 3}, {1, 2}, {2, 1}, 1}, true, true},
    };
    /* Large enough without a request, for tiles that cut sums into slices. */
    static const conv_shape large = {2,    16,  8, 8, 40, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 1},
                                     true, true};
    static const char variants[] = "conv2d=matrix_units,conv2d_data_grad=matrix_units,"
                                   "conv2d_weight_grad=matrix_units";
    (void)state;
    /* Oclgrind 21.10 crashes in its own check of uninitialised values while it runs these kernels.
     */
    if (clt_test_oclgrind())
        skip();
    conv_text text;
    for (int i = 0; i < 4; i++) {
        op_case c = conv_case(&list[i], true, false, text);
        c.sharp = true;
        op_check_matrix(&conv_test, &c, variants, 3, 0);
    }
    op_case c = conv_case(&large, true, false, text);
    c.sharp = true;
    for (int tile = 8; tile <= 11; tile += 3)
        op_check_matrix(&conv_test, &c, variants, 3, tile);
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
    refuse((int64_t[]){2, 4, 3, 3}, 0, 1, 0, "stride[1] is 0; it must be");
    refuse((int64_t[]){2, 4, 3, 3}, 1, 0, 0, "groups is 0");
    refuse((int64_t[]){2, 4, 3, 3}, 1, 1, INT_MAX, "padding 2147483647x0 is larger than");
    refuse((int64_t[]){2, 4, 3, 3}, 1, 1, 1 << 30, "padding 1073741824x0 is larger than");
    refuse((int64_t[]){2, 4, 3, 3}, 1, 1, 1 << 29, "more than 2147483647 elements");
}

/* Images with the layout PLAIN. */
static void test_plain(void **state)
{
    static const conv_shape plain[] = {
        {3, 4, 7, 6, 5, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 1}, true, false},
        /* Strides longer than the image, also for a product; residue classes without taps and
         * results. */
        {1, 1, 1, 1, 2, 1, 1, {{65536, 65536}, {0, 0}, {1, 1}, 1}, true, false},
        {1, 1, 5, 5, 2, 3, 3, {{65536, 65536}, {1, 1}, {1, 1}, 1}, true, false},
        {2, 2, 5, 6, 3, 3, 3, {{6000, 4}, {1, 0}, {1, 1}, 1}, true, false},
        {1, 2, 9, 7, 3, 2, 2, {{INT_MAX, 3}, {3, 2}, {2, 2}, 1}, true, false},
        {2, 3, 9, 11, 4, 3, 2, {{4, 6}, {5, 7}, {2, 4}, 1}, false, false},
        {2, 3, 8, 12, 5, 4, 4, {{4, 4}, {0, 0}, {1, 1}, 1}, true, false},
        /* More channels than one pass takes, however large local memory is. */
        {2, 116, 5, 21, 3, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 1}, true, true},
        /* Lines that are cut. */
        {1, 3, 5, 1030, 4, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 1}, true, true},
        {2, 2, 6, 2075, 3, 3, 5, {{2, 3}, {1, 2}, {1, 2}, 1}, true, true},
        {1, 2, 3, 20011, 2, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 1}, true, true},
        {1, 1, 2, 40900, 4, 1, 1, {{1, 1}, {0, 0}, {1, 1}, 1}, true, true},
        /* The dilation makes the columns beside a block too many for some or all tiles. */
        {1, 1, 1, 40900, 1, 1, 2, {{1, 1}, {0, 0}, {1, 40850}, 1}, true, true},
        {1, 1, 1, 50000, 1, 1, 2, {{1, 1}, {0, 0}, {1, 49990}, 1}, true, true},
    };
    conv_text text;
    (void)state;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        const op_case c = conv_case(&plain[i], true, true, text);
        if (!plain[i].large || !clt_test_oclgrind())
            op_check(&conv_test, &c, !plain[i].large);
    }
}

/* All tiles for values in layout PLAIN, some for batch-blocked values; and records with impossible
 * options. */
static void test_records(void **state)
{
    static const conv_shape narrow = {1,    1,   1, 40900, 1, 1, 2, {{1, 1}, {0, 0}, {1, 40850}, 1},
                                      true, true};
    static const char *const options[] = {"TILE=50",
                                          "TILE=12",
                                          "TILE=127",
                                          "TILE=-1",
                                          "TILE=99999999999999999999",
                                          "TILE=,=",
                                          "TILE=8",
                                          "TX=0,TC=99,TO=2147483647,ROWS=2147483647"};
    conv_text text;
    (void)state;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        for (int plain = clt_test_oclgrind() ? 1 : 0; plain < 2; plain++) {
            const op_case c = conv_case(&shapes[4], true, plain, text);
            op_check_options(&conv_test, &c, options[i]);
        }
    if (clt_test_oclgrind())
        return;
    for (size_t i = 0; i < sizeof tiled / sizeof *tiled; i++) {
        const op_case c = conv_case(&tiled[i], true, true, text);
        op_check_tiles(&conv_test, &c, false, 1, 1);
    }
    const op_case blocked = conv_case(&tiled[0], true, false, text);
    op_check_tiles(&conv_test, &blocked, false, 1, 7);
    const op_case c = conv_case(&narrow, true, true, text);
    op_check_tiles(&conv_test, &c, false, 1, 1);
    for (int tile = 0; tile < 16; tile++) {
        char asked[CLT_TILE_TEXT];
        snprintf(asked, sizeof asked, "TILE=%d", tile);
        op_check_options(&conv_test, &c, asked);
    }
}

/* Inf or NaN at one place of PLAIN images reaches exactly the results that depend on this place. */
static void test_not_finite(void **state)
{
    static const conv_shape list[] = {
        {1, 2, 5, 8, 3, 3, 3, {{2, 2}, {0, 0}, {1, 1}, 1}, true, false},
        {2, 2, 4, 5, 3, 3, 3, {{1, 1}, {0, 0}, {1, 1}, 1}, true, false},
        {1, 2, 5, 5, 7, 3, 3, {{1, 1}, {1, 1}, {1, 1}, 1}, true, false},
        {1, 3, 4, 19, 2, 2, 3, {{1, 3}, {0, 1}, {2, 2}, 1}, true, false},
        {1, 3, 3, 3, 2, 1, 1, {{1, 1}, {0, 0}, {1, 1}, 1}, true, false},
        {1, 4, 4, 7, 4, 2, 2, {{2, 2}, {1, 0}, {1, 1}, 2}, true, false},
    };
    conv_text text;
    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        op_case c = conv_case(&list[i], true, true, text);
        const int64_t count = op_count(&c, 0, c.batch);
        double *x = op_array(count);
        op_bound b;
        op_fill_operand(&c, 0, c.batch, x);
        c.in[0].set = x;
        op_bind(&conv_test, &c, &op_as_device, &b);
        for (int64_t j = 0; j < count; j += clt_test_oclgrind() ? 11 : 1) {
            const double was = x[j];
            op_expected e;
            x[j] = j % 3 == 2 ? NAN : j % 3 ? -INFINITY : INFINITY;
            op_expect(&conv_test, &c, &b, c.batch, &e);
            op_run(&conv_test, &c, &b, c.batch, &e);
            op_forget(&e);
            x[j] = was;
        }
        op_unbind(&b);
        free(x);
    }
}

/* In batch-blocked layout the sums of the weights' gradient are on a stack. Kernels with many taps
 * have no room there. Tests plans only. */
static void test_large_kernels(void **state)
{
    static const int64_t sizes[][2] = {{1, 9}, {1, 16000}, {1, 20000}, {3000, 1}, {150, 150}};
    const clt_bucket_sizes bucket_sizes = clt_bucket_sizes_default();
    clt_plan_options options = clt_plan_options_default(CLT_PLAN_TRAIN, 16);
    clt_caps caps = op_devices[0]->caps;
    (void)state;
    caps.kind = CLT_KIND_CPU;
    options.lanes = 16;
    for (int i = 0; i < 5; i++) {
        const int64_t x[] = {CLT_BATCH, 2, sizes[i][0] + 3, sizes[i][1] + 3},
                      w[] = {3, 2, sizes[i][0], sizes[i][1]};
        clt_graph *g;
        clt_plan *plan;
        clt_buckets buckets;
        int in_batch_blocked = 0;
        OP_OK(clt_graph_create(&g));
        clt_value *y = clt_conv2d(clt_input(g, "x", CLT_F32, 4, x),
                                  clt_parameter(g, "w", 4, w, (clt_init){0}), NULL, NULL);
        clt_value *one = clt_input(g, "one", CLT_F32, 1, (int64_t[]){1});
        clt_loss(g, "loss", clt_reduce_sum(clt_tanh(y), NULL, 0, 0), clt_scale(one, 2), 1);
        OP_OK(clt_buckets_create(g, &bucket_sizes, &buckets));
        OP_OK(clt_plan_create(g, &buckets, &caps, NULL, &options, &plan));
        for (int n = 0; n < plan->n_nodes; n++)
            in_batch_blocked += plan->nodes[n].node->op == &clt_op_conv2d_weight_grad &&
                                !strncmp(plan->nodes[n].variant->name, "batch_blocked", 13);
        assert_int_equal(in_batch_blocked, i < 2);
        clt_plan_destroy(plan);
        clt_buckets_free(&buckets);
        clt_graph_destroy(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),     cmocka_unit_test(test_matrix_units),
        cmocka_unit_test(test_plain),      cmocka_unit_test(test_records),
        cmocka_unit_test(test_not_finite), cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_errors),     cmocka_unit_test(test_large_kernels)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
