/* Predictors and the states that they carry. Text of gpt2 with its cache is compared with
 * transformers' logits and generated tokens (tests/goldens/make_decoder.py), and lstm with its own
 * forward pass. */
#include "train/fit/decoders.h"
#include "train/fit/predictor.h"

/* Reads every position with the cache, one token at a time and after chunks. A new text in a used
 * cache must not see the old text, nor the padding behind its own tokens. */
static void test_cache(void **state)
{
    static const int chunks[] = {1, 2, 7, 19};
    clt_tensors *golden = golden_open("decoder.safetensors");
    const int32_t *tokens = golden_i32(golden, NULL, "tokens", TEXTS * LENGTH);
    const double *want = golden_f64(golden, NULL, "logits", TEXTS * LENGTH * WORDS);
    float logits[TEXTS * WORDS];
    (void)state;
    lab l = lab_gpt2();
    clt_predictor_options kinds[3];
    for (int k = 0; k < 3; k++) {
        clt_predictor_options_init(&kinds[k]);
        kinds[k].poison = 1;
        kinds[k].separate = k == 1;
        kinds[k].portable = k == 2;
    }
    for (int k = 0; k < 3 * 4 && !(clt_test_oclgrind() && k > 1); k++) {
        const int chunk = chunks[k % 4];
        char what[64];
        snprintf(what, sizeof what, "kind %d, chunk %d", k / 4, chunk);
        clt_predictor *one = predictor_of(l.graph, l.store, &kinds[k / 4]);
        clt_graph *longer = decoder(GPT2, TEXTS, chunk);
        clt_predictor *many = predictor_of(longer, l.store, &kinds[k / 4]);
        read_tokens(many, tokens, LENGTH, 0, chunk, chunk > 2 ? 2 : 0, logits);
        compare(logits, want, chunk > 2 ? 2 : 0, what);
        /* Positions behind 2 hold tokens that were read before, or those of another text. */
        for (int at = chunk > 2 ? 3 : 1; at < (clt_test_oclgrind() ? 5 : LENGTH); at++) {
            read_tokens(one, tokens, LENGTH, at, 1, 0, logits);
            compare(logits, want, at, what);
        }
        /* The last chunk reads some tokens again, and reaches the end. */
        read_tokens(many, tokens, LENGTH, LENGTH - chunk, chunk, chunk - 1, logits);
        if (!clt_test_oclgrind())
            compare(logits, want, LENGTH - 1, what);
        clt_predictor_destroy(many);
        clt_predictor_destroy(one);
        clt_graph_destroy(longer);
    }
    lab_close(&l);
    clt_tensors_close(golden);
}

/* Rounds to `bits` significant bits, ties to even. `least` is the exponent of the least normal
 * number by frexp. */
static float rounded(float value, int bits, int least)
{
    int exponent;
    frexp((double)value, &exponent);
    const double step = ldexp(1, (exponent > least ? exponent : least) - bits);
    return (float)(rint((double)value / step) * step);
}

/* Rounds the matrices that decoders have in 16 bits. */
static void round_matrices(clt_store *store, int bits, int least)
{
    const char *name;
    int rank;
    int64_t dims[CLT_MAX_RANK];
    for (int i = 0; clt_store_describe(store, i, &name, NULL, &rank, dims, NULL) == CLT_OK; i++) {
        float data[8192];
        if (rank != 2 || !strcmp(name, "wpe.weight"))
            continue;
        const int64_t count = dims[0] * dims[1];
        assert_true(count <= 8192);
        ok(clt_store_get(store, name, data, (size_t)count * sizeof *data));
        for (int64_t k = 0; k < count; k++)
            data[k] = rounded(data[k], bits, least);
        ok(clt_store_set(store, name, data, (size_t)count * sizeof *data));
    }
}

