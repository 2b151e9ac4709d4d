/*
 * GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019) with the
 * names, layouts and initialisation of Hugging Face's GPT2Model. The weights of c_attn, c_proj and
 * c_fc are [in, out], and the embedding is also the weight of the output layer. Weights are normal
 * with deviation 0.02. Projections into the residual stream are divided by the square root of twice
 * the number of layers.
 */
#include <math.h>
#include <stdio.h>

#include "builders.h"

typedef struct network {
    clt_graph *graph;
    int64_t width;
    int layers, heads;
    double dropout;
    int64_t samples, positions; /* of the cache; 0 without a cache */
    clt_value *places;          /* with a cache: the tokens' places, i32 [T] */
    clt_value *past;            /* with a cache: number of earlier tokens, i32 [1] */
    clt_dtype weights;          /* type in which matrices are stored; see clt_decoder */
} network;

typedef struct size_row {
    const char *name;
    int layers, heads;
    int64_t width;
} size_row;

static const size_row sizes[] = {
    {"124M", 12, 12, 768},  {"350M", 24, 16, 1024}, {"774M", 36, 20, 1280},
    {"1.5B", 48, 25, 1600}, {"nano", 3, 4, 128},
};
enum { SIZES = sizeof sizes / sizeof *sizes };

static clt_value *parameter(const network *net, const char *block, const char *part, int rank,
                            const int64_t *dims, clt_init init)
{
    char name[160];
    snprintf(name, sizeof name, "%s%s%s", block, *block ? "." : "", part);
    return clt_parameter(net->graph, name, rank, dims, init);
}

/* Adds a matrix that products or an embedding read. In 16 bits it is a state, and its readers take
 * the conversion into themselves. */
static clt_value *matrix(const network *net, const char *block, const char *part,
                         const int64_t *dims, clt_init init)
{
    char name[160];
    const clt_init zero = {CLT_INIT_ZERO, 0, 0};
    if (net->weights == CLT_F32)
        return parameter(net, block, part, 2, dims, init);
    snprintf(name, sizeof name, "%s%s%s", block, *block ? "." : "", part);
    return clt_cast(clt_state(net->graph, name, net->weights, 2, dims, zero), CLT_F32);
}

static clt_value *norm(const network *net, clt_value *x, const char *block, const char *part)
{
    char name[96];
    snprintf(name, sizeof name, "%s%s%s", block, *block ? "." : "", part);
    return clt_layer_layer_norm(net->graph, x, name, CLT_NORM_EPS);
}

/* Hugging Face's Conv1D: x times weight plus bias. */
static clt_value *product(const network *net, clt_value *x, const char *block, const char *part,
                          int64_t out, double deviation)
{
    char name[48], label[96];
    if (!x)
        return NULL;
    const int64_t dims[] = {clt_value_dim(x, clt_value_rank(x) - 1), out};
    const clt_init normal = {CLT_INIT_NORMAL, 0, deviation}, zero = {CLT_INIT_ZERO, 0, 0};
    snprintf(name, sizeof name, "%s.weight", part);
    clt_value *weight = matrix(net, block, name, dims, normal);
    snprintf(name, sizeof name, "%s.bias", part);
    clt_value *bias = parameter(net, block, name, 1, &out, zero);
    snprintf(label, sizeof label, "%s.%s", block, part);
    return clt_add(clt_label(clt_matmul(x, weight, 0, 0), label), bias);
}

static clt_value *drop(const network *net, clt_value *x)
{
    return net->dropout > 0 ? clt_dropout(x, net->dropout) : x;
}

/* Returns one of the three parts (query, key, value) of x's last axis. */
static clt_value *third(const network *net, clt_value *x, int part)
{
    const int64_t start[] = {0, 0, part * net->width};
    const int64_t stop[] = {CLT_TO_END, CLT_TO_END, (part + 1) * net->width};
    return clt_slice(x, start, stop, NULL);
}

/* Adds keys or values to the cache. Returns those of all positions so far. */
static clt_value *remember(const network *net, clt_value *rows, const char *block, const char *part)
{
    char name[64];
    const int64_t dims[] = {net->samples, net->positions, net->width};
    snprintf(name, sizeof name, "%s.%s", block, part);
    clt_value *cache = clt_carried(net->graph, name, CLT_F32, 3, dims);
    clt_value *grown = clt_index_copy(cache, 1, net->places, rows);
    clt_assign(net->graph, cache, grown);
    return grown;
}

