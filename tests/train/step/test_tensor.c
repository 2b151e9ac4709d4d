/*
 * Trainers whose parameters are split over tp, or over dp (zero 3): the graph has collectives.
 * Numbers are small integers, so that a few steps are exact: parameters have the bits of one
 * device.
 */
#include "train/lab.h"

#include "train/core/trainer.h"
#include "train/split_networks.h"

enum { MOST_TENSORS = 64 };

typedef struct setting {
    build_fn build;
    const char *devices, *parallel;
    int limit, accumulate, steps; /* 0 accumulations or steps: 1 */
    int zero;
    clt_optimizer optimizer;
    double clip;
    double tolerance;    /* of the largest element of a tensor; 0: bits are equal */
    clt_dtype precision; /* 0: f32 */
} setting;

typedef struct trained {
    char names[MOST_TENSORS][64];
    float *data[MOST_TENSORS];
    int64_t count[MOST_TENSORS];
    int n;
    double loss, norm, evaluated;
} trained;

static void free_trained(trained *t)
{
    for (int i = 0; i < t->n; i++)
        free(t->data[i]);
}

static void set_parameters(lab *l, int limit)
{
    for (int i = 0; i < clt_store_count(l->store); i++) {
        const char *name;
        clt_type type = {0};
        int is_state;
        ok(clt_store_describe(l->store, i, &name, &type.dtype, &type.rank, type.dims, &is_state));
        float *data = calloc((size_t)elements_of(&type), sizeof *data);
        fill(name, &type, limit, data);
        ok(clt_store_set(l->store, name, data, (size_t)elements_of(&type) * sizeof *data));
        free(data);
    }
}

static void get_parameters(lab *l, trained *t)
{
    t->n = clt_store_count(l->store);
    assert_true(t->n <= MOST_TENSORS);
    for (int i = 0; i < t->n; i++) {
        const char *name;
        clt_type type = {0};
        int is_state;
        ok(clt_store_describe(l->store, i, &name, &type.dtype, &type.rank, type.dims, &is_state));
        t->count[i] = elements_of(&type);
        t->data[i] = calloc((size_t)t->count[i], sizeof(float));
        snprintf(t->names[i], sizeof t->names[i], "%s", name);
        ok(clt_store_get(l->store, name, t->data[i], (size_t)t->count[i] * sizeof(float)));
    }
}

static void run_steps(lab *l, int limit, int steps, trained *t)
{
    clt_feed feeds[8];
    int n = 0;
    for (int i = 0; i < l->graph->n_values; i++) {
        const clt_value *v = l->graph->values[i];
        if (v->kind != CLT_VALUE_INPUT)
            continue;
        void *data = calloc((size_t)elements_of(&v->type), sizeof(float));
        fill(v->name, &v->type, limit, data);
        feeds[n++] = (clt_feed){.name = v->name, .device = -1, .host = data};
    }
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = BATCH;
    batch.feeds = feeds;
    batch.n_feeds = n;
    double weight;
    ok(clt_trainer_evaluate(l->trainer, &batch, &t->evaluated, &weight));
    assert_true(weight > 0);
    clt_step_result result;
    clt_step_result_init(&result);
    for (int s = 0; s < steps; s++)
        ok(clt_trainer_step(l->trainer, &batch, NULL));
    ok(clt_trainer_wait(l->trainer));
    ok(clt_trainer_result(l->trainer, steps - 1, &result));
    t->loss = result.loss;
    t->norm = result.norm;
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
    store.zero = split ? s->zero : 0;
    ok(clt_store_create_with(l.graph, l.devices, l.n, &store, &l.store));
    set_parameters(&l, s->limit);
    clt_trainer_options_init(&o);
    o.optimizer = s->optimizer;
    o.batch = BATCH;
    o.lr = s->tolerance > 0 ? 0.015625 : 0.25; /* rounding errors would grow */
    o.momentum = 0.5;
    o.accumulate = s->accumulate ? s->accumulate : 1;
    o.clip_norm = s->clip;
    o.precision = s->precision;
    o.zero = store.zero;
    o.check_every = 1;
    o.poison = 1;
    lab_trainer(&l, &o);
    run_steps(&l, s->limit, s->steps ? s->steps : 1, &t);
    get_parameters(&l, &t);
    lab_close(&l);
    return t;
}