/* With weights in 16 bits the logits are those of the same rounded numbers in f32. */
static void test_weights_in_16_bits(void **state)
{
    static const struct {
        clt_dtype type;
        int bits, least;
    } types[] = {{CLT_BF16, 8, -125}, {CLT_F16, 11, -13}};
    enum { READ = 6 };
    clt_tensors *golden = golden_open("decoder.safetensors");
    const int32_t *tokens = golden_i32(golden, NULL, "tokens", TEXTS * LENGTH);
    (void)state;
    for (int t = 0; t < 2; t++) {
        float want[TEXTS * WORDS], logits[TEXTS * WORDS];
        lab exact = lab_gpt2(), l = gpt2_weights("pocl", types[t].type);
        round_matrices(exact.store, types[t].bits, types[t].least);
        clt_predictor *in_f32 = predictor_of(exact.graph, exact.store, NULL);
        clt_predictor_options kinds[2];
        for (int k = 0; k < 2; k++) {
            clt_predictor_options_init(&kinds[k]);
            kinds[k].portable = k;
            kinds[k].poison = 1;
        }
        clt_predictor *plain = predictor_of(l.graph, l.store, &kinds[0]);
        clt_predictor *portable = predictor_of(l.graph, l.store, &kinds[1]);
        for (int at = 0; at < READ; at++) {
            read_tokens(in_f32, tokens, LENGTH, at, 1, 0, want);
            for (int k = 0; k < 2; k++) {
                read_tokens(k ? portable : plain, tokens, LENGTH, at, 1, 0, logits);
                for (int i = 0; i < TEXTS * WORDS; i++)
                    if (!(fabsf(logits[i] - want[i]) <= 1e-5f * (1 + fabsf(want[i]))))
                        fail_msg("type %d, kind %d, position %d: logit %d is %g, not %g", t, k, at,
                                 i, (double)logits[i], (double)want[i]);
            }
        }
        clt_predictor_destroy(portable);
        clt_predictor_destroy(plain);
        clt_predictor_destroy(in_f32);
        lab_close(&l);
        lab_close(&exact);
    }
    clt_tensors_close(golden);
}

static void test_greedy(void **state)
{
    (void)state;
    lab l = lab_gpt2();
    clt_predictor *one = predictor_of(l.graph, l.store, NULL);
    generate(-1, one);
    clt_predictor_destroy(one);
    lab_close(&l);
}

/* Computes the logits of the whole text at once, with the trained model on the same store. */
static void forward(const char *model, clt_store *store, const int32_t *tokens, double *logits)
{
    clt_model_field fields[] = {{"tokens", CLT_I32, 1, {LENGTH}, WORDS},
                                {"targets", CLT_I32, 1, {LENGTH}, WORDS}};
    const clt_model_input input = {.fields = fields, .n_fields = 2, .ignore_index = -100};
    float all[TEXTS * LENGTH * WORDS];
    clt_graph *graph;
    ok(clt_graph_create(&graph));
    ok(clt_model_build(model, &input, graph));
    clt_predictor_options options;
    clt_predictor_options_init(&options);
    options.batch = TEXTS;
    clt_predictor *p = predictor_of(graph, store, &options);
    assert_int_equal(clt_predictor_input_count(p), 1);
    assert_int_equal(clt_predictor_output_count(p), 1);
    const clt_feed feed = {"tokens", -1, CLT_HOST(tokens)};
    const clt_fetch fetch = {"logits", -1, CLT_HOST(all)};
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = TEXTS;
    batch.feeds = &feed;
    batch.n_feeds = 1;
    batch.fetches = &fetch;
    batch.n_fetches = 1;
    ok(clt_predictor_run(p, &batch, NULL));
    ok(clt_predictor_wait(p));
    for (int i = 0; i < TEXTS * LENGTH * WORDS; i++)
        logits[i] = all[i];
    clt_predictor_destroy(p);
    clt_graph_destroy(graph);
}

