#include "ops/matmul/gemm.h"

#include <stdio.h>

#include "ops/core/nn.h"

clt_gemm clt_gemm_typed(const clt_node *node, clt_gemm gemm)
{
    gemm.a_type = node->in[gemm.a]->type.dtype;
    gemm.b_type = node->in[gemm.b]->type.dtype;
    gemm.out_type = node->out[gemm.out]->type.dtype;
    return gemm;
}

const char *clt_gemm_options(const clt_gemm *gemm, bool out, char *text)
{
    static const char *const names[] = {"A_T", "B_T", "C_T"};
    const clt_dtype types[] = {gemm->a_type, gemm->b_type, gemm->out_type};
    int length = 0;
    text[0] = 0;
    for (int i = 0; i < (out ? 3 : 2); i++)
        if (clt_is_half(types[i]))
            length += snprintf(text + length, (size_t)(CLT_GEMM_OPTIONS - length), " -D%s=%s",
                               names[i], clt_storage_name(types[i]));
    return text;
}

void clt_gemm_portable(const clt_gemm *gemm, const clt_target *target, clt_program *program)
{
    (void)target;
    const int64_t one = 1;
    const clt_extent m = clt_extent_dim(gemm->m), n = clt_extent_dim(gemm->n);
    char types[CLT_GEMM_OPTIONS];
    clt_launch_begin(program, "matmul/portable/matmul.cl", "matmul", "%s",
                     clt_gemm_options(gemm, true, types));
    CLT_ARGS(program, CLT_IN(gemm->a), CLT_IN(gemm->b),
             CLT_IN(gemm->bias >= 0 ? gemm->bias : gemm->b), CLT_OUT(gemm->out), CLT_INT(m),
             CLT_INT(n), CLT_INT(clt_extent_dim(gemm->k)),
             CLT_INT(clt_extent_dim(gemm->trans_a ? one : gemm->lda)),
             CLT_INT(clt_extent_dim(gemm->trans_a ? gemm->lda : one)),
             CLT_INT(clt_extent_dim(gemm->trans_b ? one : gemm->ldb)),
             CLT_INT(clt_extent_dim(gemm->trans_b ? gemm->ldb : one)),
             CLT_LONG(clt_extent_dim(gemm->a_step)), CLT_LONG(clt_extent_dim(gemm->b_step)),
             CLT_FIXED(gemm->bias >= 0), CLT_EPILOGUE(&gemm->epilogue));
    /* infer made sure that at most one of m and n depends on the batch. */
    clt_extent items = gemm->m < 0 ? m : n;
    items.mul *= gemm->m < 0 ? gemm->n : gemm->m;
    clt_range3(program, clt_extent_ceil(items, 64, 64), clt_extent_dim(gemm->pairs), clt_fixed(1),
               64, 1, 1);
}

void clt_column_sums_portable(int operand, clt_dtype type, int out, int64_t rows, int64_t columns,
                              const clt_target *target, clt_program *program)
{
    clt_launch_begin(program, "matmul/portable/matmul.cl", "column_sums", "%s%s",
                     clt_is_half(type) ? "-DA_T=" : "",
                     clt_is_half(type) ? clt_storage_name(type) : "");
    CLT_ARGS(program, CLT_IN(operand), CLT_OUT(out), CLT_INT(clt_extent_dim(rows)),
             CLT_FIXED(columns));
    clt_range_items(program, target, clt_fixed(columns));
}