static clt_value *attention(const network *net, clt_value *qkv, const char *block)
{
    clt_attention_options causal;
    clt_attention_options_init(&causal);
    causal.is_causal = 1;
    causal.dropout = net->dropout;
    if (!net->places)
        return clt_attention_packed(qkv, net->heads, 0, &causal);
    causal.past_value = net->past;
    clt_value *k = remember(net, third(net, qkv, 1), block, "attn.keys");
    clt_value *v = remember(net, third(net, qkv, 2), block, "attn.values");
    return clt_attention(third(net, qkv, 0), k, v, net->heads, &causal);
}

static clt_value *block(const network *net, clt_value *x, int number)
{
    char name[16];
    const double deep = 0.02 / sqrt(2.0 * net->layers);
    snprintf(name, sizeof name, "h.%d", number);
    clt_value *y = norm(net, x, name, "ln_1");
    y = product(net, y, name, "attn.c_attn", 3 * net->width, 0.02);
    y = attention(net, y, name);
    y = product(net, y, name, "attn.c_proj", net->width, deep);
    x = clt_add(x, drop(net, y));
    y = norm(net, x, name, "ln_2");
    y = clt_gelu_tanh(product(net, y, name, "mlp.c_fc", 4 * net->width, 0.02));
    y = product(net, y, name, "mlp.c_proj", net->width, deep);
    return clt_add(x, drop(net, y));
}

/* Returns the first `length` rows of the embedding of positions. */
static clt_value *places(const network *net, int64_t positions, int64_t length)
{
    const int64_t dims[] = {positions, net->width}, start[] = {0, 0}, stop[] = {length, CLT_TO_END};
    const clt_init normal = {CLT_INIT_NORMAL, 0, 0.02};
    clt_value *wpe = parameter(net, "", "wpe.weight", 2, dims, normal);
    return positions == length ? wpe : clt_slice(wpe, start, stop, NULL);
}

static clt_status read_arguments(const char *arguments, network *net, int64_t *positions)
{
    enum { LAYERS = SIZES, HEADS, WIDTH, POSITIONS, DROPOUT, COUNT };
    clt_model_argument list[COUNT] = {
        [LAYERS] = {.name = "layers", .whole = 1, .least = 1, .most = 1000},
        [HEADS] = {.name = "heads", .whole = 1, .least = 1, .most = 1024},
        [WIDTH] = {.name = "width", .whole = 1, .least = 1, .most = 65536},
        [POSITIONS] = {.name = "positions", .whole = 1, .least = 1, .most = 1 << 20},
        [DROPOUT] = {.name = "dropout", .least = 0, .most = 0.99},
    };
    const size_row *size = &sizes[0];
    for (int i = 0; i < SIZES; i++)
        list[i] = (clt_model_argument){.name = sizes[i].name, .word = 1, .choice = 1};
    MODEL_TRY(clt_model_arguments("gpt2", arguments, list, COUNT));
    for (int i = 0; i < SIZES; i++)
        if (list[i].given)
            size = &sizes[i];
    net->layers = list[LAYERS].given ? (int)list[LAYERS].value : size->layers;
    net->heads = list[HEADS].given ? (int)list[HEADS].value : size->heads;
    net->width = list[WIDTH].given ? (int64_t)list[WIDTH].value : size->width;
    net->dropout = list[DROPOUT].value;
    if (net->width % net->heads)
        return clt_model_fail(CLT_INVALID_ARGUMENT,
                              "model gpt2: %d heads do not divide the width %lld", net->heads,
                              (long long)net->width);
    if (list[POSITIONS].given)
        *positions = (int64_t)list[POSITIONS].value;
    return CLT_OK;
}

/* Lets the graph read files of Hugging Face. GPT2LMHeadModel puts "transformer." before the names.
 * Older releases also saved each layer's causal mask and its replacement for -infinity. Some
 * writers save the weight of the output layer, which is the embedding. */
static void name_files(clt_graph *graph)
{
    clt_file_names(graph, "transformer.",
                   "h.*.attn.bias|h.*.attn.masked_bias|lm_head.weight=wte.weight");
}

/* Axis tp splits the vocabulary, attention by heads, and the hidden units of MLPs (Shoeybi et al.,
 * "Megatron-LM", 2019). */
