/* Partitions of graphs over space: the places' graphs, joined into one, give the numbers of the
 * whole graph. Numbers are small integers, so sums are exact in any order, and bits are equal. */
#include "space_places.h"
#include "support/convolution.h"

/* --- networks -------------------------------------------------------------------------------- */

static const clt_init zero = {CLT_INIT_ZERO, 0, 0};

/* An image, split along its height. */
static clt_value *image(clt_graph *g, int64_t channels, int64_t height, int64_t width)
{
    const int64_t dims[] = {CLT_BATCH, channels, height, width};
    clt_value *x = clt_input(g, "x", CLT_F32, 4, dims);
    ok(clt_shard_value(x, CLT_AXIS_SPACE, 2));
    return x;
}

static clt_value *weight(clt_graph *g, const char *name, int64_t out, int64_t in, int64_t kernel)
{
    return clt_parameter(g, name, 4, (const int64_t[]){out, in, kernel, kernel}, zero);
}

static clt_value *conv(clt_value *x, const char *name, int64_t out, int kernel, int stride,
                       int padding, int dilation)
{
    return square_conv(x, name, out, (square){kernel, stride, padding, dilation}, true, zero);
}

static clt_value *transposed(clt_graph *g, clt_value *x, const char *name, int64_t out, int kernel,
                             int stride, int padding, int output_padding)
{
    clt_conv_transpose2d_options o;
    clt_conv_transpose2d_options_init(&o);
    for (int i = 0; i < 2; i++) {
        o.stride[i] = stride;
        o.padding[i] = padding;
        o.output_padding[i] = output_padding;
    }
    char bias[32];
    snprintf(bias, sizeof bias, "%s.bias", name);
    return clt_conv_transpose2d(x, weight(g, name, clt_value_dim(x, 1), out, kernel),
                                clt_parameter(g, bias, 1, &out, zero), &o);
}

static clt_value *pool(clt_value *x, bool mean, int kernel, int stride, int padding)
{
    clt_pool2d_options o;
    clt_pool2d_options_init(&o);
    for (int i = 0; i < 2; i++) {
        o.kernel[i] = kernel;
        o.stride[i] = stride;
        o.padding[i] = padding;
    }
    return mean ? clt_avg_pool2d(x, &o) : clt_max_pool2d(x, &o);
}

/* The squared distance of y, an output, from a target. */
static void loss(clt_graph *g, clt_value *y)
{
    clt_value *sum, *count;
    y = clt_output(y, "y");
    ok(clt_graph_status(g));
    clt_mse(y, clt_input(g, "target", CLT_F32, y->type.rank, y->type.dims), &sum, &count);
    clt_loss(g, "loss", sum, count, 1);
}

/* Shifts up and down forward twice, backward once: the image has no gradient. The output is
 * gathered. */
static void same(clt_graph *g)
{
    clt_value *h = clt_relu(conv(image(g, 2, 7, 4), "a", 3, 3, 1, 1, 1));
    loss(g, conv(h, "b", 2, 3, 1, 1, 1));
}

/* Rows above only, and rows of a dilated kernel. */
static void strided(clt_graph *g)
{
    clt_value *h = clt_relu(conv(image(g, 2, 12, 5), "a", 3, 3, 2, 1, 1));
    loss(g, conv(h, "b", 2, 3, 1, 2, 2));
}

/* Strides divide neither height, so rows of the place below are needed too. */
static void uneven(clt_graph *g)
{
    clt_value *h = clt_relu(conv(image(g, 1, 15, 5), "a", 2, 3, 2, 1, 1));
    loss(g, conv(h, "b", 2, 3, 2, 1, 1));
}

/* Without padding the parts of results and operands do not lie side by side. */
static void shrinking(clt_graph *g)
{
    clt_value *h = pool(clt_relu(conv(image(g, 1, 16, 8), "a", 2, 5, 1, 0, 1)), false, 2, 2, 0);
    loss(g, conv(h, "b", 2, 2, 1, 0, 1));
}

static void pooled(clt_graph *g)
{
    clt_value *h = pool(conv(image(g, 2, 12, 6), "a", 2, 3, 1, 1, 1), false, 3, 2, 1);
    h = pool(conv(h, "b", 2, 1, 1, 0, 1), true, 2, 1, 1);
    loss(g, conv(h, "c", 1, 1, 1, 0, 1));
}

