/* Batch norm's running statistics: the values that training assigns for any number of images, that
 * evaluation uses them, and which calls the builder refuses. */
#include "ops/harness/harness.h"
#include <cltrain/ops/norm.h>

enum { BATCH = 9, CHANNELS = 3, PIXELS = 10, MOST = BATCH * CHANNELS * PIXELS };

typedef struct net {
    op_bound b;
    cl_mem results; /* results of the loss */
    clt_value *states[3];
    float x[MOST], before[2][CHANNELS];
    int tracked;
} net;

static clt_value *state_of(clt_graph *g, const char *name)
{
    return clt_state(g, name, CLT_F32, 1, (int64_t[]){CHANNELS}, (clt_init){0});
}

static void write_state(net *t, const clt_run *run, int i, const void *numbers, size_t bytes)
{
    clt_view view;
    const clt_value *state = clt_graph_find(t->b.plan->graph, t->states[i]->name);
    OP_OK(clt_exec_locate(t->b.exec, run, state, &view));
    assert_int_equal(clEnqueueWriteBuffer(op_devices[0]->queue, view.buffer, CL_TRUE,
                                          (size_t)view.offset, bytes, numbers, 0, NULL, NULL),
                     CL_SUCCESS);
}

static void read_value(net *t, const clt_run *run, const clt_value *value, void *to, size_t bytes)
{
    clt_view view;
    OP_OK(clt_exec_locate(t->b.exec, run, value, &view));
    assert_int_equal(clEnqueueReadBuffer(op_devices[0]->queue, view.buffer, CL_TRUE,
                                         (size_t)view.offset, bytes, to, 0, NULL, NULL),
                     CL_SUCCESS);
}

/* y = norm(x) is an output without a later node. The loss is its sum. */
static void make(net *t, clt_plan_mode mode, bool portable, bool tracked)
{
    static const double numbers[2][CHANNELS] = {{0.5, -2, 100}, {1, 0.25, 4}};
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    clt_batch_norm_options norm;
    clt_plan_options options = clt_plan_options_default(mode, BATCH);
    *t = (net){.tracked = 41};
    clt_graph *g;
    OP_OK(clt_graph_create(&t->b.graph));
    g = t->b.graph;
    clt_value *x = clt_input(g, "x", CLT_F32, 3, (int64_t[]){CLT_BATCH, CHANNELS, PIXELS});
    clt_value *w = clt_parameter(g, "w", 1, (int64_t[]){CHANNELS}, (clt_init){0});
    t->states[0] = state_of(g, "running_mean");
    t->states[1] = state_of(g, "running_var");
    t->states[2] =
        tracked ? clt_state(g, "num_batches_tracked", CLT_I32, 0, NULL, (clt_init){0}) : NULL;
    clt_batch_norm_options_init(&norm);
    norm.momentum = 0.25;
    clt_value *y = clt_batch_norm(x, NULL, w, t->states[0], t->states[1], t->states[2], &norm);
    clt_output(y, "y");
    clt_loss(g, "loss", clt_reduce_sum(y, NULL, 0, 0),
             clt_reduce_sum(clt_add_scalar(clt_scale(x, 0), 1), NULL, 0, 0), 1);
    OP_OK(clt_graph_status(g));
    options.separate = true;
    options.portable = portable;
    OP_OK(clt_buckets_create(g, &sizes, &t->b.buckets));
    OP_OK(clt_plan_create(g, &t->b.buckets, &op_devices[0]->caps, NULL, &options, &t->b.plan));
    OP_OK(clt_replica_create(op_devices[0], &t->b.buckets, &t->b.replica));
    OP_OK(clt_replica_for_training(&t->b.replica, CLT_F32, 0, 0, 1));
    clt_arena_init(&t->b.arena, op_devices[0]);
    op_build_programs(t->b.plan);
    OP_OK(clt_exec_create(op_devices[0], t->b.plan, &t->b.replica, &t->b.arena, &t->b.exec));
    for (int i = 0; i < 2; i++)
        for (int c = 0; c < CHANNELS; c++)
            t->before[i][c] = (float)numbers[i][c];
    uint64_t seed = 5;
    for (int i = 0; i < MOST; i++)
        t->x[i] = (float)(op_uniform(&seed) + i / PIXELS % CHANNELS * 3);
}

