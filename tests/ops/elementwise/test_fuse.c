/* How fusion joins chains of element-wise operators (`fused_elementwise` nodes) in both layouts,
 * which chains it leaves as they are, and element-wise operators in batch-blocked layout. */
#include "ops/harness/golden.h"

/* --- a chain -------------------------------------------------------------------------------- */

/* sigmoid(2.5 * (a * b + c) - 0.75) * a; c is broadcast along the batch. */
static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    clt_value *sum = clt_add(clt_mul(in[0], in[1]), in[2]);
    (void)c;
    out[0] = clt_mul(clt_sigmoid(clt_add_scalar(clt_scale(sum, 2.5), -0.75)), in[0]);
}

/* The same behind a convolution by 1, which brings images into batch-blocked layout on CPUs. */
static void build_batch_blocked(const op_case *c, clt_value *const *in, clt_value **out)
{
    const int64_t channels = c->in[0].dims[1], kernel[] = {channels, channels, 1, 1};
    float identity[64] = {0};
    assert_true(channels <= 8);
    for (int64_t i = 0; i < channels; i++)
        identity[i * channels + i] = 1;
    clt_value *one = clt_constant(in[0]->graph, CLT_F32, 4, kernel, identity);
    clt_value *const images[] = {clt_conv2d(in[0], one, NULL, NULL), in[1], in[2]};
    build(c, images, out);
}

static int64_t index_of_c(const op_case *c, int64_t i, int64_t n)
{
    const int64_t inner = c->in[0].rank == 4 ? op_dim(c, 0, 2, n) * op_dim(c, 0, 3, n) : 1;
    return i / inner % op_dim(c, 0, 1, n);
}

static double value(double a, double b, double c)
{
    return 1 / (1 + exp(-(2.5 * (a * b + c) - 0.75)));
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    for (int64_t i = 0; i < op_count(c, 0, n); i++) {
        y[0][i] = value(x[0][i], x[1][i], x[2][index_of_c(c, i, n)]) * x[0][i];
        if (bound)
            bound[0][i] = 4 * fabs(x[0][i]);
    }
}

static void backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    for (int64_t i = 0; i < op_count(c, 0, n); i++) {
        const int64_t k = index_of_c(c, i, n);
        const double a = x[0][i], b = x[1][i], s = value(a, b, x[2][k]);
        const double inner = dy[0][i] * a * s * (1 - s) * 2.5;
        const double terms = sqrt((double)op_count(c, 0, n) / (double)op_count(c, 2, n));
        dx[0][i] = dy[0][i] * s + inner * b;
        dx[1][i] = inner * a;
        dx[2][k] += inner;
        bound[0][i] = 8 * fabs(dy[0][i]);
        bound[1][i] = 8 * fabs(dy[0][i]);
        bound[2][k] += 8 * terms * fabs(dy[0][i]);
    }
}

static int count_nodes(const clt_graph *graph, const char *op, clt_layout layout)
{
    int count = 0;
    for (int i = 0; i < graph->n_nodes; i++)
        count +=
            !strcmp(graph->nodes[i]->op->name, op) && graph->nodes[i]->out[0]->layout == layout;
    return count;
}

static void test_chain(void **state)
{
    static const int64_t batches[] = {1, 3, 17, 37};
    op_test t = {.op = "fused_elementwise",
                 .n_out = 1,
                 .build = build,
                 .forward = forward,
                 .backward = backward};
    (void)state;
    for (int i = 0; i < 4; i++) {
        const op_case c = {.text = "chain",
                           .n_in = 3,
                           .in = {{CLT_F32, 2, {CLT_BATCH, 5}, OP_RANDOM, true, NULL},
                                  {CLT_F32, 2, {CLT_BATCH, 5}, OP_RANDOM, true, NULL},
                                  {CLT_F32, 1, {5}, OP_RANDOM, true, NULL}},
                           .batch = batches[i]};
        op_bound b;
        op_bind(&t, &c, &op_as_device, &b);
        /* In the forward pass everything except the last product is one node, because the backward
         * pass uses the sigmoid. */
        assert_string_equal(b.plan->nodes[0].node->op->name, "fused_elementwise");
        assert_int_equal(count_nodes(b.plan->graph, "scale", CLT_LAYOUT_PLAIN), 0);
        assert_int_equal(count_nodes(b.plan->graph, "sigmoid", CLT_LAYOUT_PLAIN), 0);
        op_unbind(&b);
        op_check(&t, &c, i < 2);
    }
    op_report(&t);
}

