/* Low-rank adapters, compared with peft (tests/goldens/make_lora.py). */
#include "train/fit/decoders.h"

#include <jansson.h>

#include <cltrain/lora.h>

enum { LOGITS = TEXTS * LENGTH * WORDS, RANK = 3, TENSORS = 12, MOST = 4096 };

static char scratch[] = "/tmp/cltrain-lora-XXXXXX";

static void fails(clt_status status, clt_status want, const char *says)
{
    assert_int_equal(status, want);
    if (!strstr(clt_error_message(), says))
        fail_msg("'%s' does not have '%s'", clt_error_message(), says);
}

static clt_graph *gpt2(bool adapters)
{
    const clt_model_field fields[] = {{"tokens", CLT_I32, 1, {LENGTH}, WORDS},
                                      {"targets", CLT_I32, 1, {LENGTH}, WORDS}};
    const clt_model_input input = {.fields = fields, .n_fields = 2, .ignore_index = -100};
    clt_lora_options options;
    clt_graph *graph;
    int count = 0;
    ok(clt_graph_create(&graph));
    ok(clt_model_build(GPT2 ",positions=24", &input, graph));
    clt_lora_options_init(&options);
    options.pattern = "*.c_attn|*.c_proj";
    options.rank = RANK;
    options.alpha = 6;
    if (adapters) {
        ok(clt_lora(graph, &options, &count));
        assert_int_equal(count, TENSORS / 2);
    }
    return graph;
}

/* Makes the model with peft's adapters. */
static lab adapted(const char *devices, const char *parallel, int zero)
{
    char path[4096];
    clt_store_options store;
    clt_trainer_options options;
    char *report;
    lab l = lab_on_kept(clt_test_devices(devices));
    l.graph = gpt2(true);
    clt_store_options_init(&store);
    store.parallel = parallel;
    store.zero = zero == 3 ? 3 : 0;
    ok(clt_store_create_with(l.graph, l.devices, l.n, &store, &l.store));
    golden_path("decoder_gpt2.safetensors", path, sizeof path);
    ok(clt_store_load_skipping(l.store, path, CLT_LORA_TENSORS, &report));
    assert_non_null(strstr(report, "28 of 40 tensors loaded"));
    assert_non_null(strstr(report, "missing: h.1.mlp.c_proj.lora_B.weight, F32 [16, 3]"));
    free(report);
    golden_path("lora_gpt2", path, sizeof path);
    ok(clt_lora_load(l.graph, l.store, path));
    clt_trainer_options_init(&options);
    options.batch = TEXTS;
    options.zero = zero;
    options.accumulate = parallel && strstr(parallel, "pp=") ? TEXTS : 1;
    ok(clt_optimizer_defaults(CLT_ADAMW, &options));
    ok(clt_trainer_create(l.graph, l.store, &options, &l.trainer));
    return l;
}

static clt_step_batch batch_of(const clt_tensors *golden, clt_feed feeds[2])
{
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    feeds[0] =
        (clt_feed){"tokens", -1, CLT_HOST(golden_i32(golden, NULL, "tokens", TEXTS * LENGTH))};
    feeds[1] =
        (clt_feed){"targets", -1, CLT_HOST(golden_i32(golden, NULL, "targets", TEXTS * LENGTH))};
    batch.count = TEXTS;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    return batch;
}

/* Computes the logits on a store of the graph. */
static void logits_of(clt_graph *graph, clt_store *store, const clt_tensors *golden, float *logits)
{
    clt_feed feeds[2];
    const clt_fetch fetch = {"logits", -1, CLT_HOST(logits)};
    clt_step_batch batch = batch_of(golden, feeds);
    clt_predictor_options options;
    clt_predictor_options_init(&options);
    options.batch = TEXTS;
    clt_predictor *p = predictor_of(graph, store, &options);
    batch.n_feeds = 1;
    batch.fetches = &fetch;
    batch.n_fetches = 1;
    ok(clt_predictor_run(p, &batch, NULL));
    ok(clt_predictor_wait(p));
    clt_predictor_destroy(p);
}

/* Returns the largest difference, over the largest golden number. */
static double distance(const float *have, const double *want, int count)
{
    double most = 0, largest = 0;
    for (int i = 0; i < count; i++) {
        most = fmax(most, fabs((double)have[i] - want[i]));
        largest = fmax(largest, fabs(want[i]));
    }
    return most / largest;
}