/* The trained model and its decoder give the same logits on one store. */
static void test_same_as_trained(void **state)
{
    clt_tensors *golden = golden_open("decoder.safetensors");
    const int32_t *tokens = golden_i32(golden, NULL, "tokens", TEXTS * LENGTH);
    double *want = malloc(TEXTS * LENGTH * WORDS * sizeof *want);
    float logits[TEXTS * WORDS], zeros[TEXTS * 12] = {0};
    static const char *const states[] = {"lstm.h.0", "lstm.c.0", "lstm.h.1", "lstm.c.1"};
    (void)state;
    assert_non_null(want);
    lab l = lab_gpt2();
    forward(GPT2 ",positions=24", l.store, tokens, want);
    for (int at = 0; at < LENGTH; at++)
        for (int b = 0; b < TEXTS; b++)
            for (int v = 0; v < WORDS; v++)
                logits[b * WORDS + v] = (float)want[(b * LENGTH + at) * WORDS + v];
    compare(logits, golden_f64(golden, NULL, "logits", TEXTS * LENGTH * WORDS), LENGTH - 1,
            "forward");
    lab_close(&l);
    l = lab_on_kept(clt_test_devices("pocl"));
    lab_store(&l, decoder(LSTM, TEXTS, 1), 3);
    forward(LSTM, l.store, tokens, want);
    clt_predictor *one = predictor_of(l.graph, l.store, NULL);
    for (int turn = 0; turn < 2; turn++) {
        for (int at = 0; at < (clt_test_oclgrind() ? 4 : LENGTH); at++) {
            read_tokens(one, tokens, LENGTH, at, 1, 0, logits);
            compare(logits, want, at, "lstm");
        }
        for (size_t i = 0; i < 4; i++)
            ok(clt_store_set(l.store, states[i], zeros, sizeof zeros));
    }
    clt_predictor_destroy(one);
    lab_close(&l);
    free(want);
    clt_tensors_close(golden);
}

/* The weight of the output layer may be there too, under Hugging Face's name, if it equals the
 * embedding. The other names may have the prefix or not. */
static void expect_tied(const lab *l, clt_tensor *tensors, int n, const char *path)
{
    char names[64][64];
    int wte = -1;
    for (int i = 0; i < n; i++)
        wte = strcmp(tensors[i].name, "wte.weight") ? wte : i;
    assert_true(wte >= 0);
    float *other = malloc((size_t)clt_tensor_bytes(&tensors[wte]));
    memcpy(other, tensors[wte].data, (size_t)clt_tensor_bytes(&tensors[wte]));
    other[5] += 1;
    clt_tensors_desc desc;
    clt_tensors_desc_init(&desc);
    desc.tensors = tensors;
    desc.count = n + 1;
    for (int prefixed = 0; prefixed < 2; prefixed++) {
        tensors[n] = tensors[wte];
        tensors[n].name = "lm_head.weight";
        ok(clt_tensors_save(path, &desc));
        ok(clt_store_load(l->store, path));
        tensors[n].data = other;
        ok(clt_tensors_save(path, &desc));
        refused(clt_store_load(l->store, path), CLT_MISMATCH,
                prefixed ? "tensor lm_head.weight differs from transformer.wte.weight, first in "
                           "element 5, but the model has one tensor for both"
                         : "tensor lm_head.weight differs from wte.weight, first in element 5");
        tensors[n].dims[0]--;
        ok(clt_tensors_save(path, &desc));
        refused(clt_store_load(l->store, path), CLT_MISMATCH, "the model has one tensor for both");
        for (int i = 0; i < n; i++) {
            snprintf(names[i], sizeof names[i], "transformer.%s", tensors[i].name);
            tensors[i].name = names[i];
        }
    }
    free(other);
}

