/* The variant of conv2d and its data gradient for 3 x 3 in the LANES layout, by Winograd's minimal
 * filtering. */
#ifndef CLT_OPS_CONV2D_WINOGRAD_H
#define CLT_OPS_CONV2D_WINOGRAD_H

#include "ops/nn.h"

bool clt_conv2d_winograd_accepts(const clt_node *node, const clt_target *target, char *why);
void clt_conv2d_winograd(const clt_node *node, const clt_target *target, clt_program *program);

/* What a tuner may try, as clt_op.tiles. */
bool clt_conv2d_winograd_tiles(const clt_target *target, int index, char *text);

#endif
