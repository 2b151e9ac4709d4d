/* dropout: which elements it drops; that its gradient drops the same elements for any split of the
 * batch and in both layouts; and that evaluation has no dropout. */
#include "base/philox.h"
#include "ops/harness/harness.h"

enum { BATCH = 12, CHANNELS = 3, MOST_SIDE = 6, MOST = CHANNELS * MOST_SIDE * MOST_SIDE };

/* How a plan is made, and the images' height and width. Blocks of four numbers fit images of side
 * 6. */
typedef struct kind {
    bool portable, as_gpu;
    int side;
} kind;

static const kind as_device = {.side = 5};

/* (x + w) goes through dropout twice, so that nodes have their own streams. The loss weights the
 * first result by r. Between the two, a convolution by 1 brings images into batch-blocked layout,
 * if the device has it. A third dropout has a tensor of ones without a batch. */
typedef struct net {
    op_bound b;
    double p;
    int sample; /* elements of an image */
} net;

static void make(net *t, double p, clt_plan_mode mode, kind k)
{
    const int64_t dims[] = {CLT_BATCH, CHANNELS, k.side, k.side};
    const int64_t kernel[] = {CHANNELS, CHANNELS, 1, 1};
    float identity[CHANNELS * CHANNELS] = {0}, zeros[MOST] = {0};
    for (int i = 0; i < CHANNELS; i++)
        identity[i * CHANNELS + i] = 1;
    *t = (net){.p = p, .sample = CHANNELS * k.side * k.side};
    OP_OK(clt_graph_create(&t->b.graph));
    clt_graph *g = t->b.graph;
    clt_value *x = clt_input(g, "x", CLT_F32, 4, dims), *r = clt_input(g, "r", CLT_F32, 4, dims);
    clt_value *w = clt_parameter(g, "w", 3, dims + 1, (clt_init){0});
    clt_value *sum = clt_add(x, w);
    clt_value *first = clt_scale(clt_dropout(sum, p), 1);
    clt_value *one = clt_constant(g, CLT_F32, 4, kernel, identity);
    clt_value *second = clt_scale(clt_dropout(clt_conv2d(sum, one, NULL, NULL), p), 1);
    clt_value *weight = clt_reduce_sum(clt_add_scalar(clt_scale(x, 0), 1), NULL, 0, 0);
    clt_output(first, "first");
    clt_output(second, "second");
    clt_output(clt_scale(clt_dropout(clt_add_scalar(w, 1), p), 1), "third");
    clt_loss(g, "loss", clt_reduce_sum(clt_mul(first, r), NULL, 0, 0), weight, 1);
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    clt_plan_options options = clt_plan_options_default(mode, BATCH);
    options.separate = true;
    options.portable = k.portable;
    OP_OK(clt_buckets_create(g, &sizes, &t->b.buckets));
    clt_caps caps = op_devices[0]->caps;
    options.lanes = caps.vector_width < 4 ? 4 : caps.vector_width;
    if (k.as_gpu)
        caps.kind = CLT_KIND_GPU;
    OP_OK(clt_plan_create(g, &t->b.buckets, &caps, NULL, &options, &t->b.plan));
    OP_OK(clt_replica_create(op_devices[0], &t->b.buckets, &t->b.replica));
    OP_OK(clt_replica_for_training(&t->b.replica, CLT_F32, 0, 0, 1));
    /* The host writes the zeros, because Oclgrind takes filled memory for uninitialised. */
    OP_OK(clt_replica_write(&t->b.replica, t->b.replica.values[0], 0,
                            t->sample * (int64_t)sizeof *zeros, zeros));
    clt_arena_init(&t->b.arena, op_devices[0]);
    bool blocked = false;
    for (int i = 0; i < t->b.plan->n_nodes; i++)
        blocked = blocked || (!strcmp(t->b.plan->nodes[i].node->op->name, "dropout") &&
                              t->b.plan->nodes[i].node->out[0]->layout == CLT_LAYOUT_BATCH_BLOCKED);
    assert_int_equal(blocked, mode == CLT_PLAN_TRAIN && !k.portable && clt_caps_is_cpu(&caps));
    op_build_programs(t->b.plan);
    OP_OK(clt_exec_create(op_devices[0], t->b.plan, &t->b.replica, &t->b.arena, &t->b.exec));
}

static double value_of(const char *name, int64_t at)
{
    return name[0] == 'x' ? 1 + (double)(at % 7) : 1 + (double)(at % 5) / 4;
}

static void read_back(const net *t, const clt_run *run, const char *name, float *to)
{
    clt_view view;
    OP_OK(clt_exec_locate(t->b.exec, run, clt_graph_find(t->b.plan->graph, name), &view));
    assert_int_equal(
        clEnqueueReadBuffer(op_devices[0]->queue, view.buffer, CL_TRUE, (size_t)view.offset,
                            (size_t)(run->count * t->sample) * sizeof *to, to, 0, NULL, NULL),
        CL_SUCCESS);
}