/* Masks and the prefix of names may be missing. Any other difference is an error. */
static void test_files(void **state)
{
    enum { MOST = 64 };
    char path[4096], own[] = "/tmp/cltrain-decoder-XXXXXX";
    clt_tensors *file;
    clt_tensor tensors[MOST];
    int n = 0, masks = 0;
    clt_tensors_desc desc;
    (void)state;
    close(mkstemp(own));
    golden_path("decoder_gpt2.safetensors", path, sizeof path);
    ok(clt_tensors_open(path, &file));
    for (int i = 0; i < clt_tensors_count(file); i++) {
        const clt_tensor *t = clt_tensors_at(file, i);
        const char *end = strrchr(t->name, '.') - 5;
        if (!strcmp(end, ".attn.bias") || !strcmp(end, ".attn.masked_bias")) {
            masks++;
            continue;
        }
        tensors[n] = *t;
        tensors[n++].name = t->name + strlen("transformer.");
    }
    assert_int_equal(masks, 4);
    lab l = lab_on_kept(clt_test_devices("pocl"));
    lab_store(&l, decoder(GPT2, TEXTS, 1), 1);
    clt_tensors_desc_init(&desc);
    desc.tensors = tensors;
    for (int extra = 0; extra < 3; extra++) {
        tensors[n] = tensors[0];
        tensors[n].name = extra == 2 ? "h.0.attn.other" : "h.0.attn.masked_bias";
        desc.count = n + (extra > 0);
        ok(clt_tensors_save(own, &desc));
        if (extra < 2)
            ok(clt_store_load(l.store, own));
        else
            refused(clt_store_load(l.store, own), CLT_MISMATCH, "h.0.attn.other");
    }
    desc.count = n - 1;
    ok(clt_tensors_save(own, &desc));
    refused(clt_store_load(l.store, own), CLT_MISMATCH, tensors[n - 1].name);
    expect_tied(&l, tensors, n, own);
    /* Carried states are not saved. */
    clt_tensors *saved;
    ok(clt_store_save(l.store, own));
    ok(clt_tensors_open(own, &saved));
    assert_int_equal(clt_tensors_count(saved), n);
    clt_tensors_close(saved);
    remove(own);
    clt_tensors_close(file);
    lab_close(&l);
}

/* sum[k] += x: the new state is copied behind the run, and the output reads the old one. */
static void test_copied(void **state)
{
    const int64_t three = 3;
    const float x[] = {1, 2, 4};
    float before[3], after[3];
    (void)state;
    lab l = lab_on_kept(clt_test_devices("pocl"));
    clt_graph *g;
    ok(clt_graph_create(&g));
    clt_value *in = clt_input(g, "numbers", CLT_F32, 1, &three);
    clt_value *sum = clt_carried(g, "sum", CLT_F32, 1, &three);
    clt_value *next = clt_add(sum, in);
    ok(clt_assign(g, sum, next));
    clt_output(clt_scale(sum, 2), "before");
    clt_output(next, "after");
    lab_store(&l, g, 1);
    clt_predictor *p = predictor_of(g, l.store, NULL);
    const clt_feed feed = {"numbers", -1, CLT_HOST(x)};
    const clt_fetch fetches[] = {{"before", -1, CLT_HOST(before)}, {"after", -1, CLT_HOST(after)}};
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = 1;
    batch.feeds = &feed;
    batch.n_feeds = 1;
    batch.fetches = fetches;
    batch.n_fetches = 2;
    for (int run = 0; run < 5; run++) {
        ok(clt_predictor_run(p, &batch, NULL));
        ok(clt_predictor_wait(p));
        for (int i = 0; i < 3; i++) {
            assert_float_equal(before[i], 2 * (float)run * x[i], 0);
            assert_float_equal(after[i], (float)(run + 1) * x[i], 0);
        }
    }
    batch.count = 2;
    refused(clt_predictor_run(p, &batch, NULL), CLT_INVALID_ARGUMENT, "made for 0 to 1");
    batch.count = 1;
    batch.n_feeds = 0;
    refused(clt_predictor_run(p, &batch, NULL), CLT_INVALID_ARGUMENT, "no feed for input numbers");
    /* The nearest of all feeds is suggested, not the first that is near. */
    const clt_feed *const own = batch.feeds;
    const clt_feed others[] = {{"nombors", -1, CLT_HOST(x)}, {"number", -1, CLT_HOST(x)}};
    batch.feeds = others;
    batch.n_feeds = 2;
    refused(clt_predictor_run(p, &batch, NULL), CLT_INVALID_ARGUMENT,
            "its feed number has a similar name");
    batch.feeds = own;
    batch.n_feeds = 1;
    const clt_fetch nowhere = {"before", -1, CLT_HOST(NULL)}, unknown = {"afters", -1, CLT_HOST(x)};
    batch.n_fetches = 1;
    batch.fetches = &nowhere;
    refused(clt_predictor_run(p, &batch, NULL), CLT_INVALID_ARGUMENT,
            "fetch before has neither host nor buffer");
    batch.fetches = &unknown;
    refused(clt_predictor_run(p, &batch, NULL), CLT_NOT_FOUND, "no output afters");
    clt_predictor_destroy(p);
    lab_close(&l);
}