static void gradients_on(const char *devices, const char *parallel, int zero)
{
    clt_tensors *golden = golden_open("lora.safetensors");
    clt_feed feeds[2];
    lab l = adapted(devices, parallel, zero);
    const clt_step_batch batch = batch_of(golden, feeds);
    double worst = 0;
    int found = 0;
    ok(clt_trainer_gradients(l.trainer, &batch));
    for (int i = 0; i < clt_store_count(l.store); i++) {
        const char *name;
        float have[MOST];
        int is_state, rank;
        int64_t dims[CLT_MAX_RANK], count = 1;
        ok(clt_store_describe(l.store, i, &name, NULL, &rank, dims, &is_state));
        for (int d = 0; d < rank; d++)
            count *= dims[d];
        /* In a pipeline one of the devices has it. */
        clt_status status = CLT_UNSUPPORTED;
        for (int d = 0; d < l.n && status != CLT_OK; d++)
            status = clt_trainer_gradient(l.trainer, d, name, have, (size_t)count * sizeof *have);
        if (!strstr(name, ".lora_")) { /* frozen */
            assert_int_not_equal(status, CLT_OK);
            continue;
        }
        const double *want = golden_f64(golden, "grad", name, count);
        double error = 0, norm = 0;
        ok(status);
        for (int64_t k = 0; k < count; k++) {
            error += ((double)have[k] - want[k]) * ((double)have[k] - want[k]);
            norm += want[k] * want[k];
        }
        worst = fmax(worst, sqrt(error / norm));
        found++;
    }
    ok(clt_trainer_apply(l.trainer, NULL));
    clt_step_result result;
    clt_step_result_init(&result);
    ok(clt_trainer_result(l.trainer, 0, &result));
    const double want = golden_f64(golden, NULL, "loss", 1)[0];
    printf("    %s %s zero %d: loss %.9f, peft's %.9f; gradients within %.2g\n", devices,
           parallel ? parallel : "", zero, result.loss, want, worst);
    assert_int_equal(found, TENSORS);
    assert_true(fabs(result.loss - want) <= 1e-5 * want);
    assert_true(worst <= 1e-5);
    lab_close(&l);
    clt_tensors_close(golden);
}

static void gradients_as_peft(void **state)
{
    (void)state;
    gradients_on("pocl", NULL, 0);
    gradients_on("pocl/2", NULL, 0);
    gradients_on("pocl/2", NULL, 1);
    gradients_on("pocl/2", "tp=2", 0);
    gradients_on("pocl/2", "pp=2", 0);
}

/* The optimizer keeps tensors of the adapters alone, and the frozen parameters stay as they are. */
static void only_adapters_are_trained(void **state)
{
    clt_tensors *golden = golden_open("lora.safetensors");
    clt_feed feeds[2];
    float before[WORDS * 16], after[WORDS * 16], slot[RANK * 16], changed[RANK * 16];
    (void)state;
    for (int zero = 0; zero <= 3; zero += zero ? 2 : 1) {
        lab l = adapted(zero ? "pocl/2" : "pocl", NULL, zero);
        const clt_step_batch batch = batch_of(golden, feeds);
        double losses[2];
        ok(clt_store_get(l.store, "wte.weight", before, sizeof before));
        ok(clt_store_get(l.store, "h.0.attn.c_attn.lora_A.weight", slot, sizeof slot));
        for (int step = 0; step < 8; step++) {
            clt_step_result result;
            clt_step_result_init(&result);
            ok(clt_trainer_step(l.trainer, &batch, NULL));
            ok(clt_trainer_result(l.trainer, step, &result));
            losses[step > 0] = result.loss;
        }
        assert_true(losses[1] < losses[0]);
        ok(clt_store_get(l.store, "wte.weight", after, sizeof after));
        assert_memory_equal(before, after, sizeof before);
        ok(clt_store_get(l.store, "h.0.attn.c_attn.lora_A.weight", changed, sizeof changed));
        assert_memory_not_equal(slot, changed, sizeof slot);
        fails(clt_trainer_slot_get(l.trainer, 0, "wte.weight", before, sizeof before),
              CLT_INVALID_ARGUMENT, "wte.weight is frozen");
        ok(clt_trainer_slot_get(l.trainer, 0, "h.0.attn.c_attn.lora_A.weight", slot, sizeof slot));
        lab_close(&l);
    }
    clt_tensors_close(golden);
}

/* Logits are peft's, before and after merging, in the store and in a file of the plain model. */
static void merged_logits(void **state)
{
    clt_tensors *golden = golden_open("lora.safetensors");
    const double *want = golden_f64(golden, NULL, "logits", LOGITS);
    const double *merged = golden_f64(golden, NULL, "merged", LOGITS);
    static float have[LOGITS], again[LOGITS];
    char path[300];
    (void)state;
    lab l = adapted("pocl", NULL, 0);
    logits_of(l.graph, l.store, golden, have);
    const double plain = distance(have, want, LOGITS);
    snprintf(path, sizeof path, "%s/merged.safetensors", scratch);
    ok(clt_lora_save_merged(l.graph, l.store, path));
    logits_of(l.graph, l.store, golden, again);
    assert_memory_equal(have, again, sizeof have); /* the store is as it was */
    ok(clt_lora_merge(l.graph, l.store));
    logits_of(l.graph, l.store, golden, again);
    const double in_store = distance(again, merged, LOGITS);
    lab_close(&l);
    l = lab_on_kept(clt_test_devices("pocl"));
    lab_store(&l, gpt2(false), 9);
    ok(clt_store_load(l.store, path));
    logits_of(l.graph, l.store, golden, have);
    const double in_file = distance(have, merged, LOGITS);
    printf("    logits %.2g of the largest; merged in the store %.2g, in the file %.2g\n", plain,
           in_store, in_file);
    assert_true(plain <= 1e-5 && in_store <= 1e-5 && in_file <= 1e-5);
    lab_close(&l);
    clt_tensors_close(golden);
}