static bool kept(double p, uint64_t seed, uint32_t stream, uint32_t step, int64_t number)
{
    uint32_t bits[4];
    clt_random4(seed, CLT_STREAM_DROPOUT, stream, step, (uint64_t)number / 4, bits);
    return clt_philox_unit(bits[number % 4]) >= (float)p;
}

static float dropped(double p, uint64_t seed, uint32_t stream, uint32_t step, int64_t number,
                     double x)
{
    return kept(p, seed, stream, step, number) ? (float)x * (float)(1 / (1 - p)) : 0;
}

/* The third dropout's result is a tensor, independent of the number of images. */
static void check_third(const net *t, const clt_run *run, uint64_t seed, uint32_t step)
{
    float got[MOST];
    clt_view view;
    OP_OK(clt_exec_locate(t->b.exec, run, clt_graph_find(t->b.plan->graph, "third"), &view));
    assert_int_equal(clEnqueueReadBuffer(op_devices[0]->queue, view.buffer, CL_TRUE,
                                         (size_t)view.offset, (size_t)t->sample * sizeof *got, got,
                                         0, NULL, NULL),
                     CL_SUCCESS);
    for (int i = 0; i < t->sample; i++) {
        const float want = t->p == 1 ? 0 : dropped(t->p, seed, 2, step, i, 1);
        if (!(fabsf(got[i] - want) <= 1e-6f * want))
            fail_msg("p %g: element %d of a tensor is %g, not %g", t->p, i, (double)got[i],
                     (double)want);
    }
}

/* Runs images [sample, sample + count) of the global batch. */
static void run_images(net *t, int64_t sample, int64_t count, uint64_t seed, uint32_t step,
                       float *first, float *second, float *gradient)
{
    clt_view inputs[4] = {{0}};
    cl_mem results;
    double numbers[BATCH * MOST];
    for (int i = 0; i < t->b.plan->n_inputs; i++) {
        const clt_value *v = t->b.plan->inputs[i];
        for (int64_t k = 0; k < count * t->sample; k++)
            numbers[k] = v->type.rank == 4 ? value_of(v->name, sample * t->sample + k) : 1;
        if (v->type.rank != 4)
            numbers[0] = 1;
        inputs[i].buffer = op_upload(v, numbers, count, 0);
    }
    OP_OK(clt_device_buffer_create(op_devices[0], 64, CL_MEM_READ_WRITE, "results", &results));
    const clt_run run = {.count = count,
                         .seed = seed,
                         .step = step,
                         .sample = sample,
                         .inputs = inputs,
                         .gradients = t->b.replica.gradients,
                         .results = {results, 0}};
    op_poison(&t->b);
    OP_OK(clt_exec_enqueue(t->b.exec, &run, 0, t->b.plan->n_nodes, 0, NULL));
    OP_OK(clt_device_finish(op_devices[0]));
    read_back(t, &run, "first", first);
    read_back(t, &run, "second", second);
    if (t->b.plan->options.mode == CLT_PLAN_TRAIN)
        check_third(t, &run, seed, step);
    if (gradient)
        OP_OK(clt_replica_read(&t->b.replica, t->b.replica.gradients[0], 0,
                               t->sample * (int64_t)sizeof *gradient, gradient));
    for (int i = 0; i < t->b.plan->n_inputs; i++)
        clt_release_buffer(inputs[i].buffer);
    clt_release_buffer(results);
    op_record_compared(t->b.plan);
}

static void check_numbers(double p, kind k)
{
    enum { FIRST = 1001 }; /* within a block if images have an odd side */
    const uint64_t seed = 0x123456789ABCDEFu;
    float first[BATCH * MOST], second[BATCH * MOST], gradient[MOST];
    double want[MOST] = {0};
    int zeros = 0;
    net t;
    make(&t, p, CLT_PLAN_TRAIN, k);
    const int all = BATCH * t.sample;
    run_images(&t, FIRST, BATCH, seed, 3, first, second, gradient);
    for (int64_t i = 0; i < all; i++) {
        const int64_t number = (int64_t)FIRST * t.sample + i;
        const double x = value_of("x", number), r = value_of("r", number);
        for (uint32_t stream = 0; stream < 2; stream++) {
            const float y = p == 1 ? 0 : dropped(p, seed, stream, 3, number, x);
            const float got = stream ? second[i] : first[i];
            if (!(fabsf(got - y) <= 1e-6f * fabsf(y)))
                fail_msg("p %g, stream %u: element %lld is %g, not %g", p, stream, (long long)i,
                         (double)got, (double)y);
        }
        zeros += first[i] == 0;
        if (p < 1 && kept(p, seed, 0, 3, number))
            want[i % t.sample] += r / (1 - p);
    }
    if (fabs(zeros - p * all) > 5 * sqrt(p * (1 - p) * all))
        fail_msg("p %g dropped %d of %d", p, zeros, all);
    for (int i = 0; i < t.sample; i++)
        if (!(fabs((double)gradient[i] - want[i]) <= 1e-5 * (1 + want[i])))
            fail_msg("p %g: the gradient of w[%d] is %g, not %g", p, i, (double)gradient[i],
                     want[i]);
    op_unbind(&t.b);
}

