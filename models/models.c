/* The list of models. */
#include <stdio.h>
#include <string.h>

#include "builders.h"

typedef struct model_row {
    const char *name, *text;
    clt_classifier_fn *classifier; /* either this or `other` is set */
    clt_model_fn *other;
    int takes; /* CLT_MODEL_IMAGES, _TEXT or _ARRAYS */
    int takes_arguments;
} model_row;

enum { IMAGES = CLT_MODEL_IMAGES, TEXT = CLT_MODEL_TEXT, ARRAYS = CLT_MODEL_ARRAYS };

static const model_row rows[] = {
    {"softmax", "softmax regression: one linear layer", clt_model_softmax, NULL, IMAGES | ARRAYS,
     0},
    {"mlp",
     "hidden layers with ReLU: one of 256 units, or mlp:WIDTH,...; from images, or x to label or y",
     clt_model_mlp, NULL, IMAGES | ARRAYS, 1},
    {"lenet", "two convolutions with ReLU and average pooling, two linear layers", clt_model_lenet,
     NULL, IMAGES, 0},
    {"resnet18",
     "residual network of 18 layers; images below 64 pixels get a 3x3 stem; resnet18:sync "
     "synchronises batch norm, width=W instead of 64, blocks=N in each stage; small and imagenet: "
     "that stem, or the large one, for any image",
     clt_model_resnet18, NULL, IMAGES, 1},
    {"resnet34", "of 34 layers, with the same arguments", clt_model_resnet34, NULL, IMAGES, 1},
    {"resnet50", "of 50 layers, with bottlenecks, with the same arguments", clt_model_resnet50,
     NULL, IMAGES, 1},
    {"vit-tiny", "vision transformer; vit-tiny:layers=L,heads=H,width=W,patch=P",
     clt_model_vit_tiny, NULL, IMAGES, 1},
    {"two-branch",
     "one feature extractor, a classifier and a decoder of the image: two-branch:weight=W,width=C",
     NULL, clt_model_two_branch, IMAGES, 1},
    {"lstm",
     "LSTM over the rows of images, or a language model of text: lstm:hidden=H,layers=L,"
     "dropout=P",
     NULL, clt_model_lstm, IMAGES | TEXT, 1},
    {"lstm-regressor", "LSTM from arrays x [T,I] to y: lstm-regressor:hidden=H,layers=L,dropout=P",
     NULL, clt_model_lstm_regressor, ARRAYS, 1},
    {"unet", "U-Net from fields x [C,H,W] to y [D,H,W]: unet:levels=L,width=W,sync", NULL,
     clt_model_unet, ARRAYS, 1},
    {"gpt2",
     "GPT-2 of text: gpt2:nano, 124M, 350M, 774M, 1.5B, or layers=L,heads=H,width=W; dropout=P, "
     "positions=N (the length of the samples)",
     NULL, clt_model_gpt2, TEXT, 1},
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

int clt_model_takes(int index)
{
    return index >= 0 && index < clt_model_count() ? rows[index].takes : 0;
}

int clt_model_is_file(const char *name)
{
    const size_t length = strlen(name);
    return length > 5 && !strcmp(name + length - 5, ".json");
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
    used += snprintf(text + used, sizeof text - (size_t)used, ", nor a .json file");
    /* Only the name before the colon is corrected. The arguments are repeated in the suggestion. */
    const size_t length = strcspn(name, ":");
    char plain[100];
    snprintf(plain, sizeof plain, "%.*s", (int)(length < 99 ? length : 99), name);
    const char *near = clt_nearest(plain, names, clt_model_count());
    if (near)
        snprintf(text + used, sizeof text - (size_t)used, "; did you mean %s%.100s?", near,
                 name + length);
    return clt_error_set(CLT_NOT_FOUND, text);
}

clt_status clt_model_build(const char *name, const clt_model_input *in, clt_graph *graph)
{
    const model_row *row = find(name);
    if (in->class_weights && row && !row->classifier)
        return clt_model_fail(CLT_UNSUPPORTED,
                              "model '%.100s': weights of classes are for classifiers, such as mlp "
                              "and resnet18",
                              name);
    if (clt_model_is_file(name))
        return clt_model_file_build(name, in, graph);
    if (!row)
        return unknown(name);
    const char *arguments = strchr(name, ':');
    if (arguments && !row->takes_arguments)
        return clt_model_fail(CLT_INVALID_ARGUMENT, "model '%.100s': %s takes no arguments", name,
                              row->name);
    arguments = arguments ? arguments + 1 : NULL;
    if (row->other)
        return row->other(row->name, in, arguments, graph);
    if ((row->takes & ARRAYS) && clt_model_has_features(in))
        return clt_model_of_features(row->name, row->classifier, in, arguments, graph);
    return clt_model_classify(row->name, row->classifier, in, arguments, graph);
}