static void test_batch_blocked(void **state)
{
    static const int64_t batches[] = {1, 16, 19};
    op_test t = {.op = "fused_elementwise",
                 .n_out = 1,
                 .build = build_batch_blocked,
                 .forward = forward,
                 .backward = backward};
    (void)state;
    for (int i = 0; i < 3; i++) {
        const op_case c = {.text = "batch-blocked",
                           .n_in = 3,
                           .in = {{CLT_F32, 4, {CLT_BATCH, 3, 5, 2}, OP_RANDOM, true, NULL},
                                  {CLT_F32, 4, {CLT_BATCH, 3, 5, 2}, OP_RANDOM, true, NULL},
                                  {CLT_F32, 3, {3, 1, 1}, OP_RANDOM, true, NULL}},
                           .batch = batches[i]};
        op_bound b;
        op_bind(&t, &c, &op_as_device, &b);
        if (clt_caps_is_cpu(&op_devices[0]->caps))
            assert_true(count_nodes(b.plan->graph, "fused_elementwise", CLT_LAYOUT_BATCH_BLOCKED) >=
                        1);
        op_unbind(&b);
        op_check(&t, &c, i < 2);
    }
    op_report(&t);
}

/* --- activations behind a linear layer -------------------------------------------------------- */

static clt_value *leaky(clt_value *x)
{
    return clt_leaky_relu(x, 0.25);
}

static double activated(int kind, double z)
{
    return kind == 0   ? fmax(z, 0)
           : kind == 1 ? fmax(z, 0.25 * z)
           : kind == 2 ? 1 / (1 + exp(-z))
                       : tanh(z);
}

static double slope(int kind, double y)
{
    return kind == 0 ? y > 0 : kind == 1 ? (y > 0 ? 1 : 0.25) : kind == 2 ? y * (1 - y) : 1 - y * y;
}

static void build_linear(const op_case *c, clt_value *const *in, clt_value **out)
{
    static clt_value *(*const functions[])(clt_value *) = {clt_relu, leaky, clt_sigmoid, clt_tanh};
    out[0] = functions[*(const int *)c->attr](clt_linear(in[0], in[1], in[2]));
}

static void forward_linear(const op_case *c, int64_t n, double *const *x, double *const *y,
                           double *const *bound)
{
    const int64_t k = op_dim(c, 1, 1, n), m = op_dim(c, 1, 0, n);
    for (int64_t i = 0; i < n * m; i++) {
        double z = x[2][i % m], terms = 4;
        for (int64_t j = 0; j < k; j++) {
            z += x[0][i / m * k + j] * x[1][i % m * k + j];
            terms += fabs(x[0][i / m * k + j] * x[1][i % m * k + j]);
        }
        y[0][i] = activated(*(const int *)c->attr, z);
        if (bound)
            bound[0][i] = sqrt((double)k + 1) * terms;
    }
}

static void backward_linear(const op_case *c, int64_t n, double *const *x, double *const *dy,
                            double *const *dx, double *const *bound)
{
    const int64_t k = op_dim(c, 1, 1, n), m = op_dim(c, 1, 0, n);
    double *y = op_array(n * m);
    forward_linear(c, n, x, &y, NULL);
    for (int64_t i = 0; i < n * m; i++) {
        const double dz = dy[0][i] * slope(*(const int *)c->attr, y[i]);
        const double size = 8 * sqrt((double)(n * k * m)) * fabs(dy[0][i]);
        dx[2][i % m] += dz;
        bound[2][i % m] += size;
        for (int64_t j = 0; j < k; j++) {
            dx[0][i / m * k + j] += dz * x[1][i % m * k + j];
            bound[0][i / m * k + j] += size;
            dx[1][i % m * k + j] += dz * x[0][i / m * k + j];
            bound[1][i % m * k + j] += size;
        }
    }
    free(y);
}

