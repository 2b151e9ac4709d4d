/* All operators. */
#ifndef CLT_OPS_CORE_OPS_H
#define CLT_OPS_CORE_OPS_H

#include "graph/graph.h"
#include "base/error.h"
#include "ops/core/launch.h"

#define CLT_OP(name) extern const clt_op clt_op_##name;
#include "ops/core/ops.def"
#undef CLT_OP

/* The operators of ops.def in its order; *count is their number. */
const clt_op *const *clt_ops(int *count);

#endif
