/* The parts of a step, gradients from the caller, outputs in the caller's memory, and prediction:
 * on one device and on two. */
#include "train/lab.h"
#include "train/core/trainer.h"
#include <cltrain/opencl.h>

enum { IN = 5, HIDDEN = 19, CLASSES = 3, MOST = 37 };

static float xs[MOST * IN];
static int32_t labels[MOST];

static void fails(clt_status status, clt_status want, const char *text)
{
    assert_int_equal(status, want);
    if (!strstr(clt_error_message(), text))
        fail_msg("message '%s' does not have '%s'", clt_error_message(), text);
}

enum { WITH_LOSS = 1, WITH_GIVEN = 2 };

static clt_graph *build(int kind)
{
    const int64_t in[] = {CLT_BATCH, IN}, one[] = {CLT_BATCH};
    clt_graph *graph;
    ok(clt_graph_create(&graph));
    clt_value *x = clt_input(graph, "x", CLT_F32, 2, in);
    clt_value *h = clt_relu(layer(graph, x, "h.weight", "h.bias", IN, HIDDEN));
    clt_value *logits =
        clt_output(layer(graph, h, "o.weight", "o.bias", HIDDEN, CLASSES), "logits");
    if (kind & WITH_LOSS) {
        clt_value *sum = NULL, *weight = NULL;
        clt_cross_entropy(logits, clt_input(graph, "label", CLT_I32, 1, one), NULL, &sum, &weight);
        clt_loss(graph, "loss", sum, weight, 1);
    }
    if (kind & WITH_GIVEN)
        assert_non_null(clt_output_gradient(logits, "dlogits"));
    ok(clt_graph_status(graph));
    return graph;
}

static lab lab_open(const char *list, int kind, int accumulate)
{
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.batch = MOST;
    options.accumulate = accumulate;
    options.poison = 1;
    lab l = lab_on_kept(list);
    lab_store(&l, build(kind), 11);
    lab_trainer(&l, &options);
    return l;
}

static const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};

static clt_step_batch batch_of(int64_t count, int n_feeds, const clt_fetch *fetches, int n_fetches)
{
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = count;
    batch.feeds = feeds;
    batch.n_feeds = n_feeds;
    batch.fetches = fetches;
    batch.n_fetches = n_fetches;
    return batch;
}

/* Computes the gradient of the mean cross entropy in double. */
static void logits_gradient(const float *logits, int64_t count, float *gradient)
{
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int c = 0; c < CLASSES; c++)
            sum += exp((double)logits[i * CLASSES + c]);
        for (int c = 0; c < CLASSES; c++)
            gradient[i * CLASSES + c] =
                (float)((exp((double)logits[i * CLASSES + c]) / sum - (c == labels[i])) /
                        (double)count);
    }
}

static const struct {
    const char *name;
    int elements;
} parameters[] = {{"h.weight", HIDDEN *IN},
                  {"h.bias", HIDDEN},
                  {"o.weight", CLASSES *HIDDEN},
                  {"o.bias", CLASSES}};

/* Checks that the gradients of each device of b are `factor` times those of a's first device. */
static void same_gradients(lab *a, lab *b, float factor)
{
    float x[HIDDEN * IN], y[HIDDEN * IN];
    for (int p = 0; p < 4; p++)
        for (int d = 0; d < b->n; d++) {
            const size_t bytes = (size_t)parameters[p].elements * sizeof *x;
            ok(clt_trainer_gradient(a->trainer, 0, parameters[p].name, x, bytes));
            ok(clt_trainer_gradient(b->trainer, d, parameters[p].name, y, bytes));
            double size = 0, difference = 0;
            for (int i = 0; i < parameters[p].elements; i++) {
                size += pow((double)(factor * x[i]), 2);
                difference += pow((double)(factor * x[i] - y[i]), 2);
            }
            assert_true(size > 0);
            if (difference > 1e-11 * size)
                fail_msg("%s, device %d: relative difference %g", parameters[p].name, d,
                         sqrt(difference / size));
        }
}

