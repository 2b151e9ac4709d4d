/*
 * Models of a layer "lstm" (torch.nn.LSTM) and a linear layer "fc". The data select the model:
 * - tokens: a language model with an embedding "embedding". Its states continue where the text
 *   does.
 * - images: a classifier whose time steps are the rows of the image.
 * - arrays x [T, I] and y: a regressor.
 */
#include <stdio.h>

#include "builders.h"

enum { HIDDEN, LAYERS, DROPOUT, ARGUMENTS };

static clt_layer_recurrent layer_of(const clt_model_argument *list)
{
    return (clt_layer_recurrent){.hidden = (int64_t)list[HIDDEN].value,
                                 .layers = (int)list[LAYERS].value,
                                 .dropout = list[DROPOUT].value};
}

static clt_value *recurrent(clt_graph *graph, clt_value *x, const clt_model_argument *list)
{
    clt_layer_recurrent layer = layer_of(list);
    return clt_layer_lstm(graph, x, "lstm", &layer);
}

/* Makes a state that is carried from batch to batch. *first is the initial state of the layer, with
 * zeros for samples that do not continue. */
static clt_value *carried_state(clt_graph *graph, char kind, int level, const int64_t dims[2],
                                clt_value *continues, clt_value **first)
{
    const clt_init zero = {CLT_INIT_ZERO, 0, 0};
    char name[32];
    snprintf(name, sizeof name, "carried.%c.%d", kind, level);
    clt_value *all = clt_state(graph, name, CLT_F32, 2, dims, zero);
    *first = clt_mul(clt_batch_rows(all), continues);
    return all;
}

/* Truncated back-propagation through time: states continue from the previous batch, gradients do
 * not. */
static clt_value *recurrent_carrying(clt_graph *graph, clt_value *x, const clt_model_field *field,
                                     int64_t batch, const clt_model_argument *list)
{
    clt_layer_recurrent layer = layer_of(list);
    const int64_t dims[] = {batch, layer.hidden}, column[] = {CLT_BATCH, 1};
    clt_value *continues = clt_reshape(clt_model_input_of(graph, field), 2, column);
    clt_value *h[CLT_LAYER_STATES], *c[CLT_LAYER_STATES];
    for (int i = 0; i < layer.layers; i++) {
        h[i] = carried_state(graph, 'h', i, dims, continues, &layer.h0[i]);
        c[i] = carried_state(graph, 'c', i, dims, continues, &layer.c0[i]);
    }
    x = clt_layer_lstm(graph, x, "lstm", &layer);
    for (int i = 0; i < layer.layers; i++) {
        clt_assign(graph, h[i], clt_batch_rows_put(h[i], clt_detach(layer.h_n[i])));
        clt_assign(graph, c[i], clt_batch_rows_put(c[i], clt_detach(layer.c_n[i])));
    }
    return x;
}

/* Lets the graph read files of training runs that carried states, which this graph lacks. */
static clt_status pass_over_carried(clt_graph *graph)
{
    return clt_file_names(graph, NULL, "carried.*");
}

static clt_status read_arguments(const char *model, const char *text, clt_model_argument *list)
{
    list[HIDDEN] = (clt_model_argument){
        .name = "hidden", .whole = 1, .least = 1, .most = 1 << 16, .value = 128};
    list[LAYERS] = (clt_model_argument){
        .name = "layers", .whole = 1, .least = 1, .most = CLT_LAYER_STATES, .value = 1};
    list[DROPOUT] = (clt_model_argument){.name = "dropout", .least = 0, .most = 0.99};
    return clt_model_arguments(model, text, list, ARGUMENTS);
}

/* Returns the last step of y [B, T, H]: [B, H]. */
static clt_value *last_step(clt_value *y)
{
    if (!y)
        return NULL;
    const int64_t steps = clt_value_dim(y, 1), width = clt_value_dim(y, 2);
    const int64_t start[] = {0, steps - 1, 0}, stop[] = {CLT_TO_END, CLT_TO_END, CLT_TO_END};
    const int64_t dims[] = {CLT_BATCH, width};
    return clt_reshape(clt_slice(y, start, stop, NULL), 2, dims);
}

/* Axis tp splits the vocabulary. */
static clt_status split_vocabulary(clt_graph *graph)
{
    static const clt_model_split rows[] = {{"embedding.weight|fc.*", 0, 1}, {NULL, 0, 0}};
    MODEL_TRY(clt_graph_status(graph));
    return clt_model_shard(graph, rows);
}

static clt_status language(const char *model, const clt_model_input *in,
                           const clt_model_argument *list, clt_graph *graph)
{
    const clt_model_field *continues = clt_model_field_find(in, "continues");
    clt_model_text_fields text;
    clt_status status = clt_model_find_text(model, in, &text);
    if (status == CLT_OK && !continues)
        status = pass_over_carried(graph);
    if (status != CLT_OK)
        return status;
    if (continues && (continues->rank || continues->dtype != CLT_F32 || in->batch < 1))
        return clt_model_misfit(model, in,
                                "for text that continues from batch to batch (field continues, f32 "
                                "[]) in batches of known size");
    const int64_t dims[] = {text.vocabulary, (int64_t)list[HIDDEN].value};
    const clt_init normal = {CLT_INIT_NORMAL, 0, 1}; /* as torch.nn.Embedding */
    clt_value *weight = clt_parameter(graph, "embedding.weight", 2, dims, normal);
    clt_value *x = clt_embedding(clt_model_text_of(graph, text.tokens), weight, CLT_NO_PADDING);
    x = clt_cut(continues ? recurrent_carrying(graph, x, continues, in->batch, list)
                          : recurrent(graph, x, list));
    x = clt_layer_linear(graph, x, "fc", text.vocabulary);
    MODEL_TRY(split_vocabulary(graph));
    return clt_model_predict_tokens(graph, x, &text, in->ignore_index);
}

