#include "ops/harness/golden.h"
#include "ops/harness/in_batch_blocked.h"
#include "ops/core/nn.h"
#include "ops/harness/reference_nn.h"

static void build(const op_case *c, clt_value *const *in, clt_value **out)
{
    (void)c;
    out[0] = clt_linear(in[0], in[1], in[2]);
}

static void forward(const op_case *c, int64_t n, double *const *x, double *const *y,
                    double *const *bound)
{
    const int64_t k = op_dim(c, 1, 1, n), o = op_dim(c, 1, 0, n), m = op_count(c, 0, n) / k;
    ref_product(m, o, k, ref_plain(x[0], k), ref_transposed(x[1], k), y[0],
                bound ? bound[0] : NULL);
    for (int64_t i = 0; x[2] && i < m * o; i++) {
        y[0][i] += x[2][i % o];
        if (bound)
            bound[0][i] += fabs(x[2][i % o]) * sqrt((double)k + 1);
    }
}

static void backward(const op_case *c, int64_t n, double *const *x, double *const *dy,
                     double *const *dx, double *const *bound)
{
    const int64_t k = op_dim(c, 1, 1, n), o = op_dim(c, 1, 0, n), m = op_count(c, 0, n) / k;
    ref_product(m, k, o, ref_plain(dy[0], o), ref_plain(x[1], k), dx[0], bound[0]);
    ref_product(o, k, m, ref_transposed(dy[0], o), ref_plain(x[0], k), dx[1], bound[1]);
    for (int64_t i = 0; dx[2] && i < m * o; i++) {
        dx[2][i % o] += dy[0][i];
        bound[2][i % o] += sqrt((double)m) * fabs(dy[0][i]);
    }
}

static op_test test = {"linear", 1, 0, build, forward, backward, 0};

/* Batch, K, O. */
static const int64_t shapes[][3] = {{5, 3, 7}, {1, 1, 1}, {7, 17, 13}, {4, 31, 16}, {13, 5, 49}};
static const int64_t large[][3] = {{67, 800, 128}, {256, 128, 10}, {29, 257, 101}, {301, 33, 72},
                                   {4001, 9, 11},  {131, 3, 530},  {40001, 16, 8}};

static void check_shape(const int64_t *s, bool with_bias, bool wanted_x, bool differences)
{
    char text[OP_TEXT];
    snprintf(text, sizeof text, "batch %lld, %lld -> %lld%s", (long long)s[0], (long long)s[1],
             (long long)s[2], with_bias ? ", bias" : "");
    op_case c = {text,
                 3,
                 {{CLT_F32, 2, {CLT_BATCH, s[1]}, OP_RANDOM, wanted_x, NULL},
                  {CLT_F32, 2, {s[2], s[1]}, OP_RANDOM, true, NULL},
                  {CLT_F32, with_bias ? 1 : 0, {s[2]}, OP_RANDOM, true, NULL}},
                 s[0],
                 .attr = NULL,
                 .sharp = true};
    op_check(&test, &c, differences);
}

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        /* Oclgrind runs one of the two, by turns. */
        if (!clt_test_oclgrind() || i % 2)
            check_shape(shapes[i], true, true, true);
        if (!clt_test_oclgrind() || i % 2 == 0)
            check_shape(shapes[i], false, i % 2, true);
    }
    for (size_t i = 0; !clt_test_oclgrind() && i < sizeof large / sizeof *large; i++)
        check_shape(large[i], true, true, false);
    op_report(&test);
}

static void test_rank3(void **state)
{
    const op_case c = {"[B,3,5]",
                       3,
                       {{CLT_F32, 3, {CLT_BATCH, 3, 5}, OP_RANDOM, true, NULL},
                        {CLT_F32, 2, {7, 5}, OP_RANDOM, true, NULL},
                        {CLT_F32, 1, {7}, OP_RANDOM, true, NULL}},
                       3,
                       .attr = NULL,
                       .sharp = true};
    (void)state;
    op_check(&test, &c, true);
}

/* --- batch-blocked layout, gradients too ------------------------------------------------------ */

static void build_batch_blocked(const op_case *c, clt_value *const *in, clt_value **out)
{
    (void)c;
    out[0] = op_in_batch_blocked(clt_linear(op_in_batch_blocked(in[0]), in[1], in[2]));
}

static void test_batch_blocked(void **state)
{
    static const int64_t batches[] = {1, 19, 37};
    op_test t = {"linear", 1, 0, build_batch_blocked, forward, backward, 0};
    (void)state;
    for (int i = 0; i < 3; i++) {
        const op_case c = {"batch-blocked",
                           3,
                           {{CLT_F32, 2, {CLT_BATCH, 11}, OP_RANDOM, true, NULL},
                            {CLT_F32, 2, {5, 11}, OP_RANDOM, true, NULL},
                            {CLT_F32, i != 1, {5}, OP_RANDOM, true, NULL}},
                           batches[i],
                           .attr = NULL,
                           .sharp = true};
        /* The convolutions' variants would take minutes on Oclgrind. */
        if (!clt_test_oclgrind())
            op_check(&t, &c, true);
    }
    op_report(&t);
}

