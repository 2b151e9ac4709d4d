/*
 * One feature extractor with two heads that are trained together: a classifier over its features,
 * and a decoder that draws the image again from them. Both losses' gradients add up in the
 * extractor. "two-branch:weight=W" is the second loss' weight (1).
 */
#include <string.h>

#include "builders.h"

enum { CHANNELS = 32, FEATURES = 128 };

static clt_value *extract(clt_graph *graph, clt_value *image)
{
    clt_conv2d_options o;
    clt_conv2d_options_init(&o);
    o.padding[0] = o.padding[1] = 1;
    clt_value *x = clt_relu(clt_layer_conv2d(graph, image, "features.conv1", CHANNELS / 2, 3, &o));
    x = clt_max_pool2d(x, NULL);
    x = clt_relu(clt_layer_conv2d(graph, x, "features.conv2", CHANNELS, 3, &o));
    x = clt_flatten(clt_max_pool2d(x, NULL));
    return clt_relu(clt_layer_linear(graph, x, "features.fc", FEATURES));
}

clt_status clt_model_two_branch(const char *model, const clt_model_input *in, const char *arguments,
                                clt_graph *graph)
{
    const clt_model_field *image = clt_model_field_find(in, "image");
    const clt_model_field *label = clt_model_field_find(in, "label");
    clt_model_argument weight = {.name = "weight", .least = 0, .most = 1e6, .value = 1};
    const clt_status status = clt_model_arguments(model, arguments, &weight, 1);
    if (status != CLT_OK)
        return status;
    if (!image || image->rank != 3 || !label || label->rank || label->classes < 1)
        return clt_model_misfit(model, in,
                                "for images [C,H,W] with labels, fields image and label");
    clt_value *x = clt_model_input_of(graph, image), *y = clt_model_input_of(graph, label);
    clt_value *features = extract(graph, x), *sum, *count;
    clt_value *logits = clt_layer_linear(graph, features, "classifier", label->classes);
    int64_t pixels = 1;
    for (int d = 0; d < 3; d++)
        pixels *= image->dims[d];
    clt_value *again = clt_relu(clt_layer_linear(graph, features, "decoder.fc1", 2 * FEATURES));
    again = clt_layer_linear(graph, again, "decoder.fc2", pixels);
    clt_cross_entropy_options o;
    clt_cross_entropy_options_init(&o);
    o.ignore_index = in->ignore_index;
    logits = clt_output(logits, "logits");
    clt_cross_entropy(logits, y, &o, &sum, &count);
    clt_loss(graph, "class", sum, count, 1);
    clt_mse(clt_output(again, "image_again"), clt_flatten(x), &sum, &count);
    clt_loss(graph, "reconstruction", sum, count, weight.value);
    clt_correct(logits, y, 1, in->ignore_index, &sum, &count);
    clt_metric(graph, "accuracy", sum, count);
    return clt_graph_status(graph);
}
