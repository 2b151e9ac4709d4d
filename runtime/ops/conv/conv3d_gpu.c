/* conv3d and its gradients on GPUs. The planes that contribute to each plane of the result are
 * copied side by side into scratch memory; conv2d's kernels compute the rest. */
#include "ops/conv/conv.h"
#include "ops/conv/conv2d_gpu.h"
#include "ops/core/group_gpu.h"

/* The most elements of a copy, since kernels count in int. */
enum { MOST = 1 << 30 };

/* The two-dimensional node. */
typedef struct plane_node {
    clt_conv_shape s;
    clt_conv2d_attr attr;
    clt_value values[5];
    clt_value *in[3];
    clt_node node;
} plane_node;

static void plane_value(clt_value *value, int rank, int64_t a, int64_t b, int64_t c, int64_t d)
{
    *value = (clt_value){.kind = CLT_VALUE_INTERMEDIATE,
                         .type = {.dtype = CLT_F32, .rank = rank, .dims = {a, b, c, d}}};
}

static void planes_of(const clt_node *node, plane_node *p)
{
    const bool data = node->op == &clt_op_conv3d_data_grad;
    const bool weight = node->op == &clt_op_conv3d_weight_grad;
    const clt_conv3d_attr *attr = node->attr;
    const clt_conv2d_shape s = clt_conv3d_planes(node);
    *p = (plane_node){.s = clt_conv_shape_of(node)};
    p->attr = (clt_conv2d_attr){.groups = s.groups,
                                .epilogue = attr->epilogue,
                                .in = {s.height, s.width},
                                .kernel = {s.kernel[0], s.kernel[1]},
                                .bias = attr->bias};
    for (int i = 0; i < 2; i++) {
        p->attr.stride[i] = s.stride[i];
        p->attr.padding[i] = s.padding[i];
        p->attr.dilation[i] = s.dilation[i];
    }
    clt_value *x = &p->values[0], *w = &p->values[1], *y = &p->values[2];
    plane_value(x, 4, s.batch, s.channels, s.height, s.width);
    plane_value(w, 4, s.out_channels, s.channels / s.groups, s.kernel[0], s.kernel[1]);
    plane_value(y, 4, s.batch, s.out_channels, s.out_height, s.out_width);
    const bool bias = weight ? attr->bias : node->n_in > 2 && node->in[2];
    plane_value(&p->values[3], 1, weight && !bias ? 1 : s.out_channels, 0, 0, 0);
    p->in[0] = data ? y : x;
    p->in[1] = weight ? y : w;
    p->in[2] = bias ? &p->values[3] : NULL;
    p->node = (clt_node){.op = data     ? &clt_op_conv2d_data_grad
                               : weight ? &clt_op_conv2d_weight_grad
                                        : &clt_op_conv2d,
                         .n_in = data || weight ? 2 : 3,
                         .in = p->in,
                         .out = {data     ? x
                                 : weight ? w
                                          : y,
                                 &p->values[3]},
                         .attr = &p->attr};
}

bool clt_conv3d_gpu_accepts(const clt_node *node, const clt_target *target, char *why)
{
    plane_node p;
    if (!clt_gpu_group_accepts(node, target, why))
        return false;
    planes_of(node, &p);
    for (int i = 0; i < 3; i++)
        if ((double)clt_type_elements(&p.values[i].type, target->max_batch) > MOST)
            return clt_decline(why, "more than %d elements to copy", MOST);
    return clt_conv2d_gpu_accepts(&p.node, target, why);
}

/* --- launches ----------------------------------------------------------------------------------
 */

static clt_extent floats_of(const clt_value *value)
{
    clt_extent e = clt_extent_elements(&value->type);
    e.mul *= (int64_t)sizeof(float);
    e.add *= (int64_t)sizeof(float);
    return e;
}

static void begin_copy(clt_program *program, const char *kernel, int64_t plane)
{
    clt_launch_begin(program, "conv/gpu/conv3d.cl", kernel, "-DV=%d", plane % 4 ? 1 : 4);
}

/* Adds the last arguments of a copy kernel, and the range. */
static void end_copy(clt_program *program, const clt_value *copy, int64_t plane, const int *numbers,
                     int n)
{
    const int64_t v = plane % 4 ? 1 : 4;
    clt_extent items = clt_extent_elements(&copy->type);
    items.mul /= v;
    CLT_ARGS(program, CLT_INT(items), CLT_FIXED(plane / v));
    for (int i = 0; i < n; i++)
        CLT_ARGS(program, CLT_FIXED(numbers[i]));
    clt_range_gpu(program, items, 1);
}

