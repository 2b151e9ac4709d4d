/* Conversion between layouts, as a node. */
#ifndef CLT_OPS_SHAPE_CONVERT_LAYOUT_H
#define CLT_OPS_SHAPE_CONVERT_LAYOUT_H

#include "graph/graph.h"

/* Returns the same numbers in another layout. The first dimension of `value` must be the batch. */
clt_value *clt_layout_convert(clt_value *value, clt_layout layout);

#endif
