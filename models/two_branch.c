/*
 * A feature extractor with two heads that are trained together: a classifier, and a decoder that
 * reconstructs the image. The gradients of both losses add up in the extractor.
 * "two-branch:weight=W" sets the weight of the second loss (1). "width=C" sets the channels of the
 * first convolution (16), and all other layers grow in proportion.
 */
#include "builders.h"

static clt_value *extract(clt_graph *graph, clt_value *image, int64_t width)
{
    clt_conv2d_options o;
    clt_conv2d_options_init(&o);
    o.padding[0] = o.padding[1] = 1;
    clt_value *x = clt_relu(clt_layer_conv2d(graph, image, "features.conv1", width, 3, &o));
    x = clt_max_pool2d(x, NULL);
    x = clt_relu(clt_layer_conv2d(graph, x, "features.conv2", 2 * width, 3, &o));
    x = clt_flatten(clt_max_pool2d(x, NULL));
    return clt_relu(clt_layer_linear(graph, x, "features.fc", 8 * width));
}

clt_status clt_model_two_branch(const char *model, const clt_model_input *in, const char *arguments,
                                clt_graph *graph)
{
    const clt_model_field *image = clt_model_field_find(in, "image");
    const clt_model_field *label = clt_model_field_find(in, "label");
    enum { WEIGHT, WIDTH, COUNT };
    clt_model_argument list[COUNT] = {
        [WEIGHT] = {.name = "weight", .least = 0, .most = 1e6, .value = 1},
        [WIDTH] = {.name = "width", .whole = 1, .least = 1, .most = 4096, .value = 16},
    };
    MODEL_TRY(clt_model_arguments(model, arguments, list, COUNT));
    if (!image || image->rank != 3 || !label || label->rank || label->classes < 1)
        return clt_model_misfit(model, in,
                                "for images [C,H,W] with labels, fields image and label");
    static const clt_model_split rows[] = {{"features.conv2.*|decoder.fc1.*", 0, 1},
                                           {"features.fc.weight|decoder.fc2.weight", 1, 1},
                                           {NULL, 0, 0}};
    const int64_t width = (int64_t)list[WIDTH].value;
    clt_value *x = clt_model_input_of(graph, image), *y = clt_model_input_of(graph, label);
    clt_value *features = extract(graph, x, width), *sum, *count;
    clt_value *logits = clt_layer_linear(graph, features, "classifier", label->classes);
    int64_t pixels = 1;
    for (int d = 0; d < 3; d++)
        pixels *= image->dims[d];
    clt_value *again = clt_relu(clt_layer_linear(graph, features, "decoder.fc1", 16 * width));
    again = clt_layer_linear(graph, again, "decoder.fc2", pixels);
    clt_cross_entropy_options o;
    clt_cross_entropy_options_init(&o);
    o.ignore_index = in->ignore_index;
    logits = clt_output(logits, "logits");
    clt_cross_entropy(logits, y, &o, &sum, &count);
    clt_loss(graph, "class", sum, count, 1);
    clt_mse(clt_output(again, "image_again"), clt_flatten(x), &sum, &count);
    clt_loss(graph, "reconstruction", sum, count, list[WEIGHT].value);
    clt_correct(logits, y, 1, in->ignore_index, &sum, &count);
    clt_metric(graph, "accuracy", sum, count);
    MODEL_TRY(clt_graph_status(graph));
    return clt_model_shard(graph, rows);
}
