/* conv2d: two-dimensional convolution (cross-correlation, as in PyTorch) and its gradients. */
#include <string.h>

#include "ops/conv/conv.h"
#include "ops/conv/conv2d_cpu.h"
#include "ops/conv/conv2d_gpu.h"
#include "ops/conv/conv2d_batch_blocked.h"
#include "ops/conv/conv2d_winograd.h"
#include "ops/conv/depthwise_gpu.h"
#include "ops/matmul/gemm_gpu.h"
#include "ops/core/matrix_unit.h"
#include "ops/core/nn.h"
#include "ops/core/ops.h"

/* In the batch-blocked layout, the sums of the weights' gradient are on the stack: a vector for
 * each tap of each pair of channels in a register tile. A tile has fewer pairs if a row has more
 * taps. */
static bool sums_fit_stack(const clt_conv2d_attr *attr)
{
    enum { MOST_BYTES = 4 << 20, VECTOR_BYTES = 64, CELLS = 32, MOST_COLUMNS = 8 };
    const int columns = attr->kernel[1] < MOST_COLUMNS ? attr->kernel[1] : MOST_COLUMNS;
    const int64_t taps = (int64_t)attr->kernel[0] * attr->kernel[1];
    return taps <= MOST_BYTES / VECTOR_BYTES / (CELLS / columns);
}

/* In the batch-blocked layout samples fill every vector, whatever the number of channels. */
static int wants_batch_blocked(const clt_node *node)
{
    const clt_conv2d_attr *attr = node->attr;
    const bool weight = node->op == &clt_op_conv2d_weight_grad;
    return attr->epilogue.activation <= CLT_ACTIVATION_RELU &&
                   clt_value_leads_with_batch(node->in[0]) &&
                   (!weight || (clt_value_leads_with_batch(node->in[1]) && sums_fit_stack(attr)))
               ? CLT_BATCH_BLOCKED_WANT
               : CLT_BATCH_BLOCKED_NO;
}

/* 16 bits are possible on matrix units, and in the batch-blocked layout, for the direct kernels
 * only. The data gradient's kernels of that layout add to their output, so it stays f32. */
static bool half(const clt_node *node, const clt_target *target, int index, bool output)
{
    char why[CLT_WHY];
    if (clt_conv2d_matrix_fits(node, target, why))
        return output || index == 0;
    return node->in[0]->layout == CLT_LAYOUT_BATCH_BLOCKED &&
           !clt_conv2d_winograd_fits(node, target, why) && index == 0 &&
           (!output || node->op == &clt_op_conv2d);
}

static bool half_weight_grad(const clt_node *node, const clt_target *target, int index, bool output)
{
    char why[CLT_WHY];
    (void)index;
    if (clt_conv2d_matrix_fits(node, target, why))
        return !output;
    return !output && node->in[0]->layout == CLT_LAYOUT_BATCH_BLOCKED &&
           node->in[1]->layout == CLT_LAYOUT_BATCH_BLOCKED &&
           !clt_conv2d_winograd_weight_fits(node, target, why);
}

/* Values are in 16 bits only if another variant accepts them (`half`). */
static bool accepts_portable(const clt_node *node, const clt_target *target, char *why)
{
    return clt_accepts_plain(node, target, why) && clt_accepts_f32(node, why);
}

static const clt_attribute attributes[] = {CLT_CONV_ATTRIBUTES(clt_conv2d_attr, 2), {0}};

const clt_op clt_op_conv2d = {
    .name = "conv2d",
    .doc = "Convolution of x with the kernels of the weight.",
    .operands = "x bchw, weight ocij, bias o?!",
    .results = "y bohw",
    CLT_CONV_MEMBERS(clt_conv2d_attr, "hw", "ij"),
    .callable = true,
    .infer = clt_conv_infer,
    .gradient = clt_conv_gradient,
    .half = half,
    .batch_blocked = wants_batch_blocked,
    .absorb = clt_conv_absorb,
    CLT_VARIANTS(
        {"batch_blocked_winograd", clt_conv2d_winograd_accepts, clt_conv2d_winograd,
         clt_conv2d_winograd_tiles, CLT_BATCH_BLOCKED},
        {"batch_blocked_gathered", clt_conv2d_gathered_accepts, clt_conv2d_gathered,
         clt_conv2d_gathered_tiles, CLT_BATCH_BLOCKED},
        {"batch_blocked", clt_accepts_batch_blocked, clt_conv2d_batch_blocked,
         clt_conv2d_batch_blocked_tiles, CLT_BATCH_BLOCKED},
        {"matrix_units", clt_conv2d_matrix_accepts, clt_conv2d_matrix, clt_matrix_gather_tiles,
         CLT_NARROWS},
        {"depthwise", clt_depthwise_gpu_accepts, clt_depthwise_gpu, clt_depthwise_gpu_tiles},
        {"implicit_gemm", clt_conv2d_gpu_accepts, clt_conv2d_gpu, clt_gpu_tiles},
        {"implicit_gemm_cpu", clt_conv2d_cpu_accepts, clt_conv2d_cpu, clt_conv2d_cpu_tiles},
        {"portable", accepts_portable, clt_conv_portable}),
};

void clt_conv2d_options_init(clt_conv2d_options *options)
{
    clt_conv2d_attr attr;
    clt_attributes_init(&clt_op_conv2d, &attr);
    *options = (clt_conv2d_options){.struct_size = sizeof *options, .groups = attr.groups};
    memcpy(options->stride, attr.stride, sizeof attr.stride);
    memcpy(options->padding, attr.padding, sizeof attr.padding);
    memcpy(options->dilation, attr.dilation, sizeof attr.dilation);
}

