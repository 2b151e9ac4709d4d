/* LeNet as in the MXNet tutorial of "Dive into Deep Learning" (d2l.ai): 129,068 parameters for 28 x
 * 28 images of one channel and 10 classes. */
#include "builders.h"

clt_value *clt_model_lenet(clt_graph *graph, clt_value *image, int64_t classes,
                           const char *arguments)
{
    static const clt_model_split rows[] = {{"conv2.*", 0, 1}, {"fc1.weight", 1, 1}, {NULL, 0, 0}};
    (void)arguments;
    clt_value *x = clt_model_split_rows(image);
    x = clt_relu(clt_layer_conv2d(graph, x, "conv1", 20, 3, NULL));
    x = clt_avg_pool2d(x, NULL);
    x = clt_relu(clt_layer_conv2d(graph, x, "conv2", 50, 5, NULL));
    x = clt_flatten(clt_avg_pool2d(x, NULL));
    x = clt_relu(clt_layer_linear(graph, x, "fc1", 128));
    x = clt_layer_linear(graph, x, "fc2", classes);
    return x && clt_model_shard(graph, rows) == CLT_OK ? x : NULL;
}
