/*
 * The size of gradient buckets. Stores have the layout of the cost model. The choice for made-up
 * links is compared with a simulated queue. Training works with any size.
 */
#include "train/lab.h"

#include "train/planner/bucket.h"
#include "train/planner/frozen.h"
#include "train/planner/measure_devices.h"
#include "train/core/trainer.h"
#include <cltrain/checkpoint.h>

enum { MEGABYTE = 1 << 20, GRADIENTS = 128 };

/* --- layout ---------------------------------------------------------------------------------- */

/* Builds biases of made-up lengths. The last one gets its gradient first. */
static clt_graph *build_chain(const int64_t *lengths, int count)
{
    const int64_t in[] = {CLT_BATCH, 1};
    clt_graph *graph;
    ok(clt_graph_create(&graph));
    clt_value *x = clt_input(graph, "x", CLT_F32, 2, in);
    for (int i = 0; i < count; i++) {
        char weight[16], bias[16];
        snprintf(weight, sizeof weight, "w%d", i);
        snprintf(bias, sizeof bias, "b%d", i);
        x = layer(graph, x, weight, bias, i ? lengths[i - 1] : 1, lengths[i]);
    }
    ok(clt_graph_status(graph));
    return graph;
}

static void test_layout(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1000, 700, 3, 2500, 900, 1, 333, 4096, 50, 1200, 1};
    enum { LAYERS = sizeof lengths / sizeof *lengths };
    clt_graph *graph = build_chain(lengths, LAYERS);
    for (int64_t max = 10 * MEGABYTE; max <= 70 * MEGABYTE; max += 60 * MEGABYTE)
        for (int64_t bytes = MEGABYTE; bytes <= 32 * MEGABYTE; bytes *= 2) {
            const clt_bucket_sizes sizes = {MEGABYTE, bytes, max};
            clt_gradient_cost list[2 * LAYERS];
            clt_bucket_cost laid[2 * LAYERS];
            clt_gradients_cost gradients = {list, 2 * LAYERS, max};
            clt_buckets buckets;
            ok(clt_buckets_create(graph, &sizes, &buckets));
            assert_int_equal(buckets.n_slots, 2 * LAYERS);
            for (int i = 0; i < buckets.n_slots; i++)
                list[i] = (clt_gradient_cost){
                    (double)(buckets.slots[i].bytes + 255 - (buckets.slots[i].bytes + 255) % 256),
                    (i + 1.0) / buckets.n_slots};
            const int n = clt_bucket_lay(&gradients, bytes, laid);
            assert_int_equal(n, buckets.n_buckets);
            for (int b = 0; b < n; b++) {
                assert_true(laid[b].bytes == (double)buckets.buckets[b].bytes);
                assert_true(laid[b].ready == list[buckets.buckets[b].end - 1].ready);
            }
            clt_buckets_free(&buckets);
        }
    clt_graph_destroy(graph);
}

/* --- choice ---------------------------------------------------------------------------------- */

static const double STEP = 0.01;

/* Two devices with 128 gradients of a megabyte, written evenly in the second half of 10 ms. */
typedef struct setup {
    clt_speed speeds[2];
    clt_gradient_cost list[GRADIENTS];
    clt_gradients_cost gradients;
    clt_cost cost;
} setup;

static void make_setup(setup *s, double latency, double byte)
{
    *s = (setup){.gradients = {s->list, GRADIENTS, INT64_MAX}};
    for (int i = 0; i < GRADIENTS; i++)
        s->list[i] = (clt_gradient_cost){MEGABYTE, 0.5 + 0.5 * (i + 1) / GRADIENTS};
    for (int d = 0; d < 2; d++)
        s->speeds[d] = (clt_speed){
            .n_points = 2, .samples = {5, 10}, .seconds = {0.005, STEP}, .solo_fraction = 1};
    s->cost = (clt_cost){.batch = 20,
                         .accumulate = 1,
                         .n_devices = 2,
                         .speeds = s->speeds,
                         .reduction = {latency, byte}};
}

static const double both[] = {10, 10};

/* Simulates a queue of buckets, each of which takes `latency` plus `each` for a gradient. Returns
 * the time that is left after the 10 ms. */
