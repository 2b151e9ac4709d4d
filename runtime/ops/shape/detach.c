/* detach: a value that stops the gradient. No kernel runs. */
#include "ops/core/ops.h"
#include <cltrain/ops.h>

const clt_op clt_op_detach = {.name = "detach",
                              .doc = "x. No gradient flows back through this node.",
                              .operands = "x * any",
                              .results = "y * any",
                              .callable = true,
                              .infer = clt_infer_same,
                              .gradient = clt_no_gradient,
                              .flops = clt_no_flops,
                              .batch_blocked = clt_follows_batch_blocked,
                              .view = true};

clt_value *clt_detach(clt_value *x)
{
    return clt_emit1(&clt_op_detach, NULL, 1, x);
}
