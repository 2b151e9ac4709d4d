/* Softmax regression and multilayer perceptrons. */
#include "builders.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_LAYERS = 16, MOST_WIDTH = 1 << 20 };

clt_value *clt_model_softmax(clt_graph *graph, clt_value *image, int64_t classes,
                             const char *arguments)
{
    (void)arguments;
    return clt_layer_linear(graph, clt_flatten(image), "fc", classes);
}

/* Reads the widths of the hidden layers, such as "256" or "4096,4096". Returns their number, or 0
 * if the text is no such list. */
static int read_widths(const char *text, int64_t widths[MOST_LAYERS])
{
    int count = 0;
    for (;;) {
        char *end;
        const long long width = strtoll(text, &end, 10);
        if (end == text || width < 1 || width > MOST_WIDTH || count == MOST_LAYERS)
            return 0;
        widths[count++] = width;
        if (!*end)
            return count;
        if (*end != ',')
            return 0;
        text = end + 1;
    }
}

/* Axis tp splits layers in pairs: units of the first, and with them columns of the second. The last
 * layer has a pair only if the number of layers is even. */
static clt_status split(clt_graph *graph, int layers)
{
    char units[32], biases[32], columns[32];
    for (int i = 1; i < layers; i += 2) {
        snprintf(units, sizeof units, "fc%d.weight", i);
        snprintf(biases, sizeof biases, "fc%d.bias", i);
        snprintf(columns, sizeof columns, "fc%d.weight", i + 1);
        const clt_model_split rows[] = {
            {units, 0, 1}, {biases, 0, 1}, {columns, 1, 1}, {NULL, 0, 0}};
        MODEL_TRY(clt_model_shard(graph, rows));
    }
    return CLT_OK;
}

clt_value *clt_model_mlp(clt_graph *graph, clt_value *image, int64_t classes, const char *arguments)
{
    int64_t widths[MOST_LAYERS] = {256};
    char name[16], text[256];
    const int count = arguments ? read_widths(arguments, widths) : 1;
    if (!count) {
        snprintf(
            text, sizeof text,
            "model mlp:%.100s: widths of 1 to %d hidden layers, as in mlp:512,256, each 1 to %d",
            arguments, MOST_LAYERS, MOST_WIDTH);
        clt_error_set(CLT_INVALID_ARGUMENT, text);
        return NULL;
    }
    clt_value *x = clt_flatten(image);
    for (int i = 0; i <= count; i++) {
        snprintf(name, sizeof name, "fc%d", i + 1);
        x = clt_layer_linear(graph, x, name, i < count ? widths[i] : classes);
        x = i < count ? clt_cut(clt_relu(x)) : x;
    }
    return x && split(graph, count + 1) == CLT_OK ? x : NULL;
}
