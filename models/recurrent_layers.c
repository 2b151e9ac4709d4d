/* Layers with the parameter names, order of gates and initialisation of torch.nn.LSTM and
 * torch.nn.GRU (batch_first). All parameters are uniform within 1 / sqrt(H). */
#include <cltrain/models.h>

#include <math.h>
#include <stdio.h>

enum { LSTM = 4, GRU = 3 }; /* number of gates */

/* Makes a parameter such as "NAME.weight_ih_l0_reverse". Without a name the prefix is left out, as
 * in a module that is only this layer. */
static clt_value *parameter(clt_graph *graph, const char *name, const char *kind, int level,
                            int reverse, int rank, const int64_t *dims, int64_t hidden)
{
    char full[160];
    const int named = name && *name;
    snprintf(full, sizeof full, "%s%s%s_l%d%s", named ? name : "", named ? "." : "", kind, level,
             reverse ? "_reverse" : "");
    const clt_init init = {CLT_INIT_UNIFORM, 1 / sqrt((double)hidden), 0};
    return clt_parameter(graph, full, rank, dims, init);
}

/* Adds one layer in one direction. */
static clt_value *pass(clt_graph *graph, clt_value *x, const char *name, int gates, int level,
                       int reverse, clt_layer_recurrent *layer)
{
    const int64_t H = layer->hidden, rows = gates * H;
    const int at = level * (layer->bidirectional ? 2 : 1) + reverse;
    const int64_t w_ih[] = {rows, clt_value_dim(x, clt_value_rank(x) - 1)}, w_hh[] = {rows, H};
    clt_recurrent_options options;
    clt_value *y = NULL;
    clt_recurrent_options_init(&options);
    options.reverse = reverse;
    options.h0 = layer->h0[at];
    options.c0 = layer->c0[at];
    options.lengths = layer->lengths;
    clt_value *a = parameter(graph, name, "weight_ih", level, reverse, 2, w_ih, H);
    clt_value *b = parameter(graph, name, "weight_hh", level, reverse, 2, w_hh, H);
    clt_value *c = parameter(graph, name, "bias_ih", level, reverse, 1, &rows, H);
    clt_value *d = parameter(graph, name, "bias_hh", level, reverse, 1, &rows, H);
    if (gates == LSTM)
        clt_lstm(x, a, b, c, d, &options, &y, &layer->h_n[at], &layer->c_n[at]);
    else
        clt_gru(x, a, b, c, d, &options, &y, &layer->h_n[at]);
    return y;
}

static clt_value *layers(clt_graph *graph, clt_value *x, const char *name, int gates,
                         clt_layer_recurrent *layer)
{
    const int directions = layer->bidirectional ? 2 : 1;
    if (layer->layers < 1 || layer->layers * directions > CLT_LAYER_STATES || layer->hidden < 1)
        return NULL;
    for (int level = 0; x && level < layer->layers; level++) {
        clt_value *both[2] = {NULL, NULL};
        if (level && layer->dropout > 0)
            x = clt_dropout(x, layer->dropout);
        for (int reverse = 0; x && reverse < directions; reverse++)
            both[reverse] = pass(graph, x, name, gates, level, reverse, layer);
        x = layer->bidirectional ? clt_concat(both, 2, 2) : both[0];
    }
    return x;
}

clt_value *clt_layer_lstm(clt_graph *graph, clt_value *x, const char *name,
                          clt_layer_recurrent *layer)
{
    return layers(graph, x, name, LSTM, layer);
}

clt_value *clt_layer_gru(clt_graph *graph, clt_value *x, const char *name,
                         clt_layer_recurrent *layer)
{
    return layers(graph, x, name, GRU, layer);
}