/* Runs n images from the given states. */
static void run_images(net *t, int64_t n, clt_view *inputs, clt_run *run)
{
    double x[MOST] = {0}, one = 1;
    for (int i = 0; i < MOST; i++)
        x[i] = (double)t->x[i];
    for (int i = 0; i < t->b.plan->n_inputs; i++)
        inputs[i].buffer = op_upload(t->b.plan->inputs[i],
                                     !strcmp(t->b.plan->inputs[i]->name, "x") ? x : &one, n, 0);
    OP_OK(clt_device_buffer_create(op_devices[0], 64, CL_MEM_READ_WRITE, "results", &t->results));
    *run = (clt_run){.count = n,
                     .inputs = inputs,
                     .gradients = t->b.replica.gradients,
                     .results = {t->results, 0}};
    op_poison(&t->b);
    const float zeros[CHANNELS] = {0};
    clt_view view;
    OP_OK(clt_exec_locate(t->b.exec, run, clt_graph_find(t->b.plan->graph, "w"), &view));
    assert_int_equal(clEnqueueWriteBuffer(op_devices[0]->queue, view.buffer, CL_TRUE,
                                          (size_t)view.offset, sizeof zeros, zeros, 0, NULL, NULL),
                     CL_SUCCESS);
    for (int i = 0; i < 2; i++)
        write_state(t, run, i, t->before[i], sizeof t->before[i]);
    if (t->states[2])
        write_state(t, run, 2, &t->tracked, sizeof t->tracked);
    OP_OK(clt_exec_enqueue(t->b.exec, run, 0, t->b.plan->n_nodes, 0, NULL));
    OP_OK(clt_device_finish(op_devices[0]));
    op_record_compared(t->b.plan);
}

static void forget_images(net *t, clt_view *inputs)
{
    for (int i = 0; i < t->b.plan->n_inputs; i++)
        clt_release_buffer(inputs[i].buffer);
    clt_release_buffer(t->results);
}

static void statistics(const net *t, int64_t n, int c, double *mean, double *squares)
{
    *mean = *squares = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < n * PIXELS; i++) {
            const double v = (double)t->x[(i / PIXELS * CHANNELS + c) * PIXELS + i % PIXELS];
            *mean += pass ? 0 : v / (double)(n * PIXELS);
            *squares += pass ? (v - *mean) * (v - *mean) : 0;
        }
}

static void check_training(net *t, int64_t n)
{
    clt_view inputs[4] = {{0}};
    clt_run run;
    float after[2][CHANNELS];
    int32_t tracked = 0;
    run_images(t, n, inputs, &run);
    const clt_graph *g = t->b.plan->graph;
    assert_int_equal(g->n_assigns, t->states[2] ? 3 : 2);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(g->assigns[i].state->name, t->states[i]->name);
        read_value(t, &run, g->assigns[i].value, after[i], sizeof after[i]);
    }
    for (int c = 0; c < CHANNELS; c++) {
        double mean, squares;
        statistics(t, n, c, &mean, &squares);
        const double count = (double)(n * PIXELS), m = n ? 0.25 : 0;
        const double want[] = {(1 - m) * (double)t->before[0][c] + m * mean,
                               (1 - m) * (double)t->before[1][c] +
                                   (n ? m * squares / (count - 1) : 0)};
        for (int i = 0; i < 2; i++)
            if (!(fabs((double)after[i][c] - want[i]) <= 1e-6 * (1 + fabs(want[i]))))
                fail_msg("%lld images: %s[%d] becomes %.9g, not %.9g", (long long)n,
                         t->states[i]->name, c, (double)after[i][c], want[i]);
    }
    if (t->states[2]) {
        read_value(t, &run, g->assigns[2].value, &tracked, sizeof tracked);
        assert_int_equal(tracked, t->tracked + 1);
    }
    forget_images(t, inputs);
}

static void test_training(void **state)
{
    (void)state;
    if (clt_test_oclgrind())
        return; /* it reports the states, which the host wrote, as uninitialised */
    for (int portable = 0; portable < 2; portable++) {
        net t;
        make(&t, CLT_PLAN_TRAIN, portable, !portable);
        check_training(&t, BATCH);
        check_training(&t, 1);
        check_training(&t, 0);
        op_unbind(&t.b);
    }
}

