/* All operators. */
#ifndef CLT_OPS_CORE_OPS_H
#define CLT_OPS_CORE_OPS_H

/* For the ranges of attributes. */
#include <float.h>
#include <limits.h>
#include <math.h>

#include "graph/graph.h"
#include "base/error.h"
#include "ops/core/dims.h"
#include "ops/core/launch.h"

#define CLT_OP(name) extern const clt_op clt_op_##name;
#define CLT_CALL(name) extern const clt_op clt_call_##name;
#include "ops/core/ops.def"
#undef CLT_OP
#undef CLT_CALL

/* Returns the operators of ops.def that are nodes, in its order; *count is their number. */
const clt_op *const *clt_ops(int *count);

#endif
