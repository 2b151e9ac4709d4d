/* softmax: exponentials that sum to one over an axis, and the gradient. */
#include <limits.h>

#include "base/error.h"
#include "ops/ops.h"
#include "ops/softmax.h"

clt_status clt_softmax_infer(const clt_node *node, clt_type *out)
{
    const clt_softmax_attr *attr = node->attr;
    const clt_type *x = &node->in[0]->type;
    char tx[CLT_TYPE_TEXT], ty[CLT_TYPE_TEXT];
    CLT_TRY(clt_check_f32(node, 0));
    clt_operand_text(node, 0, tx);
    if (attr->axis < 0 || attr->axis >= x->rank)
        return clt_fail(CLT_INVALID_ARGUMENT, "%s: %s has no axis %d", node->op->name, tx,
                        attr->axis);
    if (x->dims[attr->axis] < 0)
        return clt_fail(CLT_UNSUPPORTED, "%s: axis %d of %s depends on the batch", node->op->name,
                        attr->axis, tx);
    if (x->dims[attr->axis] > INT_MAX || clt_dims_product(x, attr->axis + 1, x->rank) > INT_MAX)
        return clt_fail(CLT_UNSUPPORTED, "%s: %s is too large from axis %d on", node->op->name, tx,
                        attr->axis);
    if (node->n_in > 1 && !clt_type_equal(x, &node->in[1]->type))
        return clt_fail(CLT_SHAPE, "%s: %s and %s differ", node->op->name, tx,
                        clt_operand_text(node, 1, ty));
    out[0] = *x;
    return CLT_OK;
}

void clt_softmax_describe(const clt_node *node, clt_str *text)
{
    const clt_softmax_attr *attr = node->attr;
    clt_str_add(text, "axis %d", attr->axis);
}

/* A subtraction, an exponential, an addition and a multiplication an element. */
double clt_softmax_flops(const clt_node *node, int64_t n)
{
    return 4.0 * (double)clt_type_elements(&node->in[0]->type, n);
}

void clt_softmax_portable(const clt_node *node, const char *kernel, int is_log,
                          const clt_target *target, clt_program *program)
{
    const clt_softmax_attr *attr = node->attr;
    const clt_type *x = &node->in[0]->type;
    clt_type vectors = *x;
    vectors.dims[attr->axis] = 1;
    clt_launch_begin(program, "portable/softmax.cl", kernel, "");
    for (int i = 0; i < node->n_in; i++)
        clt_arg_in(program, i);
    clt_arg_out(program, 0);
    clt_arg_long(program, clt_extent_elements(&vectors));
    clt_arg_int(program, clt_fixed(x->dims[attr->axis]));
    clt_arg_int(program, clt_extent_dim(clt_dims_product(x, attr->axis + 1, x->rank)));
    clt_arg_int(program, clt_fixed(is_log));
    clt_range_items(program, target, clt_extent_elements(&vectors));
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    if (wanted[0])
        dx[0] = clt_emit1(&clt_op_softmax_grad, node->attr, 2, node->out[0], dy[0]);
    return clt_graph_status(node->graph);
}

static void emit_portable(const clt_node *node, const clt_target *target, clt_program *program)
{
    clt_softmax_portable(node, "softmax", 0, target, program);
}

static void emit_grad_portable(const clt_node *node, const clt_target *target, clt_program *program)
{
    clt_softmax_portable(node, "softmax_grad", 0, target, program);
}

static const clt_variant variants[] = {
    {"portable", NULL, emit_portable},
    {0},
};

static const clt_variant grad_variants[] = {
    {"portable", NULL, emit_grad_portable},
    {0},
};

const clt_op clt_op_softmax = {
    .name = "softmax",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attr_bytes = sizeof(clt_softmax_attr),
    .infer = clt_softmax_infer,
    .gradient = gradient,
    .describe = clt_softmax_describe,
    .flops = clt_softmax_flops,
    .variants = variants,
};

const clt_op clt_op_softmax_grad = {
    .name = "softmax_grad",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attr_bytes = sizeof(clt_softmax_attr),
    .infer = clt_softmax_infer,
    .describe = clt_softmax_describe,
    .flops = clt_softmax_flops,
    .variants = grad_variants,
};

clt_value *clt_softmax(clt_value *x, int axis)
{
    const clt_softmax_attr attr = {x && axis < 0 ? axis + x->type.rank : axis};
    return clt_emit1(&clt_op_softmax, &attr, 1, x);
}
