/* Tiles and launches of clkernels/conv/gpu/conv2d.cl. */
#include "ops/conv/conv2d_gpu.h"

#include <limits.h>

#include "ops/matmul/gemm_gpu.h"

clt_conv2d_product clt_conv2d_product_of(const clt_node *node, const clt_conv2d_shape *s,
                                         int64_t batch)
{
    const int64_t c = s->channels / s->groups, o = s->out_channels / s->groups;
    const int64_t taps = (int64_t)s->kernel[0] * s->kernel[1];
    const int64_t kinds = (int64_t)(s->stride[0] < s->height ? s->stride[0] : s->height) *
                          (s->stride[1] < s->width ? s->stride[1] : s->width);
    const int64_t pixels = batch * s->out_height * s->out_width;
    if (node->op == &clt_op_conv2d)
        return (clt_conv2d_product){o, pixels, c * taps, 1};
    if (node->op == &clt_op_conv2d_data_grad)
        return (clt_conv2d_product){
            c, batch * clt_ceil_div(s->height, s->stride[0]) * clt_ceil_div(s->width, s->stride[1]),
            o * clt_ceil_div(taps, kinds), kinds};
    const clt_conv2d_attr *attr = node->attr;
    return (clt_conv2d_product){o, c * taps + attr->bias, pixels, 1};
}

int64_t clt_conv2d_batch(const clt_conv2d_shape *s, const clt_target *target)
{
    const int64_t batch = clt_dim(s->batch, target->max_batch);
    return batch > 0 ? batch : 1;
}

bool clt_conv2d_gpu_fits(const clt_node *node, const clt_target *target, char *why)
{
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    const clt_conv2d_attr *attr = node->attr;
    if (attr->epilogue.activation > CLT_ACTIVATION_LEAKY_RELU)
        return clt_decline(why, "an activation of many instructions");
    /* Indices of pixels and offsets within a sample must fit an int. */
    const int64_t batch = clt_conv2d_batch(&s, target),
                  image = (int64_t)s.channels * s.height * s.width;
    if (image > INT_MAX / 4 || batch * s.height * s.width > INT_MAX / 4 ||
        batch * s.out_height * s.out_width > INT_MAX / 4)
        return clt_decline(why, "more than %d pixels", INT_MAX / 4);
    return true;
}

bool clt_conv2d_gpu_accepts(const clt_node *node, const clt_target *target, char *why)
{
    return clt_accepts_f32(node, why) && clt_gpu_accepts(node, target, why) &&
           clt_conv2d_gpu_fits(node, target, why);
}

static void begin(clt_program *program, const char *kernel, const clt_gpu_tile *t, int pass, int v)
{
    clt_launch_begin(program, "conv/gpu/conv2d.cl", kernel,
                     "-DPASS=%d -DTM=%d -DTN=%d -DTK=%d -DRM=%d -DRN=%d -DV=%d", pass, t->rows,
                     t->columns, t->depth, t->own_rows, t->own_columns, v);
}

static void range(clt_program *program, const clt_gpu_tile *t, clt_extent columns, int64_t rows,
                  int64_t depth)
{
    const int threads = clt_gpu_tile_threads(t);
    clt_range3(program, clt_extent_ceil(columns, t->columns, threads),
               clt_fixed(clt_ceil_div(rows, t->rows)), clt_fixed(depth), threads, 1, 1);
}

clt_extent clt_conv2d_columns(const clt_conv2d_shape *s, int64_t pixels)
{
    clt_extent e = clt_extent_dim(s->batch);
    e.mul *= pixels;
    return e;
}

/* Chooses the tile and, for small grids, the slices of the sums. Each slice has a scratch block of
 * `elements`, which must stay small. */
static clt_gpu_choice choose(const clt_conv2d_product *z, int groups, int64_t elements,
                             const clt_target *target)
{
    const int64_t most = (int64_t)64 << 20;
    clt_gpu_choice c = clt_gpu_choose(z->m, z->n, z->k, groups * z->kinds, false, target);
    while (c.slices > 1 && c.slices * elements > most)
        c.slices /= 2;
    return c;
}

int clt_conv2d_add_slices(clt_program *program, int64_t slices, int64_t elements)
{
    return slices > 1
               ? clt_scratch_add(program, clt_fixed(slices * elements * (int64_t)sizeof(float)))
               : -1;
}

void clt_conv2d_arg_result(clt_program *program, int block)
{
    if (block >= 0)
        CLT_ARGS(program, CLT_SCRATCH(block));
    else
        CLT_ARGS(program, CLT_OUT(0));
}

void clt_conv2d_sum(clt_program *program, const clt_conv2d_shape *s, int64_t channels,
                    int64_t pixels, int block, int64_t slices, int bias,
                    const clt_epilogue *epilogue)
{
    const int v = pixels % 4 ? 1 : 4;
    clt_launch_begin(program, "conv/gpu/conv2d.cl", "conv2d_sum", "-DV=%d", v);
    CLT_ARGS(program, CLT_SCRATCH(block), CLT_IN(bias < 0 ? 1 : bias), CLT_OUT(0),
             CLT_INT(clt_extent_dim(s->batch)), CLT_FIXED(channels), CLT_FIXED(pixels),
             CLT_FIXED(slices), CLT_FIXED(bias >= 0), CLT_EPILOGUE(epilogue));
    clt_range1(program, clt_extent_ceil(clt_conv2d_columns(s, channels * pixels), 64 * v, 64), 64);
}

static const clt_epilogue nothing = {CLT_ACTIVATION_NONE, 0};

