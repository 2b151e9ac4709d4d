/*
 * Trainers over space: places compute rows of images, and exchange the rows at their borders.
 * Numbers are small integers, so that steps are exact: parameters have the bits of one device.
 */
#include "train/lab.h"

#include "train/split_networks.h"

enum { MOST_TENSORS = 32, SIZE = 8 };

typedef struct setting {
    build_fn build;
    const char *devices, *parallel; /* NULL: one device */
    int accumulate, steps;          /* 0: 1 */
    clt_optimizer optimizer;
    double clip;
    double tolerance; /* of the largest element of a tensor; 0: bits are equal */
} setting;

typedef struct trained {
    float *data[MOST_TENSORS]; /* the prediction, then parameters and states */
    int64_t count[MOST_TENSORS];
    int n;
    double loss, norm, sums[4], weights[4];
} trained;

/* --- networks -------------------------------------------------------------------------------- */

static clt_value *image(clt_graph *g, int64_t height)
{
    const int64_t dims[] = {CLT_BATCH, 2, height, 4};
    clt_value *x = clt_input(g, "x", CLT_F32, 4, dims);
    ok(clt_shard_value(x, CLT_AXIS_SPACE, 2));
    return x;
}

static clt_value *conv(clt_graph *g, clt_value *x, const char *name, int64_t out, int kernel,
                       int stride)
{
    char bias[32];
    const int64_t dims[] = {out, clt_value_dim(x, 1), kernel, kernel};
    clt_conv2d_options o;
    clt_conv2d_options_init(&o);
    for (int i = 0; i < 2; i++) {
        o.stride[i] = stride;
        o.padding[i] = kernel / 2;
    }
    snprintf(bias, sizeof bias, "%s.bias", name);
    return clt_conv2d(x, clt_parameter(g, name, 4, dims, zero), parameter(g, bias, out, 0), &o);
}

