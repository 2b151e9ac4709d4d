/* A small GPT-2 whose loss ignores labels, and made-up texts for it. */
#ifndef TESTS_TRAIN_TEXT_LAB_H
#define TESTS_TRAIN_TEXT_LAB_H

#include "train/lab.h"
#include <cltrain/models.h>

enum { LENGTH = 6, WORDS = 11, WIDTH = 8, IGNORED = -100 };

/* Writes the tokens and labels of texts 0 to texts - 1. */
static inline void make_texts(int texts, int32_t *tokens, int32_t *targets)
{
    for (int i = 0; i < texts * LENGTH; i++) {
        tokens[i] = i * 7 % WORDS;
        targets[i] = i % 5 == 2 ? IGNORED : (i * 7 + 7) % WORDS;
    }
}

static inline double weight_of_texts(const int32_t *targets, int texts)
{
    double weight = 0;
    for (int i = 0; i < texts * LENGTH; i++)
        weight += targets[i] != IGNORED;
    return weight;
}

/* Makes devices, graph and store. */
static inline lab text_lab(const char *devices, const char *parallel)
{
    clt_model_field fields[] = {{"tokens", CLT_I32, 1, {LENGTH}, WORDS},
                                {"targets", CLT_I32, 1, {LENGTH}, WORDS}};
    const clt_model_input input = {.fields = fields, .n_fields = 2, .ignore_index = IGNORED};
    clt_store_options store;
    lab l = lab_on_kept(clt_test_devices(devices));
    ok(clt_graph_create(&l.graph));
    ok(clt_model_build("gpt2:layers=2,heads=2,width=8", &input, l.graph));
    clt_store_options_init(&store);
    store.parallel = parallel;
    ok(clt_store_create_with(l.graph, l.devices, l.n, &store, &l.store));
    return l;
}

#endif
