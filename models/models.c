/* The list of models, and what they share: inputs, loss, accuracy. */
#include <cltrain/models.h>

#include <stdio.h>
#include <string.h>

typedef struct model_row {
    const char *name, *text;
    clt_value *(*build)(clt_graph *graph, clt_value *image, int64_t classes, const char *arguments);
    int takes_arguments;
} model_row;

static const model_row rows[] = {
    {"softmax", "softmax regression: one linear layer", clt_model_softmax, 0},
    {"mlp", "hidden layers with ReLU: one of 256 units, or mlp:WIDTH,...", clt_model_mlp, 1},
    {"lenet", "two convolutions with ReLU and average pooling, two linear layers", clt_model_lenet,
     0},
};

int clt_model_count(void)
{
    return (int)(sizeof rows / sizeof *rows);
}

const char *clt_model_name(int index)
{
    return index >= 0 && index < clt_model_count() ? rows[index].name : NULL;
}

const char *clt_model_text(int index)
{
    return index >= 0 && index < clt_model_count() ? rows[index].text : NULL;
}

static const model_row *find(const char *name)
{
    const size_t length = strcspn(name, ":");
    for (int i = 0; i < clt_model_count(); i++)
        if (strlen(rows[i].name) == length && !strncmp(rows[i].name, name, length))
            return &rows[i];
    return NULL;
}

static clt_status unknown(const char *name)
{
    const char *names[sizeof rows / sizeof *rows];
    char text[512];
    int used = snprintf(text, sizeof text, "model '%.100s' is none of ", name);
    for (int i = 0; i < clt_model_count(); i++) {
        names[i] = rows[i].name;
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = clt_nearest(name, names, clt_model_count());
    if (near)
        snprintf(text + used, sizeof text - (size_t)used, "; did you mean %s?", near);
    return clt_error_set(CLT_NOT_FOUND, text);
}

clt_status clt_model_build(const char *name, const clt_model_input *in, clt_graph *graph)
{
    const model_row *row = find(name);
    if (!row)
        return unknown(name);
    const char *arguments = strchr(name, ':');
    if (arguments && !row->takes_arguments) {
        char text[256];
        snprintf(text, sizeof text, "model '%.100s': %s takes no arguments", name, row->name);
        return clt_error_set(CLT_INVALID_ARGUMENT, text);
    }
    const int64_t image_dims[] = {CLT_BATCH, in->channels, in->height, in->width};
    const int64_t label_dims[] = {CLT_BATCH};
    clt_value *image = clt_input(graph, "image", CLT_F32, 4, image_dims);
    clt_value *label = clt_input(graph, "label", CLT_I32, 1, label_dims);
    clt_value *built = row->build(graph, image, in->classes, arguments ? arguments + 1 : NULL);
    if (!built) /* the graph's failure, or the arguments' */
        return clt_graph_status(graph) != CLT_OK ? clt_graph_status(graph) : CLT_INVALID_ARGUMENT;
    clt_value *logits = clt_output(built, "logits");
    clt_cross_entropy_options options;
    clt_cross_entropy_options_init(&options);
    options.ignore_index = in->ignore_index;
    clt_value *sum, *weight;
    clt_cross_entropy(logits, label, &options, &sum, &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    clt_correct(logits, label, 1, in->ignore_index, &sum, &weight);
    clt_metric(graph, "accuracy", sum, weight);
    return clt_graph_status(graph);
}