/* Reads images [B, C, H, W] as H steps of C * W numbers and returns logits. */
static clt_value *rows_of_image(clt_graph *graph, clt_value *image, int64_t classes,
                                const char *arguments)
{
    static const int order[] = {0, 2, 1, 3};
    clt_model_argument list[ARGUMENTS];
    if (!image || read_arguments("lstm", arguments, list) != CLT_OK)
        return NULL;
    const int64_t channels = clt_value_dim(image, 1), width = clt_value_dim(image, 3);
    const int64_t dims[] = {CLT_BATCH, clt_value_dim(image, 2), channels * width};
    clt_value *x = clt_reshape(channels > 1 ? clt_transpose(image, order) : image, 3, dims);
    return clt_layer_linear(graph, last_step(recurrent(graph, x, list)), "fc", classes);
}

clt_status clt_model_lstm(const char *model, const clt_model_input *in, const char *arguments,
                          clt_graph *graph)
{
    clt_model_argument list[ARGUMENTS];
    if (!clt_model_field_find(in, "tokens"))
        return clt_model_classify(model, rows_of_image, in, arguments, graph);
    const clt_status status = read_arguments(model, arguments, list);
    return status == CLT_OK ? language(model, in, list, graph) : status;
}

/* Predicts y [..] after the last step, or y [T, ..] after each step. */
clt_status clt_model_lstm_regressor(const char *model, const clt_model_input *in,
                                    const char *arguments, clt_graph *graph)
{
    const clt_model_field *x = clt_model_field_find(in, "x"), *y = clt_model_field_find(in, "y");
    clt_model_argument list[ARGUMENTS];
    MODEL_TRY(read_arguments(model, arguments, list));
    if (!x || !y || x->rank != 2)
        return clt_model_misfit(model, in, "for arrays x [T,I] and y, [O] or [T,O]");
    const int each = y->rank == 2 && y->dims[0] == x->dims[0];
    if (y->rank > 1 && !each)
        return clt_model_misfit(model, in, "for arrays x [T,I] and y, [O] or [T,O]");
    clt_value *h = recurrent(graph, clt_model_input_of(graph, x), list);
    if (!each)
        h = last_step(h);
    h = clt_layer_linear(graph, h, "fc", y->rank ? y->dims[y->rank - 1] : 1);
    if (!y->rank) {
        const int64_t dims[] = {CLT_BATCH};
        h = clt_reshape(h, 1, dims);
    }
    return clt_model_regress(graph, h, y);
}

/* Carries the states of torch.nn.LSTM from token to token. */
clt_status clt_decoder_lstm(const char *model, const clt_decoder *d, const char *arguments,
                            clt_graph *graph)
{
    clt_model_argument list[ARGUMENTS];
    MODEL_TRY(read_arguments(model, arguments, list));
    if (d->weights != CLT_F32)
        return clt_model_fail(CLT_UNSUPPORTED,
                              "model %s keeps its weights in f32: only gpt2 has "
                              "them in 16 bits",
                              model);
    if (d->length != 1)
        return clt_model_fail(CLT_INVALID_ARGUMENT, "model %s reads one token at a time, not %lld",
                              model, (long long)d->length);
    const int64_t hidden = (int64_t)list[HIDDEN].value;
    const int64_t dims[] = {d->vocabulary, hidden}, state[] = {d->samples, hidden};
    const clt_init normal = {CLT_INIT_NORMAL, 0, 1};
    clt_layer_recurrent layer = {.hidden = hidden, .layers = (int)list[LAYERS].value};
    for (int i = 0; i < layer.layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "lstm.h.%d", i);
        layer.h0[i] = clt_carried(graph, name, CLT_F32, 2, state);
        snprintf(name, sizeof name, "lstm.c.%d", i);
        layer.c0[i] = clt_carried(graph, name, CLT_F32, 2, state);
    }
    clt_value *tokens = clt_input(graph, "tokens", CLT_I32, 2, (int64_t[]){d->samples, 1});
    clt_value *weight = clt_parameter(graph, "embedding.weight", 2, dims, normal);
    clt_value *x = clt_embedding(tokens, weight, CLT_NO_PADDING);
    x = clt_cut(clt_decoder_row_of(clt_layer_lstm(graph, x, "lstm", &layer), d, NULL));
    for (int i = 0; i < layer.layers; i++) {
        clt_assign(graph, layer.h0[i], layer.h_n[i]);
        clt_assign(graph, layer.c0[i], layer.c_n[i]);
    }
    clt_output(clt_layer_linear(graph, x, "fc", d->vocabulary), "logits");
    MODEL_TRY(pass_over_carried(graph));
    return split_vocabulary(graph);
}
