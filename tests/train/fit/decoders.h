/* Decoders of models/, with their predictors, on one device or on a mesh. */
#ifndef TESTS_TRAIN_FIT_DECODERS_H
#define TESTS_TRAIN_FIT_DECODERS_H

#include "goldens/goldens.h"

#include <unistd.h>

#include "train/lab.h"
#include <cltrain/models.h>
#include <cltrain/predict.h>
#include <cltrain/opencl.h>

enum { TEXTS = 2, LENGTH = 20, PROMPT = 5, POSITIONS = 24, WORDS = 37 };
#define GPT2 "gpt2:layers=2,heads=2,width=16"
#define LSTM "lstm:hidden=12,layers=2"

static inline clt_graph *decoder(const char *model, int64_t samples, int64_t length)
{
    const clt_decoder d = {
        .vocabulary = WORDS, .positions = POSITIONS, .samples = samples, .length = length};
    clt_graph *graph;
    ok(clt_graph_create(&graph));
    ok(clt_model_decoder(model, &d, graph));
    return graph;
}

static inline clt_predictor *predictor_of(clt_graph *graph, clt_store *store,
                                          const clt_predictor_options *options)
{
    clt_predictor_options usual;
    clt_predictor *p;
    clt_predictor_options_init(&usual);
    ok(clt_predictor_create(graph, store, options ? options : &usual, &p));
    return p;
}

/* A store of a decoder on a mesh; NULL: on one device. */
static inline lab lab_mesh(const char *model, const char *devices, const char *parallel, int zero)
{
    clt_store_options options;
    lab l = lab_on_kept(clt_test_devices(devices));
    l.graph = decoder(model, TEXTS, 1);
    clt_store_options_init(&options);
    options.seed = 1;
    options.parallel = parallel;
    options.zero = zero;
    ok(clt_store_create_with(l.graph, l.devices, l.n, &options, &l.store));
    return l;
}

static inline lab gpt2_on(const char *devices, const char *parallel, int zero)
{
    char path[4096];
    lab l = lab_mesh(GPT2, devices, parallel, zero);
    golden_path("decoder_gpt2.safetensors", path, sizeof path);
    ok(clt_store_load(l.store, path));
    return l;
}

/* A store on one device with matrices of the type. */
static inline lab gpt2_weights(const char *device, clt_dtype weights)
{
    const clt_decoder d = {.vocabulary = WORDS,
                           .positions = POSITIONS,
                           .samples = TEXTS,
                           .length = 1,
                           .weights = weights};
    char path[4096];
    lab l = lab_on_kept(clt_test_devices(device));
    ok(clt_graph_create(&l.graph));
    ok(clt_model_decoder(GPT2, &d, l.graph));
    ok(clt_store_create(l.graph, l.devices, l.n, 1, &l.store));
    golden_path("decoder_gpt2.safetensors", path, sizeof path);
    ok(clt_store_load(l.store, path));
    return l;
}

static inline lab lab_gpt2(void)
{
    return gpt2_on("pocl", NULL, 0);
}

/* Reads tokens[b][from .. from + length) of each text of `stride` tokens. Returns the logits behind
 * row `last`, which a device has; -1: any. */
static inline void read_tokens_on(int device, clt_predictor *p, const int32_t *tokens, int stride,
                                  int from, int length, int last, float logits[TEXTS * WORDS])
{
    int32_t chunk[TEXTS * POSITIONS], places[POSITIONS], row = last;
    for (int t = 0; t < length; t++) {
        places[t] = from + t;
        for (int b = 0; b < TEXTS; b++)
            chunk[b * length + t] = from + t < stride ? tokens[b * stride + from + t] : 0;
    }
    const clt_feed feeds[] = {{"tokens", -1, CLT_HOST(chunk)},
                              {"positions", -1, CLT_HOST(places)},
                              {"last", -1, CLT_HOST(&row)}};
    const clt_fetch fetch = {"logits", device, CLT_HOST(logits)};
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = 1;
    batch.feeds = feeds;
    batch.n_feeds = 3;
    batch.fetches = &fetch;
    batch.n_fetches = 1;
    ok(clt_predictor_run(p, &batch, NULL));
    ok(clt_predictor_wait(p));
}

static inline void read_tokens(clt_predictor *p, const int32_t *tokens, int stride, int from,
                               int length, int last, float logits[TEXTS * WORDS])
{
    read_tokens_on(-1, p, tokens, stride, from, length, last, logits);
}

/* Compares logits behind position `at`. */
static inline void compare(const float *logits, const double *want, int at, const char *what)
{
    for (int b = 0; b < TEXTS; b++)
        for (int v = 0; v < WORDS; v++) {
            const double there = want[((int64_t)b * LENGTH + at) * WORDS + v];
            const float here = logits[b * WORDS + v];
            if (!(fabs(here - there) <= 2e-5 * (1 + fabs(there))))
                fail_msg("%s, text %d, position %d, token %d: %g, not %g", what, b, at, v, here,
                         there);
        }
}

/* Generates tokens behind the prompt, each the most probable one, and compares with transformers'
 * generate(do_sample=False). */
static inline void generate(int device, clt_predictor *one)
{
    clt_tensors *golden = golden_open("decoder.safetensors");
    const int32_t *want = golden_i32(golden, NULL, "generated", TEXTS * POSITIONS);
    int32_t made[TEXTS * POSITIONS];
    float logits[TEXTS * WORDS];
    memcpy(made, want, sizeof made);
    for (int at = 0; at < POSITIONS - 1; at++) {
        read_tokens_on(device, one, made, POSITIONS, at, 1, 0, logits);
        for (int b = 0; at + 1 >= PROMPT && b < TEXTS; b++) {
            int best = 0;
            for (int v = 1; v < WORDS; v++)
                best = logits[b * WORDS + v] > logits[b * WORDS + best] ? v : best;
            made[b * POSITIONS + at + 1] = best;
        }
    }
    assert_memory_equal(made, want, sizeof made);
    clt_tensors_close(golden);
}

static inline void refused(clt_status status, clt_status want, const char *part)
{
    if (status != want || !strstr(clt_error_message(), part))
        fail_msg("%s: \"%s\" does not say \"%s\"", clt_status_name(status), clt_error_message(),
                 part);
}

#endif