static void given_on(const char *list, int64_t count)
{
    float logits[MOST * CLASSES], gradient[MOST * CLASSES];
    const clt_fetch fetch = {"logits", -1, CLT_HOST(logits)};
    const clt_feed given = {"dlogits", -1, CLT_HOST(gradient)};
    lab loss = lab_open(list, WITH_LOSS, 1), bare = lab_open(list, WITH_GIVEN, 1);
    lab both = lab_open(list, WITH_LOSS | WITH_GIVEN, 1);
    const clt_step_batch with_labels = batch_of(count, 2, NULL, 0);
    const clt_step_batch without = batch_of(count, 1, &fetch, 1);

    ok(clt_trainer_forward(loss.trainer, &with_labels));
    ok(clt_trainer_backward(loss.trainer));
    ok(clt_trainer_reduce(loss.trainer));

    ok(clt_trainer_forward(bare.trainer, &without));
    ok(clt_trainer_wait(bare.trainer));
    logits_gradient(logits, count, gradient);
    fails(clt_trainer_backward(bare.trainer), CLT_INVALID_ARGUMENT, "dlogits");
    ok(clt_trainer_forward(bare.trainer, &without));
    ok(clt_trainer_backward_from(bare.trainer, &given, 1));
    ok(clt_trainer_reduce(bare.trainer));
    same_gradients(&loss, &bare, 1);

    /* The gradient of the loss, plus the same gradient from the caller. */
    ok(clt_trainer_forward(both.trainer, &with_labels));
    ok(clt_trainer_backward_from(both.trainer, &given, 1));
    ok(clt_trainer_reduce(both.trainer));
    same_gradients(&loss, &both, 2);

    ok(clt_trainer_apply(loss.trainer, NULL));
    ok(clt_trainer_apply(bare.trainer, NULL));
    clt_step_result a, b;
    clt_step_result_init(&a);
    clt_step_result_init(&b);
    ok(clt_trainer_result(loss.trainer, 0, &a));
    ok(clt_trainer_result(bare.trainer, 0, &b));
    assert_true(fabs(a.norm - b.norm) < 1e-5 * a.norm);
    assert_true(a.loss > 0 && b.loss == 0 && b.finite);
    ok(clt_store_check(bare.store));

    /* In a whole step the gradient is fed with the batch. */
    const clt_feed whole[] = {feeds[0], given};
    clt_step_batch step = batch_of(count, 2, &fetch, 1);
    step.feeds = whole;
    ok(clt_trainer_forward(bare.trainer, &without));
    ok(clt_trainer_wait(bare.trainer));
    logits_gradient(logits, count, gradient);
    ok(clt_trainer_step(bare.trainer, &step, NULL));
    ok(clt_trainer_step(loss.trainer, &with_labels, NULL));
    same_gradients(&loss, &bare, 1);
    fails(clt_trainer_step(bare.trainer, &without, NULL), CLT_INVALID_ARGUMENT, "dlogits");
    lab_close(&loss);
    lab_close(&bare);
    lab_close(&both);
}

static void test_given_gradient(void **state)
{
    (void)state;
    given_on(clt_test_devices("pocl"), MOST);
    given_on(clt_test_devices("pocl"), 1);
    given_on(clt_test_devices("pocl/2"), MOST);
    given_on(clt_test_devices("pocl/2"), 1);
}