static void transposing(clt_graph *g)
{
    clt_value *h = transposed(g, image(g, 2, 6, 3), "a", 2, 2, 2, 0, 0);
    h = transposed(g, clt_relu(h), "b", 2, 4, 2, 1, 0);
    loss(g, transposed(g, h, "c", 1, 3, 2, 1, 1));
}

/* A U-Net of two levels, which upsamples. */
static void skips(clt_graph *g)
{
    clt_upsample2d_options o;
    clt_value *a = clt_relu(conv(image(g, 1, 12, 8), "a", 2, 3, 1, 1, 1));
    clt_value *b = clt_relu(conv(pool(a, false, 2, 2, 0), "b", 2, 3, 1, 1, 1));
    clt_upsample2d_options_init(&o);
    o.mode = CLT_UPSAMPLE_BILINEAR;
    clt_value *both[] = {a, clt_upsample2d(b, &o)};
    clt_value *c = clt_relu(conv(clt_concat(both, 2, 1), "c", 1, 3, 1, 1, 1));
    clt_upsample2d_options_init(&o);
    loss(g, clt_upsample2d(c, &o));
}

/* The mean over the image, then a layer that all places compute. */
static void averaged(clt_graph *g)
{
    clt_value *h = clt_relu(conv(image(g, 1, 8, 4), "a", 3, 3, 1, 1, 1));
    h = clt_flatten(clt_adaptive_avg_pool2d(h, 1, 1));
    loss(g, clt_linear(h, clt_parameter(g, "fc", 2, (const int64_t[]){2, 3}, zero), NULL));
}

/* The layer behind the flattened image needs all of it. */
static void flattened(clt_graph *g)
{
    clt_value *h = clt_flatten(clt_relu(conv(image(g, 1, 5, 2), "a", 2, 3, 1, 1, 1)));
    const int64_t dims[] = {2, clt_value_dim(h, 1)};
    loss(g, clt_linear(h, clt_parameter(g, "fc", 2, dims, zero), NULL));
}

static void field(clt_graph *g, int dim)
{
    clt_conv3d_options o;
    const int64_t dims[] = {CLT_BATCH, 1, 6, 6, 2}, w[] = {2, 1, 3, 3, 1}, w2[] = {1, 2, 3, 3, 1};
    clt_value *x = clt_input(g, "x", CLT_F32, 5, dims);
    ok(clt_shard_value(x, CLT_AXIS_SPACE, dim));
    clt_conv3d_options_init(&o);
    o.padding[0] = o.padding[1] = 1;
    clt_value *h = clt_relu(clt_conv3d(x, clt_parameter(g, "a", 5, w, zero), NULL, &o));
    o.stride[0] = o.stride[1] = 2;
    loss(g, clt_conv3d(h, clt_parameter(g, "b", 5, w2, zero), NULL, &o));
}

static void field_by_depth(clt_graph *g)
{
    field(g, 2);
}

static void field_by_height(clt_graph *g)
{
    field(g, 3);
}

static void normalised(clt_graph *g)
{
    clt_batch_norm_options o;
    const int64_t two = 2;
    clt_batch_norm_options_init(&o);
    o.synchronised = 1;
    clt_value *h = conv(image(g, 1, 7, 4), "a", 2, 3, 1, 1, 1);
    h = clt_batch_norm(h, clt_parameter(g, "bn.weight", 1, &two, zero),
                       clt_parameter(g, "bn.bias", 1, &two, zero), NULL, NULL, NULL, &o);
    loss(g, conv(clt_sigmoid(h), "b", 1, 3, 1, 1, 1));
}

/* Pixels have labels; half of them do not count. Two losses: one of parts, one of whole values. */
static void segmented(clt_graph *g)
{
    clt_value *sum, *count;
    const int64_t dims[] = {CLT_BATCH, 6, 4};
    clt_value *h = clt_relu(conv(image(g, 1, 6, 4), "a", 3, 3, 1, 1, 1));
    clt_value *labels = clt_input(g, "labels", CLT_I32, 3, dims);
    ok(clt_cross_entropy(h, labels, NULL, &sum, &count));
    clt_loss(g, "pixels", sum, count, 1);
    ok(clt_correct(h, labels, 1, -1, &sum, &count));
    clt_metric(g, "accuracy", sum, count);
    loss(g, clt_flatten(clt_adaptive_avg_pool2d(h, 1, 1)));
}