static double follow(int first, int others, double latency, double each)
{
    double free_at = 0;
    for (int begin = 0, size = first; begin < GRADIENTS; begin += size, size = others) {
        if (begin + size > GRADIENTS)
            size = GRADIENTS - begin;
        const double written = STEP * (0.5 + 0.5 * (begin + size) / GRADIENTS);
        free_at = (written > free_at ? written : free_at) + latency + size * each;
    }
    return free_at - STEP;
}

static int64_t choose(const setup *s, clt_bucket_choice *choice)
{
    ok(clt_bucket_choose(&s->cost, &s->gradients, both, 1, NULL, choice));
    assert_true(choice->best >= 0);
    return choice->tries[choice->best].bytes;
}

static void near(double value, double want)
{
    if (!(fabs(value - want) <= 1e-9 + 1e-6 * fabs(want)))
        fail_msg("%.12g, not %.12g", value, want);
}

static void test_choice(void **state)
{
    (void)state;
    /* Latency, seconds of a gradient, and the chosen size. A slow link without latency needs the
     * smallest size, since the last bucket is then smallest too. A fast link with latency needs the
     * largest. 0 stands for the largest of all sizes that are within half a percent of the step. */
    static const struct {
        double latency, each;
        int64_t megabytes;
    } links[] = {{0, 39e-6, 2},      {2e-3, 1e-7, 32}, {0.1e-3, 20e-6, 8},
                 {20e-6, 150e-6, 0}, {0, 1e-3, 0},     {1e-6, 1e-6, 0}};
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        const double latency = links[i].latency, each = links[i].each;
        setup s;
        clt_bucket_choice choice;
        double least = INFINITY;
        int want = 0;
        make_setup(&s, latency, each / 2 / MEGABYTE);
        const int64_t chosen = choose(&s, &choice);
        for (int k = 0; k < CLT_BUCKET_SIZES; k++) {
            const int size = 2 << k;
            near(choice.tries[k].step.exposed, follow(1, size, latency, each));
            assert_int_equal(choice.tries[k].bytes, (int64_t)size * MEGABYTE);
            assert_int_equal(choice.tries[k].n_buckets, 1 + (GRADIENTS - 1 + size - 1) / size);
            least = fmin(least, STEP + follow(1, size, latency, each));
        }
        for (int size = 2; size <= 32; size *= 2)
            if (STEP + follow(1, size, latency, each) <= 1.005 * least)
                want = size;
        assert_true(links[i].megabytes == 0 || links[i].megabytes == want);
        if (chosen != (int64_t)want * MEGABYTE)
            fail_msg("latency %g, %g a megabyte: %lld MB, not %d", latency, each,
                     (long long)(chosen / MEGABYTE), want);
    }
}

/* If nothing can be hidden or all sizes are equal, there are few buckets. The largest of sizes with
 * the same layout is chosen. */
static void test_fewest(void **state)
{
    (void)state;
    setup s;
    clt_bucket_choice choice;
    clt_str text = {0};
    for (int late = 0; late <= 1; late++) {
        make_setup(&s, late ? 1e-4 : 0, 20e-6 / 2 / MEGABYTE);
        s.cost.on_host = true;
        assert_int_equal(choose(&s, &choice), 32 * MEGABYTE);
        make_setup(&s, late ? 1e-9 : 0, 1e-9 / 2 / MEGABYTE);
        assert_int_equal(choose(&s, &choice), 32 * MEGABYTE);
    }
    clt_bucket_describe(&choice, true, &text);
    assert_non_null(strstr(text.text, "in 5 buckets, of 1 MB and then 32 MB, since"));
    clt_str_free(&text);
    s.gradients.count = 1;
    assert_int_equal(choose(&s, &choice), 32 * MEGABYTE);
    clt_bucket_describe(&choice, true, &text);
    assert_string_equal(text.text, "gradients in 1 bucket, of whatever size\n");
    clt_str_free(&text);
}

/* One device alone reduces nothing. With other ranks it reduces through their network. */
static void test_network(void **state)
{
    (void)state;
    static const double one[] = {10, 0};
    const clt_network slow = {60e9, 0}, late = {1e12, 1e-4};
    setup s;
    clt_bucket_choice choice;
    clt_str text = {0};
    make_setup(&s, 0, 0);
    ok(clt_bucket_choose(&s.cost, &s.gradients, one, 1, NULL, &choice));
    assert_int_equal(choice.best, -1);
    clt_bucket_describe(&choice, false, &text);
    assert_null(text.text);
    ok(clt_bucket_choose(&s.cost, &s.gradients, one, 64, &slow, &choice));
    assert_int_equal(choice.tries[choice.best].bytes, 2 * MEGABYTE);
    ok(clt_bucket_choose(&s.cost, &s.gradients, one, 64, &late, &choice));
    assert_int_equal(choice.tries[choice.best].bytes, 32 * MEGABYTE);
}