void clt_conv2d_gpu(const clt_node *node, const clt_target *target, clt_program *program)
{
    const clt_conv2d_attr *attr = node->attr;
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    const bool bias = node->n_in > 2 && node->in[2];
    const int64_t batch = clt_conv2d_batch(&s, target),
                  pixels = (int64_t)s.out_height * s.out_width;
    const int64_t elements = batch * s.out_channels * pixels;
    const clt_conv2d_product z = clt_conv2d_product_of(node, &s, batch);
    const clt_gpu_choice c = choose(&z, s.groups, elements, target);
    const int block = clt_conv2d_add_slices(program, c.slices, elements);
    begin(program, "conv2d", &c.tile, 0, pixels % 4 ? 1 : 4);
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1), CLT_IN(bias ? 2 : 1));
    clt_conv2d_arg_result(program, block);
    clt_arg_conv2d_shape(program, &s);
    CLT_ARGS(program, CLT_FIXED(bias && block < 0),
             CLT_EPILOGUE(block < 0 ? &attr->epilogue : &nothing), CLT_FIXED(c.slices));
    range(program, &c.tile, clt_conv2d_columns(&s, pixels), z.m, s.groups * c.slices);
    if (block >= 0)
        clt_conv2d_sum(program, &s, s.out_channels, pixels, block, c.slices, bias ? 2 : -1,
                       &attr->epilogue);
}

void clt_conv2d_data_grad_gpu(const clt_node *node, const clt_target *target, clt_program *program)
{
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    const int64_t batch = clt_conv2d_batch(&s, target), plane = (int64_t)s.height * s.width;
    const int64_t elements = batch * s.channels * plane;
    const clt_conv2d_product z = clt_conv2d_product_of(node, &s, batch);
    const clt_gpu_choice c = choose(&z, s.groups, elements, target);
    const int64_t pixels = clt_ceil_div(s.height, s.stride[0]) * clt_ceil_div(s.width, s.stride[1]);
    const int block = clt_conv2d_add_slices(program, c.slices, elements);
    begin(program, "conv2d_data_grad", &c.tile, 1, pixels % 4 || z.kinds > 1 ? 1 : 4);
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1));
    clt_conv2d_arg_result(program, block);
    clt_arg_conv2d_shape(program, &s);
    CLT_ARGS(program, CLT_FIXED(c.slices));
    range(program, &c.tile, clt_conv2d_columns(&s, pixels), z.m, s.groups * z.kinds * c.slices);
    if (block >= 0)
        clt_conv2d_sum(program, &s, s.channels, plane, block, c.slices, -1, &nothing);
}

int64_t clt_conv2d_least_slices(const clt_conv2d_shape *s, int64_t batch, int64_t slices)
{
    const int64_t x = (int64_t)s->channels * s->height * s->width;
    const int64_t y = (int64_t)s->out_channels * s->out_height * s->out_width;
    while ((batch / slices + 2) * (x > y ? x : y) > INT_MAX && slices < batch)
        slices *= 2;
    return slices;
}

clt_conv2d_slices clt_conv2d_slices_begin(const clt_node *node, int64_t slices,
                                          clt_program *program)
{
    const clt_conv2d_attr *attr = node->attr;
    clt_conv2d_slices s = {.slices = slices, .biases = attr->bias ? node->out[1]->type.dims[0] : 0};
    s.weights = clt_type_elements(&node->out[0]->type, 0);
    s.part = clt_ceil_div(s.weights + s.biases, 4) * 4;
    s.block = clt_conv2d_add_slices(program, slices, s.part);
    return s;
}

void clt_conv2d_slices_arg(const clt_conv2d_slices *s, clt_program *program)
{
    clt_conv2d_arg_result(program, s->block);
}

void clt_conv2d_slices_end(const clt_conv2d_slices *s, clt_program *program)
{
    const int v = s->weights % 4 || s->biases % 4 ? 1 : 4;
    const int64_t sums = s->weights + s->biases;
    if (s->block < 0)
        return;
    clt_launch_begin(program, "conv/gpu/conv2d.cl", "conv2d_weight_sum", "-DV=%d", v);
    CLT_ARGS(program, CLT_SCRATCH(s->block), CLT_OUT(0), CLT_OUT(1), CLT_FIXED(s->weights),
             CLT_FIXED(sums), CLT_FIXED(s->part), CLT_FIXED(s->slices));
    clt_range1(program, clt_fixed(clt_ceil_div(sums, 64 * v) * 64), 64);
}

void clt_conv2d_weight_grad_gpu(const clt_node *node, const clt_target *target,
                                clt_program *program)
{
    const clt_conv2d_attr *attr = node->attr;
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    const int64_t batch = clt_conv2d_batch(&s, target);
    const clt_conv2d_product z = clt_conv2d_product_of(node, &s, batch);
    clt_gpu_choice c = clt_gpu_choose(z.m, z.n, z.k, s.groups, true, target);
    c.slices = clt_conv2d_least_slices(&s, batch, c.slices);
    const clt_conv2d_slices sums = clt_conv2d_slices_begin(node, c.slices, program);
    begin(program, "conv2d_weight_grad", &c.tile, 2, (z.n - attr->bias) % 4 ? 1 : 4);
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1));
    clt_conv2d_slices_arg(&sums, program);
    CLT_ARGS(program, CLT_OUT(1));
    clt_arg_conv2d_shape(program, &s);
    CLT_ARGS(program, CLT_FIXED(attr->bias), CLT_FIXED(sums.part), CLT_FIXED(c.slices));
    range(program, &c.tile, clt_fixed(z.n), z.m, s.groups * c.slices);
    clt_conv2d_slices_end(&sums, program);
}