static void test_epilogues(void **state)
{
    op_test t = {.op = "linear with an activation",
                 .n_out = 1,
                 .build = build_linear,
                 .forward = forward_linear,
                 .backward = backward_linear};
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        const op_case c = {.text = "epilogue",
                           .n_in = 3,
                           .in = {{CLT_F32, 2, {CLT_BATCH, 7}, OP_RANDOM, true, NULL},
                                  {CLT_F32, 2, {5, 7}, OP_RANDOM, true, NULL},
                                  {CLT_F32, 1, {5}, OP_RANDOM, true, NULL}},
                           .batch = 11,
                           .attr = &kind};
        op_bound b;
        op_bind(&t, &c, &op_as_device, &b);
        assert_string_equal(clt_graph_find(b.plan->graph, "y0")->producer->op->name, "linear");
        op_unbind(&b);
        op_check(&t, &c, true);
    }
    op_report(&t);
}

/* --- chains that stay ------------------------------------------------------------------------- */

static clt_graph *fused(clt_value *(*make)(clt_graph *g, clt_value *x), clt_graph **graph)
{
    OP_OK(clt_graph_create(graph));
    clt_value *x = clt_input(*graph, "x", CLT_F32, 2, (int64_t[]){CLT_BATCH, 3});
    clt_output(make(*graph, x), "y");
    OP_OK(clt_graph_status(*graph));
    OP_OK(clt_pass_simplify(*graph));
    OP_OK(clt_pass_fuse(*graph));
    OP_OK(clt_graph_clean(*graph, NULL, 0));
    return *graph;
}

static clt_value *with_two_users(clt_graph *g, clt_value *x)
{
    clt_value *s = clt_scale(x, 2);
    (void)g;
    return clt_mul(clt_tanh(s), clt_sigmoid(s));
}

static clt_value *with_a_name(clt_graph *g, clt_value *x)
{
    (void)g;
    return clt_tanh(clt_name(clt_scale(x, 2), "kept"));
}

static clt_value *with_another_shape(clt_graph *g, clt_value *x)
{
    clt_value *wide = clt_input(g, "wide", CLT_F32, 3, (int64_t[]){CLT_BATCH, 4, 3});
    return clt_add(clt_reshape(clt_scale(x, 2), 3, (int64_t[]){CLT_BATCH, 1, 3}), wide);
}

static clt_value *with_many_operands(clt_graph *g, clt_value *x)
{
    char name[16];
    for (int i = 0; i < 6; i++) {
        snprintf(name, sizeof name, "x%d", i);
        x = clt_mul(x, clt_input(g, name, CLT_F32, 2, (int64_t[]){CLT_BATCH, 3}));
    }
    return x;
}

static clt_value *with_equal_nodes(clt_graph *g, clt_value *x)
{
    (void)g;
    return clt_add(clt_tanh(clt_scale(x, 2)), clt_tanh(clt_scale(x, 2)));
}

static void test_limits(void **state)
{
    clt_graph *g;
    (void)state;
    fused(with_two_users, &g);
    assert_int_equal(g->n_nodes, 3); /* scale, and tanh with the product, and sigmoid */
    clt_graph_destroy(g);
    fused(with_a_name, &g);
    assert_int_equal(g->n_nodes, 2);
    clt_graph_destroy(g);
    fused(with_another_shape, &g);
    assert_int_equal(g->n_nodes, 3);
    clt_graph_destroy(g);
    fused(with_many_operands, &g); /* a node has at most four operands */
    assert_int_equal(g->n_nodes, 2);
    clt_graph_destroy(g);
    fused(with_equal_nodes, &g); /* one of the two, added to itself */
    assert_int_equal(g->n_nodes, 2);
    clt_graph_destroy(g);
}