/* --- training -------------------------------------------------------------------------------- */

enum { IN = 96, HIDDEN = 256, CLASSES = 10, BATCH = 64, NUMBERS = HIDDEN * IN };

static float xs[BATCH * IN];
static int32_t labels[BATCH];

static lab open_lab(int64_t bucket_bytes, double clip_norm)
{
    clt_store_options store;
    clt_trainer_options options;
    lab l = lab_on(clt_test_devices("pocl@1,pocl@1"), NULL);
    l.graph = classifier(IN, HIDDEN, CLASSES);
    clt_store_options_init(&store);
    store.seed = 3;
    store.bucket_bytes = bucket_bytes;
    ok(clt_store_create_with(l.graph, l.devices, l.n, &store, &l.store));
    clt_trainer_options_init(&options);
    options.batch = BATCH;
    options.clip_norm = clip_norm;
    lab_trainer(&l, &options);
    return l;
}

static double train(int64_t bucket_bytes, double clip_norm, int *n_buckets, float *parameters)
{
    static const clt_feed feeds[] = {{"x", -1, CLT_HOST(xs)}, {"label", -1, CLT_HOST(labels)}};
    clt_step_batch batch;
    clt_step_result result;
    clt_step_result_init(&result);
    lab l = open_lab(bucket_bytes, clip_norm);
    clt_step_batch_init(&batch);
    clt_step_result_init(&result);
    batch.count = BATCH;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    for (int i = 0; i < 5; i++)
        ok(clt_trainer_step(l.trainer, &batch, NULL));
    ok(clt_trainer_result(l.trainer, 4, &result));
    ok(clt_store_check(l.store));
    ok(clt_store_get(l.store, "a.weight", parameters, NUMBERS * sizeof *parameters));
    *n_buckets = l.store->layout.n_buckets;
    assert_int_equal(clt_store_bucket_bytes(l.store), bucket_bytes ? bucket_bytes : 25 * MEGABYTE);
    lab_close(&l);
    return result.norm;
}

/* Without clipping every size gives the same bits. With clipping only the same size does. */
static void test_bits(void **state)
{
    (void)state;
    static const int64_t sizes[] = {512, 4096, 32 * MEGABYTE};
    static float want[NUMBERS], got[NUMBERS];
    int few, many;
    const double norm = train(0, 0, &few, want);
    assert_int_equal(few, 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        train(sizes[i], 0, &many, got);
        assert_int_equal(many > 1, i < 2);
        assert_memory_equal(got, want, sizeof want);
    }
    const double clipped = train(4096, 0.1, &many, want);
    assert_true(train(4096, 0.1, &many, got) == clipped && many > 1);
    assert_memory_equal(got, want, sizeof want);
    const double other = train(0, 0.1, &few, got);
    assert_true(norm > 0.1 && fabs(other - clipped) < 1e-4 * clipped);
    for (int i = 0; i < NUMBERS; i++)
        assert_true(fabsf(got[i] - want[i]) <= 1e-5f);
}

static void test_refused(void **state)
{
    (void)state;
    clt_store_options options = {0};
    lab l = lab_on(clt_test_devices("pocl@1"), NULL);
    l.graph = classifier(IN, HIDDEN, CLASSES);
    assert_int_equal(clt_store_create_with(l.graph, l.devices, 1, &options, &l.store),
                     CLT_INVALID_ARGUMENT);
    clt_store_options_init(&options);
    options.bucket_bytes = -1;
    assert_int_equal(clt_store_create_with(l.graph, l.devices, 1, &options, &l.store),
                     CLT_INVALID_ARGUMENT);
    assert_non_null(strstr(clt_error_message(), "-1 bytes"));
    lab_close(&l);
}

/* --- checkpoints ----------------------------------------------------------------------------- */