static void test_errors(void **state)
{
    clt_predictor *p;
    clt_trainer *t;
    clt_graph *g;
    clt_predictor_options options;
    clt_trainer_options training;
    const clt_decoder odd = {.vocabulary = 5, .positions = 4, .samples = 1, .length = 5};
    const clt_decoder two = {.vocabulary = 5, .positions = 4, .samples = 1, .length = 2};
    (void)state;
    clt_predictor_options_init(&options);
    clt_trainer_options_init(&training);
    ok(clt_graph_create(&g));
    refused(clt_model_decoder("lenet", &two, g), CLT_NOT_FOUND, "does not continue text");
    refused(clt_model_decoder("gpt2", &odd, g), CLT_INVALID_ARGUMENT, "is not possible");
    refused(clt_model_decoder("lstm", &two, g), CLT_INVALID_ARGUMENT, "one token at a time");
    clt_graph_destroy(g);
    lab l = lab_gpt2();
    options.batch = 0;
    refused(clt_predictor_create(l.graph, l.store, &options, &p), CLT_INVALID_ARGUMENT,
            "at least 1");
    options.batch = 1;
    clt_graph *other = decoder("gpt2:layers=2,heads=2,width=8", TEXTS, 1);
    refused(clt_predictor_create(other, l.store, &options, &p), CLT_MISMATCH, "in the store");
    clt_graph_destroy(other);
    clt_output_gradient(clt_graph_find(l.graph, "logits"), "dy");
    refused(clt_trainer_create(l.graph, l.store, &training, &t), CLT_UNSUPPORTED,
            "is carried between the runs of a predictor");
    lab_close(&l);
    l = lab_on_kept(clt_test_devices("pocl"));
    ok(clt_graph_create(&g));
    lab_store(&l, g, 1);
    refused(clt_predictor_create(g, l.store, &options, &p), CLT_INVALID_ARGUMENT, "no output");
    lab_close(&l);
}

/* A predictor says the name, type and shape of its inputs and outputs. Each answer may be left out.
 */