/* clt_lora_save writes what peft wrote. */
static void saved_adapters(void **state)
{
    char path[4096], folder[300];
    clt_tensors *theirs, *ours;
    json_t *their, *our;
    json_error_t error;
    (void)state;
    lab l = adapted("pocl", NULL, 0);
    snprintf(folder, sizeof folder, "%s/adapters", scratch);
    ok(clt_lora_save(l.graph, l.store, folder));
    golden_path("lora_gpt2/adapter_model.safetensors", path, sizeof path);
    ok(clt_tensors_open(path, &theirs));
    golden_path("lora_gpt2/adapter_config.json", path, sizeof path);
    their = json_load_file(path, 0, &error);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    ok(clt_tensors_open(path, &ours));
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    our = json_load_file(path, 0, &error);
    assert_int_equal(clt_tensors_count(ours), clt_tensors_count(theirs));
    for (int i = 0; i < clt_tensors_count(theirs); i++) {
        const clt_tensor *want = clt_tensors_at(theirs, i), *have;
        ok(clt_tensors_find(ours, want->name, &have));
        assert_int_equal(clt_tensor_bytes(have), clt_tensor_bytes(want));
        assert_memory_equal(have->dims, want->dims, (size_t)want->rank * sizeof *want->dims);
        assert_memory_equal(have->data, want->data, (size_t)clt_tensor_bytes(want));
    }
    static const char *const same[] = {
        "peft_type", "r", "bias", "fan_in_fan_out", "rank_pattern", "alpha_pattern"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        assert_true(json_equal(json_object_get(our, same[i]), json_object_get(their, same[i])));
    assert_true(json_number_value(json_object_get(our, "lora_alpha")) == 6);
    json_decref(their);
    json_decref(our);
    fails(clt_lora_load(l.graph, l.store, "/nowhere"), CLT_NOT_FOUND, "/nowhere");
    golden_path("decoder_gpt2.safetensors", path, sizeof path);
    fails(clt_lora_load(l.graph, l.store, path), CLT_MISMATCH, "base_model.model.transformer.h.0");
    clt_tensors_close(theirs);
    clt_tensors_close(ours);
    lab_close(&l);
}

/* --- layers whose weights are [out, in] ------------------------------------------------------- */

static clt_graph *plain(int adapters)
{
    const int64_t in[] = {CLT_BATCH, 7}, out[] = {CLT_BATCH, 5};
    const clt_init zero = {0};
    clt_value *sum = NULL, *weight = NULL;
    clt_lora_options options;
    clt_graph *g;
    ok(clt_graph_create(&g));
    clt_value *x = clt_input(g, "x", CLT_F32, 2, in), *t = clt_input(g, "target", CLT_F32, 2, out);
    clt_value *w1 = clt_parameter(g, "fc1.weight", 2, (int64_t[]){9, 7}, zero);
    clt_value *b1 = clt_parameter(g, "fc1.bias", 1, (int64_t[]){9}, zero);
    clt_value *w2 = clt_parameter(g, "fc2.weight", 2, (int64_t[]){5, 9}, zero);
    clt_value *b2 = clt_parameter(g, "fc2.bias", 1, (int64_t[]){5}, zero);
    clt_value *y = clt_linear(clt_tanh(clt_linear(x, w1, b1)), w2, b2);
    clt_output(y, "y");
    clt_mse(y, t, &sum, &weight);
    clt_loss(g, "loss", sum, weight, 1);
    clt_lora_options_init(&options);
    options.rank = 2;
    options.alpha = 5;
    /* Once for both layers, or one by one in either order: the graph is the same. */
    static const char *const patterns[][2] = {{"fc*", NULL}, {"fc2", "fc1.weight"}, {"fc1", "fc2"}};
    for (int k = 0; k < 2 && adapters >= 0 && patterns[adapters][k]; k++) {
        options.pattern = patterns[adapters][k];
        ok(clt_lora(g, &options, NULL));
    }
    return g;
}

static void linear_layers(void **state)
{
    static const char *const names[] = {
        "fc1.weight",        "fc1.bias",          "fc2.weight",        "fc2.bias",
        "fc1.lora_A.weight", "fc1.lora_B.weight", "fc2.lora_A.weight", "fc2.lora_B.weight"};
    clt_tensors *golden = golden_open("lora.safetensors");
    (void)state;
    for (int way = 0; way < 3; way++) {
        clt_trainer_options options;
        lab l = lab_on_kept(clt_test_devices("pocl"));
        lab_store(&l, plain(way), 1);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            const clt_tensor *t = golden_find(golden, "plain", names[i]);
            ok(clt_store_set(l.store, names[i], t->data, (size_t)clt_tensor_bytes(t)));
        }
        clt_trainer_options_init(&options);
        options.batch = 6;
        ok(clt_trainer_create(l.graph, l.store, &options, &l.trainer));
        float y[6 * 5];
        const clt_feed feeds[] = {
            {"x", -1, CLT_HOST(golden_f32(golden, "plain", "x", 42))},
            {"target", -1, CLT_HOST(golden_f32(golden, "plain", "target", 30))}};
        const clt_fetch fetch = {"y", -1, CLT_HOST(y)};
        clt_step_batch batch;
        clt_step_batch_init(&batch);
        batch.count = 6;
        batch.feeds = feeds;
        batch.n_feeds = 2;
        batch.fetches = &fetch;
        batch.n_fetches = 1;
        ok(clt_trainer_forward(l.trainer, &batch));
        ok(clt_trainer_backward(l.trainer));
        ok(clt_trainer_reduce(l.trainer));
        for (size_t i = 4; i < sizeof names / sizeof *names; i++) {
            float have[64];
            const clt_tensor *t = golden_find(golden, "plain.grad", names[i]);
            const int count = (int)golden_count(t);
            ok(clt_trainer_gradient(l.trainer, 0, names[i], have, (size_t)count * sizeof *have));
            assert_true(distance(have, t->data, count) <= 1e-5);
        }
        ok(clt_trainer_apply(l.trainer, NULL));
        ok(clt_trainer_wait(l.trainer));
        assert_true(distance(y, golden_f64(golden, "plain", "y", 30), 30) <= 1e-5);
        lab_close(&l);
    }
    clt_tensors_close(golden);
}