/* The gradient of p must stay, because the gradient of q is computed from it. */
static void test_gradients_stay(void **state)
{
    const int64_t dims[] = {3};
    clt_graph *g;
    clt_plan *plan;
    clt_buckets buckets;
    (void)state;
    OP_OK(clt_graph_create(&g));
    clt_value *p = clt_parameter(g, "p", 1, dims, (clt_init){0});
    clt_value *q = clt_parameter(g, "q", 1, dims, (clt_init){0});
    clt_value *r = clt_input(g, "r", CLT_F32, 1, dims);
    clt_value *sum = clt_add(p, clt_scale(q, 2));
    clt_loss(g, "loss", clt_reduce_sum(clt_mul(clt_tanh(sum), r), NULL, 0, 0),
             clt_reduce_sum(clt_add_scalar(clt_scale(r, 0), 1), NULL, 0, 0), 1);
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    const clt_plan_options options = clt_plan_options_default(CLT_PLAN_TRAIN, 1);
    OP_OK(clt_buckets_create(g, &sizes, &buckets));
    OP_OK(clt_plan_create(g, &buckets, &op_devices[0]->caps, NULL, &options, &plan));
    for (int i = 0; i < 2; i++) {
        assert_non_null(plan->gradients[i]);
        assert_ptr_equal(plan->gradients[i]->producer->out[0], plan->gradients[i]);
        assert_ptr_equal(plan->graph->nodes[plan->gradients[i]->producer->id],
                         plan->gradients[i]->producer);
    }
    clt_plan_destroy(plan);
    clt_buckets_free(&buckets);
    clt_graph_destroy(g);
}

/* Kernels for batch-blocked values count a block's elements in an int, so larger images stay plain.
 * Tests plans only. */
static void test_large_images(void **state)
{
    static const int64_t sides[] = {64, 32768};
    (void)state;
    for (int i = 0; i < 2; i++) {
        const int64_t dims[] = {CLT_BATCH, 1, sides[i], sides[i]}, kernel[] = {1, 1, 3, 3};
        clt_graph *g;
        clt_plan *plan;
        clt_buckets buckets;
        OP_OK(clt_graph_create(&g));
        clt_output(clt_conv2d(clt_input(g, "x", CLT_F32, 4, dims),
                              clt_parameter(g, "w", 4, kernel, (clt_init){0}), NULL, NULL),
                   "y");
        const clt_bucket_sizes sizes = clt_bucket_sizes_default();
        clt_plan_options options = clt_plan_options_default(CLT_PLAN_PREDICT, 1);
        options.lanes = 8;
        OP_OK(clt_buckets_create(g, &sizes, &buckets));
        clt_caps caps = op_devices[0]->caps;
        caps.max_alloc_bytes = INT64_MAX; /* nothing is allocated */
        OP_OK(clt_plan_create(g, &buckets, &caps, NULL, &options, &plan));
        const bool blocked = i == 0 && clt_caps_is_cpu(&op_devices[0]->caps);
        assert_int_equal(count_nodes(plan->graph, "conv2d", CLT_LAYOUT_BATCH_BLOCKED), blocked);
        assert_int_equal(count_nodes(plan->graph, "conv2d", CLT_LAYOUT_PLAIN), !blocked);
        clt_plan_destroy(plan);
        clt_buckets_free(&buckets);
        clt_graph_destroy(g);
    }
}

/* Convolution, pooling and later nodes are batch-blocked if more than a quarter of the vector lanes
 * hold an image. Otherwise all are plain, unless a variant is asked for. */
