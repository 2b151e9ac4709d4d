/* Tiles and launches of clkernels/matmul/gpu/gemm.cl. */
#include "ops/matmul/gemm_gpu.h"

#include <stdio.h>

#include "ops/matmul/gemm.h"
#include "ops/core/nn.h"

/* Large tiles read less local memory. Small tiles keep the device busy in small products. */
static const clt_gpu_tile tiles[] = {
    {128, 128, 8, 8, 8}, {128, 64, 8, 8, 8}, {64, 128, 8, 8, 8}, {64, 64, 8, 8, 4},
    {64, 64, 16, 4, 4},  {64, 32, 16, 4, 4}, {32, 64, 16, 4, 4}, {32, 32, 16, 4, 4},
    {64, 16, 16, 4, 4},  {16, 64, 16, 4, 4},
};
enum { TILES = sizeof tiles / sizeof *tiles };

int clt_gpu_tile_threads(const clt_gpu_tile *t)
{
    return t->rows / t->own_rows * (t->columns / t->own_columns);
}

static int64_t local_bytes(const clt_gpu_tile *t)
{
    return 2 * t->depth * (t->rows + t->columns + 8) * (int64_t)sizeof(float);
}

static bool gpu_tile_fits(const clt_gpu_tile *t, const clt_caps *caps)
{
    enum { ASIDE = 1024 }; /* local memory that kernels or the driver use besides */
    return clt_gpu_tile_threads(t) <= caps->max_work_group &&
           local_bytes(t) + ASIDE <= caps->local_bytes;
}

bool clt_gpu_accepts(const clt_node *node, const clt_target *target, char *why)
{
    const clt_caps *caps = target->caps;
    if (!clt_all_plain(node))
        return clt_decline(why, "values are batch-blocked");
    if (clt_caps_is_cpu(caps))
        return clt_decline(why, "made for GPUs");
    for (int i = 0; i < TILES; i++)
        if (gpu_tile_fits(&tiles[i], caps))
            return true;
    return clt_decline(why, "work-groups of %d with %lld bytes of local memory",
                       caps->max_work_group, (long long)caps->local_bytes);
}

/*
 * Estimated time, in multiplications of all the device's work-items. It includes what tiles compute
 * beyond the result's edge, and how much of the device is idle. A compute unit needs THREADS
 * work-items to hide its latencies. Slices are written and read again and cost one more launch.
 */
static double cost(const clt_gpu_tile *t, int64_t slices, int64_t m, int64_t n, int64_t k,
                   int64_t batches, const clt_caps *caps)
{
    enum { THREADS = 256, SLICE = 50, LAUNCH = 300000 };
    const double units = caps->compute_units > 0 ? caps->compute_units : 1;
    const int64_t groups = clt_ceil_div(m, t->rows) * clt_ceil_div(n, t->columns) * batches;
    const double busy = (double)(groups * slices * clt_gpu_tile_threads(t)) / (THREADS * units);
    const double work = (double)(groups * t->rows * t->columns) *
                        (double)(clt_ceil_div(k, slices * t->depth) * slices * t->depth);
    const double speed = t->own_columns == 8 ? 1 : t->own_rows == 8 ? 0.85 : 0.7;
    double all = work / speed / (busy < 1 ? busy : 1);
    if (slices > 1)
        all += (double)(batches * slices * m * n) * SLICE + LAUNCH * units;
    return all;
}