static void bad_options(void **state)
{
    static const struct {
        const char *pattern;
        int rank;
        double alpha, dropout;
        clt_status status;
        const char *says;
    } cases[] = {
        {NULL, 3, 0, 0, CLT_INVALID_ARGUMENT, "need a pattern"},
        {"nothing", 3, 0, 0, CLT_NOT_FOUND, "no linear layer matches \"nothing\""},
        {"*.ln_1", 3, 0, 0, CLT_NOT_FOUND, "no linear layer"},
        {"*.c_attn", 0, 0, 0, CLT_INVALID_ARGUMENT, "rank 0"},
        {"*.c_attn", 17, 0, 0, CLT_INVALID_ARGUMENT, "16 inputs and 48 outputs"},
        {"*.c_attn", 3, -1, 0, CLT_INVALID_ARGUMENT, "alpha -1"},
        {"*.c_attn", 3, 0, 1, CLT_INVALID_ARGUMENT, "dropout 1"},
        {"*", 3, 0, 0, CLT_UNSUPPORTED, "wte.weight has 2 uses"},
    };
    clt_lora_options o;
    clt_lora_options_init(&o);
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clt_graph *g = gpt2(false);
        o.pattern = cases[i].pattern;
        o.rank = cases[i].rank;
        o.alpha = cases[i].alpha;
        o.dropout = cases[i].dropout;
        fails(clt_lora(g, &o, NULL), cases[i].status, cases[i].says);
        o = (clt_lora_options){.struct_size = o.struct_size, .pattern = "*|!wte*", .rank = 2};
        ok(clt_lora(g, &o, NULL)); /* the graph is as it was */
        fails(clt_lora(g, &o, NULL), CLT_INVALID_ARGUMENT, "has adapters already");
        clt_graph_destroy(g);
    }
    lab l = lab_on_kept(clt_test_devices("pocl"));
    lab_store(&l, gpt2(false), 1);
    fails(clt_lora_merge(l.graph, l.store), CLT_INVALID_ARGUMENT, "no adapters");
    fails(clt_lora_save(l.graph, l.store, scratch), CLT_INVALID_ARGUMENT, "no adapters");
    lab_close(&l);
}

static int open_all(void **state)
{
    return !mkdtemp(scratch) || open_runtime(state);
}

static int close_all(void **state)
{
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", scratch);
    return close_runtime(state) || system(command) != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_as_peft), cmocka_unit_test(only_adapters_are_trained),
        cmocka_unit_test(merged_logits),     cmocka_unit_test(saved_adapters),
        cmocka_unit_test(linear_layers),     cmocka_unit_test(bad_options),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