/* Unfolds operand 0 into a scratch block of `copy`'s size and returns the block's index. */
static int unfold(const plane_node *p, const clt_value *copy, clt_program *program)
{
    const bool back = p->node.op == &clt_op_conv2d_data_grad;
    const clt_conv_shape *s = &p->s;
    const int64_t plane = copy->type.dims[2] * copy->type.dims[3];
    const int numbers[] = {back ? s->out_channels : s->channels,
                           back ? s->out[0] : s->in[0],
                           back ? s->in[0] : s->out[0],
                           s->kernel[0],
                           s->stride[0],
                           s->padding[0],
                           s->dilation[0],
                           back};
    const int block = clt_scratch_add(program, floats_of(copy));
    begin_copy(program, "unfold_planes", plane);
    CLT_ARGS(program, CLT_IN(0), CLT_SCRATCH(block));
    end_copy(program, copy, plane, numbers, 8);
    return block;
}

/* Copies operand `operand` from [.., m, n, plane] to [.., n, m, plane] in a scratch block of
 * `copy`'s size and returns the block's index. */
static int swapped(int operand, const clt_value *copy, int m, int n, int64_t plane,
                   clt_program *program)
{
    const int block = clt_scratch_add(program, floats_of(copy)), numbers[] = {m, n};
    begin_copy(program, "swap_planes", plane);
    CLT_ARGS(program, CLT_IN(operand), CLT_SCRATCH(block));
    end_copy(program, copy, plane, numbers, 2);
    return block;
}

/* The reverse of swapped: copies a scratch block to the result. */
static void swap_back(int block, const clt_value *copy, int m, int n, clt_program *program)
{
    const int64_t plane = copy->type.dims[2] * copy->type.dims[3];
    const int numbers[] = {m, n};
    begin_copy(program, "swap_planes", plane);
    CLT_ARGS(program, CLT_SCRATCH(block), CLT_OUT(0));
    end_copy(program, copy, plane, numbers, 2);
}

/* Replaces an operand or the result by a scratch block, from launch `first` on. */
static void redirect(clt_program *program, int first, clt_arg_kind kind, int index, int block)
{
    for (int l = first; l < program->n_launches; l++)
        for (int i = 0; i < program->launches[l].n_args; i++) {
            clt_arg *arg = &program->launches[l].args[i];
            if (arg->kind == kind && arg->index == index) {
                arg->kind = CLT_ARG_SCRATCH;
                arg->index = block;
            }
        }
}

void clt_conv3d_gpu(const clt_node *node, const clt_target *target, clt_program *program)
{
    plane_node p;
    planes_of(node, &p);
    const clt_value *y = &p.values[2];
    const int x = unfold(&p, &p.values[0], program);
    const int result = clt_scratch_add(program, floats_of(y)), first = program->n_launches;
    clt_conv2d_gpu(&p.node, target, program);
    /* Without a bias, the kernel's bias argument is the weight. */
    redirect(program, first, CLT_ARG_IN, 0, x);
    redirect(program, first, CLT_ARG_OUT, 0, result);
    swap_back(result, y, p.s.out[0], p.s.out_channels, program);
}

void clt_conv3d_data_grad_gpu(const clt_node *node, const clt_target *target, clt_program *program)
{
    plane_node p;
    planes_of(node, &p);
    const clt_conv_shape *s = &p.s;
    const clt_value *dx = &p.values[0];
    const int dy = unfold(&p, &p.values[2], program);
    const int w = swapped(1, &p.values[1], s->channels / s->groups, s->kernel[0],
                          (int64_t)s->kernel[1] * s->kernel[2], program);
    const int result = clt_scratch_add(program, floats_of(dx)), first = program->n_launches;
    clt_conv2d_data_grad_gpu(&p.node, target, program);
    redirect(program, first, CLT_ARG_IN, 0, dy);
    redirect(program, first, CLT_ARG_IN, 1, w);
    redirect(program, first, CLT_ARG_OUT, 0, result);
    swap_back(result, dx, s->in[0], s->channels, program);
}

void clt_conv3d_weight_grad_gpu(const clt_node *node, const clt_target *target,
                                clt_program *program)
{
    plane_node p;
    planes_of(node, &p);
    const clt_conv_shape *s = &p.s;
    const int x = unfold(&p, &p.values[0], program);
    const int dy = swapped(1, &p.values[2], s->out_channels, s->out[0],
                           (int64_t)s->out[1] * s->out[2], program);
    const int first = program->n_launches;
    clt_conv2d_weight_grad_gpu(&p.node, target, program);
    redirect(program, first, CLT_ARG_IN, 0, x);
    redirect(program, first, CLT_ARG_IN, 1, dy);
}
