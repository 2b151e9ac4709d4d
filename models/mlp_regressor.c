/* Networks that learn a function of numbers, such as the surrogate of a part of a simulation. */
#include "builders.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cltrain/ops.h>

enum { MOST_LAYERS = 16, MOST_WIDTH = 1 << 20 };

typedef clt_value *activation(clt_value *x);

static activation *find_activation(const char *name)
{
    static const struct {
        const char *name;
        activation *apply;
    } all[] = {{"tanh", clt_tanh},
               {"relu", clt_relu},
               {"gelu", clt_gelu},
               {"silu", clt_silu},
               {"sigmoid", clt_sigmoid}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, name))
            return all[i].apply;
    return NULL;
}

static clt_status build(clt_graph *graph, int64_t in, const int64_t *hidden, int layers,
                        int64_t out, activation *apply)
{
    const int64_t from[] = {CLT_BATCH, in}, to[] = {CLT_BATCH, out};
    clt_value *sum = NULL, *weight = NULL;
    clt_value *x = clt_input(graph, "x", CLT_F32, 2, from);
    char name[16];
    for (int i = 0; i <= layers; i++) {
        snprintf(name, sizeof name, "fc%d", i + 1);
        x = clt_layer_linear(graph, x, name, i < layers ? hidden[i] : out);
        x = i < layers ? clt_cut(apply(x)) : x;
    }
    clt_mse(clt_output(x, "prediction"), clt_input(graph, "y", CLT_F32, 2, to), &sum, &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    return clt_graph_status(graph);
}

clt_status clt_mlp_regressor(int64_t in, const int64_t *hidden, int layers, int64_t out,
                             const char *activation_name, clt_graph **graph)
{
    const char *name = activation_name ? activation_name : "tanh";
    activation *apply = find_activation(name);
    int fits = in >= 1 && in <= MOST_WIDTH && out >= 1 && out <= MOST_WIDTH && layers >= 0 &&
               layers <= MOST_LAYERS && (hidden || !layers);
    for (int i = 0; fits && i < layers; i++)
        fits = hidden[i] >= 1 && hidden[i] <= MOST_WIDTH;
    if (!fits)
        return clt_model_fail(CLT_INVALID_ARGUMENT,
                              "mlp regressor: %lld inputs, %d hidden layers, %lld outputs: at most "
                              "%d layers, each of 1 to %d",
                              (long long)in, layers, (long long)out, MOST_LAYERS, MOST_WIDTH);
    if (!apply)
        return clt_model_fail(
            CLT_NOT_FOUND, "mlp regressor: no activation '%s': tanh, relu, gelu, silu or sigmoid",
            name);
    MODEL_TRY(clt_graph_create(graph));
    const clt_status status = build(*graph, in, hidden, layers, out, apply);
    if (status != CLT_OK) {
        clt_graph_destroy(*graph);
        *graph = NULL;
    }
    return status;
}