/* The gradient of <given, logits>, compared with differences of predictions. */
static void test_given_by_differences(void **state)
{
    (void)state;
    enum { COUNT = 9 };
    float given[COUNT * CLASSES], logits[2][COUNT * CLASSES], weight[CLASSES * HIDDEN];
    float gradient[CLASSES * HIDDEN];
    lab l = lab_open(clt_test_devices("pocl"), WITH_GIVEN, 1);
    const clt_feed feed = {"dlogits", -1, CLT_HOST(given)};
    const clt_step_batch batch = batch_of(COUNT, 1, NULL, 0);
    for (int i = 0; i < COUNT * CLASSES; i++)
        given[i] = (float)((i * 7) % 11 - 5) / 8;
    ok(clt_trainer_forward(l.trainer, &batch));
    ok(clt_trainer_backward_from(l.trainer, &feed, 1));
    ok(clt_trainer_reduce(l.trainer));
    ok(clt_trainer_gradient(l.trainer, 0, "o.weight", gradient, sizeof gradient));
    ok(clt_store_get(l.store, "o.weight", weight, sizeof weight));
    /* The objective is linear in these weights, so a large step is as good as a small one. */
    for (int w = 0; w < CLASSES * HIDDEN; w += 7) {
        for (int side = 0; side < 2; side++) {
            const clt_fetch fetch = {"logits", -1, CLT_HOST(logits[side])};
            const clt_step_batch predict = batch_of(COUNT, 1, &fetch, 1);
            const float before = weight[w];
            weight[w] += side ? 0.5f : -0.5f;
            ok(clt_store_set(l.store, "o.weight", weight, sizeof weight));
            weight[w] = before;
            ok(clt_trainer_predict(l.trainer, &predict, NULL));
            ok(clt_trainer_wait(l.trainer));
        }
        double difference = 0;
        for (int i = 0; i < COUNT * CLASSES; i++)
            difference += (double)given[i] * ((double)logits[1][i] - (double)logits[0][i]);
        assert_true(fabs(difference - (double)gradient[w]) < 1e-5);
    }
    lab_close(&l);
}

/* Prediction, evaluation and training write the same logits to every place. */
static void outputs_on(const char *list, int64_t count, int accumulate)
{
    float by[4][MOST * CLASSES + 2];
    lab l = lab_open(list, WITH_LOSS, accumulate);
    double sum[1] = {0}, weight[1] = {0};
    memset(by, 0, sizeof by);
    for (int i = 0; i < 4; i++)
        by[i][0] = by[i][count * CLASSES + 1] = 77;
    const clt_fetch fetches[] = {{"logits", -1, {.host = by[0], .offset = 4, .whole = 1}},
                                 {"logits", -1, {.host = by[1], .offset = 4, .whole = 1}},
                                 {"logits", -1, {.host = by[2], .offset = 4, .whole = 1}}};
    clt_step_batch batch = batch_of(count, 1, &fetches[0], 1);
    for (int i = 0; i < 6; i++)
        ok(clt_trainer_predict(l.trainer, &batch, NULL));
    ok(clt_trainer_wait(l.trainer));
    batch = batch_of(count, 2, &fetches[1], 1);
    ok(clt_trainer_evaluate(l.trainer, &batch, sum, weight));
    assert_true(weight[0] == (double)count);
    ok(clt_trainer_wait(l.trainer));
    batch = batch_of(count, 2, &fetches[2], 1);
    ok(clt_trainer_step(l.trainer, &batch, NULL));
    ok(clt_trainer_wait(l.trainer));
    assert_memory_equal(by[0], by[1], sizeof by[0]);
    assert_memory_equal(by[0], by[2], sizeof by[0]);
    double loss = 0;
    for (int64_t i = 0; i < count; i++) {
        const float *row = by[0] + 1 + i * CLASSES;
        double total = 0;
        for (int c = 0; c < CLASSES; c++)
            total += exp((double)row[c]);
        loss += log(total) - (double)row[labels[i]];
    }
    assert_true(count == 0 || fabs(loss - sum[0]) < 1e-5 * loss);
    assert_true(by[0][0] == 77 && by[0][count * CLASSES + 1] == 77);
    lab_close(&l);
}