clt_value *clt_conv2d(clt_value *x, clt_value *weight, clt_value *bias,
                      const clt_conv2d_options *options)
{
    clt_conv2d_options own;
    clt_conv2d_options_init(&own);
    if (!x || !weight || !clt_options_given("conv2d", x, &own, sizeof own, options))
        return NULL;
    clt_conv2d_attr attr = {.groups = own.groups};
    for (int i = 0; i < 2; i++) {
        attr.stride[i] = own.stride[i];
        attr.padding[i] = own.padding[i];
        attr.dilation[i] = own.dilation[i];
    }
    return clt_emit1(&clt_op_conv2d, &attr, 3, x, weight, bias);
}

/* --- conv2d_data_grad ----------------------------------------------------------------------- */

/* The gradient of a transposed convolution. It is a convolution of dy with the same weight, and a
 * weight gradient with operand and dy exchanged. */
static clt_status data_grad_gradient(const clt_node *node, clt_value *const *dy, const bool *wanted,
                                     clt_value **dx)
{
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    clt_conv2d_attr attr = *(const clt_conv2d_attr *)node->attr;
    for (int i = 0; i < 2; i++) {
        attr.in[i] = 0;
        attr.kernel[i] = 0;
    }
    attr.bias = false;
    if (wanted[0])
        dx[0] = clt_emit1(&clt_op_conv2d, &attr, 3, dy[0], node->in[1], NULL);
    if (wanted[1]) {
        clt_value *const in[] = {dy[0], node->in[0]};
        for (int i = 0; i < 2; i++)
            attr.kernel[i] = s.kernel[i];
        clt_node *added = clt_graph_add(node->graph, &clt_op_conv2d_weight_grad, in, 2, &attr);
        dx[1] = added ? added->out[0] : NULL;
    }
    return clt_graph_status(node->graph);
}

const clt_op clt_op_conv2d_data_grad = {
    .name = "conv2d_data_grad",
    .doc = "The gradient of conv2d for x, a transposed convolution.",
    .operands = "dy bohw, weight ocij",
    .results = "dx bchw",
    CLT_CONV_MEMBERS(clt_conv2d_attr, "hw", "ij"),
    .infer = clt_conv_infer_data_grad,
    .gradient = data_grad_gradient,
    .half = half,
    .batch_blocked = wants_batch_blocked,
    CLT_VARIANTS(
        {"batch_blocked_winograd", clt_conv2d_winograd_accepts, clt_conv2d_winograd,
         clt_conv2d_winograd_tiles, CLT_BATCH_BLOCKED},
        {"batch_blocked_gathered", clt_conv2d_gathered_accepts, clt_conv2d_gathered,
         clt_conv2d_gathered_tiles, CLT_BATCH_BLOCKED},
        {"batch_blocked", clt_accepts_batch_blocked, clt_conv2d_data_grad_batch_blocked,
         clt_conv2d_data_grad_tiles, CLT_BATCH_BLOCKED},
        {"matrix_units", clt_conv2d_matrix_accepts, clt_conv2d_data_grad_matrix,
         clt_matrix_gather_tiles, CLT_NARROWS},
        {"depthwise", clt_depthwise_gpu_accepts, clt_depthwise_data_grad_gpu,
         clt_depthwise_gpu_tiles},
        {"implicit_gemm", clt_conv2d_gpu_accepts, clt_conv2d_data_grad_gpu, clt_gpu_tiles},
        {"implicit_gemm_cpu", clt_conv2d_cpu_accepts, clt_conv2d_cpu, clt_conv2d_cpu_tiles},
        {"portable", accepts_portable, clt_conv_portable}),
};

/* --- conv2d_weight_grad --------------------------------------------------------------------- */

const clt_op clt_op_conv2d_weight_grad = {
    .name = "conv2d_weight_grad",
    .doc = "The gradients of conv2d for weight and bias.",
    .operands = "x bchw, dy bohw",
    .results = "dweight ocij, dbias o",
    CLT_CONV_MEMBERS(clt_conv2d_attr, "hw", "ij"),
    .infer = clt_conv_infer_weight_grad,
    .half = half_weight_grad,
    .batch_blocked = wants_batch_blocked,
    CLT_VARIANTS(
        {"batch_blocked_winograd", clt_conv2d_winograd_weight_accepts, clt_conv2d_winograd_weight,
         clt_conv2d_winograd_weight_tiles, CLT_BATCH_BLOCKED},
        {"batch_blocked_gathered", clt_conv2d_weight_gathered_accepts, clt_conv2d_weight_gathered,
         clt_conv2d_weight_gathered_tiles, CLT_BATCH_BLOCKED},
        {"batch_blocked", clt_accepts_batch_blocked, clt_conv2d_weight_grad_batch_blocked,
         clt_conv2d_weight_grad_tiles, CLT_BATCH_BLOCKED},
        {"matrix_units", clt_conv2d_matrix_accepts, clt_conv2d_weight_grad_matrix,
         clt_matrix_gather_tiles, CLT_NARROWS},
        {"depthwise", clt_depthwise_gpu_accepts, clt_depthwise_weight_grad_gpu,
         clt_depthwise_gpu_tiles},
        {"implicit_gemm", clt_conv2d_gpu_accepts, clt_conv2d_weight_grad_gpu, clt_gpu_tiles},
        {"implicit_gemm_cpu", clt_conv2d_cpu_accepts, clt_conv2d_weight_grad_cpu},
        {"portable", accepts_portable, clt_conv_weight_grad_portable}),
};