static void compare(const setting *s, const trained *one, const trained *all)
{
    assert_int_equal(one->n, all->n);
    for (int i = 0; i < one->n; i++) {
        double largest = 0;
        assert_string_equal(one->names[i], all->names[i]);
        for (int64_t e = 0; e < one->count[i]; e++)
            largest = fmax(largest, fabs((double)one->data[i][e]));
        for (int64_t e = 0; e < one->count[i]; e++)
            if (!(fabs((double)one->data[i][e] - (double)all->data[i][e]) <=
                  s->tolerance * largest))
                fail_msg("%s, zero %d, %s[%d]: %.9g on one device, %.9g", s->devices, s->zero,
                         one->names[i], (int)e, (double)one->data[i][e], (double)all->data[i][e]);
    }
    assert_true(fabs(one->loss - all->loss) <= s->tolerance * fabs(one->loss));
    assert_true(fabs(one->evaluated - all->evaluated) <= s->tolerance * fabs(one->evaluated));
    if (s->clip > 0)
        return;
    if (!(fabs(one->norm - all->norm) <= (s->tolerance + 1e-12) * one->norm))
        fail_msg("%s: norm %.9g on one device, %.9g", s->parallel, one->norm, all->norm);
}

static void check(const setting *s)
{
    trained one = train(s, false), all = train(s, true);
    compare(s, &one, &all);
    free_trained(&one);
    free_trained(&all);
}

static const char two[] = "pocl@1,pocl@1", three[] = "pocl@1,pocl@1,pocl@1",
                  four[] = "pocl@1,pocl@1,pocl@1,pocl@1",
                  six[] = "pocl@1,pocl@1,pocl@1,pocl@1,pocl@1,pocl@1";

static void whole_numbers(void **state)
{
    static const setting settings[] = {
        {.build = two_layers, .devices = two, .parallel = "tp=2"},
        {.build = two_layers, .devices = three, .parallel = "tp=3"},
        {.build = two_layers, .devices = four, .parallel = "dp=2,tp=2"},
        {.build = blocks, .devices = two, .parallel = "tp=2"},
        {.build = blocks, .devices = four, .parallel = "tp=2,dp=2"},
        {.build = blocks, .devices = two, .parallel = "tp=2", .accumulate = 2},
        {.build = blocks, .devices = four, .parallel = "dp=2,tp=2", .accumulate = 2},
        {.build = split_result, .devices = two, .parallel = "tp=2"},
        {.build = two_layers, .devices = two, .parallel = "tp=2", .optimizer = CLT_MOMENTUM},
        {.build = two_layers, .devices = two, .zero = 3},
        {.build = two_layers, .devices = three, .zero = 3, .optimizer = CLT_MOMENTUM},
        {.build = two_layers, .devices = two, .zero = 3, .accumulate = 2},
        {.build = two_layers, .devices = six, .zero = 3}, /* two devices have no samples */
        {.build = blocks, .devices = four, .parallel = "dp=4", .zero = 3},
        {.build = blocks, .devices = three, .zero = 3, .accumulate = 4},
        {.build = split_result, .devices = two, .zero = 3}};
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        check(&settings[i]);
}

static void rounded_numbers(void **state)
{
    static const setting settings[] = {
        {.build = two_layers, .devices = two, .parallel = "tp=2", .clip = 1},
        {.build = blocks, .devices = four, .parallel = "dp=2,tp=2", .clip = 1},
        {.build = softmax_of_parts, .devices = two, .parallel = "tp=2"},
        {.build = transformer, .devices = two, .parallel = "tp=2", .limit = 11},
        {.build = transformer, .devices = four, .parallel = "tp=2,dp=2", .limit = 11},
        {.build = transformer, .devices = two, .parallel = "tp=2:sequence", .limit = 11},
        {.build = two_layers, .devices = two, .parallel = "tp=2", .optimizer = CLT_ADAMW},
        {.build = blocks, .devices = three, .zero = 3, .clip = 1},
        {.build = softmax_of_parts, .devices = two, .zero = 3, .optimizer = CLT_ADAMW},
        {.build = transformer, .devices = two, .zero = 3, .limit = 11},
        {.build = transformer, .devices = six, .zero = 3, .limit = 11, .clip = 1},
        {.build = transformer,
         .devices = two,
         .parallel = "tp=2",
         .limit = 11,
         .optimizer = CLT_MOMENTUM}};
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        setting s = settings[i];
        s.tolerance = 1e-4;
        s.steps = 3;
        check(&s);
    }
}

