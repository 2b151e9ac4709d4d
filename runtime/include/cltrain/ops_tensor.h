/* Operators on tensors: element by element, reductions, shapes. See ops.h for the conventions. */
#ifndef CLTRAIN_OPS_TENSOR_H
#define CLTRAIN_OPS_TENSOR_H

#include <cltrain/graph.h>

CLT_BEGIN_DECLS

CLT_END_DECLS

#endif
