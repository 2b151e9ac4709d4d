/* all_reduce: the sum over all devices. It has no kernel, because the host adds between two
 * segments of the plan. */
#include "ops/core/ops.h"
#include <cltrain/ops.h>

static clt_status infer(const clt_node *node, clt_type *out)
{
    const clt_type *x = &node->in[0]->type;
    char text[CLT_TYPE_TEXT];
    if (x->dtype != CLT_F32)
        return clt_fail(CLT_UNSUPPORTED, "all_reduce: the operand is %s; cast it to f32 first",
                        clt_type_text(x, text));
    if (clt_type_has_batch(x))
        return clt_fail(CLT_SHAPE,
                        "all_reduce: the operand is %s, but devices have different images: reduce "
                        "it over the batch first",
                        clt_type_text(x, text));
    *out = *x;
    return CLT_OK;
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    (void)node;
    (void)wanted;
    dx[0] = clt_all_reduce(dy[0]);
    return CLT_OK;
}

const clt_op clt_op_all_reduce = {.name = "all_reduce",
                                  .doc = "The sum of x over all devices.",
                                  .operands = "x *",
                                  .results = "y *",
                                  .callable = true,
                                  .infer = infer,
                                  .gradient = gradient,
                                  .flops = clt_no_flops,
                                  .collective = true,
                                  .in_place = 1};

clt_value *clt_all_reduce(clt_value *x)
{
    return clt_emit1(&clt_op_all_reduce, NULL, 1, x);
}