static void test_numbers(void **state)
{
    static const double probabilities[] = {0.3, 0, 1};
    (void)state;
    for (int i = 0; i < 3; i++)
        check_numbers(probabilities[i], as_device);
}

static void test_as_gpu(void **state)
{
    (void)state;
    for (int side = 5; side <= MOST_SIDE; side++)
        check_numbers(0.3, (kind){.as_gpu = true, .side = side});
}

/* Two parts of the batch, and the plan for unknown devices, give the same values. */
static void test_splits(void **state)
{
    float whole[2][BATCH * MOST] = {{0}}, part[2][BATCH * MOST] = {{0}};
    (void)state;
    net t;
    make(&t, 0.5, CLT_PLAN_TRAIN, as_device);
    run_images(&t, 0, BATCH, 7, 1, whole[0], whole[1], NULL);
    run_images(&t, 0, 5, 7, 1, part[0], part[1], NULL);
    run_images(&t, 5, 7, 7, 1, part[0] + 5 * t.sample, part[1] + 5 * t.sample, NULL);
    assert_memory_equal(whole, part, sizeof whole);
    run_images(&t, 0, BATCH, 7, 2, part[0], part[1], NULL);
    assert_memory_not_equal(whole, part, sizeof whole);
    op_unbind(&t.b);
    make(&t, 0.5, CLT_PLAN_TRAIN, (kind){.portable = true, .side = as_device.side});
    run_images(&t, 0, 5, 7, 1, part[0], part[1], NULL);
    run_images(&t, 5, 7, 7, 1, part[0] + 5 * t.sample, part[1] + 5 * t.sample, NULL);
    assert_memory_equal(whole, part, sizeof whole);
    op_unbind(&t.b);
}

static void test_evaluation(void **state)
{
    float first[BATCH * MOST], second[BATCH * MOST];
    (void)state;
    net t;
    make(&t, 0.5, CLT_PLAN_EVALUATE, as_device);
    run_images(&t, 0, BATCH, 7, 1, first, second, NULL);
    for (int64_t i = 0; i < (int64_t)BATCH * t.sample; i++) {
        assert_true((double)first[i] == value_of("x", i));
        assert_true((double)second[i] == value_of("x", i));
    }
    op_unbind(&t.b);
}

/* Outputs that outside training equal an input, another output, or each other. */
static void test_outputs(void **state)
{
    const int64_t dims[] = {CLT_BATCH, 32};
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    const clt_plan_options options = clt_plan_options_default(CLT_PLAN_PREDICT, 2);
    clt_graph *g;
    clt_plan *plan;
    clt_buckets buckets;
    (void)state;
    OP_OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 2, dims), *h = clt_scale(x, 2);
    clt_output(clt_dropout(x, 0.5), "of_input");
    clt_output(clt_dropout(h, 0.5), "first");
    clt_output(clt_dropout(h, 0.5), "second");
    clt_output(h, "h");
    OP_OK(clt_buckets_create(g, &sizes, &buckets));
    OP_OK(clt_plan_create(g, &buckets, &op_devices[0]->caps, NULL, &options, &plan));
    const clt_value *found[] = {
        clt_graph_find(plan->graph, "of_input"), clt_graph_find(plan->graph, "first"),
        clt_graph_find(plan->graph, "second"), clt_graph_find(plan->graph, "h")};
    for (int i = 0; i < 4; i++) {
        assert_non_null(found[i]);
        assert_true(found[i]->output);
        assert_string_equal(found[i]->producer->op->name, i < 3 ? "copy" : "scale");
        assert_ptr_equal(found[i]->producer->in[0],
                         i && i < 3 ? found[3] : clt_graph_find(plan->graph, "x"));
    }
    clt_plan_destroy(plan);
    clt_buckets_free(&buckets);
    clt_graph_destroy(g);
}

static void test_errors(void **state)
{
    clt_graph *g;
    (void)state;
    OP_OK(clt_graph_create(&g));
    assert_null(clt_dropout(clt_input(g, "x", CLT_F32, 1, (int64_t[]){4}), 1.5));
    assert_non_null(strstr(clt_error_message(), "p is 1.5; it must be a number of 0 to 1"));
    clt_graph_destroy(g);
    OP_OK(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 2, (int64_t[]){CLT_BATCH, 4});
    assert_null(clt_dropout(clt_transpose(x, (int[]){1, 0}), 0.5));
    assert_non_null(strstr(clt_error_message(), "first dimension of f32[4xB]"));
    clt_graph_destroy(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_as_gpu),
        cmocka_unit_test(test_splits),  cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_outputs), cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