static void test_descriptions(void **state)
{
    const int64_t dims[] = {CLT_BATCH, 2, 3}, index_dims[] = {CLT_BATCH};
    clt_graph *graph;
    const char *name = NULL;
    clt_dtype dtype = CLT_F64;
    int rank = -1;
    int64_t got[CLT_MAX_RANK] = {0};
    (void)state;
    ok(clt_graph_create(&graph));
    clt_output(clt_relu(clt_input(graph, "x", CLT_F32, 3, dims)), "y");
    clt_output(clt_input(graph, "index", CLT_I32, 1, index_dims), "index");
    lab l = lab_on_kept(clt_test_devices("pocl"));
    lab_store(&l, graph, 1);
    clt_predictor *p = predictor_of(graph, l.store, NULL);
    assert_int_equal(clt_predictor_output_count(p), 2);
    ok(clt_predictor_output(p, 0, &name, &dtype, &rank, got));
    assert_string_equal(name, "y");
    assert_int_equal(dtype, CLT_F32);
    assert_int_equal(rank, 3);
    assert_memory_equal(got, dims, sizeof dims);
    ok(clt_predictor_output(p, 1, &name, &dtype, &rank, got));
    assert_string_equal(name, "index");
    assert_int_equal(dtype, CLT_I32);
    assert_int_equal(rank, 1);
    assert_int_equal(got[0], CLT_BATCH);
    assert_int_equal(got[1], 2); /* not written */
    assert_int_equal(clt_predictor_input_count(p), 2);
    for (int i = 0; i < 2; i++) {
        ok(clt_predictor_input(p, i, &name, &dtype, &rank, got));
        const bool is_x = !strcmp(name, "x");
        assert_string_equal(name, is_x ? "x" : "index");
        assert_int_equal(dtype, is_x ? CLT_F32 : CLT_I32);
        assert_int_equal(rank, is_x ? 3 : 1);
        assert_memory_equal(got, is_x ? dims : index_dims, (size_t)rank * sizeof *got);
    }
    ok(clt_predictor_output(p, 0, NULL, NULL, NULL, NULL));
    ok(clt_predictor_input(p, 0, NULL, NULL, NULL, NULL));
    refused(clt_predictor_output(p, 2, &name, NULL, NULL, NULL), CLT_INVALID_ARGUMENT,
            "no output 2, only 2");
    refused(clt_predictor_input(p, -1, &name, NULL, NULL, NULL), CLT_INVALID_ARGUMENT,
            "no input -1, only 2");
    clt_predictor_destroy(p);
    lab_close(&l);
}

/* A run without samples also returns an event. */
static void test_nothing(void **state)
{
    static const float xs[3] = {1, 2, 3};
    const clt_feed feed = {"x", -1, CLT_HOST(xs)};
    const int64_t dims[] = {CLT_BATCH, 3};
    clt_step_batch batch;
    cl_event event = NULL;
    clt_graph *graph;
    (void)state;
    ok(clt_graph_create(&graph));
    clt_output(clt_relu(clt_input(graph, "x", CLT_F32, 2, dims)), "y");
    lab l = lab_on_kept(clt_test_devices("pocl"));
    lab_store(&l, graph, 1);
    clt_predictor *p = predictor_of(graph, l.store, NULL);
    clt_step_batch_init(&batch);
    batch.feeds = &feed;
    batch.n_feeds = 1;
    for (int i = 0; i < 4; i++) {
        batch.count = i % 2;
        ok(clt_predictor_run(p, &batch, &event));
        assert_int_equal(clWaitForEvents(1, &event), CL_SUCCESS);
        clReleaseEvent(event);
    }
    clt_predictor_destroy(p);
    lab_close(&l);
}

/* An output that depends on a sum over all devices is that of one device. */
static void test_sums_over_devices(void **state)
{
    static const int axes[] = {0};
    static const float xs[4 * 3] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13};
    const int64_t dims[] = {CLT_BATCH, 3};
    clt_predictor_options options;
    clt_step_batch batch;
    (void)state;
    clt_predictor_options_init(&options);
    options.batch = 4;
    for (int n = 1; n <= 2; n++) {
        const clt_feed feed = {"x", -1, CLT_HOST(xs)};
        float y[4 * 3] = {0};
        const clt_fetch fetch = {"y", -1, CLT_HOST(y)};
        clt_graph *graph;
        ok(clt_graph_create(&graph));
        clt_value *x = clt_input(graph, "x", CLT_F32, 2, dims);
        clt_output(clt_sub(x, clt_all_reduce(clt_reduce_sum(x, axes, 1, 0))), "y");
        lab l = lab_on_kept(clt_test_devices(n == 1 ? "pocl" : "pocl/2"));
        lab_store(&l, graph, 1);
        clt_predictor *p = predictor_of(graph, l.store, &options);
        clt_step_batch_init(&batch);
        batch.feeds = &feed;
        batch.n_feeds = 1;
        batch.fetches = &fetch;
        batch.n_fetches = 1;
        for (batch.count = 4; batch.count; batch.count--) {
            ok(clt_predictor_run(p, &batch, NULL));
            ok(clt_predictor_wait(p));
            for (int i = 0; i < 3; i++) {
                float sum = 0;
                for (int k = 0; k < batch.count; k++)
                    sum += xs[3 * k + i];
                for (int k = 0; k < batch.count; k++)
                    assert_true(y[3 * k + i] == xs[3 * k + i] - sum);
            }
        }
        clt_predictor_destroy(p);
        lab_close(&l);
    }
}

