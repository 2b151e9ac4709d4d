/* Decoders on meshes: devices that have parts or stages of a model read and generate as one device
 * does. */
#include "train/fit/decoders.h"

/* Devices that have parts or stages of GPT-2 read a chunk and single tokens, and generate the same
 * tokens as one device. The chunk's work would be divided at another cut than that of one token. */
static void test_gpt2_on_meshes(void **state)
{
    static const struct {
        const char *devices, *parallel;
        int zero;
    } meshes[] = {{"pocl/2", "tp=2", 0},
                  {"pocl/2", "pp=2", 0},
                  {"pocl/2,pocl/2", "pp=2,tp=2", 0},
                  {"pocl/2", NULL, 3}};
    enum { CHUNK = 7 };
    clt_tensors *golden = golden_open("decoder.safetensors");
    const int32_t *tokens = golden_i32(golden, NULL, "tokens", TEXTS * LENGTH);
    const double *want = golden_f64(golden, NULL, "logits", TEXTS * LENGTH * WORDS);
    float logits[TEXTS * WORDS];
    (void)state;
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
        lab l = gpt2_on(meshes[m].devices, meshes[m].parallel, meshes[m].zero);
        clt_predictor *one = predictor_of(l.graph, l.store, NULL);
        clt_graph *longer = decoder(GPT2, TEXTS, CHUNK);
        clt_predictor *many = predictor_of(longer, l.store, NULL);
        clt_graph_destroy(longer);
        const int device = meshes[m].zero ? 0 : -1; /* has the one sample */
        const char *what = meshes[m].zero ? "zero 3" : meshes[m].parallel;
        read_tokens_on(device, many, tokens, LENGTH, 0, CHUNK, CHUNK - 1, logits);
        compare(logits, want, CHUNK - 1, what);
        for (int at = CHUNK; at < LENGTH; at++) {
            read_tokens_on(device, one, tokens, LENGTH, at, 1, 0, logits);
            compare(logits, want, at, what);
        }
        generate(device, one);
        clt_predictor_destroy(many);
        clt_predictor_destroy(one);
        lab_close(&l);
    }
    clt_tensors_close(golden);
}

/* The same for LSTMs, whose state every place along tp has, and no two places of dp can have. */
static void test_lstm_on_meshes(void **state)
{
    static const char *const meshes[] = {NULL, "tp=2", "pp=2"};
    static const int32_t tokens[TEXTS * LENGTH] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 35, 8, 9};
    float logits[3][TEXTS * WORDS];
    clt_predictor_options options;
    clt_predictor *p;
    (void)state;
    lab l = lab_mesh(LSTM, "pocl/2", "dp=2", 0);
    clt_predictor_options_init(&options);
    refused(clt_predictor_create(l.graph, l.store, &options, &p), CLT_UNSUPPORTED,
            "or one place of axis dp, and the store has 2");
    lab_close(&l);
    for (int m = 0; m < 3; m++) {
        l = lab_mesh(LSTM, m ? "pocl/2" : "pocl", meshes[m], 0);
        clt_predictor *one = predictor_of(l.graph, l.store, NULL);
        for (int at = 0; at < LENGTH; at++)
            read_tokens(one, tokens, LENGTH, at, 1, 0, logits[m]);
        clt_predictor_destroy(one);
        lab_close(&l);
        for (int i = 0; i < TEXTS * WORDS; i++)
            if (!(fabsf(logits[m][i] - logits[0][i]) <= 1e-6f))
                fail_msg("%s, logit %d: %g, on one device %g", meshes[m], i, (double)logits[m][i],
                         (double)logits[0][i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gpt2_on_meshes),
                                       cmocka_unit_test(test_lstm_on_meshes)};
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
