/* The data that a model is built for: its fields, the inputs that they feed, and the losses of
 * classifiers, language models and regression. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "builders.h"

clt_status clt_model_fail(clt_status status, const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return clt_error_set(status, text);
}

void clt_model_images(int64_t channels, int64_t height, int64_t width, int64_t classes,
                      clt_model_field fields[2])
{
    fields[0] = (clt_model_field){"image", CLT_F32, 3, {channels, height, width}, 0};
    fields[1] = (clt_model_field){"label", CLT_I32, 0, {0}, classes};
}

const clt_model_field *clt_model_field_find(const clt_model_input *in, const char *name)
{
    for (int i = 0; i < in->n_fields; i++)
        if (!strcmp(in->fields[i].name, name))
            return &in->fields[i];
    return NULL;
}

void clt_model_fields_text(const clt_model_input *in, char *text, size_t room)
{
    size_t used = 0;
    *text = '\0';
    for (int i = 0; i < in->n_fields && used < room; i++) {
        const clt_model_field *f = &in->fields[i];
        used += (size_t)snprintf(text + used, room - used, "%s%s %s [", i ? ", " : "", f->name,
                                 clt_dtype_name(f->dtype));
        for (int d = 0; d < f->rank && used < room; d++)
            used += (size_t)snprintf(text + used, room - used, "%s%lld", d ? "," : "",
                                     (long long)f->dims[d]);
        if (used < room)
            used += (size_t)snprintf(text + used, room - used, "]");
        if (f->classes && used < room)
            used += (size_t)snprintf(text + used, room - used, " of %lld classes",
                                     (long long)f->classes);
    }
}

clt_dtype clt_model_input_dtype(const clt_model_field *field)
{
    return field->dtype != CLT_U8 ? field->dtype : field->classes ? CLT_I32 : CLT_F32;
}

clt_value *clt_model_input_of(clt_graph *graph, const clt_model_field *field)
{
    int64_t dims[CLT_MAX_RANK] = {CLT_BATCH};
    memcpy(dims + 1, field->dims, (size_t)field->rank * sizeof *dims);
    return clt_input(graph, field->name, clt_model_input_dtype(field), field->rank + 1, dims);
}

clt_status clt_model_misfit(const char *model, const clt_model_input *in, const char *what)
{
    char text[512];
    clt_model_fields_text(in, text, sizeof text);
    return clt_model_fail(CLT_INVALID_ARGUMENT, "model %s is %s; the data have %s", model, what,
                          *text ? text : "no fields");
}

static int is_label(const clt_model_field *label)
{
    return label && !label->rank && label->classes > 0;
}

/* Builds from `input` to logits of `label`, with cross entropy and accuracy. */
static clt_status classify(clt_classifier_fn *build, const clt_model_input *in,
                           const clt_model_field *input, const clt_model_field *label,
                           const char *arguments, clt_graph *graph)
{
    clt_value *x = clt_model_input_of(graph, input), *y = clt_model_input_of(graph, label);
    clt_value *built = build(graph, x, label->classes, arguments);
    if (!built) /* either the graph failed or the arguments were wrong */
        return clt_graph_status(graph) != CLT_OK ? clt_graph_status(graph) : CLT_INVALID_ARGUMENT;
    clt_value *logits = clt_output(built, "logits"), *sum, *weight;
    clt_cross_entropy_options options;
    clt_cross_entropy_options_init(&options);
    options.ignore_index = in->ignore_index;
    options.class_weights = in->class_weights;
    clt_cross_entropy(logits, y, &options, &sum, &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    clt_correct(logits, y, 1, in->ignore_index, &sum, &weight);
    clt_metric(graph, "accuracy", sum, weight);
    return clt_graph_status(graph);
}

clt_status clt_model_classify(const char *model, clt_classifier_fn *build,
                              const clt_model_input *in, const char *arguments, clt_graph *graph)
{
    const clt_model_field *image = clt_model_field_find(in, "image");
    const clt_model_field *label = clt_model_field_find(in, "label");
    if (!image || image->rank != 3 || !is_label(label))
        return clt_model_misfit(model, in,
                                "for images [C,H,W] with labels, fields image and label");
    return classify(build, in, image, label, arguments, graph);
}

int clt_model_has_features(const clt_model_input *in)
{
    const clt_model_field *x = clt_model_field_find(in, "x");
    return x && x->rank && !clt_model_field_find(in, "image");
}

clt_status clt_model_of_features(const char *model, clt_classifier_fn *build,
                                 const clt_model_input *in, const char *arguments, clt_graph *graph)
{
    const clt_model_field *x = clt_model_field_find(in, "x"), *y = clt_model_field_find(in, "y");
    const clt_model_field *label = clt_model_field_find(in, "label");
    int64_t dims[CLT_MAX_RANK] = {CLT_BATCH}, outputs = 1;
    if (is_label(label) && clt_model_input_dtype(x) == CLT_F32)
        return classify(build, in, x, label, arguments, graph);
    if (!y || clt_model_input_dtype(x) != CLT_F32 || clt_model_input_dtype(y) != CLT_F32)
        return clt_model_misfit(model, in,
                                "for features x in f32 with labels or numbers, fields x and label "
                                "or x and y");
    for (int i = 0; i < y->rank; i++)
        outputs *= dims[i + 1] = y->dims[i];
    clt_value *built = build(graph, clt_model_input_of(graph, x), outputs, arguments);
    if (!built)
        return clt_graph_status(graph) != CLT_OK ? clt_graph_status(graph) : CLT_INVALID_ARGUMENT;
    return clt_model_regress(graph, clt_reshape(built, y->rank + 1, dims), y);
}

clt_status clt_model_find_text(const char *model, const clt_model_input *in,
                               clt_model_text_fields *out)
{
    const clt_model_field *tokens = clt_model_field_find(in, "tokens");
    const clt_model_field *targets = clt_model_field_find(in, "targets");
    if (!tokens || tokens->rank != 1 || tokens->classes < 1 || !targets || targets->rank != 1 ||
        targets->dims[0] != tokens->dims[0])
        return clt_model_misfit(model, in, "for text, fields tokens [T] and targets [T]");
    *out = (clt_model_text_fields){tokens, targets, tokens->dims[0], tokens->classes};
    return CLT_OK;
}

clt_value *clt_model_text_of(clt_graph *graph, const clt_model_field *field)
{
    clt_value *x = clt_model_input_of(graph, field);
    return x && clt_shard_value(x, CLT_AXIS_TIME, 1) == CLT_OK ? x : NULL;
}

clt_status clt_model_predict_tokens(clt_graph *graph, clt_value *logits,
                                    const clt_model_text_fields *text, int ignore_index)
{
    const int64_t rows[] = {-text->length, text->vocabulary};
    clt_value *targets = clt_model_text_of(graph, text->targets), *sum, *weight;
    clt_cross_entropy_options o;
    clt_cross_entropy_options_init(&o);
    o.ignore_index = ignore_index;
    logits = clt_output(logits, "logits");
    clt_cross_entropy(clt_reshape(logits, 2, rows), clt_reshape(targets, 1, rows), &o, &sum,
                      &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    return clt_graph_status(graph);
}

clt_status clt_model_regress(clt_graph *graph, clt_value *prediction, const clt_model_field *y)
{
    clt_value *target = clt_model_input_of(graph, y), *sum, *weight;
    clt_mse(clt_output(prediction, "prediction"), target, &sum, &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    return clt_graph_status(graph);
}
