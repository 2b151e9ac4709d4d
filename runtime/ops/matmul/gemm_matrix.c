/* Launches of clkernels/matmul/gpu/gemm_matrix.cl. */
#include "ops/core/matrix_unit.h"
#include "ops/core/nn.h"
#include "ops/matmul/gemm.h"
#include "ops/matmul/gemm_gpu.h"

/* The type of the fragments: that of the operands in 16 bits. F32: there is none, or two. */
static clt_dtype type_of(const clt_gemm *gemm)
{
    if (clt_is_half(gemm->a_type) && clt_is_half(gemm->b_type))
        return gemm->a_type == gemm->b_type ? gemm->a_type : CLT_F32;
    return clt_is_half(gemm->a_type) ? gemm->a_type : gemm->b_type;
}

/* Eight elements can be read as a vector if rows have a multiple of eight. Values begin at
 * multiples of 16 bytes, and a sample within an input begins at a multiple of its rows. */
static int vector_of(int64_t columns)
{
    return columns % 8 == 0 ? 8 : 1;
}

static clt_matrix_loads loads_of(const clt_gemm *gemm)
{
    const bool vectors = vector_of(gemm->lda) > 1 && vector_of(gemm->ldb) > 1;
    return vectors ? CLT_LOADS_VECTORS : CLT_LOADS_SINGLE;
}

bool clt_gemm_matrix_accepts(const clt_gemm *gemm, const clt_node *node, const clt_target *target,
                             bool asked, char *why)
{
    enum { LEAST = 32 };
    if (!clt_matrix_accepts(node, type_of(gemm), target, why))
        return false;
    if (!clt_matrix_tile_exists(target->caps, loads_of(gemm)))
        return clt_decline(why, "work-groups of %d with %lld bytes of local memory",
                           target->caps->max_work_group, (long long)target->caps->local_bytes);
    const int64_t sizes[] = {gemm->m, gemm->n, gemm->k};
    for (int i = 0; i < 3; i++)
        if (clt_dim(sizes[i], target->max_batch) < LEAST && !asked)
            return clt_decline(why, "%c is less than %d", "MNK"[i], LEAST);
    return true;
}

void clt_gemm_matrix(const clt_gemm *gemm, const clt_target *target, clt_program *program)
{
    const clt_epilogue none = {CLT_ACTIVATION_NONE, 0};
    const int64_t m = clt_dim(gemm->m, target->max_batch), n = clt_dim(gemm->n, target->max_batch);
    const int64_t k = clt_dim(gemm->k, target->max_batch);
    const int64_t pairs = clt_dim(gemm->pairs, target->max_batch);
    const clt_matrix_choice choice = clt_matrix_choose(
        m > 0 ? m : 1, n > 0 ? n : 1, k > 0 ? k : 1, pairs > 0 ? pairs : 1, loads_of(gemm), target);
    const clt_matrix_tile *t = &choice.tile;
    /* Activations of many instructions are applied by a second kernel that needs few registers and
     * reads floats. */
    const bool later = gemm->epilogue.activation > CLT_ACTIVATION_LEAKY_RELU;
    const bool split = choice.slices > 1 || (later && clt_is_half(gemm->out_type));
    const bool apart = split || later;
    char types[CLT_GEMM_OPTIONS], unit[CLT_MATRIX_OPTIONS], tile[CLT_MATRIX_TILE_OPTIONS];
    const int block = split ? clt_scratch_add(program, clt_fixed(choice.slices * pairs * m * n *
                                                                 (int64_t)sizeof(float)))
                            : -1;
    clt_launch_begin(program, "matmul/gpu/gemm_matrix.cl", "gemm_matrix",
                     "%s %s -DTRANS_A=%d -DTRANS_B=%d -DVA=%d -DVB=%d%s",
                     clt_matrix_options(target->caps, type_of(gemm), unit),
                     clt_matrix_tile_options(t, tile), gemm->trans_a, gemm->trans_b,
                     vector_of(gemm->lda), vector_of(gemm->ldb),
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
    const int threads = clt_matrix_tile_threads(t, target->caps);
    clt_extent layers = clt_extent_dim(gemm->pairs);
    layers.mul *= choice.slices;
    clt_range3(program, clt_extent_ceil(clt_extent_dim(gemm->n), t->columns, threads),
               clt_extent_ceil(clt_extent_dim(gemm->m), t->rows, 1), layers, threads, 1, 1);
    if (apart)
        clt_gpu_sum(gemm->bias, gemm->out, gemm->out_type, block, gemm->pairs * gemm->m, gemm->n,
                    choice.slices, &gemm->epilogue, program);
}
