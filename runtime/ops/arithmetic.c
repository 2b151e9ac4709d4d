/* Sums, differences, products, quotients and copies. */
#include "ops/elementwise.h"
#include "ops/ops.h"
#include <cltrain/ops.h>

static void emit_add(const clt_node *node, const clt_target *target, clt_program *p)
{
    clt_elementwise_emit(node, target, p, "a+b");
}

static const clt_variant variants_add[] = {{"elementwise", NULL, emit_add}, {0}};

const clt_op clt_op_add = {.name = "add",
                           .min_in = 2,
                           .max_in = 2,
                           .n_out = 1,
                           .infer = clt_elementwise_infer,
                           .lanes = clt_elementwise_lanes,
                           .in_place = 3,
                           .variants = variants_add};

static void emit_copy(const clt_node *node, const clt_target *target, clt_program *p)
{
    clt_elementwise_emit(node, target, p, "a");
}

static const clt_variant variants_copy[] = {{"elementwise", NULL, emit_copy}, {0}};

static clt_status copy_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                                clt_value **dx)
{
    (void)node;
    (void)wanted;
    dx[0] = dy[0];
    return CLT_OK;
}

const clt_op clt_op_copy = {.name = "copy",
                            .min_in = 1,
                            .max_in = 1,
                            .n_out = 1,
                            .infer = clt_elementwise_infer,
                            .gradient = copy_gradient,
                            .lanes = clt_elementwise_lanes,
                            .variants = variants_copy};

clt_value *clt_add(clt_value *a, clt_value *b)
{
    return clt_emit1(&clt_op_add, NULL, 2, a, b);
}

clt_value *clt_copy(clt_value *x)
{
    return clt_emit1(&clt_op_copy, NULL, 1, x);
}
