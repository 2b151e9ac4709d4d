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
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "fc%d", i + 1);
        x = clt_relu(clt_layer_linear(graph, x, name, widths[i]));
    }
    snprintf(name, sizeof name, "fc%d", count + 1);
    return clt_layer_linear(graph, x, name, classes);
}