/* A checkpoint has the bucket size. An older version without it used 25 MB. */
static void test_checkpoint(void **state)
{
    (void)state;
    char dir[] = "/tmp/cltrain-bucket-XXXXXX", command[64];
    int64_t bytes = 7;
    clt_checkpoint *checkpoint;
    assert_non_null(mkdtemp(dir));
    lab l = open_lab(12345, 0);
    ok(clt_trainer_save(l.trainer, dir, (clt_position){0, 0}, BATCH, 0, 1, "test"));
    ok(clt_checkpoint_open(dir, &checkpoint));
    ok(clt_split_frozen_buckets(clt_checkpoint_section(checkpoint, CLT_SECTION_SPLIT)->text, NULL,
                                &bytes));
    assert_int_equal(bytes, 12345);
    clt_checkpoint_close(checkpoint);
    lab_close(&l);
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
    ok(clt_split_frozen_buckets(
        "{\"devices\":[\"x\"],\"weights\":[],\"quantum\":1,\"changes\":[],\"per_device\":0}", NULL,
        &bytes));
    assert_int_equal(bytes, 25 * MEGABYTE);
    assert_int_equal(clt_split_frozen_buckets(NULL, NULL, &bytes), CLT_NOT_FOUND);
    assert_int_equal(clt_split_frozen_buckets("{\"bucket_bytes\":0}", NULL, &bytes), CLT_FORMAT);
    assert_int_equal(clt_split_frozen_buckets("{\"bucket_bytes\":\"1\"}", NULL, &bytes),
                     CLT_FORMAT);
    assert_int_equal(clt_split_frozen_buckets("[not JSON", NULL, &bytes), CLT_FORMAT);
    assert_int_equal(bytes, 25 * MEGABYTE);
}

/* --- measuring ------------------------------------------------------------------------------- */

/* Gradients are written in the order of the layout, each later than the one before. The last is
 * written at the end. */
static void test_measured(void **state)
{
    (void)state;
    clt_trainer_options trainer;
    clt_probe_result result;
    lab l = lab_on(clt_test_devices("pocl@1,pocl@1"), NULL);
    clt_buckets layout;
    const clt_bucket_sizes sizes = clt_bucket_sizes_default();
    /* Enough work that a part of it takes longer than the noise. */
    enum { SAMPLES = 1024, WIDE = 1024 };
    l.graph = classifier(IN, WIDE, CLASSES);
    clt_trainer_options_init(&trainer);
    trainer.batch = l.n * SAMPLES;
    const clt_probe_options options = {.samples = SAMPLES, .seconds = 0.2, .trainer = &trainer};
    ok(clt_buckets_create(l.graph, &sizes, &layout));
    ok(clt_probe_run(l.graph, l.devices, l.n, &options, &result));
    const clt_gradients_cost *g = &result.gradients;
    assert_int_equal(g->count, layout.n_slots);
    assert_true(g->max_bytes > 0 && g->max_bytes <= l.devices[0]->caps.max_alloc_bytes);
    for (int i = 0; i < g->count; i++) {
        assert_true(g->list[i].bytes >= (double)layout.slots[i].bytes);
        assert_true(g->list[i].bytes < (double)layout.slots[i].bytes + 256);
        assert_true(g->list[i].ready > 0 && g->list[i].ready <= 1);
        assert_true(i == 0 || g->list[i].ready >= g->list[i - 1].ready);
    }
    assert_true(g->list[0].ready < g->list[g->count - 1].ready);
    clt_probe_free(&result);
    clt_buckets_free(&layout);
    lab_close(&l);
}

/* Kernels count the elements of a bucket in an int. */
static void test_most_elements(void **state)
{
    const clt_bucket_sizes sizes = {(int64_t)1 << 40, (int64_t)1 << 40, INT64_MAX};
    (void)state;
    for (int large = 0; large < 2; large++) {
        const int64_t dims[] = {65536, large ? 32768 : 20000}, in[] = {CLT_BATCH, 65536};
        clt_buckets layout;
        clt_graph *graph;
        ok(clt_graph_create(&graph));
        clt_value *x = clt_input(graph, "x", CLT_F32, 2, in);
        for (int i = 0; i < 3; i++)
            clt_matmul(
                x, clt_parameter(graph, (const char *[]){"a", "b", "c"}[i], 2, dims, (clt_init){0}),
                0, 0);
        ok(clt_graph_status(graph));
        const clt_status status = clt_buckets_create(graph, &sizes, &layout);
        if (large) {
            assert_int_equal(status, CLT_UNSUPPORTED);
            assert_non_null(strstr(clt_error_message(), "c takes 8589934592 bytes"));
        } else {
            ok(status);
            assert_int_equal(layout.n_buckets, 3);
            clt_buckets_free(&layout);
        }
        clt_graph_destroy(graph);
    }
}

