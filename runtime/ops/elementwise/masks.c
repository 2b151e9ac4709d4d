/* Comparisons, logic and choice by masks, which are u8. */
#include "base/error.h"
#include "ops/elementwise/elementwise.h"
#include "ops/core/ops.h"
#include "ops/core/tensor.h"
#include <cltrain/ops.h>

static const clt_elementwise_attr no_numbers;

static bool is_mask(const clt_node *node, int operand)
{
    return node->in[operand]->type.dtype == CLT_U8;
}

static clt_status fail_mask(const clt_node *node, int operand)
{
    char text[CLT_TYPE_TEXT];
    return clt_fail(CLT_UNSUPPORTED, "%s: operand %d is %s, no mask of u8; compare it with 0 first",
                    node->op->name, operand, clt_type_text(&node->in[operand]->type, text));
}

static clt_status fail_f32(const clt_node *node, int operand)
{
    char text[CLT_TYPE_TEXT];
    return clt_fail(CLT_UNSUPPORTED, "%s: operand %d is %s; cast it to f32 first", node->op->name,
                    operand, clt_type_text(&node->in[operand]->type, text));
}

/* --- comparisons and logic ------------------------------------------------------------------ */

static clt_status infer_comparison(const clt_node *node, clt_type *out)
{
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i]->type.dtype != CLT_F32 && !is_mask(node, i))
            return fail_f32(node, i);
    return clt_elementwise_broadcast(node, CLT_U8, out);
}

static clt_status infer_logic(const clt_node *node, clt_type *out)
{
    for (int i = 0; i < node->n_in; i++)
        if (!is_mask(node, i))
            return fail_mask(node, i);
    return clt_elementwise_broadcast(node, CLT_U8, out);
}

/* Steps have the slope 0. */
static clt_status no_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                              clt_value **dx)
{
    (void)node;
    (void)dy;
    (void)wanted;
    (void)dx;
    return CLT_OK;
}

#define COMPARISON(NAME)                                                                           \
    CLT_ELEMENTWISE_OP_OF(NAME, 2, infer_comparison, no_gradient, NULL);                           \
    clt_value *clt_##NAME(clt_value *a, clt_value *b)                                              \
    {                                                                                              \
        return clt_emit1(&clt_op_##NAME, &no_numbers, 2, a, b);                                    \
    }

#define LOGIC(NAME)                                                                                \
    CLT_ELEMENTWISE_OP_OF(NAME, 2, infer_logic, no_gradient, NULL);                                \
    clt_value *clt_##NAME(clt_value *a, clt_value *b)                                              \
    {                                                                                              \
        return clt_emit1(&clt_op_##NAME, &no_numbers, 2, a, b);                                    \
    }

COMPARISON(eq)
COMPARISON(ne)
COMPARISON(lt)
COMPARISON(le)
COMPARISON(gt)
COMPARISON(ge)
LOGIC(logical_and)
LOGIC(logical_or)
LOGIC(logical_xor)

CLT_ELEMENTWISE_OP_OF(logical_not, 1, infer_logic, no_gradient, NULL);

clt_value *clt_logical_not(clt_value *a)
{
    return clt_emit1(&clt_op_logical_not, &no_numbers, 1, a);
}

/* --- where ---------------------------------------------------------------------------------- */

/* A mask, and f32 behind it. */
static clt_status infer_where(const clt_node *node, clt_type *out)
{
    if (!is_mask(node, 0))
        return fail_mask(node, 0);
    for (int i = 1; i < node->n_in; i++)
        if (node->in[i]->type.dtype != CLT_F32)
            return fail_f32(node, i);
    return clt_elementwise_broadcast(node, CLT_F32, out);
}

static clt_status where_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                                 clt_value **dx)
{
    const clt_op *const ops[] = {NULL, &clt_op_where_grad, &clt_op_where_other_grad};
    for (int i = 1; i < 3; i++)
        if (wanted[i])
            dx[i] = clt_sum_to(clt_emit1(ops[i], &no_numbers, 2, node->in[0], dy[0]),
                               &node->in[i]->type);
    return CLT_OK;
}

CLT_ELEMENTWISE_OP_OF(where, 3, infer_where, where_gradient, NULL);
CLT_ELEMENTWISE_OP_OF(where_grad, 2, infer_where, NULL, NULL);
CLT_ELEMENTWISE_OP_OF(where_other_grad, 2, infer_where, NULL, NULL);

clt_value *clt_where(clt_value *mask, clt_value *a, clt_value *b)
{
    return clt_emit1(&clt_op_where, &no_numbers, 3, mask, a, b);
}