/* --- with an activation in the epilogue ----------------------------------------------------- */

typedef struct act {
    clt_activation kind;
    double slope;
} act;

static void build_act(const op_case *c, clt_value *const *in, clt_value **out)
{
    const act *a = c->attr;
    clt_value *z = clt_linear(in[0], in[1], in[2]);
    switch (a->kind) {
    case CLT_ACTIVATION_RELU:
        out[0] = clt_relu(z);
        break;
    case CLT_ACTIVATION_LEAKY_RELU:
        out[0] = clt_leaky_relu(z, a->slope);
        break;
    case CLT_ACTIVATION_SIGMOID:
        out[0] = clt_sigmoid(z);
        break;
    case CLT_ACTIVATION_TANH:
        out[0] = clt_tanh(z);
        break;
    case CLT_ACTIVATION_GELU_EXACT:
        out[0] = clt_gelu(z);
        break;
    default:
        out[0] = clt_gelu_tanh(z);
    }
}

static double activated(const act *a, double z)
{
    switch (a->kind) {
    case CLT_ACTIVATION_RELU:
        return z > 0 ? z : 0;
    case CLT_ACTIVATION_LEAKY_RELU:
        return z > 0 ? z : a->slope * z;
    case CLT_ACTIVATION_SIGMOID:
        return 1 / (1 + exp(-z));
    case CLT_ACTIVATION_TANH:
        return tanh(z);
    case CLT_ACTIVATION_GELU_EXACT:
        return z * (1 + erf(z * sqrt(0.5))) / 2;
    default:
        return z * (1 + tanh(sqrt(2 / acos(-1)) * (z + 0.044715 * z * z * z))) / 2;
    }
}

/* All six activations have slopes of at most 1.13. */
static double slope_at(const act *a, double z)
{
    const double y = activated(a, z);
    switch (a->kind) {
    case CLT_ACTIVATION_RELU:
        return z > 0;
    case CLT_ACTIVATION_LEAKY_RELU:
        return z > 0 ? 1 : a->slope;
    case CLT_ACTIVATION_SIGMOID:
        return y * (1 - y);
    case CLT_ACTIVATION_TANH:
        return 1 - y * y;
    case CLT_ACTIVATION_GELU_EXACT:
        return (1 + erf(z * sqrt(0.5))) / 2 + z * exp(-z * z / 2) / sqrt(2 * acos(-1));
    default: {
        const double s = sqrt(2 / acos(-1)), t = tanh(s * (z + 0.044715 * z * z * z));
        return (1 + t) / 2 + z * (1 - t * t) / 2 * s * (1 + 3 * 0.044715 * z * z);
    }
    }
}

static void forward_act(const op_case *c, int64_t n, double *const *x, double *const *y,
                        double *const *bound)
{
    forward(c, n, x, y, bound);
    for (int64_t i = 0; i < op_dim(c, 0, 0, n) * c->in[1].dims[0]; i++) {
        y[0][i] = activated(c->attr, y[0][i]);
        if (bound)
            bound[0][i] = 1.2 * bound[0][i] + 1;
    }
}

/* Computes the gradient through the slopes. An error of z changes a slope by at most 1.2 times this
 * error. */
static void backward_act(const op_case *c, int64_t n, double *const *x, double *const *dy,
                         double *const *dx, double *const *bound)
{
    const int64_t count = op_dim(c, 0, 0, n) * c->in[1].dims[0];
    double *z = op_array(count), *dz = op_array(count);
    forward(c, n, x, &z, NULL);
    for (int64_t i = 0; i < count; i++)
        dz[i] = dy[0][i] * slope_at(c->attr, z[i]);
    backward(c, n, x, &dz, dx, bound);
    for (int i = 0; i < 3; i++)
        for (int64_t j = 0; j < op_count(c, i, n); j++)
            bound[i][j] = 3 * bound[i][j] + 8;
    free(z);
    free(dz);
}