/* --- readers --------------------------------------------------------------------------------- */

/* Builds x [B, 4, 3, 3] with two normalisations and a loss. */
static clt_graph *build_normalised(void)
{
    enum { CHANNELS = 4 };
    const int64_t dims[] = {CLT_BATCH, CHANNELS, 3, 3}, channels = CHANNELS, one[] = {CLT_BATCH};
    const int64_t mix[] = {CHANNELS, CHANNELS, 1, 1};
    const clt_init uniform = {CLT_INIT_UNIFORM, 0.5, 0}, unit = {CLT_INIT_CONSTANT, 1, 0};
    clt_graph *g;
    clt_value *sum, *weight;
    ok(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 4, dims);
    clt_value *label = clt_input(g, "label", CLT_I32, 1, one);
    for (int i = 0; i < 2; i++) {
        char names[3][16];
        for (int k = 0; k < 3; k++)
            snprintf(names[k], sizeof names[k], "%s%d", (const char *[]){"w", "scale", "shift"}[k],
                     i);
        x = clt_conv2d(x, clt_parameter(g, names[0], 4, mix, uniform), NULL, NULL);
        x = clt_relu(clt_batch_norm(x, clt_parameter(g, names[1], 1, &channels, unit),
                                    clt_parameter(g, names[2], 1, &channels, (clt_init){0}), NULL,
                                    NULL, NULL, NULL));
    }
    clt_value *logits = layer(g, clt_flatten(x), "fc.weight", "fc.bias", CHANNELS * 9, CLASSES);
    clt_cross_entropy(logits, label, NULL, &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    ok(clt_graph_status(g));
    return g;
}

static bool touches(const clt_plan *plan, const clt_value *value, int bucket)
{
    return value && plan->places[value->id].kind == CLT_PLACE_GRADIENT &&
           plan->places[value->id].index == bucket;
}

/* A bucket is reduced in place, so no node may read or write its gradients after the reduction
 * began. The gradient of batch norm reads those of its weight and bias. */
static void test_readers(void **state)
{
    (void)state;
    static const int64_t sizes[] = {512, 768, 1024, 1280, MEGABYTE};
    int cuts = 0, readers = 0;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        clt_store_options store;
        clt_trainer_options options;
        lab l = lab_on(clt_test_devices("pocl@1,pocl@1"), NULL);
        l.graph = build_normalised();
        clt_store_options_init(&store);
        store.bucket_bytes = sizes[k];
        ok(clt_store_create_with(l.graph, l.devices, l.n, &store, &l.store));
        clt_trainer_options_init(&options);
        options.batch = 8;
        lab_trainer(&l, &options);
        const clt_plan *plan = l.trainer->training->devices[0].plan;
        for (int s = 0; s < plan->n_segments; s++)
            for (int r = plan->segments[s].first_ready; r < plan->segments[s].end_ready;
                 r++, cuts++)
                for (int i = 0; i < plan->n_nodes; i++) {
                    const clt_node *node = plan->nodes[i].node;
                    bool touched = false;
                    for (int j = 0; j < node->n_in; j++) {
                        touched |= touches(plan, node->in[j], plan->ready[r]);
                        readers += touches(plan, node->in[j], plan->ready[r]);
                    }
                    for (int j = 0; j < node->n_out; j++)
                        touched |= touches(plan, node->out[j], plan->ready[r]);
                    if (touched && i >= plan->segments[s].end)
                        fail_msg(
                            "buckets of %lld bytes: %s (%s) uses bucket %d after its reduction "
                            "has begun behind node %d",
                            (long long)sizes[k], node->name, node->op->name, plan->ready[r],
                            plan->segments[s].end - 1);
                }
        lab_close(&l);
    }
    assert_true(cuts > 5 && readers >= 4 * (int)(sizeof sizes / sizeof *sizes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_fewest),        cmocka_unit_test(test_network),
        cmocka_unit_test(test_bits),          cmocka_unit_test(test_refused),
        cmocka_unit_test(test_checkpoint),    cmocka_unit_test(test_measured),
        cmocka_unit_test(test_most_elements), cmocka_unit_test(test_readers),
    };
    make_samples(xs, labels, BATCH, IN, CLASSES);
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