/* Returns how many launches of the predictor's plan are merged with others. */
static int merged_launches(const clt_predictor *p)
{
    const clt_plan *plan = p->session->devices[0].plan;
    int launches = 0;
    for (int i = 0; i < plan->n_merges; i++)
        launches += plan->merges[i].launches;
    return launches;
}

/* Merged launches give the same bits: also those that begin with the sum of a product's parts, and
 * copies of rows into a cache. */
static void test_merged(void **state)
{
    enum { READ = 5 };
    static const clt_dtype types[] = {CLT_F32, CLT_BF16};
    static const int32_t tokens[TEXTS * LENGTH] = {3, 1, 4, 1, 5, [LENGTH] = 2, 7, 1, 8, 2};
    (void)state;
    for (int t = 0; t < 2; t++) {
        const clt_decoder d = {.vocabulary = WORDS,
                               .positions = POSITIONS,
                               .samples = TEXTS,
                               .length = 1,
                               .weights = types[t]};
        float want[READ][TEXTS * WORDS], logits[TEXTS * WORDS];
        lab l = lab_on_kept(clt_test_devices("pocl"));
        ok(clt_graph_create(&l.graph));
        ok(clt_model_decoder("gpt2:layers=3,heads=2,width=256", &d, l.graph));
        ok(clt_store_create(l.graph, l.devices, l.n, 1, &l.store));
        clt_predictor_options options;
        clt_predictor_options_init(&options);
        options.poison = 1;
        clt_predictor *apart = predictor_of(l.graph, l.store, &options);
        options.merge_launches = CLT_MERGE_ON;
        clt_predictor *merged = predictor_of(l.graph, l.store, &options);
        assert_int_equal(merged_launches(apart), 0);
        assert_true(merged_launches(merged) > 3 * 12);
        for (int at = 0; at < READ; at++)
            read_tokens(apart, tokens, LENGTH, at, 1, 0, want[at]);
        for (int at = 0; at < READ; at++) {
            read_tokens(merged, tokens, LENGTH, at, 1, 0, logits);
            assert_memory_equal(logits, want[at], sizeof logits);
        }
        clt_predictor_destroy(merged);
        clt_predictor_destroy(apart);
        lab_close(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_descriptions),
                                       cmocka_unit_test(test_nothing),
                                       cmocka_unit_test(test_cache),
                                       cmocka_unit_test(test_greedy),
                                       cmocka_unit_test(test_weights_in_16_bits),
                                       cmocka_unit_test(test_merged),
                                       cmocka_unit_test(test_files),
                                       cmocka_unit_test(test_same_as_trained),
                                       cmocka_unit_test(test_copied),
                                       cmocka_unit_test(test_errors),
                                       cmocka_unit_test(test_sums_over_devices)};
    /* Only tests with kernels that no other test launches. */
    const struct CMUnitTest simulated[] = {
        cmocka_unit_test(test_cache), cmocka_unit_test(test_same_as_trained),
        cmocka_unit_test(test_copied), cmocka_unit_test(test_nothing)};
    return clt_test_oclgrind() ? cmocka_run_group_tests(simulated, open_runtime, close_runtime)
                               : cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
