/* linear: a fully connected layer, and the gradient of its parameters. */
#include <limits.h>

#include "base/error.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/gemm.h"
#include "ops/matmul/linear_batch_blocked.h"
#include "ops/core/nn.h"
#include "ops/core/ops.h"

static int64_t rows_of(const clt_value *x)
{
    return clt_dims_product(&x->type, 0, x->type.rank - 1);
}

static int64_t columns_of(const clt_value *x)
{
    return x->type.dims[x->type.rank - 1];
}

static clt_status infer_linear(const clt_node *node, clt_type *out)
{
    const clt_type *x = &node->in[0]->type, *w = &node->in[1]->type;
    char tx[CLT_TYPE_TEXT], tw[CLT_TYPE_TEXT];
    CLT_TRY(clt_check_f32(node, 0));
    CLT_TRY(clt_check_f32(node, 1));
    clt_operand_text(node, 0, tx);
    clt_operand_text(node, 1, tw);
    if (x->rank < 2 || w->rank != 2 || x->dims[x->rank - 1] != w->dims[1])
        return clt_fail(CLT_SHAPE,
                        "linear: the weight %s must be [O, K] with K the last dimension of %s%s",
                        tw, tx,
                        x->rank > 2 && w->rank == 2 && clt_dims_product(x, 1, x->rank) == w->dims[1]
                            ? ": a flatten of it is missing before this layer"
                            : "");
    CLT_TRY(clt_check_image(node, 1, 0));
    const int64_t rows = clt_dims_product(x, 0, x->rank - 1);
    if (rows > INT_MAX)
        return clt_fail(CLT_UNSUPPORTED, "linear: the operand %s has more than %d rows", tx,
                        INT_MAX);
    CLT_TRY(clt_check_bias(node));
    out[0] = *x;
    out[0].dims[x->rank - 1] = w->dims[0];
    return CLT_OK;
}

static clt_status gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                           clt_value **dx)
{
    const clt_linear_attr *attr = node->attr;
    const bool bias = node->n_in > 2 && node->in[2] && wanted[2];
    if (attr->epilogue.activation != CLT_ACTIVATION_NONE)
        return clt_fail(CLT_INTERNAL, "linear: activations are fused after the gradient");
    if (wanted[0]) {
        const clt_matmul_attr product = {.flatten = true};
        dx[0] = clt_emit1(&clt_op_matmul, &product, 2, dy[0], node->in[1]);
    }
    if (wanted[1] || bias) {
        const clt_linear_weight_grad_attr grad = {.bias = bias};
        clt_value *const in[] = {node->in[0], dy[0]};
        clt_node *added = clt_graph_add(node->graph, &clt_op_linear_weight_grad, in, 2, &grad);
        if (!added)
            return clt_graph_status(node->graph);
        dx[1] = added->out[0];
        if (bias)
            dx[2] = added->out[1];
    }
    return clt_graph_status(node->graph);
}

static void describe(const clt_node *node, clt_str *text)
{
    const clt_linear_attr *attr = node->attr;
    if (attr->epilogue.activation != CLT_ACTIVATION_NONE)
        clt_str_add(text, "%s", clt_activation_name(attr->epilogue.activation));
}

static double flops_linear(const clt_node *node, int64_t n)
{
    const clt_type *w = &node->in[1]->type;
    return 2.0 * (double)clt_dim(rows_of(node->in[0]), n) * (double)clt_type_elements(w, n);
}

clt_gemm clt_linear_gemm(const clt_node *node)
{
    const clt_linear_attr *attr = node->attr;
    const int64_t columns = columns_of(node->in[0]);
    return clt_gemm_typed(node, (clt_gemm){.pairs = 1,
                                           .m = rows_of(node->in[0]),
                                           .n = node->in[1]->type.dims[0],
                                           .k = columns,
                                           .lda = columns,
                                           .ldb = columns,
                                           .trans_b = true,
                                           .a = 0,
                                           .b = 1,
                                           .bias = node->n_in > 2 && node->in[2] ? 2 : -1,
                                           .out = 0,
                                           .epilogue = attr->epilogue});
}

static bool absorb(clt_node *node, const clt_node *next)
{
    clt_linear_attr *attr = node->attr;
    clt_epilogue epilogue;
    if (attr->epilogue.activation != CLT_ACTIVATION_NONE || !clt_activation_of(next, &epilogue) ||
        !clt_activation_fusible(epilogue))
        return false;
    attr->epilogue.activation = epilogue.activation; /* without its padding */
    attr->epilogue.slope = epilogue.slope;
    return true;
}

