/* Comparisons, logic and selection by masks. A mask is u8. */
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

/* The derivative of a step function is 0. */
#define MASK(NAME, DOC, OPERANDS, INFER)                                                           \
    CLT_ELEMENTWISE_OP_TO(NAME, DOC, OPERANDS, "y * u8", .infer = INFER, .callable = true,         \
                          .gradient = clt_no_gradient);

#define COMPARISON(NAME, DOC)                                                                      \
    MASK(NAME, DOC, "a * any, b * any", infer_comparison) CLT_ELEMENTWISE_BINARY(NAME)

#define LOGIC(NAME, DOC) MASK(NAME, DOC, "a * u8, b * u8", infer_logic) CLT_ELEMENTWISE_BINARY(NAME)

COMPARISON(eq, "The mask of a == b.")
COMPARISON(ne, "The mask of a != b.")
COMPARISON(lt, "The mask of a < b.")
COMPARISON(le, "The mask of a <= b.")
COMPARISON(gt, "The mask of a > b.")
COMPARISON(ge, "The mask of a >= b.")
LOGIC(logical_and, "The mask of a and b.")
LOGIC(logical_or, "The mask of a or b.")
LOGIC(logical_xor, "The mask of a or b, not both.")
MASK(logical_not, "The mask of a == 0.", "a * u8", infer_logic)
CLT_ELEMENTWISE_UNARY(logical_not)

/* --- where ---------------------------------------------------------------------------------- */

/* Operand 0 is a mask, the others are f32. */
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

CLT_ELEMENTWISE_OP(where, "a where the mask is true, else b.", "mask * u8, a *, b *",
                   .infer = infer_where, .callable = true, .gradient = where_gradient);
CLT_ELEMENTWISE_OP(where_grad, "dy where the mask is true, else 0.", "mask * u8, dy *",
                   .infer = infer_where);
CLT_ELEMENTWISE_OP(where_other_grad, "dy where the mask is false, else 0.", "mask * u8, dy *",
                   .infer = infer_where);

clt_value *clt_where(clt_value *mask, clt_value *a, clt_value *b)
{
    return clt_emit1(&clt_op_where, &no_numbers, 3, mask, a, b);
}