static void test_outputs(void **state)
{
    (void)state;
    outputs_on(clt_test_devices("pocl"), MOST, 1);
    outputs_on(clt_test_devices("pocl"), MOST, 3);
    outputs_on(clt_test_devices("pocl/2"), MOST, 1);
    outputs_on(clt_test_devices("pocl/2"), 5, 4);
    outputs_on(clt_test_devices("pocl/2"), 1, 1);
    outputs_on(clt_test_devices("pocl"), 0, 1);
}

/* Writes an output to a buffer of the program, after an event that the program triggers. */
static void test_output_in_buffer(void **state)
{
    (void)state;
    enum { COUNT = 13 };
    float by_host[COUNT * CLASSES], by_buffer[COUNT * CLASSES];
    lab l = lab_open(clt_test_devices("pocl"), WITH_LOSS, 2);
    if (l.n > 1) { /* wait lists and events need a single device */
        lab_close(&l);
        skip();
    }
    const cl_context context = clt_device_cl_context(l.devices[0]);
    cl_int error;
    cl_event done;
    const cl_mem buffer =
        clCreateBuffer(context, CL_MEM_READ_WRITE, 64 + sizeof by_buffer, NULL, &error);
    assert_int_equal(error, CL_SUCCESS);
    const cl_event gate = clCreateUserEvent(context, &error);
    assert_int_equal(error, CL_SUCCESS);
    const clt_fetch fetches[] = {{"logits", -1, CLT_HOST(by_host)},
                                 {"logits", 0, CLT_BUFFER(buffer, 64)}};
    clt_step_batch batch = batch_of(COUNT, 1, fetches, 2);
    batch.wait = &gate;
    batch.n_wait = 1;
    ok(clt_trainer_predict(l.trainer, &batch, &done));
    cl_int status = CL_COMPLETE;
    clGetEventInfo(done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
    assert_int_not_equal(status, CL_COMPLETE);
    clSetUserEventStatus(gate, CL_COMPLETE);
    assert_int_equal(clWaitForEvents(1, &done), CL_SUCCESS);
    assert_int_equal(clEnqueueReadBuffer(clt_device_cl_queue(l.devices[0]), buffer, CL_TRUE, 64,
                                         sizeof by_buffer, by_buffer, 0, NULL, NULL),
                     CL_SUCCESS);
    assert_memory_equal(by_host, by_buffer, sizeof by_host);
    clReleaseEvent(gate);
    clReleaseEvent(done);
    clReleaseMemObject(buffer);
    lab_close(&l);
}

static void test_parts_are_the_step(void **state)
{
    (void)state;
    static const char *const lists[] = {"pocl", "pocl/2"};
    for (int i = 0; i < 2; i++) {
        lab a = lab_open(clt_test_devices(lists[i]), WITH_LOSS, 1);
        lab b = lab_open(clt_test_devices(lists[i]), WITH_LOSS, 1);
        float x[HIDDEN * IN], y[HIDDEN * IN];
        for (int step = 0; step < 5; step++) {
            const double lr = 0.3 / (step + 1);
            const clt_step_batch batch = batch_of(MOST - step, 2, NULL, 0);
            ok(clt_trainer_set_lr(a.trainer, lr));
            ok(clt_trainer_set_lr(b.trainer, lr));
            ok(clt_trainer_step(a.trainer, &batch, NULL));
            ok(clt_trainer_forward(b.trainer, &batch));
            ok(clt_trainer_backward(b.trainer));
            ok(clt_trainer_reduce(b.trainer));
            ok(clt_trainer_apply(b.trainer, NULL));
            clt_step_result result;
            clt_step_result_init(&result);
            ok(clt_trainer_result(b.trainer, step, &result));
            assert_true(result.lr == lr);
        }
        ok(clt_store_get(a.store, "h.weight", x, sizeof x));
        ok(clt_store_get(b.store, "h.weight", y, sizeof y));
        assert_memory_equal(x, y, sizeof x);
        lab_close(&a);
        lab_close(&b);
    }
}

/* A step is complete whatever was abandoned before it. Without guard and clipping, several devices
 * update while they reduce. */
static void given_up_on(const char *list, int guard)
{
    const clt_step_batch batch = batch_of(MOST, 2, NULL, 0);
    clt_trainer_options options;
    float want[HIDDEN * IN], got[HIDDEN * IN];
    clt_trainer_options_init(&options);
    options.batch = MOST;
    options.guard = guard;
    for (int parts = 0; parts < 4; parts++) {
        lab l = lab_on_kept(clt_test_devices(list));
        lab_store(&l, build(WITH_LOSS), 11);
        lab_trainer(&l, &options);
        if (parts > 0)
            ok(clt_trainer_forward(l.trainer, &batch));
        if (parts > 1)
            ok(clt_trainer_backward(l.trainer));
        if (parts > 2) {
            ok(clt_trainer_reduce(l.trainer));
            fails(clt_trainer_reduce(l.trainer), CLT_STATE, "reduced already");
        }
        ok(clt_trainer_step(l.trainer, &batch, NULL));
        ok(clt_store_get(l.store, "h.weight", parts ? got : want, sizeof want));
        if (parts)
            assert_memory_equal(want, got, sizeof want);
        fails(clt_trainer_apply(l.trainer, NULL), CLT_STATE, "clt_trainer_reduce");
        lab_close(&l);
    }
}

static void test_parts_given_up(void **state)
{
    (void)state;
    for (int guard = 0; guard < 2; guard++) {
        given_up_on("pocl", guard);
        given_up_on("pocl/2", guard);
    }
}

/* All plans of a trainer use the variants that its options name. */
static void test_variants_of_predictions(void **state)
{
    enum { ROWS = 64, SIZE = 16 };
    const int64_t dims[] = {CLT_BATCH, SIZE};
    static float in[ROWS * SIZE], out[ROWS * SIZE];
    const clt_feed feed = {"x", -1, CLT_HOST(in)};
    const clt_fetch fetch = {"y", -1, CLT_HOST(out)};
    clt_value *sum = NULL, *weight = NULL;
    clt_trainer_options options;
    clt_graph *graph;
    (void)state;
    ok(clt_graph_create(&graph));
    clt_value *x = clt_input(graph, "x", CLT_F32, 2, dims);
    clt_mse(clt_output(layer(graph, x, "a.weight", "a.bias", SIZE, SIZE), "y"), x, &sum, &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    clt_trainer_options_init(&options);
    options.batch = ROWS;
    options.variants = "linear=portable";
    lab l = lab_on_kept(clt_test_devices("pocl"));
    lab_store(&l, graph, 11);
    lab_trainer(&l, &options);
    clt_step_batch batch = batch_of(ROWS, 1, &fetch, 1);
    batch.feeds = &feed;
    ok(clt_trainer_predict(l.trainer, &batch, NULL));
    ok(clt_trainer_wait(l.trainer));
    const clt_session *const sessions[] = {l.trainer->training, l.trainer->evaluation,
                                           l.trainer->prediction};
    for (int s = 0; s < 3; s++) {
        const clt_plan *plan = sessions[s]->devices[0].plan;
        int found = 0;
        for (int i = 0; i < plan->n_nodes; i++)
            if (!strcmp(plan->nodes[i].node->op->name, "linear")) {
                assert_string_equal(plan->nodes[i].variant->name, "portable");
                found++;
            }
        assert_int_equal(found, 1);
    }
    lab_close(&l);
}

static void test_refusals(void **state)
{
    (void)state;
    lab l = lab_open(clt_test_devices("pocl"), WITH_LOSS, 1);
    float room[MOST * CLASSES];
    clt_fetch fetch = {"logit", -1, CLT_HOST(room)};
    clt_step_batch batch = batch_of(3, 2, &fetch, 1);
    fails(clt_trainer_step(l.trainer, &batch, NULL), CLT_NOT_FOUND, "logit");
    fetch = (clt_fetch){"logits", -1, {.whole = 1}};
    fails(clt_trainer_predict(l.trainer, &batch, NULL), CLT_INVALID_ARGUMENT, "neither");
    fails(clt_trainer_backward(l.trainer), CLT_STATE, "forward");
    fails(clt_trainer_apply(l.trainer, NULL), CLT_STATE, "reduce");
    fails(clt_trainer_set_lr(l.trainer, NAN), CLT_INVALID_ARGUMENT, "learning rate");
    fails(clt_trainer_set_lr(l.trainer, -1), CLT_INVALID_ARGUMENT, "learning rate");
    lab_close(&l);

    clt_graph *graph = build(0);
    const int64_t dims[] = {CLT_BATCH, 2};
    assert_null(clt_output_gradient(clt_input(graph, "z", CLT_F32, 2, dims), "dz"));
    fails(clt_graph_status(graph), CLT_INVALID_ARGUMENT, "clt_output");
    clt_graph_destroy(graph);
    graph = build(WITH_GIVEN);
    assert_null(clt_output_gradient(clt_graph_find(graph, "logits"), "again"));
    fails(clt_graph_status(graph), CLT_INVALID_ARGUMENT, "output logits has a gradient already, ");
    clt_graph_destroy(graph);
}

/* Memory that is too small, that is of another context or that is not OpenCL's is refused before
 * anything is enqueued. So are structures of another version of the library. */
static void test_sizes(void **state)
{
    (void)state;
    enum { COUNT = 3, FED = COUNT * IN * 4, FETCHED = COUNT * CLASSES * 4 };
    lab l = lab_open(clt_test_devices("pocl"), WITH_LOSS, 1);
    float room[COUNT * CLASSES];
    clt_fetch fetch = {"logits", -1, {.host = room, .bytes = FETCHED, .whole = 1}};
    clt_feed own[] = {{"x", -1, {.host = xs, .bytes = FED, .whole = 1}},
                      {"label", -1, {.host = labels, .bytes = COUNT * 4, .whole = 1}}};
    clt_step_batch batch = batch_of(COUNT, 2, &fetch, 1);
    clt_step_result result;
    clt_step_result_init(&result);
    cl_mem small, large;
    if (l.n > 1) { /* each device has its own context */
        lab_close(&l);
        skip();
    }
    batch.feeds = own;
    ok(clt_trainer_step(l.trainer, &batch, NULL));
    own[0].array.bytes--;
    fails(clt_trainer_step(l.trainer, &batch, NULL), CLT_INVALID_ARGUMENT,
          "feed x has 59 bytes, and needs 60 for f32 [3, 5] from byte 0 on");
    own[0].array.bytes = FED;
    own[0].array.offset = 4;
    fails(clt_trainer_evaluate(l.trainer, &batch, NULL, NULL), CLT_INVALID_ARGUMENT,
          "feed x has 60 bytes, and needs 60 for f32 [3, 5] from byte 4 on");
    own[0].array.offset = INT64_MAX - 8;
    fails(clt_trainer_step(l.trainer, &batch, NULL), CLT_INVALID_ARGUMENT,
          "feed x has 60 bytes, and needs 60 for f32 [3, 5] from byte 9223372036854775799 on");
    own[0].array.offset = -4;
    fails(clt_trainer_step(l.trainer, &batch, NULL), CLT_INVALID_ARGUMENT, "offset -4");
    own[0].array.offset = 0;
    fetch.array.bytes = FETCHED - 4;
    fails(clt_trainer_predict(l.trainer, &batch, NULL), CLT_INVALID_ARGUMENT, "fetch logits has");
    fetch.array.bytes = 0; /* the size is not checked, the caller is responsible */
    ok(clt_trainer_predict(l.trainer, &batch, NULL));

    ok(clt_device_buffer_create(l.devices[0], FED - 4, CL_MEM_READ_WRITE, "small", &small));
    ok(clt_device_buffer_create(l.devices[0], FED, CL_MEM_READ_WRITE, "large", &large));
    own[0] = (clt_feed){"x", 0, CLT_BUFFER(small, 0)};
    fails(clt_trainer_step(l.trainer, &batch, NULL), CLT_INVALID_ARGUMENT,
          "feed x has a buffer of 56 bytes, and needs 60 from byte 0 on");
    own[0].array.buffer = large;
    own[0].array.offset = 4;
    fails(clt_trainer_step(l.trainer, &batch, NULL), CLT_INVALID_ARGUMENT,
          "feed x has a buffer of 60 bytes, and needs 60 from byte 4 on");
    own[0].array.offset = INT64_MAX - 3;
    fails(clt_trainer_step(l.trainer, &batch, NULL), CLT_INVALID_ARGUMENT,
          "feed x has a buffer of 60 bytes, and needs 60 from byte 9223372036854775804 on");
    own[0].array.buffer = clCreateBuffer(l.devices[0]->context, CL_MEM_WRITE_ONLY, FED, NULL, NULL);
    own[0].array.offset = 0;
    fails(clt_trainer_step(l.trainer, &batch, NULL), CLT_INVALID_ARGUMENT,
          "feed x: its buffer is CL_MEM_WRITE_ONLY, so kernels cannot read it");
    clReleaseMemObject(own[0].array.buffer);
    own[0].array.buffer = large;
    own[0].array.offset = 2;
    fails(clt_trainer_step(l.trainer, &batch, NULL), CLT_INVALID_ARGUMENT,
          "feed x begins at byte 2 of its buffer, which is no multiple of the 4 bytes");
    own[0] = (clt_feed){"x", -1, CLT_HOST(xs)};
    fetch = (clt_fetch){"logits", 0, CLT_BUFFER(small, FED - 8)};
    fails(clt_trainer_step(l.trainer, &batch, NULL), CLT_INVALID_ARGUMENT,
          "fetch logits has a buffer of 56 bytes");
    fetch = (clt_fetch){"logits", 1, CLT_HOST(room)};
    fails(clt_trainer_step(l.trainer, &batch, NULL), CLT_INVALID_ARGUMENT, "is of device 1");
    clt_release_buffer(small);

    /* A buffer of another context. */
    clt_device **others;
    int count;
    ok(clt_devices_open(runtime, clt_test_devices("pocl"), NULL, &others, &count));
    ok(clt_device_buffer_create(others[0], FED, CL_MEM_READ_WRITE, "another's", &small));
    fetch = (clt_fetch){"logits", 0, CLT_BUFFER(small, 0)};
    if (others[0]->context != l.devices[0]->context)
        fails(clt_trainer_step(l.trainer, &batch, NULL), CLT_INVALID_ARGUMENT, "another context");
    clt_release_buffer(small);
    clt_release_buffer(large);
    clt_devices_close(others, count);

    batch.n_fetches = 0;
    batch.struct_size = 0;
    fails(clt_trainer_step(l.trainer, &batch, NULL), CLT_INVALID_ARGUMENT,
          "clt_step_batch: its struct_size is 0");
    clt_step_batch_init(&batch);
    clt_step_result_init(&result);
    result.struct_size += 8;
    fails(clt_trainer_result(l.trainer, 0, &result), CLT_INVALID_ARGUMENT, "clt_step_result_init");
    lab_close(&l);
}

static int set_up(void **state)
{
    make_samples(xs, labels, MOST, IN, CLASSES);
    return open_runtime(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_given_gradient),   cmocka_unit_test(test_given_by_differences),
        cmocka_unit_test(test_outputs),          cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_output_in_buffer), cmocka_unit_test(test_parts_are_the_step),
        cmocka_unit_test(test_parts_given_up),   cmocka_unit_test(test_variants_of_predictions),
        cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, set_up, close_runtime);
}
