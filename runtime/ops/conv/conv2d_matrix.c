/* Launches of clkernels/conv/gpu/conv2d_matrix.cl. */
#include "ops/conv/conv2d_gpu.h"
#include "ops/core/matrix_unit.h"

/* The 16-bit type of the node's values; F32 if it has none. */
static clt_dtype type_of(const clt_node *node)
{
    for (int i = 0; i < 2; i++)
        if (clt_is_half(node->in[i]->type.dtype))
            return node->in[i]->type.dtype;
    return CLT_F32;
}

bool clt_conv2d_matrix_fits(const clt_node *node, const clt_target *target, char *why)
{
    enum { LEAST = 32, LEAST_ROWS = 16 };
    if (!clt_matrix_accepts(node, type_of(node), target, why))
        return false;
    if (!clt_matrix_tile_exists(target->caps, CLT_LOADS_GATHERED))
        return clt_decline(why, "work-groups of %d with %lld bytes of local memory",
                           target->caps->max_work_group, (long long)target->caps->local_bytes);
    const clt_variant *wanted = clt_variant_wanted(node->op, target->variants);
    const bool asked = wanted && wanted->accepts == clt_conv2d_matrix_accepts;
    if (wanted && !asked)
        return clt_decline(why, "--variant asks for %s", wanted->name);
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    const clt_conv2d_product z = clt_conv2d_product_of(node, &s, clt_conv2d_batch(&s, target));
    if ((z.m < LEAST_ROWS || z.n < LEAST || z.k < LEAST) && !asked)
        return clt_decline(why, "a product of %lldx%lldx%lld in each group", (long long)z.m,
                           (long long)z.n, (long long)z.k);
    return clt_conv2d_gpu_fits(node, target, why);
}

bool clt_conv2d_matrix_accepts(const clt_node *node, const clt_target *target, char *why)
{
    return clt_conv2d_matrix_fits(node, target, why);
}

/* Begins a launch. `w`: type of A; `split`: results are the sums of slices, in f32. */
static void begin(clt_program *program, const clt_node *node, const clt_target *target,
                  const char *kernel, const clt_matrix_tile *t, int pass, clt_dtype w, bool split)
{
    char unit[CLT_MATRIX_OPTIONS], tile[CLT_MATRIX_TILE_OPTIONS];
    clt_launch_begin(program, "conv/gpu/conv2d_matrix.cl", kernel,
                     "-DPASS=%d %s %s -DX_T=%s -DW_T=%s -DY_T=%s", pass,
                     clt_matrix_options(target->caps, type_of(node), unit),
                     clt_matrix_tile_options(t, tile), clt_storage_name(node->in[0]->type.dtype),
                     clt_storage_name(w), split ? "f" : clt_storage_name(node->out[0]->type.dtype));
}

static void range(clt_program *program, const clt_target *target, const clt_matrix_tile *t,
                  clt_extent columns, int64_t rows, int64_t depth)
{
    const int threads = clt_matrix_tile_threads(t, target->caps);
    clt_range3(program, clt_extent_ceil(columns, t->columns, threads),
               clt_fixed(clt_ceil_div(rows, t->rows)), clt_fixed(depth), threads, 1, 1);
}

/* Chooses the tile and, for small grids, the slices of the sums. Each slice has a scratch block of
 * `elements`, which must stay small. */
static clt_matrix_choice choose(const clt_conv2d_product *z, int groups, int64_t elements,
                                const clt_target *target)
{
    const int64_t most = (int64_t)64 << 20;
    clt_matrix_choice c =
        clt_matrix_choose(z->m, z->n, z->k, groups * z->kinds, CLT_LOADS_GATHERED, target);
    while (c.slices > 1 && c.slices * elements > most)
        c.slices /= 2;
    return c;
}

static const clt_epilogue nothing = {CLT_ACTIVATION_NONE, 0};

