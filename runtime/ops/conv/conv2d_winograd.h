/* The variants of conv2d and its gradients for 3 x 3 kernels in the batch-blocked layout, by
 * Winograd's minimal filtering. */
#ifndef CLT_OPS_CONV_CONV2D_WINOGRAD_H
#define CLT_OPS_CONV_CONV2D_WINOGRAD_H

#include "ops/core/nn.h"

/* Checks what all these variants require of a convolution, except for its sizes. */
bool clt_winograd_accepts_shape(const clt_conv2d_shape *s, char *why);

bool clt_conv2d_winograd_accepts(const clt_node *node, const clt_target *target, char *why);
/* The forward and the data gradient. `fits` ignores the element types. */
bool clt_conv2d_winograd_fits(const clt_node *node, const clt_target *target, char *why);
void clt_conv2d_winograd(const clt_node *node, const clt_target *target, clt_program *program);

/* The gradient of the weights and the bias. */
bool clt_conv2d_winograd_weight_accepts(const clt_node *node, const clt_target *target, char *why);
bool clt_conv2d_winograd_weight_fits(const clt_node *node, const clt_target *target, char *why);
void clt_conv2d_winograd_weight(const clt_node *node, const clt_target *target,
                                clt_program *program);

/* For clt_variant.tiles: write alternative number `index`. */
bool clt_conv2d_winograd_tiles(const clt_node *node, const clt_target *target, int index,
                               char *text);
bool clt_conv2d_winograd_weight_tiles(const clt_node *node, const clt_target *target, int index,
                                      char *text);

#endif
