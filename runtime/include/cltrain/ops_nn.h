/* Operators on layers of networks: convolution, pooling, linear, losses, metrics. See ops.h for the
 * conventions. */
#ifndef CLTRAIN_OPS_NN_H
#define CLTRAIN_OPS_NN_H

#include <cltrain/graph.h>

CLT_BEGIN_DECLS

CLT_END_DECLS

#endif
