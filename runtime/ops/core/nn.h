/* Attributes and shapes of the layer operators, for passes and for kernel variants in other files.
 * The public builders are in <cltrain/ops/nn.h>. */
#ifndef CLT_OPS_CORE_NN_H
#define CLT_OPS_CORE_NN_H

#include "graph/graph.h"
#include "ops/core/activation.h"
#include "ops/core/launch.h"
#include <cltrain/ops/nn.h>

/* matmul(a, b). With `flatten`, the leading dimensions of an operand of rank above 2 count as one
 * dimension. Gradients of products with such an operand need it. */
typedef struct clt_matmul_attr {
    bool trans_a, trans_b;
    bool flatten;
} clt_matmul_attr;

/* linear(x [.., K], w [O, K], bias [O] or NULL) -> [.., O]. */
typedef struct clt_linear_attr {
    clt_epilogue epilogue;
} clt_linear_attr;

/* linear_weight_grad(x [.., K], dy [.., O]) -> dw [O, K], db [O]. Without `bias`, output 1 has one
 * element that no kernel writes. */
typedef struct clt_linear_weight_grad_attr {
    bool bias;
} clt_linear_weight_grad_attr;

/*
 * conv2d(x [B, C, H, W], w [O, C / groups, KH, KW], bias [O] or NULL) -> [B, O, OH, OW]
 * conv2d_data_grad(dy, w) -> dx; `in` holds H and W.
 * conv2d_weight_grad(x, dy) -> dw, db; `kernel` holds KH and KW. Without `bias`, output 1 is one
 * element that no kernel writes.
 * Pairs are height, width.
 */
typedef struct clt_conv2d_attr {
    int stride[2], padding[2], dilation[2];
    int groups;
    bool bias; /* conv2d_weight_grad */
    char unused[3];
    clt_epilogue epilogue; /* conv2d */
    int in[2];             /* conv2d_data_grad */
    int kernel[2];         /* conv2d_weight_grad */
} clt_conv2d_attr;

/* The sizes of a conv2d node or of one of its gradient nodes. */
typedef struct clt_conv2d_shape {
    int64_t batch; /* as in clt_type.dims: a negative number is a multiple of the batch size */
    int channels, height, width;
    int out_channels, out_height, out_width;
    int kernel[2], stride[2], padding[2], dilation[2];
    int groups;
} clt_conv2d_shape;

extern const clt_op clt_op_conv2d, clt_op_conv2d_data_grad, clt_op_conv2d_weight_grad;
extern const clt_op clt_op_linear, clt_op_linear_weight_grad, clt_op_matmul;

/* Returns the sizes of an inferred node of conv2d, conv2d_data_grad or conv2d_weight_grad. */
clt_conv2d_shape clt_conv2d_shape_of(const clt_node *node);

/* Adds the arguments CLT_SHAPE of clkernels/conv/portable/conv2d.cl and
 * clkernels/conv/gpu/conv2d.cl. */
void clt_arg_conv2d_shape(clt_program *p, const clt_conv2d_shape *s);

/*
 * avg_pool2d(x [B, C, H, W]), max_pool2d(x) -> [B, C, OH, OW]; avg_pool2d_grad(dy) -> dx;
 * max_pool2d_grad(x, dy) -> dx. In all four, `in` holds H and W of x. Averages have dilation 1.
 */
typedef struct clt_pool2d_attr {
    int kernel[2], stride[2], padding[2], dilation[2];
    bool ceil_mode, count_include_pad;
    char unused[2];
    int in[2];
} clt_pool2d_attr;

/* Returns the size of a pooled dimension under PyTorch's rules. A result of 0 or less means that no
 * window fits. */
int64_t clt_pool2d_size(const clt_pool2d_attr *attr, int axis, int64_t size);

/* softmax, log_softmax and their gradients (y, dy): `axis` in 0 .. rank - 1. */
typedef struct clt_softmax_attr {
    int axis;
} clt_softmax_attr;

/* cross_entropy(logits [P, C, d..], labels [P, d..]) -> sum, weight;
 * cross_entropy_grad(logits, labels, upstream of the sum) -> dlogits. */
typedef struct clt_cross_entropy_attr {
    double label_smoothing;
    int ignore_index;
    int unused;
} clt_cross_entropy_attr;

/* correct(logits, labels) -> sum, weight. */
typedef struct clt_correct_attr {
    int k;
    int ignore_index;
} clt_correct_attr;

/* --- helpers of the operators' files -------------------------------------------------------- */

/* Sets up options of `op`, whose rows of the schema lie in the options' own struct. */
void clt_options_init(const clt_op *op, void *options);

/* Copies a caller's options, which begin with size_t struct_size, over the defaults in `own`. */
clt_status clt_options_read(const char *op, void *own, size_t own_bytes, const void *given);

/* The same for the builder of an operator on x. Returns false after it made the graph fail. */
bool clt_options_given(const char *op, const clt_value *x, void *own, size_t own_bytes,
                       const void *given);

/* Fills the `list` of an attribute that has one entry for each dimension of x. If the caller gave
 * no entries (count 0), every entry becomes `default_value`. With a wrong count it fails the graph
 * and returns false. */
bool clt_entries(const clt_op *op, const clt_value *x, const char *name, int64_t *list, int count,
                 int64_t default_value);

/* Fails unless the operand is f32. */
clt_status clt_check_f32(const clt_node *node, int operand);

/* Fails unless operand 2, a bias, is absent, or has one f32 for each row of the weight, operand 1.
 */
clt_status clt_check_bias(const clt_node *node);

/* Fails unless dimensions `from` and up are constant and their product fits an int. */
clt_status clt_check_image(const clt_node *node, int operand, int from);

/* Returns the letter by which kernels name the storage type (clkernels/core/storage.clh). Returns
 * NULL for types other than f32, f16 and bf16. */
const char *clt_storage_name(clt_dtype type);

/* Returns whether kernels read and write the type in 16 bits: f16 or bf16. */
static inline bool clt_is_half(clt_dtype type)
{
    return type == CLT_F16 || type == CLT_BF16;
}

/* Returns the product of dimensions from .. to - 1 as one dimension. A negative product is a
 * multiple of the batch size. */
int64_t clt_dims_product(const clt_type *type, int from, int to);

/* Returns a hint for the message of a loss whose operands should have had one shape: that a flatten
 * is missing, if the numbers of dimensions differ; else "". */
const char *clt_flatten_hint(const clt_type *a, const clt_type *b);

/* Returns [B, C, L] as an image of one row, and the reverse. The first fails the graph and returns
 * NULL if `value` has another rank. `what` names the value in the message. */
clt_value *clt_row_as_image(const char *op, const char *what, clt_value *value);
clt_value *clt_image_as_row(clt_value *image);

/* Writes the operand's type as text for messages; returns "none" if the operand is absent. */
const char *clt_operand_text(const clt_node *node, int operand, char *text);

/* The arguments `int act, float slope` of a kernel with an epilogue, for CLT_ARGS. */
#define CLT_EPILOGUE(epilogue) CLT_FIXED((int)(epilogue)->activation), CLT_FLOAT((epilogue)->slope)

#endif