static clt_status split(clt_graph *graph)
{
    static const clt_model_split rows[] = {{"wte.weight", 0, 1},
                                           {"h.*.attn.c_attn.weight", 1, 3},
                                           {"h.*.attn.c_attn.bias", 0, 3},
                                           {"h.*.attn.c_proj.weight", 0, 1},
                                           {"h.*.mlp.c_fc.weight", 1, 1},
                                           {"h.*.mlp.c_fc.bias", 0, 1},
                                           {"h.*.mlp.c_proj.weight", 0, 1},
                                           {NULL, 0, 0}};
    MODEL_TRY(clt_graph_status(graph));
    return clt_model_shard(graph, rows);
}

clt_status clt_model_gpt2(const char *model, const clt_model_input *in, const char *arguments,
                          clt_graph *graph)
{
    clt_model_text_fields text;
    network net = {.graph = graph};
    clt_status status = clt_model_find_text(model, in, &text);
    if (status != CLT_OK)
        return status;
    int64_t positions = text.length;
    status = read_arguments(arguments, &net, &positions);
    if (status == CLT_OK && positions < text.length)
        status = clt_model_fail(CLT_INVALID_ARGUMENT,
                                "model gpt2: %lld positions do not suffice for samples of %lld "
                                "tokens",
                                (long long)positions, (long long)text.length);
    if (status != CLT_OK)
        return status;
    const int64_t dims[] = {text.vocabulary, net.width};
    const clt_init normal = {CLT_INIT_NORMAL, 0, 0.02};
    clt_value *tokens = clt_model_text_of(graph, text.tokens);
    clt_value *wte = parameter(&net, "", "wte.weight", 2, dims, normal);
    clt_value *x = clt_embedding(tokens, wte, CLT_NO_PADDING);
    x = drop(&net, clt_add(x, places(&net, positions, text.length)));
    for (int i = 0; i < net.layers; i++)
        x = clt_cut(block(&net, x, i));
    name_files(graph);
    MODEL_TRY(split(graph));
    return clt_model_predict_tokens(graph, clt_linear(norm(&net, x, "", "ln_f"), wte, NULL), &text,
                                    in->ignore_index);
}

/* Returns the rows of the embedding of positions for the tokens' places. */
static clt_value *places_at(const network *net)
{
    const int64_t dims[] = {net->positions, net->width};
    const clt_init normal = {CLT_INIT_NORMAL, 0, 0.02};
    return clt_embedding(net->places, parameter(net, "", "wpe.weight", 2, dims, normal),
                         CLT_NO_PADDING);
}

clt_status clt_decoder_gpt2(const char *model, const clt_decoder *d, const char *arguments,
                            clt_graph *graph)
{
    network net = {
        .graph = graph, .samples = d->samples, .positions = d->positions, .weights = d->weights};
    int64_t positions = d->positions;
    MODEL_TRY(read_arguments(arguments, &net, &positions));
    if (positions != d->positions)
        return clt_model_fail(CLT_INVALID_ARGUMENT, "model %s: wpe.weight has %lld positions",
                              model, (long long)d->positions);
    const int64_t dims[] = {d->vocabulary, net.width}, one = 1, zero = 0;
    const clt_init normal = {CLT_INIT_NORMAL, 0, 0.02};
    clt_value *tokens = clt_input(graph, "tokens", CLT_I32, 2, (int64_t[]){d->samples, d->length});
    net.places = clt_input(graph, "positions", CLT_I32, 1, &d->length);
    net.past = d->length > 1 ? clt_slice(net.places, &zero, &one, NULL) : net.places;
    clt_value *last = d->length > 1 ? clt_input(graph, "last", CLT_I32, 1, &one) : NULL;
    net.dropout = 0;
    clt_value *wte = matrix(&net, "", "wte.weight", dims, normal);
    clt_value *x = clt_add(clt_embedding(tokens, wte, CLT_NO_PADDING), places_at(&net));
    for (int i = 0; i < net.layers; i++)
        x = clt_cut(block(&net, x, i));
    x = norm(&net, clt_decoder_row_of(x, d, last), "", "ln_f");
    clt_output(clt_linear(x, wte, NULL), "logits");
    name_files(graph);
    return net.weights == CLT_F32 ? split(graph) : clt_graph_status(graph);
}
