#include "ops/core/activation.h"

#include <stddef.h>

const char *const clt_activation_names[] = {
    [CLT_ACTIVATION_NONE] = "none",
    [CLT_ACTIVATION_RELU] = "relu",
    [CLT_ACTIVATION_LEAKY_RELU] = "leaky relu",
    [CLT_ACTIVATION_SIGMOID] = "sigmoid",
    [CLT_ACTIVATION_TANH] = "tanh",
    [CLT_ACTIVATION_GELU_EXACT] = "gelu",
    [CLT_ACTIVATION_GELU_TANH] = "gelu (tanh)",
    NULL,
};

const char *clt_activation_name(clt_activation activation)
{
    const int index = (int)activation;
    return index >= 0 && index <= CLT_ACTIVATION_GELU_TANH ? clt_activation_names[index] : "?";
}

bool clt_activation_fusible(clt_epilogue epilogue)
{
    switch (epilogue.activation) {
    case CLT_ACTIVATION_NONE:
    case CLT_ACTIVATION_RELU:
    case CLT_ACTIVATION_SIGMOID:
    case CLT_ACTIVATION_TANH:
        return true;
    case CLT_ACTIVATION_LEAKY_RELU:
        return epilogue.slope > 0;
    default:
        return false;
    }
}