/* Parameters are f32. A decoder's weight is a state, which may have 16 bits in the plain layout. */
static bool half(const clt_node *node, const clt_target *target, int index, bool output)
{
    (void)target;
    return output || index == 0 || (index == 1 && clt_all_plain(node));
}

static void dims_of(const clt_node *node, clt_node_dims *dims)
{
    if (((const clt_linear_attr *)node->attr)->epilogue.activation != CLT_ACTIVATION_NONE)
        clt_dims_not_summed(dims);
}

const clt_op clt_op_linear = {
    .name = "linear",
    .doc = "x weight^T + bias",
    .operands = "x *k, weight ok, bias o?!",
    .results = "y *o",
    .dims = dims_of,
    .callable = true,
    CLT_ATTRIBUTES(clt_linear_attr,
                   {CLT_ATTRIBUTE(CHOICE, "activation", clt_linear_attr, epilogue.activation,
                                  "The function applied to the result. The fusion pass sets it."),
                    .choices = clt_activation_names, .internal = 1},
                   {CLT_ATTRIBUTE(REAL, "slope", clt_linear_attr, epilogue.slope,
                                  "The slope of a fused leaky_relu."),
                    .internal = 1}),
    .infer = infer_linear,
    .gradient = gradient,
    .describe = describe,
    .flops = flops_linear,
    .batch_blocked = clt_linear_batch_blocked,
    .half = half,
    .absorb = absorb,
    .variants = clt_gemm_variants,
};

clt_value *clt_linear(clt_value *x, clt_value *weight, clt_value *bias)
{
    /* Static, so that its padding is 0: equal nodes are found by all bytes of their attributes. */
    static const clt_linear_attr attr = {{CLT_ACTIVATION_NONE, 0}};
    return clt_emit1(&clt_op_linear, &attr, 3, x, weight, bias);
}

/* --- linear_weight_grad --------------------------------------------------------------------- */

static clt_status infer_weight_grad(const clt_node *node, clt_type *out)
{
    const clt_linear_weight_grad_attr *attr = node->attr;
    char tx[CLT_TYPE_TEXT], ty[CLT_TYPE_TEXT];
    const int64_t k = columns_of(node->in[0]), o = columns_of(node->in[1]);
    if (rows_of(node->in[0]) != rows_of(node->in[1]) || k < 0 || o < 0)
        return clt_fail(CLT_SHAPE, "linear_weight_grad: %s and %s differ in their rows",
                        clt_operand_text(node, 0, tx), clt_operand_text(node, 1, ty));
    out[0] = (clt_type){.dtype = CLT_F32, .rank = 2, .dims = {o, k}};
    out[1] = (clt_type){.dtype = CLT_F32, .rank = 1, .dims = {attr->bias ? o : 1}};
    return CLT_OK;
}

static void describe_weight_grad(const clt_node *node, clt_str *text)
{
    const clt_linear_weight_grad_attr *attr = node->attr;
    if (attr->bias)
        clt_str_add(text, "and bias");
}

static double flops_weight_grad(const clt_node *node, int64_t n)
{
    return 2.0 * (double)clt_dim(rows_of(node->in[0]), n) *
           (double)clt_type_elements(&node->out[0]->type, n);
}

clt_gemm clt_linear_weight_grad_gemm(const clt_node *node)
{
    const int64_t k = columns_of(node->in[0]), o = columns_of(node->in[1]);
    return clt_gemm_typed(node, (clt_gemm){.pairs = 1,
                                           .m = o,
                                           .n = k,
                                           .k = rows_of(node->in[0]),
                                           .lda = o,
                                           .ldb = k,
                                           .trans_a = true,
                                           .a = 1,
                                           .b = 0,
                                           .bias = -1,
                                           .out = 0});
}

/* x, dy and the weight's gradient may be stored in 16 bits. The weight's gradient may not in the
 * batch-blocked layout, and the bias' gradient never. */
static bool half_weight_grad(const clt_node *node, const clt_target *target, int index, bool output)
{
    (void)target;
    return !output || (index == 0 && clt_all_plain(node));
}

const clt_op clt_op_linear_weight_grad = {
    .name = "linear_weight_grad",
    .doc = "The gradients of linear for weight and bias.",
    .operands = "x *k, dy *o",
    .results = "dweight ok, dbias o",
    CLT_ATTRIBUTES(clt_linear_weight_grad_attr,
                   {CLT_ATTRIBUTE(FLAG, "bias", clt_linear_weight_grad_attr, bias,
                                  "Whether dbias is wanted.")}),
    .infer = infer_weight_grad,
    .describe = describe_weight_grad,
    .flops = flops_weight_grad,
    .batch_blocked = clt_linear_weight_grad_batch_blocked,
    .half = half_weight_grad,
    .variants = clt_gemm_variants,
};
