/*
 * Trainers whose parameters are split over tp, or over dp (zero 3): the graph has collectives.
 * Numbers are small integers, so that a few steps are exact: parameters have the bits of one
 * device.
 */
#include "train/split_steps.h"

#include "train/core/trainer.h"

static const char six[] = "pocl@1,pocl@1,pocl@1,pocl@1,pocl@1,pocl@1";

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
        {.build = two_layers,
         .devices = two,
         .parallel = "tp=2",
         .optimizer = CLT_MOMENTUM,
         .steps = 3,
         .apart = 3},
        {.build = two_layers, .devices = two, .zero = 3},
        {.build = two_layers,
         .devices = three,
         .zero = 3,
         .optimizer = CLT_MOMENTUM,
         .steps = 3,
         .apart = 3},
        {.build = two_layers, .devices = two, .zero = 3, .accumulate = 2},
        {.build = two_layers, .devices = two, .zero = 3, .accumulate = 2, .in_flight = 2},
        {.build = two_layers, .devices = six, .zero = 3}, /* two devices have no samples */
        {.build = two_layers, .devices = six, .zero = 3, .accumulate = 2, .in_flight = 2},
        {.build = blocks, .devices = four, .parallel = "dp=4", .zero = 3},
        {.build = blocks, .devices = three, .zero = 3, .accumulate = 4},
        {.build = split_result, .devices = two, .zero = 3}};
    (void)state;
    check_exact(settings, sizeof settings / sizeof *settings);
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
    check_rounded(settings, sizeof settings / sizeof *settings, 1e-4, 0x1p-6);
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
        {.build = transformer,
         .devices = both,
         .zero = 3,
         .limit = 11,
         .lr = 0x1p-6,
         .tolerance = 1e-5},
        {.build = blocks, .devices = both, .parallel = "tp=2,dp=2", .optimizer = CLT_MOMENTUM},
        {.build = transformer,
         .devices = both,
         .parallel = "tp=2,dp=2",
         .limit = 11,
         .lr = 0x1p-6,
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
                           .lr = 0x1p-6,
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

/* The hidden units are an output, of which each place has a part. */
static void with_output(clt_graph *g)
{
    clt_value *h =
        clt_output(clt_relu(clt_linear(input(g, "x", 5), parameter(g, "a", 6, 5), NULL)), "h");
    loss(g, clt_linear(h, parameter(g, "b", 4, 6), NULL), 4);
    shard(g, "a", 0);
    shard(g, "b", 1);
}

static void divided_outputs_are_only_predicted(void **state)
{
    static float zeros[BATCH * 5], h[BATCH * 6];
    const clt_feed feeds[] = {{"x", -1, CLT_HOST(zeros)}, {"target", -1, CLT_HOST(zeros)}};
    const clt_fetch fetch = {"h", -1, CLT_HOST(h)};
    clt_store_options store;
    clt_trainer_options o;
    clt_step_batch batch;
    (void)state;
    lab l = lab_on_kept(two);
    ok(clt_graph_create(&l.graph));
    with_output(l.graph);
    clt_store_options_init(&store);
    store.parallel = "tp=2";
    ok(clt_store_create_with(l.graph, l.devices, l.n, &store, &l.store));
    clt_trainer_options_init(&o);
    o.batch = BATCH;
    lab_trainer(&l, &o);
    clt_step_batch_init(&batch);
    batch.count = BATCH;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    batch.fetches = &fetch;
    batch.n_fetches = 1;
    assert_int_equal(clt_trainer_step(l.trainer, &batch, NULL), CLT_UNSUPPORTED);
    assert_non_null(strstr(clt_error_message(), "output h is divided over devices of the mesh"));
    h[BATCH * 6 - 1] = 1;
    ok(clt_trainer_predict(l.trainer, &batch, NULL));
    ok(clt_trainer_wait(l.trainer));
    assert_true(h[BATCH * 6 - 1] == 0);
    batch.n_fetches = 0;
    ok(clt_trainer_step(l.trainer, &batch, NULL));
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
                                       cmocka_unit_test(divided_outputs_are_only_predicted),
                                       cmocka_unit_test(tp_of_two_kinds_is_refused)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