clt_gpu_choice clt_gpu_choose(int64_t m, int64_t n, int64_t k, int64_t batches, bool taps,
                              const clt_target *target)
{
    enum { MOST_SLICES = 64, LEAST_DEPTH = 64, MOST_TAPS = 8 };
    const int64_t tm = clt_tile_number(target, "TM", 1, 1024, 0);
    const int64_t tn = clt_tile_number(target, "TN", 1, 1024, 0);
    const int64_t own = clt_tile_number(target, "R", 4, 8, 0);
    const int64_t wanted = clt_tile_number(target, "S", 1, MOST_SLICES, 0);
    clt_gpu_choice best = {.slices = 0};
    double least = 0;
    for (int pass = 0; pass < 2 && !best.slices; pass++)
        for (int i = 0; i < TILES; i++) {
            const clt_gpu_tile *t = &tiles[i];
            const bool other = t->rows != tm || t->columns != tn || t->own_rows != own;
            const int columns_each = t->depth * t->columns / clt_gpu_tile_threads(t);
            if (!gpu_tile_fits(t, target->caps) || (!pass && tm && other) ||
                (taps && columns_each > MOST_TAPS / (t->own_columns == 8 ? 2 : 1)))
                continue;
            for (int64_t s = 1; s <= MOST_SLICES && (s == 1 || k / s >= LEAST_DEPTH); s *= 2) {
                const double c = cost(t, s, m, n, k, batches, target->caps);
                if ((!pass && wanted && s != wanted) || (best.slices && c >= least))
                    continue;
                best = (clt_gpu_choice){*t, s};
                least = c;
            }
        }
    return best;
}

bool clt_gpu_tiles(const clt_node *node, const clt_target *target, int index, char *text)
{
    (void)node;
    static const int slices[] = {1, 4, 16};
    int fitting = 0;
    for (int i = 0; i < TILES; i++) {
        if (!gpu_tile_fits(&tiles[i], target->caps))
            continue;
        for (int s = 0; s < 3; s++)
            if (fitting++ == index) {
                snprintf(text, CLT_TILE_TEXT, "TM=%d,TN=%d,R=%d,S=%d", tiles[i].rows,
                         tiles[i].columns, tiles[i].own_rows, slices[s]);
                return true;
            }
    }
    return false;
}

/* Rows of a multiple of four floats can be read as float4. Values begin at multiples of 16 bytes,
 * and a sample within an input begins at a multiple of its rows. */
static int vector_of(int64_t dim)
{
    return dim % 4 == 0 ? 4 : 1;
}

void clt_gpu_sum(int bias, int out, clt_dtype type, int block, int64_t m, int64_t n, int64_t slices,
                 const clt_epilogue *epilogue, clt_program *program)
{
    const int v = vector_of(n);
    const bool half = clt_is_half(type);
    clt_launch_begin(program, "matmul/gpu/gemm.cl", "gemm_sum", "-DV=%d%s%s", v,
                     half ? " -DC_T=" : "", half ? clt_storage_name(type) : "");
    if (block >= 0)
        CLT_ARGS(program, CLT_SCRATCH(block));
    else
        CLT_ARGS(program, CLT_OUT(out));
    if (bias >= 0)
        CLT_ARGS(program, CLT_IN(bias));
    else
        CLT_ARGS(program, CLT_OUT(out));
    CLT_ARGS(program, CLT_OUT(out), CLT_INT(clt_extent_dim(m)), CLT_INT(clt_extent_dim(n)),
             CLT_FIXED(slices), CLT_FIXED(bias >= 0), CLT_EPILOGUE(epilogue));
    clt_extent items = clt_extent_dim(m < 0 ? m : n);
    items.mul *= m < 0 ? n : m;
    clt_range1(program, clt_extent_ceil(items, 64 * v, 64), 64);
}

