#include "ops/core/ops.h"

#include <stddef.h>

static const clt_op *const all[] = {
#define CLT_OP(name) &clt_op_##name,
#include "ops/core/ops.def"
#undef CLT_OP
    NULL,
};

const clt_op *const *clt_ops(int *count)
{
    *count = (int)(sizeof all / sizeof *all) - 1;
    return all;
}
