/* Products by CLBlast. The variant is used only if the tuner measured it or --variant requests
 * it. */
#include <stdio.h>

#include "ops/matmul/gemm.h"
#include "ops/matmul/gemm_gpu.h"

const clt_tuning_entry *clt_gemm_clblast_tuned(const clt_tuning_record *record,
                                               clt_blas_kernel kernel)
{
    return clt_tuning_find(record, CLT_BLAS_OP, clt_blas_key(kernel), clt_blas_kernel_name(kernel));
}

/* Writes the parameters that the tuning record has for the device; for kernels without a
 * measurement, the first parameters that fit the device. Returns false if no parameters fit. */
static bool gemm_clblast_sets(const clt_target *target, clt_blas_set sets[CLT_BLAS_KERNELS])
{
    for (clt_blas_kernel kernel = 0; kernel < CLT_BLAS_KERNELS; kernel++) {
        const clt_tuning_entry *e = clt_gemm_clblast_tuned(target->tuning, kernel);
        if ((!e || !clt_blas_set_read(kernel, e->options, &sets[kernel]) ||
             !clt_blas_set_fits(kernel, &sets[kernel], target->caps)) &&
            !clt_blas_set_choice(kernel, 0, target->caps, &sets[kernel]))
            return false;
    }
    return true;
}

bool clt_gemm_clblast_accepts(const clt_node *node, const clt_target *target, char *why)
{
    if (!clt_all_plain(node))
        return clt_decline(why, "values are batch-blocked");
    if (clt_caps_is_cpu(target->caps))
        return clt_decline(why, "made for GPUs");
    for (int i = 0; i < node->n_in + node->n_out; i++) {
        const clt_value *value = i < node->n_in ? node->in[i] : node->out[i - node->n_in];
        if (value && value->type.dtype != CLT_F32)
            return clt_decline(why, "takes f32 only, not %s", clt_dtype_name(value->type.dtype));
    }
    if (!target->caps->clblast)
        return clt_decline(why, "libclblast.so.1 was not found");
    clt_blas_set sets[CLT_BLAS_KERNELS];
    if (!gemm_clblast_sets(target, sets))
        return clt_decline(why,
                           "no tile of CLBlast's kernels fits %d work-items and %lld bytes of "
                           "local memory",
                           target->caps->max_work_group, (long long)target->caps->local_bytes);
    return true;
}

bool clt_gemm_clblast_tiles(const clt_node *node, const clt_target *target, int index, char *text)
{
    (void)node;
    (void)target;
    if (index > 1)
        return false;
    snprintf(text, CLT_TILE_TEXT, "PACKED=%d", index);
    return true;
}

/* Bytes for A, B and C, each padded to whole tiles of the largest size. */
static clt_extent packing_bytes(const clt_gemm *gemm)
{
    enum { TILE = CLT_BLAS_LARGEST_TILE, BYTES = (int)sizeof(float) };
    const int64_t sizes[] = {gemm->m, gemm->n, gemm->k};
    int varying = 0; /* at most one of them depends on the batch */
    int64_t tiled[3];
    for (int i = 0; i < 3; i++) {
        const int64_t tiles = (sizes[i] + TILE - 1) / TILE;
        varying = sizes[i] < 0 ? i : varying;
        tiled[i] = tiles * TILE;
    }
    const int64_t x = tiled[(varying + 1) % 3], y = tiled[(varying + 2) % 3];
    clt_extent bytes = clt_extent_ceil(clt_extent_dim(sizes[varying]), TILE, TILE);
    bytes.mul *= (x + y) * BYTES;
    bytes.add = x * y * BYTES;
    return bytes;
}

void clt_gemm_clblast(const clt_gemm *gemm, const clt_target *target, clt_program *program)
{
    /* For smaller products, copying the operands takes longer than it saves. A tuning record
     * overrides this. */
    const double enough = 512.0 * 512.0 * 512.0;
    const double work = (double)clt_dim(gemm->m, target->max_batch) *
                        (double)clt_dim(gemm->n, target->max_batch) *
                        (double)clt_dim(gemm->k, target->max_batch);
    const bool packed = clt_tile_number(target, "PACKED", 0, 1, work >= enough) != 0;
    clt_blas_gemm blas = {
        .m = clt_extent_dim(gemm->m),
        .n = clt_extent_dim(gemm->n),
        .k = clt_extent_dim(gemm->k),
        .lda = clt_extent_dim(gemm->lda),
        .ldb = clt_extent_dim(gemm->ldb),
        .pairs = clt_extent_dim(gemm->pairs),
        .a_step = clt_extent_dim(gemm->a_step),
        .b_step = clt_extent_dim(gemm->b_step),
        .trans_a = gemm->trans_a,
        .trans_b = gemm->trans_b,
        .packed = packed,
        .a = gemm->a,
        .b = gemm->b,
        .out = gemm->out,
        .block = packed && gemm->pairs == 1 ? clt_scratch_add(program, packing_bytes(gemm)) : -1};
    gemm_clblast_sets(target, blas.sets);
    clt_launch_clblast(program, &blas);
    if (gemm->bias >= 0 || gemm->epilogue.activation != CLT_ACTIVATION_NONE)
        clt_gpu_sum(gemm->bias, gemm->out, CLT_F32, -1, gemm->pairs * gemm->m, gemm->n, 1,
                    &gemm->epilogue, program);
}