static void test_evaluation(void **state)
{
    (void)state;
    if (clt_test_oclgrind())
        return; /* it reports the states, which the host wrote, as uninitialised */
    for (int portable = 0; portable < 2; portable++) {
        net t;
        clt_view inputs[4] = {{0}};
        clt_run run;
        float y[MOST];
        make(&t, CLT_PLAN_EVALUATE, portable, true);
        run_images(&t, BATCH, inputs, &run);
        read_value(&t, &run, clt_graph_find(t.b.plan->graph, "y"), y, sizeof y);
        for (int i = 0; i < MOST; i++) {
            const int c = i / PIXELS % CHANNELS;
            const double want = ((double)t.x[i] - (double)t.before[0][c]) /
                                sqrt((double)t.before[1][c] + CLT_NORM_EPS);
            if (!(fabs((double)y[i] - want) <= 1e-6 * (1 + fabs(want))))
                fail_msg("y[%d] is %.9g, not %.9g", i, (double)y[i], want);
        }
        forget_images(&t, inputs);
        op_unbind(&t.b);
    }
}

/* --- refusals ------------------------------------------------------------------------------- */

typedef struct call {
    clt_value *x, *weight, *bias, *mean, *var, *tracked;
    clt_batch_norm_options options;
} call;

static void refuse(void (*spoil)(clt_graph *g, call *c), clt_status want, const char *part)
{
    clt_graph *g;
    call c;
    OP_OK(clt_graph_create(&g));
    c.x = clt_input(g, "x", CLT_F32, 3, (int64_t[]){CLT_BATCH, CHANNELS, PIXELS});
    c.weight = c.bias = clt_parameter(g, "w", 1, (int64_t[]){CHANNELS}, (clt_init){0});
    c.mean = state_of(g, "mean");
    c.var = state_of(g, "var");
    c.tracked = clt_state(g, "tracked", CLT_I32, 0, NULL, (clt_init){0});
    clt_batch_norm_options_init(&c.options);
    spoil(g, &c);
    assert_null(clt_batch_norm(c.x, c.weight, c.bias, c.mean, c.var, c.tracked, &c.options));
    assert_int_equal(clt_graph_status(g), want);
    if (!strstr(clt_error_message(), part))
        fail_msg("\"%s\" does not name \"%s\"", clt_error_message(), part);
    clt_graph_destroy(g);
}

static void wrong_rank(clt_graph *g, call *c)
{
    c->x = clt_input(g, "v", CLT_F32, 1, (int64_t[]){CLT_BATCH});
}

static void wrong_dtype(clt_graph *g, call *c)
{
    c->x = clt_input(g, "v", CLT_I32, 2, (int64_t[]){CLT_BATCH, CHANNELS});
}

static void wrong_weight(clt_graph *g, call *c)
{
    c->weight = clt_parameter(g, "v", 1, (int64_t[]){CHANNELS + 1}, (clt_init){0});
}

static void wrong_var(clt_graph *g, call *c)
{
    c->var = clt_state(g, "v", CLT_F32, 1, (int64_t[]){1}, (clt_init){0});
}

static void no_state(clt_graph *g, call *c)
{
    (void)g;
    c->mean = c->bias;
}

static void one_alone(clt_graph *g, call *c)
{
    (void)g;
    c->var = NULL;
}

static void wrong_tracked(clt_graph *g, call *c)
{
    (void)g;
    c->tracked = state_of(g, "v");
}

static void wrong_eps(clt_graph *g, call *c)
{
    (void)g;
    c->options.eps = -1;
}

static void wrong_momentum(clt_graph *g, call *c)
{
    (void)g;
    c->options.momentum = 1.5;
}

static void wrong_size(clt_graph *g, call *c)
{
    (void)g;
    c->options.struct_size = 1;
}

static void test_errors(void **state)
{
    (void)state;
    refuse(wrong_rank, CLT_SHAPE, "f32[B] must be [B, C, d..]");
    refuse(wrong_dtype, CLT_INVALID_ARGUMENT, "must be f32");
    refuse(wrong_weight, CLT_SHAPE, "the weight f32[4] does not fit f32[Bx3x10]: f32[3]");
    refuse(wrong_var, CLT_SHAPE, "the running variance f32[1]");
    refuse(no_state, CLT_INVALID_ARGUMENT, "must be states");
    refuse(one_alone, CLT_INVALID_ARGUMENT, "given together");
    refuse(wrong_tracked, CLT_SHAPE, "must be one i32 element, not f32[3]");
    refuse(wrong_eps, CLT_INVALID_ARGUMENT, "batch_norm: eps is -1; it must be");
    refuse(wrong_momentum, CLT_INVALID_ARGUMENT, "momentum is 1.5; it must be a number of 0 to 1");
    refuse(wrong_size, CLT_INVALID_ARGUMENT, "struct_size");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_training),
                                       cmocka_unit_test(test_evaluation),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, op_setup, op_teardown);
}
