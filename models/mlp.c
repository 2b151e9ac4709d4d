/* Softmax regression and a multilayer perceptron with one hidden layer. */
#include <cltrain/models.h>

clt_value *clt_model_softmax(clt_graph *graph, clt_value *image, int64_t classes)
{
    return clt_layer_linear(graph, clt_flatten(image), "fc", classes);
}

clt_value *clt_model_mlp(clt_graph *graph, clt_value *image, int64_t classes)
{
    clt_value *x = clt_relu(clt_layer_linear(graph, clt_flatten(image), "fc1", 256));
    return clt_layer_linear(graph, x, "fc2", classes);
}