/* With a second vendor: its devices alone, and places of dp of two vendors. */
static void other_vendors(void **state)
{
    static const char intel[] = "intel,intel", both[] = "pocl@1,intel,pocl@1,intel";
    static const setting settings[] = {
        {.build = two_layers, .devices = intel, .parallel = "tp=2"},
        {.build = blocks, .devices = intel, .parallel = "tp=2"},
        {.build = split_result, .devices = both, .parallel = "tp=2,dp=2"},
        {.build = two_layers, .devices = intel, .zero = 3},
        {.build = blocks, .devices = both, .zero = 3, .optimizer = CLT_MOMENTUM},
        {.build = transformer, .devices = both, .zero = 3, .limit = 11, .tolerance = 1e-5},
        {.build = blocks, .devices = both, .parallel = "tp=2,dp=2", .optimizer = CLT_MOMENTUM},
        {.build = transformer,
         .devices = both,
         .parallel = "tp=2,dp=2",
         .limit = 11,
         .tolerance = 1e-5}};
    (void)state;
    if (!strstr(clt_test_devices(""), "intel"))
        skip();
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        check(&settings[i]);
}

/* Values are rounded to 16 bits before the places' parts are added up, and again behind. */
static void sixteen_bits(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const setting s = {.build = transformer,
                           .devices = i ? two : four,
                           .parallel = i ? "tp=2" : "dp=2,tp=2",
                           .limit = 11,
                           .precision = CLT_BF16,
                           .tolerance = 3e-2};
        check(&s);
    }
}

/* With L layers of width d, a step exchanges 4 B T d (4 L + 2) + 12 B T bytes: two all-reduces a
 * layer in forward and in backward, those of the embedding and of the last layer's gradient, and
 * three numbers a label for the loss. */
static void gpt_exchanges_what_it_must(void **state)
{
    enum { L = 1, D = 8, T = 4 };
    clt_store_options store;
    clt_trainer_options o;
    (void)state;
    lab l = lab_on_kept(two);
    ok(clt_graph_create(&l.graph));
    transformer(l.graph);
    clt_store_options_init(&store);
    store.parallel = "tp=2";
    ok(clt_store_create_with(l.graph, l.devices, l.n, &store, &l.store));
    clt_trainer_options_init(&o);
    o.batch = BATCH;
    lab_trainer(&l, &o);
    const clt_plan *plan = l.trainer->training->devices[1].plan;
    assert_int_equal(clt_plan_payload(plan, CLT_AXIS_TENSOR, BATCH, NULL),
                     4 * BATCH * T * D * (4 * L + 2) + 12 * BATCH * T);
    lab_close(&l);
}

static void tp_of_two_kinds_is_refused(void **state)
{
    clt_store_options store;
    clt_trainer_options o;
    (void)state;
    if (!strstr(clt_test_devices(""), "intel"))
        skip();
    lab l = lab_on_kept("pocl@1,intel");
    ok(clt_graph_create(&l.graph));
    two_layers(l.graph);
    clt_store_options_init(&store);
    store.parallel = "tp=2";
    ok(clt_store_create_with(l.graph, l.devices, l.n, &store, &l.store));
    clt_trainer_options_init(&o);
    assert_int_equal(clt_trainer_create(l.graph, l.store, &o, &l.trainer), CLT_UNSUPPORTED);
    if (!strstr(clt_error_message(), "devices 0 and 1 of axis tp differ"))
        fail_msg("%s", clt_error_message());
    lab_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole_numbers),
                                       cmocka_unit_test(rounded_numbers),
                                       cmocka_unit_test(other_vendors),
                                       cmocka_unit_test(sixteen_bits),
                                       cmocka_unit_test(gpt_exchanges_what_it_must),
                                       cmocka_unit_test(tp_of_two_kinds_is_refused)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