static void test_small_batches(void **state)
{
    static const struct {
        int width, lanes, batch;
        const char *variants;
        int convolutions, pools; /* in batch-blocked layout */
    } cases[] = {{16, 0, 1, NULL, 0, 0},
                 {16, 0, 4, NULL, 0, 0},
                 {16, 0, 5, NULL, 1, 1},
                 {8, 0, 2, NULL, 0, 0},
                 {8, 0, 3, NULL, 1, 1},
                 {4, 0, 1, NULL, 0, 0},
                 {4, 0, 2, NULL, 1, 1},
                 {16, 16, 1, NULL, 1, 1},
                 {16, 4, 1, NULL, 1, 1},
                 {16, 0, 16, NULL, 1, 1},
                 {16, 0, 1, "conv2d=batch_blocked", 1, 1}};
    const int64_t dims[] = {CLT_BATCH, 3, 7, 9}, kernel[] = {5, 3, 3, 3};
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clt_pool2d_options pool;
        clt_graph *g;
        clt_plan *plan;
        clt_buckets buckets;
        clt_caps caps = op_devices[0]->caps;
        clt_plan_options options = clt_plan_options_default(CLT_PLAN_PREDICT, cases[i].batch);
        caps.kind = CLT_KIND_CPU;
        caps.vector_width = cases[i].width;
        options.lanes = cases[i].lanes;
        options.variants = cases[i].variants;
        options.fuse = false;
        clt_pool2d_options_init(&pool);
        OP_OK(clt_graph_create(&g));
        clt_value *x = clt_input(g, "x", CLT_F32, 4, dims);
        clt_value *y = clt_conv2d(x, clt_parameter(g, "w", 4, kernel, (clt_init){0}), NULL, NULL);
        clt_output(clt_max_pool2d(clt_tanh(y), &pool), "y");
        OP_OK(clt_buckets_create(g, &sizes, &buckets));
        OP_OK(clt_plan_create(g, &buckets, &caps, NULL, &options, &plan));
        assert_int_equal(count_nodes(plan->graph, "conv2d", CLT_LAYOUT_BATCH_BLOCKED),
                         cases[i].convolutions);
        assert_int_equal(count_nodes(plan->graph, "max_pool2d", CLT_LAYOUT_BATCH_BLOCKED),
                         cases[i].pools);
        assert_int_equal(count_nodes(plan->graph, "layout", CLT_LAYOUT_BATCH_BLOCKED),
                         cases[i].convolutions);
        clt_plan_destroy(plan);
        clt_buckets_free(&buckets);
        clt_graph_destroy(g);
    }
}

/* Kernels with strides have six dimensions. A chain whose operands are broadcast along more
 * dimensions stays two nodes. In batch-blocked layout the vector lane would be a seventh dimension,
 * so the node stays plain. Tests plans only. */
static void test_many_dimensions(void **state)
{
    static const int64_t eight[] = {CLT_BATCH, 2, 2, 2, 2, 2, 2, 2},
                         first[] = {1, 2, 1, 2, 1, 1, 1, 1}, last[] = {2, 1, 2},
                         image[] = {CLT_BATCH, 1, 8, 8}, kernel[] = {4, 1, 3, 3},
                         six[] = {CLT_BATCH, 2, 2, 2, 3, 6}, odd[] = {2, 1, 2, 1, 6};
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    (void)state;
    for (int i = 0; i < 2; i++) {
        clt_graph *g;
        clt_plan *plan;
        clt_buckets buckets;
        clt_caps caps = op_devices[0]->caps;
        clt_plan_options options = clt_plan_options_default(CLT_PLAN_PREDICT, 16);
        caps.kind = CLT_KIND_CPU;
        options.lanes = 16;
        OP_OK(clt_graph_create(&g));
        if (i) {
            clt_value *x = clt_input(g, "x", CLT_F32, 4, image);
            clt_value *y =
                clt_conv2d(x, clt_parameter(g, "w", 4, kernel, (clt_init){0}), NULL, NULL);
            clt_output(clt_add(clt_reshape(y, 6, six), clt_input(g, "p", CLT_F32, 5, odd)), "y");
        } else {
            clt_value *sum =
                clt_add(clt_input(g, "x", CLT_F32, 8, eight), clt_input(g, "p", CLT_F32, 8, first));
            clt_output(clt_mul(sum, clt_input(g, "q", CLT_F32, 3, last)), "y");
        }
        OP_OK(clt_buckets_create(g, &sizes, &buckets));
        OP_OK(clt_plan_create(g, &buckets, &caps, NULL, &options, &plan));
        assert_int_equal(count_nodes(plan->graph, "conv2d", CLT_LAYOUT_BATCH_BLOCKED), i);
        assert_int_equal(count_nodes(plan->graph, "add", CLT_LAYOUT_PLAIN), 1);
        assert_int_equal(count_nodes(plan->graph, "mul", CLT_LAYOUT_PLAIN), !i);
        clt_plan_destroy(plan);
        clt_buckets_free(&buckets);
        clt_graph_destroy(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain),          cmocka_unit_test(test_batch_blocked),
        cmocka_unit_test(test_epilogues),      cmocka_unit_test(test_limits),
        cmocka_unit_test(test_gradients_stay), cmocka_unit_test(test_large_images),
        cmocka_unit_test(test_small_batches),  cmocka_unit_test(test_many_dimensions),
    };
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
