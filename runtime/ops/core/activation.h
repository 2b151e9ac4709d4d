/*
 * Activations that linear and conv2d can apply to their result before storing it. Builders set
 * NONE. A fusion pass fuses a following activation if its gradient needs only its output.
 */
#ifndef CLT_OPS_CORE_ACTIVATION_H
#define CLT_OPS_CORE_ACTIVATION_H

#include <stdbool.h>

/* The values are those of CLT_ACT_* in clkernels/core/activation.clh. */
typedef enum clt_activation {
    CLT_ACTIVATION_NONE = 0,
    CLT_ACTIVATION_RELU = 1,
    CLT_ACTIVATION_LEAKY_RELU = 2, /* slope: the factor of negative values */
    CLT_ACTIVATION_SIGMOID = 3,
    CLT_ACTIVATION_TANH = 4,
    CLT_ACTIVATION_GELU_EXACT = 5,
    CLT_ACTIVATION_GELU_TANH = 6
} clt_activation;

typedef struct clt_epilogue {
    clt_activation activation;
    int unused;
    double slope;
} clt_epilogue;

/* The names of all activations in the order of the enum, then NULL. */
extern const char *const clt_activation_names[];

/* Returns the activation's name, such as "relu" or "leaky relu"; "none" for CLT_ACTIVATION_NONE. */
const char *clt_activation_name(clt_activation activation);

/* Returns whether the gradient can be computed from the activation's output alone. Otherwise fusing
 * would make the backward pass wrong. A leaky ReLU needs a positive slope. */
bool clt_activation_fusible(clt_epilogue epilogue);

#endif