static void distance(clt_graph *g, clt_value *y)
{
    clt_value *sum, *weight;
    clt_output(y, "y");
    ok(clt_graph_status(g));
    clt_mse(y, clt_input(g, "target", CLT_F32, y->type.rank, y->type.dims), &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
}

static void layers(clt_graph *g)
{
    clt_value *h = clt_relu(conv(g, image(g, SIZE), "a", 2, 3, 2));
    distance(g, conv(g, h, "b", 1, 3, 1));
}

/* A small U-Net: pooling, a transposed convolution, a skip. */
static void unet(clt_graph *g)
{
    clt_conv_transpose2d_options o;
    const int64_t dims[] = {2, 2, 2, 2};
    clt_value *a = clt_relu(conv(g, image(g, SIZE), "a", 2, 3, 1));
    clt_value *b = clt_relu(conv(g, clt_max_pool2d(a, NULL), "b", 2, 3, 1));
    clt_conv_transpose2d_options_init(&o);
    o.stride[0] = o.stride[1] = 2;
    b = clt_conv_transpose2d(b, clt_parameter(g, "up", 4, dims, zero), NULL, &o);
    clt_value *both[] = {a, b};
    distance(g, conv(g, clt_concat(both, 2, 1), "c", 1, 1, 1));
}

/* All places have the loss; it counts once. */
static void classes(clt_graph *g)
{
    clt_value *h = clt_relu(conv(g, image(g, SIZE), "a", 4, 3, 1));
    h = clt_flatten(clt_adaptive_avg_pool2d(h, 1, 1));
    distance(g, clt_linear(h, parameter(g, "fc", 4, 4), NULL));
}

/* The last layer is split over tp too. */
static void channels(clt_graph *g)
{
    clt_value *h = clt_relu(conv(g, image(g, SIZE), "a", 4, 3, 2));
    distance(g, conv(g, h, "b", 2, 3, 1));
    shard(g, "a|a.bias", 0);
}

/* Batch norm over all rows, with running statistics; labels of pixels, of which some do not count;
 * the weight of the loss is known after forward only. */
static void segments(clt_graph *g)
{
    const int64_t two = 2, dims[] = {CLT_BATCH, SIZE, 4};
    clt_batch_norm_options o;
    clt_cross_entropy_options c;
    clt_value *sum, *weight;
    clt_batch_norm_options_init(&o);
    o.synchronised = 1;
    clt_value *h = conv(g, image(g, SIZE), "a", 2, 3, 1);
    h = clt_batch_norm(h, parameter(g, "w", 2, 0), parameter(g, "b", 2, 0),
                       clt_state(g, "mean", CLT_F32, 1, &two, zero),
                       clt_state(g, "var", CLT_F32, 1, &two, zero), NULL, &o);
    h = clt_output(conv(g, clt_sigmoid(h), "c", 3, 3, 1), "y");
    clt_value *labels = clt_input(g, "labels", CLT_I32, 3, dims);
    clt_cross_entropy_options_init(&c);
    c.ignore_index = 1;
    ok(clt_cross_entropy(h, labels, &c, &sum, &weight));
    clt_loss(g, "pixels", sum, weight, 1);
    ok(clt_correct(h, labels, 1, 1, &sum, &weight));
    clt_metric(g, "accuracy", sum, weight);
}

/* --- runs ------------------------------------------------------------------------------------ */

static void set_parameters(lab *l)
{
    for (int i = 0; i < clt_store_count(l->store); i++) {
        const char *name;
        clt_type type = {0};
        int is_state;
        ok(clt_store_describe(l->store, i, &name, &type.dtype, &type.rank, type.dims, &is_state));
        float *data = calloc((size_t)elements_of(&type), sizeof *data);
        fill(name, &type, 3, data);
        if (!is_state)
            ok(clt_store_set(l->store, name, data, (size_t)elements_of(&type) * sizeof *data));
        free(data);
    }
}

static void keep(trained *t, int64_t count, float *data)
{
    assert_true(t->n < MOST_TENSORS);
    t->count[t->n] = count;
    t->data[t->n++] = data;
}

static void get_parameters(lab *l, trained *t)
{
    for (int i = 0; i < clt_store_count(l->store); i++) {
        const char *name;
        clt_type type = {0};
        int is_state;
        ok(clt_store_describe(l->store, i, &name, &type.dtype, &type.rank, type.dims, &is_state));
        float *data = calloc((size_t)elements_of(&type), sizeof *data);
        ok(clt_store_get(l->store, name, data, (size_t)elements_of(&type) * sizeof *data));
        keep(t, elements_of(&type), data);
    }
}

/* Steps, then evaluates and predicts. */
static void run_steps(lab *l, int steps, trained *t)
{
    clt_feed feeds[8];
    clt_step_batch batch;
    clt_step_result result;
    const clt_value *y = clt_graph_find(l->graph, "y");
    clt_fetch fetch = {
        .name = "y", .device = -1, .host = calloc((size_t)elements_of(&y->type), sizeof(float))};
    int n = 0;
    for (int i = 0; i < l->graph->n_values; i++) {
        const clt_value *v = l->graph->values[i];
        if (v->kind != CLT_VALUE_INPUT)
            continue;
        void *data = calloc((size_t)elements_of(&v->type), sizeof(float));
        fill(v->name, &v->type, 3, data);
        feeds[n++] = (clt_feed){.name = v->name, .device = -1, .host = data};
    }
    clt_step_batch_init(&batch);
    batch.count = BATCH;
    batch.feeds = feeds;
    batch.n_feeds = n;
    clt_step_result_init(&result);
    for (int s = 0; s < steps; s++)
        ok(clt_trainer_step(l->trainer, &batch, NULL));
    ok(clt_trainer_wait(l->trainer));
    ok(clt_trainer_result(l->trainer, steps - 1, &result));
    t->loss = result.loss;
    t->norm = result.norm;
    ok(clt_trainer_evaluate(l->trainer, &batch, t->sums, t->weights));
    batch.fetches = &fetch;
    batch.n_fetches = 1;
    ok(clt_trainer_predict(l->trainer, &batch, NULL));
    ok(clt_trainer_wait(l->trainer));
    keep(t, elements_of(&y->type), fetch.host);
    for (int i = 0; i < n; i++)
        free((void *)(uintptr_t)feeds[i].host);
}

static trained train(const setting *s, bool split)
{
    trained t = {.n = 0};
    clt_store_options store;
    clt_trainer_options o;
    lab l = lab_on_kept(split ? s->devices : "pocl@1");
    ok(clt_graph_create(&l.graph));
    s->build(l.graph);
    ok(clt_graph_status(l.graph));
    clt_store_options_init(&store);
    store.parallel = split ? s->parallel : NULL;
    ok(clt_store_create_with(l.graph, l.devices, l.n, &store, &l.store));
    set_parameters(&l);
    clt_trainer_options_init(&o);
    o.optimizer = s->optimizer;
    o.batch = BATCH;
    o.lr = 0.25;
    o.momentum = 0.5;
    o.accumulate = s->accumulate ? s->accumulate : 1;
    o.clip_norm = s->clip;
    o.check_every = 1;
    o.poison = 1;
    lab_trainer(&l, &o);
    run_steps(&l, s->steps ? s->steps : 1, &t);
    get_parameters(&l, &t);
    lab_close(&l);
    return t;
}

/* Numbers of evaluations and predictions have more bits than f32 after a step: they are rounded. */
static void close_to(const setting *s, const char *what, double one, double all)
{
    if (!(fabs(one - all) <= (s->tolerance + 1e-6) * fabs(one)))
        fail_msg("%s: %s is %.9g on one device, %.9g", s->parallel, what, one, all);
}

static void check(const setting *s)
{
    trained one = train(s, false), all = train(s, true);
    assert_int_equal(one.n, all.n);
    for (int i = 0; i < one.n; i++) {
        const double tolerance = s->tolerance + (i ? 0 : 1e-6);
        double largest = 0;
        for (int64_t e = 0; e < one.count[i]; e++)
            largest = fmax(largest, fabs((double)one.data[i][e]));
        for (int64_t e = 0; e < one.count[i]; e++)
            if (!(fabs((double)one.data[i][e] - (double)all.data[i][e]) <= tolerance * largest))
                fail_msg("%s, tensor %d[%d]: %.9g on one device, %.9g", s->parallel, i, (int)e,
                         (double)one.data[i][e], (double)all.data[i][e]);
        free(one.data[i]);
        free(all.data[i]);
    }
    close_to(s, "the loss", one.loss, all.loss);
    if (s->clip == 0)
        close_to(s, "the norm", one.norm, all.norm);
    for (int i = 0; i < 4; i++) {
        close_to(s, "an evaluated sum", one.sums[i], all.sums[i]);
        close_to(s, "an evaluated weight", one.weights[i], all.weights[i]);
    }
}

static const char two[] = "pocl@1,pocl@1", three[] = "pocl@1,pocl@1,pocl@1",
                  four[] = "pocl@1,pocl@1,pocl@1,pocl@1";

static void whole_numbers(void **state)
{
    static const setting settings[] = {
        {.build = layers, .devices = two, .parallel = "space=2"},
        {.build = layers, .devices = three, .parallel = "space=3"},
        {.build = layers, .devices = four, .parallel = "dp=2,space=2"},
        {.build = layers, .devices = four, .parallel = "space=2,dp=2"},
        {.build = layers, .devices = two, .parallel = "space=2", .accumulate = 2},
        {.build = layers, .devices = two, .parallel = "space=2", .optimizer = CLT_MOMENTUM},
        {.build = unet, .devices = two, .parallel = "space=2"},
        {.build = unet, .devices = four, .parallel = "dp=2,space=2"},
        {.build = classes, .devices = two, .parallel = "space=2"},
        {.build = classes, .devices = four, .parallel = "dp=2,space=2"},
        {.build = channels, .devices = four, .parallel = "tp=2,space=2"}};
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        check(&settings[i]);
}

static void rounded_numbers(void **state)
{
    static const setting settings[] = {
        {.build = unet, .devices = two, .parallel = "space=2", .clip = 1},
        {.build = unet, .devices = four, .parallel = "dp=2,space=2", .optimizer = CLT_ADAMW},
        {.build = segments, .devices = two, .parallel = "space=2"},
        {.build = segments, .devices = three, .parallel = "space=3", .accumulate = 2},
        {.build = segments, .devices = four, .parallel = "space=2,dp=2"}};
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        setting s = settings[i];
        s.tolerance = 1e-5;
        s.steps = 3;
        check(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole_numbers),
                                       cmocka_unit_test(rounded_numbers)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