/* Means at the ends of the image that leave out padding have no rule: the operand is gathered. */
static void counted(clt_graph *g)
{
    clt_pool2d_options o;
    clt_pool2d_options_init(&o);
    for (int i = 0; i < 2; i++) {
        o.kernel[i] = 2;
        o.padding[i] = 1;
    }
    o.count_include_pad = 0;
    clt_value *h = conv(image(g, 1, 6, 4), "a", 2, 3, 1, 1, 1);
    loss(g, conv(clt_avg_pool2d(h, &o), "b", 1, 1, 1, 0, 1));
}

/* A value within the graph is split; windows beyond the end of the image. */
static void inner(clt_graph *g)
{
    clt_pool2d_options o;
    const int64_t dims[] = {CLT_BATCH, 1, 4, 7};
    clt_value *h = conv(clt_input(g, "x", CLT_F32, 4, dims), "a", 2, 3, 1, 1, 1);
    ok(clt_shard_value(h, CLT_AXIS_SPACE, 3));
    clt_pool2d_options_init(&o);
    o.ceil_mode = 1;
    loss(g, conv(clt_max_pool2d(h, &o), "b", 1, 3, 1, 1, 1));
}

/* --- tests ----------------------------------------------------------------------------------- */

static void same_size(void **state)
{
    (void)state;
    check(same, 2, 7, 0, 1.15);
    check(same, 3, 7, 0, 1.3);
}

static void strides_and_dilation(void **state)
{
    (void)state;
    check(strided, 2, 6, 0, 1);
    check(strided, 3, 6, 0, 1);
}

static void uneven_parts(void **state)
{
    (void)state;
    check(uneven, 2, 4, 0, 1.01);
}

static void without_padding(void **state)
{
    (void)state;
    check(shrinking, 2, 5, 0, 1.1);
}

static void pooling(void **state)
{
    (void)state;
    check(pooled, 2, 7, 0, 1.2);
    check(pooled, 3, 7, 0, 1.2);
}

static void transposed_convolutions(void **state)
{
    (void)state;
    check(transposing, 2, 7, 0, 1.2);
    check(transposing, 3, 7, 0, 1.2);
}

static void skip_connections(void **state)
{
    (void)state;
    check(skips, 2, 15, 0, 1);
    check(skips, 3, 15, 0, 1);
}

static void three_dimensions(void **state)
{
    (void)state;
    check(field_by_depth, 2, 5, 0, 1.4);
    check(field_by_height, 3, 5, 0, 1.01);
}

static void means_of_images(void **state)
{
    (void)state;
    check(averaged, 2, 4, 0, 1);
}

static void gathered_images(void **state)
{
    (void)state;
    check(flattened, 2, 4, 1, 1.3);
}

static void synchronised_norms(void **state)
{
    (void)state;
    check_to(normalised, 2, 10, 0, 1.2, 1e-5);
}

static void losses_of_pixels(void **state)
{
    (void)state;
    check_to(segmented, 2, 4, 0, 1.3, 1e-5);
    check_to(segmented, 3, 4, 0, 1.3, 1e-5);
}

static void without_a_rule(void **state)
{
    (void)state;
    check(counted, 2, 4, 1, 2);
}

static void values_within(void **state)
{
    (void)state;
    check(inner, 2, 5, 0, 2);
}

/* The rows that cross a border forward: max(0, p) above and max(0, d (k - 1) - p - (s - 1)) below.
 */
static void bytes_of_halos(void **state)
{
    enum { CHANNELS = 3, WIDTH = 5, HEIGHT = 24 };
    static const int cases[][4] = {{3, 1, 1, 1}, {5, 1, 2, 1}, {3, 2, 1, 1}, {3, 1, 2, 2}};
    (void)state;
    for (int c = 0; c < 4; c++) {
        const int k = cases[c][0], s = cases[c][1], p = cases[c][2], d = cases[c][3];
        const int below = d * (k - 1) - p - (s - 1), rows = p + (below > 0 ? below : 0);
        int64_t elements = 0;
        clt_mesh mesh;
        clt_partition_report report = {0};
        clt_graph *g;
        ok(clt_graph_create(&g));
        conv(image(g, CHANNELS, HEIGHT, WIDTH), "a", 2, k, s, p, d);
        clt_output(g->nodes[0]->out[0], "y");
        ok(clt_mesh_parse("space=2", 2, &mesh));
        ok(clt_pass_partition_forward(g, &mesh, 0, BATCH, &report));
        for (int i = 0; i < g->n_nodes; i++)
            if (!strcmp(g->nodes[i]->op->name, "shift"))
                elements += clt_type_elements(&g->nodes[i]->in[0]->type, BATCH);
        assert_int_equal(elements, rows * BATCH * CHANNELS * WIDTH);
        clt_str_free(&report.text);
        clt_graph_destroy(g);
    }
}