void clt_conv2d_matrix(const clt_node *node, const clt_target *target, clt_program *program)
{
    const clt_conv2d_attr *attr = node->attr;
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    const bool bias = node->n_in > 2 && node->in[2];
    const int64_t batch = clt_conv2d_batch(&s, target);
    const int64_t pixels = (int64_t)s.out_height * s.out_width;
    const int64_t elements = batch * s.out_channels * pixels;
    const clt_conv2d_product z = clt_conv2d_product_of(node, &s, batch);
    const clt_matrix_choice c = choose(&z, s.groups, elements, target);
    const int block = clt_conv2d_add_slices(program, c.slices, elements);
    begin(program, node, target, "conv2d_matrix", &c.tile, 0, node->in[1]->type.dtype, block >= 0);
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1), CLT_IN(bias ? 2 : 1));
    clt_conv2d_arg_result(program, block);
    clt_arg_conv2d_shape(program, &s);
    CLT_ARGS(program, CLT_FIXED(bias && block < 0),
             CLT_EPILOGUE(block < 0 ? &attr->epilogue : &nothing), CLT_FIXED(c.slices));
    range(program, target, &c.tile, clt_conv2d_columns(&s, pixels), z.m, s.groups * c.slices);
    if (block >= 0)
        clt_conv2d_sum(program, &s, s.out_channels, pixels, block, c.slices, bias ? 2 : -1,
                       &attr->epilogue);
}

void clt_conv2d_data_grad_matrix(const clt_node *node, const clt_target *target,
                                 clt_program *program)
{
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    const int64_t batch = clt_conv2d_batch(&s, target), plane = (int64_t)s.height * s.width;
    const int64_t elements = batch * s.channels * plane;
    const clt_conv2d_product z = clt_conv2d_product_of(node, &s, batch);
    const clt_matrix_choice c = choose(&z, s.groups, elements, target);
    const int64_t pixels = clt_ceil_div(s.height, s.stride[0]) * clt_ceil_div(s.width, s.stride[1]);
    const int block = clt_conv2d_add_slices(program, c.slices, elements);
    begin(program, node, target, "conv2d_data_grad_matrix", &c.tile, 1, node->in[1]->type.dtype,
          block >= 0);
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1));
    clt_conv2d_arg_result(program, block);
    clt_arg_conv2d_shape(program, &s);
    CLT_ARGS(program, CLT_FIXED(c.slices));
    range(program, target, &c.tile, clt_conv2d_columns(&s, pixels), z.m,
          s.groups * z.kinds * c.slices);
    if (block >= 0)
        clt_conv2d_sum(program, &s, s.channels, plane, block, c.slices, -1, &nothing);
}

void clt_conv2d_weight_grad_matrix(const clt_node *node, const clt_target *target,
                                   clt_program *program)
{
    const clt_conv2d_attr *attr = node->attr;
    const clt_conv2d_shape s = clt_conv2d_shape_of(node);
    const int64_t batch = clt_conv2d_batch(&s, target);
    const clt_conv2d_product z = clt_conv2d_product_of(node, &s, batch);
    clt_matrix_choice c = clt_matrix_choose(z.m, z.n, z.k, s.groups, CLT_LOADS_GATHERED, target);
    c.slices = clt_conv2d_least_slices(&s, batch, c.slices);
    const clt_conv2d_slices sums = clt_conv2d_slices_begin(node, c.slices, program);
    begin(program, node, target, "conv2d_weight_grad_matrix", &c.tile, 2, node->in[1]->type.dtype,
          true);
    CLT_ARGS(program, CLT_IN(0), CLT_IN(1));
    clt_conv2d_slices_arg(&sums, program);
    CLT_ARGS(program, CLT_OUT(1));
    clt_arg_conv2d_shape(program, &s);
    CLT_ARGS(program, CLT_FIXED(attr->bias), CLT_FIXED(sums.part), CLT_FIXED(c.slices));
    range(program, target, &c.tile, clt_fixed(z.n), z.m, s.groups * c.slices);
    clt_conv2d_slices_end(&sums, program);
}
