/* Launches of clkernels/pool/gpu/pool2d.cl. */
#include "ops/core/group_gpu.h"
#include "ops/core/ops.h"
#include "ops/pool/pool2d.h"

enum { MOST_VECTORS = 8 }; /* vectors that a work-item reads of a row */

/* Whether windows do not overlap and leave no gap, and rows of both sides are whole float4. */
static bool tiles(const clt_pool2d_attr *a, int64_t oh, int64_t ow)
{
    for (int i = 0; i < 2; i++)
        if (a->padding[i] || a->dilation[i] != 1 || a->stride[i] != a->kernel[i])
            return false;
    return oh * a->kernel[0] == a->in[0] && ow * a->kernel[1] == a->in[1] && ow % 4 == 0 &&
           a->kernel[1] <= MOST_VECTORS;
}

/* Whether a work-item for four neighbouring windows reads few float4 of each row. */
static bool rows_fit(const clt_pool2d_attr *a, int64_t ow)
{
    const int span = 3 * a->stride[1] + (a->kernel[1] - 1) * a->dilation[1] + 4;
    return ow % 4 == 0 && a->in[1] % 4 == 0 && span <= 4 * MOST_VECTORS;
}

void clt_pool2d_gpu(const clt_node *node, const clt_target *target, clt_program *program)
{
    const clt_pool2d_attr *a = node->attr;
    const bool max = node->op == &clt_op_max_pool2d || node->op == &clt_op_max_pool2d_grad;
    const bool forward = node->op == &clt_op_max_pool2d || node->op == &clt_op_avg_pool2d;
    const int64_t oh = clt_pool2d_size(a, 0, a->in[0]), ow = clt_pool2d_size(a, 1, a->in[1]);
    const int v = (forward ? rows_fit(a, ow) : tiles(a, oh, ow)) ? 4 : 1;
    (void)target;
    clt_launch_begin(program, "pool/gpu/pool2d.cl", forward ? "pool2d" : "pool2d_grad",
                     "%s-DMAX=%d -DV=%d -DKH=%d -DKW=%d -DSY=%d -DSX=%d -DPY=%d -DPX=%d -DDIL_Y=%d "
                     "-DDIL_X=%d",
                     forward ? "-DFORWARD " : "", max, v, a->kernel[0], a->kernel[1], a->stride[0],
                     a->stride[1], a->padding[0], a->padding[1], a->dilation[0], a->dilation[1]);
    clt_args_in(program, node->n_in);
    CLT_ARGS(program, CLT_OUT(0));
    const clt_extent planes = clt_extent_dim(clt_dims_product(&node->out[0]->type, 0, 2));
    CLT_ARGS(program, CLT_INT(planes), CLT_FIXED(a->in[0]), CLT_FIXED(a->in[1]), CLT_FIXED(oh),
             CLT_FIXED(ow), CLT_FIXED(a->count_include_pad));
    /* A work-item computes V results, or the elements of V windows. */
    clt_extent items = planes;
    items.mul *= forward || v == 4 ? oh * ow / v : (int64_t)a->in[0] * a->in[1];
    clt_range_gpu(program, items, 1);
}