static void test_activations(void **state)
{
    static const act acts[] = {
        {CLT_ACTIVATION_RELU, 0}, {CLT_ACTIVATION_LEAKY_RELU, 0.2}, {CLT_ACTIVATION_SIGMOID, 0},
        {CLT_ACTIVATION_TANH, 0}, {CLT_ACTIVATION_GELU_EXACT, 0},   {CLT_ACTIVATION_GELU_TANH, 0},
    };
    op_test fused = {"linear with activation", 1, 0, build_act, forward_act, backward_act, 0};
    (void)state;
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        for (int wanted = 0; wanted < 2; wanted++) {
            const int64_t k = clt_test_oclgrind() ? 11 : 19;
            if (clt_test_oclgrind() && wanted != (int)i % 2)
                continue;
            const op_case c = {clt_activation_name(acts[i].kind),
                               3,
                               {{CLT_F32, 2, {CLT_BATCH, k}, OP_RANDOM, wanted, NULL},
                                {CLT_F32, 2, {21, k}, OP_RANDOM, wanted, NULL},
                                {CLT_F32, 1, {21}, OP_RANDOM, wanted, NULL}},
                               7,
                               .attr = &acts[i]};
            op_bound b;
            op_check(&fused, &c, true);
            /* The two GELUs are not fused, because their gradient needs their operand. */
            op_bind(&fused, &c, &op_as_device, &b);
            const clt_linear_attr *attr = clt_graph_find(b.plan->graph, "y0")->producer->attr;
            const bool joined = clt_graph_find(b.plan->graph, "y0")->producer->op == &clt_op_linear;
            assert_int_equal(joined, clt_activation_fusible((clt_epilogue){
                                         .activation = acts[i].kind, .slope = acts[i].slope}));
            if (joined)
                assert_int_equal(attr->epilogue.activation, acts[i].kind);
            op_unbind(&b);
        }
    op_report(&fused);
}

/* K is cut into slices. A second kernel adds them, with the bias and the activation. The last shape
 * is divided on processors with short vectors too. */
static void test_slices(void **state)
{
    static const act relu = {CLT_ACTIVATION_RELU, 0}, sigmoid = {CLT_ACTIVATION_SIGMOID, 0};
    static const int64_t shapes_of_it[][3] = {
        {3, 1001, 5}, {7, 523, 1}, {1, 517, 19}, {33, 2049, 17}, {19, 9001, 13}};
    op_test fused = {"linear in slices", 1, 0, build_act, forward_act, backward_act, 0};
    (void)state;
    for (int i = 0; i < 5; i++) {
        const int64_t *s = shapes_of_it[i];
        const op_case c = {"slices",
                           3,
                           {{CLT_F32, 2, {CLT_BATCH, s[1]}, OP_RANDOM, i % 2, NULL},
                            {CLT_F32, 2, {s[2], s[1]}, OP_RANDOM, true, NULL},
                            {CLT_F32, 1, {s[2]}, OP_RANDOM, true, NULL}},
                           s[0],
                           .attr = i % 2 ? &sigmoid : &relu};
        /* Oclgrind runs the shortest, in two slices. */
        if (clt_test_oclgrind() && i == 2)
            op_check_tiles(&fused, &c, false, 2, 100);
        if (clt_test_oclgrind())
            continue;
        op_check(&fused, &c, false);
        op_check_tiles(&fused, &c, false, 1, 1);
    }
    op_report(&fused);
}

static void golden(op_golden *g)
{
    op_golden_operand(g, "x", true);
    op_golden_operand(g, "w", false);
    if (op_golden_has(g, "b"))
        op_golden_operand(g, "b", false);
    op_golden_results(g);
    op_check(&test, &g->c, false);
}

/* Emulated matrix units, whose kernels add the bias and round the weight. */
static void test_matrix_units(void **state)
{
    static const int64_t sizes[][3] = {{19, 72, 40}, {5, 35, 21}};
    (void)state;
    /* Oclgrind 21.10 crashes in its own check of uninitialised values while it runs these kernels.
     */
    if (clt_test_oclgrind())
        skip();
    for (int i = 0; i < 2; i++) {
        const op_case c = {"matrix units",
                           3,
                           {{CLT_F32, 2, {CLT_BATCH, sizes[i][1]}, OP_RANDOM, true, NULL},
                            {CLT_F32, 2, {sizes[i][2], sizes[i][1]}, OP_RANDOM, true, NULL},
                            {CLT_F32, 1, {sizes[i][2]}, OP_RANDOM, true, NULL}},
                           sizes[i][0],
                           .attr = NULL,
                           .sharp = true};
        op_check_matrix(&test, &c,
                        "linear=gemm_matrix,linear_weight_grad=gemm_matrix,matmul=gemm_matrix", 3,
                        0);
    }
}

static void test_goldens(void **state)
{
    (void)state;
    op_goldens("linear", golden);
}

static void test_errors(void **state)
{
    clt_graph *g;
    (void)state;
    OP_OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 2, (int64_t[]){CLT_BATCH, 4});
    clt_value *w = clt_input(g, "w", CLT_F32, 2, (int64_t[]){3, 5});
    assert_null(clt_linear(x, w, NULL));
    assert_int_equal(clt_graph_status(g), CLT_SHAPE);
    assert_non_null(strstr(clt_error_message(), "f32[3x5]"));
    assert_non_null(strstr(clt_error_message(), "f32[Bx4]"));
    assert_null(clt_linear(NULL, w, NULL));
    clt_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),        cmocka_unit_test(test_rank3),
        cmocka_unit_test(test_batch_blocked), cmocka_unit_test(test_activations),
        cmocka_unit_test(test_slices),        cmocka_unit_test(test_matrix_units),
        cmocka_unit_test(test_goldens),       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