/* --- what is refused ------------------------------------------------------------------------- */

static void refuse(build_fn build, int places, const char *why)
{
    char text[32];
    clt_mesh mesh;
    clt_partition_report report = {0};
    clt_graph *g;
    ok(clt_graph_create(&g));
    build(g);
    ok(clt_graph_status(g));
    snprintf(text, sizeof text, "space=%d", places);
    ok(clt_mesh_parse(text, places, &mesh));
    assert_int_equal(clt_pass_partition_forward(g, &mesh, 0, BATCH, &report), CLT_UNSUPPORTED);
    if (!strstr(clt_error_message(), why))
        fail_msg("'%s' does not say '%s'", clt_error_message(), why);
    assert_null(strchr(clt_error_message(), '\n'));
    clt_str_free(&report.text);
    clt_graph_destroy(g);
}

static void tall_halo(clt_graph *g)
{
    loss(g, conv(image(g, 1, 8, 7), "a", 1, 7, 1, 3, 1));
}

static void plain_norm(clt_graph *g)
{
    const int64_t two = 2;
    clt_value *h = conv(image(g, 1, 7, 4), "a", 2, 3, 1, 1, 1);
    loss(g, clt_batch_norm(h, clt_parameter(g, "w", 1, &two, zero),
                           clt_parameter(g, "b", 1, &two, zero), NULL, NULL, NULL, NULL));
}

static void refused(void **state)
{
    (void)state;
    refuse(tall_halo, 4,
           "node y (conv2d) needs 3 rows of its neighbours along space, but of "
           "the 8 rows of f32[Bx1x8x7] place 0 has only 2: use fewer places");
    refuse(plain_norm, 2, "splits its images, so it needs the option synchronised");
    refuse(same, 8, "x is f32[Bx2x7x4]: dimension 2, in 1 block, cannot be split over 8 devices");
    refuse(uneven, 5, "is f32[Bx2x4x2]: dimension 2, in 1 block, cannot be split over 5 devices");
}

static void bad_values(void **state)
{
    clt_graph *g;
    (void)state;
    ok(clt_graph_create(&g));
    clt_value *x = image(g, 1, 8, 4), *w = weight(g, "w", 1, 1, 1);
    assert_int_equal(clt_shard_value(x, CLT_AXIS_TENSOR, 2), CLT_UNSUPPORTED);
    assert_int_equal(clt_shard_value(w, CLT_AXIS_SPACE, 2), CLT_UNSUPPORTED);
    assert_int_equal(clt_shard_value(x, CLT_AXIS_SPACE, 4), CLT_SHAPE);
    assert_int_equal(clt_shard_value(x, CLT_AXIS_SPACE, 0), CLT_SHAPE);
    assert_int_equal(clt_shard_value(NULL, CLT_AXIS_SPACE, 0), CLT_INVALID_ARGUMENT);
    clt_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_size),
        cmocka_unit_test(strides_and_dilation),
        cmocka_unit_test(uneven_parts),
        cmocka_unit_test(without_padding),
        cmocka_unit_test(pooling),
        cmocka_unit_test(transposed_convolutions),
        cmocka_unit_test(skip_connections),
        cmocka_unit_test(three_dimensions),
        cmocka_unit_test(means_of_images),
        cmocka_unit_test(gathered_images),
        cmocka_unit_test(synchronised_norms),
        cmocka_unit_test(losses_of_pixels),
        cmocka_unit_test(without_a_rule),
        cmocka_unit_test(values_within),
        cmocka_unit_test(bytes_of_halos),
        cmocka_unit_test(refused),
        cmocka_unit_test(bad_values),
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