void clt_gemm_gpu(const clt_gemm *gemm, const clt_target *target, clt_program *program)
{
    const clt_epilogue none = {CLT_ACTIVATION_NONE, 0};
    const int64_t m = clt_dim(gemm->m, target->max_batch), n = clt_dim(gemm->n, target->max_batch);
    const int64_t k = clt_dim(gemm->k, target->max_batch);
    const int64_t pairs = clt_dim(gemm->pairs, target->max_batch);
    const clt_gpu_choice choice = clt_gpu_choose(m > 0 ? m : 1, n > 0 ? n : 1, k > 0 ? k : 1,
                                                 pairs > 0 ? pairs : 1, false, target);
    const clt_gpu_tile *t = &choice.tile;
    /* Activations of many instructions are applied by a second kernel that needs few registers and
     * reads floats. */
    const bool later = gemm->epilogue.activation > CLT_ACTIVATION_LEAKY_RELU;
    const bool split = choice.slices > 1 || (later && clt_is_half(gemm->out_type));
    const bool apart = split || later;
    char types[CLT_GEMM_OPTIONS];
    const int block = split ? clt_scratch_add(program, clt_fixed(choice.slices * pairs * m * n *
                                                                 (int64_t)sizeof(float)))
                            : -1;
    clt_launch_begin(program, "matmul/gpu/gemm.cl", "gemm",
                     "-DTM=%d -DTN=%d -DTK=%d -DRM=%d -DRN=%d -DTRANS_A=%d -DTRANS_B=%d -DVA=%d "
                     "-DVB=%d -DV=%d%s",
                     t->rows, t->columns, t->depth, t->own_rows, t->own_columns, gemm->trans_a,
                     gemm->trans_b, vector_of(gemm->lda), vector_of(gemm->ldb), vector_of(gemm->n),
                     clt_gemm_options(gemm, !split, types));
    CLT_ARGS(program, CLT_IN(gemm->a), CLT_IN(gemm->b),
             CLT_IN(gemm->bias >= 0 ? gemm->bias : gemm->b));
    if (split)
        CLT_ARGS(program, CLT_SCRATCH(block));
    else
        CLT_ARGS(program, CLT_OUT(gemm->out));
    CLT_ARGS(program, CLT_INT(clt_extent_dim(gemm->m)), CLT_INT(clt_extent_dim(gemm->n)),
             CLT_INT(clt_extent_dim(gemm->k)), CLT_INT(clt_extent_dim(gemm->lda)),
             CLT_INT(clt_extent_dim(gemm->ldb)), CLT_LONG(clt_extent_dim(gemm->a_step)),
             CLT_LONG(clt_extent_dim(gemm->b_step)), CLT_FIXED(choice.slices),
             CLT_FIXED(!apart && gemm->bias >= 0), CLT_EPILOGUE(apart ? &none : &gemm->epilogue));
    const int threads = clt_gpu_tile_threads(t);
    clt_extent layers = clt_extent_dim(gemm->pairs);
    layers.mul *= choice.slices;
    clt_range3(program, clt_extent_ceil(clt_extent_dim(gemm->n), t->columns, threads),
               clt_extent_ceil(clt_extent_dim(gemm->m), t->rows, 1), layers, threads, 1, 1);
    if (apart)
        clt_gpu_sum(gemm->bias, gemm->out, gemm->out_type, block, gemm->pairs * gemm->m, gemm->n,
                    choice.slices, &gemm->epilogue, program);
}

void clt_column_sums_gpu(int operand, clt_dtype type, int out, int64_t rows, int64_t columns,
                         const clt_target *target, clt_program *program)
{
    enum { LANES = 16, ROWS = 4, LEAST_ROWS = 64, MOST_SLICES = 64 };
    const clt_epilogue none = {CLT_ACTIVATION_NONE, 0};
    const int v = vector_of(columns);
    const int64_t groups = clt_ceil_div(columns, LANES * v),
                  most = clt_dim(rows, target->max_batch);
    int64_t slices = 1;
    while (slices < MOST_SLICES && groups * slices < 2 * (int64_t)target->caps->compute_units &&
           most / slices > LEAST_ROWS)
        slices *= 2;
    const int block =
        slices > 1 ? clt_scratch_add(program, clt_fixed(slices * columns * (int64_t)sizeof(float)))
                   : -1;
    const bool half = clt_is_half(type);
    clt_launch_begin(program, "matmul/gpu/gemm.cl", "column_sums", "-DV=%d%s%s", v,
                     half ? " -DA_T=" : "", half ? clt_storage_name(type) : "");
    CLT_ARGS(program, CLT_IN(operand));
    if (block >= 0)
        CLT_ARGS(program, CLT_SCRATCH(block));
    else
        CLT_ARGS(program, CLT_OUT(out));
    CLT_ARGS(program, CLT_INT(clt_extent_dim(rows)), CLT_FIXED(columns), CLT_FIXED(slices));
    clt_range3(program, clt_fixed(groups * LANES * ROWS), clt_fixed(slices), clt_fixed(1),
               LANES * ROWS, 1, 1);
    if (slices > 1)
        clt_gpu_sum(-1, out, CLT_F32, block, 1, columns, slices, &none, program);
}
