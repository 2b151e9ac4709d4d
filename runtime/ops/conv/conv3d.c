/* conv3d: three-dimensional convolution (cross-correlation, as in PyTorch) and its gradients. */
#include <string.h>

#include "ops/conv/conv.h"
#include "ops/conv/conv2d_cpu.h"
#include "ops/core/ops.h"
#include <cltrain/ops.h>

static const clt_attribute attributes[] = {CLT_CONV_ATTRIBUTES(clt_conv3d_attr, 3), {0}};

const clt_op clt_op_conv3d = {
    .name = "conv3d",
    .doc = "Convolution of x with the kernels of the weight.",
    .operands = "x bcdhw, weight ocijk, bias o?!",
    .results = "y bodhw",
    CLT_CONV_MEMBERS(clt_conv3d_attr, "dhw", "ijk"),
    .callable = true,
    .infer = clt_conv_infer,
    .gradient = clt_conv_gradient,
    .absorb = clt_conv_absorb,
    CLT_VARIANTS(
        {"planes_gpu", clt_conv3d_gpu_accepts, clt_conv3d_gpu},
        {"implicit_gemm_cpu", clt_conv2d_cpu_accepts, clt_conv2d_cpu, clt_conv2d_cpu_tiles},
        {"portable", clt_accepts_plain, clt_conv_portable}),
};

void clt_conv3d_options_init(clt_conv3d_options *options)
{
    clt_conv3d_attr attr;
    clt_attributes_init(&clt_op_conv3d, &attr);
    *options = (clt_conv3d_options){.struct_size = sizeof *options, .groups = attr.groups};
    memcpy(options->stride, attr.stride, sizeof attr.stride);
    memcpy(options->padding, attr.padding, sizeof attr.padding);
    memcpy(options->dilation, attr.dilation, sizeof attr.dilation);
}

clt_value *clt_conv3d(clt_value *x, clt_value *weight, clt_value *bias,
                      const clt_conv3d_options *options)
{
    clt_conv3d_options own;
    clt_conv3d_options_init(&own);
    if (!x || !weight || !clt_options_given("conv3d", x, &own, sizeof own, options))
        return NULL;
    clt_conv3d_attr attr = {.groups = own.groups};
    for (int i = 0; i < 3; i++) {
        attr.stride[i] = own.stride[i];
        attr.padding[i] = own.padding[i];
        attr.dilation[i] = own.dilation[i];
    }
    return clt_emit1(&clt_op_conv3d, &attr, 3, x, weight, bias);
}

const clt_op clt_op_conv3d_data_grad = {
    .name = "conv3d_data_grad",
    .doc = "The gradient of conv3d for x, a transposed convolution.",
    .operands = "dy bodhw, weight ocijk",
    .results = "dx bcdhw",
    CLT_CONV_MEMBERS(clt_conv3d_attr, "dhw", "ijk"),
    .infer = clt_conv_infer_data_grad,
    CLT_VARIANTS(
        {"planes_gpu", clt_conv3d_gpu_accepts, clt_conv3d_data_grad_gpu},
        {"implicit_gemm_cpu", clt_conv2d_cpu_accepts, clt_conv2d_cpu, clt_conv2d_cpu_tiles},
        {"portable", clt_accepts_plain, clt_conv_portable}),
};

const clt_op clt_op_conv3d_weight_grad = {
    .name = "conv3d_weight_grad",
    .doc = "The gradients of conv3d for weight and bias.",
    .operands = "x bcdhw, dy bodhw",
    .results = "dweight ocijk, dbias o",
    CLT_CONV_MEMBERS(clt_conv3d_attr, "dhw", "ijk"),
    .infer = clt_conv_infer_weight_grad,
    CLT_VARIANTS({"planes_gpu", clt_conv3d_gpu_accepts, clt_conv3d_weight_grad_gpu},
                 {"implicit_gemm_cpu", clt_conv2d_cpu_accepts, clt_conv2d_weight_grad_cpu},
                 {"portable", clt_accepts_plain, clt_conv_weight_grad_portable}),
};
