/* Products on CPUs with K divided into slices, for results with too few work-groups for the compute
 * units. clkernels/matmul/cpu/gemm.cl computes the slices' products, and `sum` of dot.cl adds them.
 */
#include <stdio.h>

#include "ops/matmul/gemm_cpu.h"
#include "ops/core/nn.h"

enum { LEAST_SHARE = 128, SLICES_A_UNIT = 4, MOST_SLICES = 1024 };

#define LEAST_GAIN 1.05

int64_t clt_gemm_next_slices(int64_t slices)
{
    int64_t power = 1;
    while (2 * power <= slices)
        power *= 2;
    return slices < power + power / 2 ? power + power / 2 : 2 * power;
}

int64_t clt_gemm_most_slices(const clt_gemm *gemm, const clt_target *target)
{
    const int64_t units = target->caps->compute_units;
    const int64_t by_units = units > 1 ? SLICES_A_UNIT * units : 1;
    const int64_t by_share = clt_gemm_size(gemm->k, target) / LEAST_SHARE;
    const int64_t most = by_units < by_share ? by_units : by_share;
    return most > MOST_SLICES ? MOST_SLICES : most;
}

static int64_t elements(const clt_gemm *gemm, const clt_target *target)
{
    return clt_gemm_size(gemm->pairs, target) * clt_gemm_size(gemm->m, target) *
           clt_gemm_size(gemm->n, target);
}

double clt_gemm_sum_cost(const clt_gemm *gemm, const clt_target *target, int64_t slices)
{
    const double vectors = (double)elements(gemm, target) / target->caps->vector_width;
    return slices > 1 ? CLT_COST_OF_LAUNCH + 4 * (double)slices * vectors : 0;
}

/* The best number of slices, which may be 1. The slices' products take memory, and the caches that
 * the next kernel would have found its operands in, so they must save more than the estimate's
 * error. */
static int64_t best_slices(const clt_gemm *gemm, const clt_target *target, double *least)
{
    const int64_t most = clt_gemm_most_slices(gemm, target);
    const double whole = clt_gemm_cpu_cost(gemm, target, 1);
    int64_t best = 1;
    *least = whole / LEAST_GAIN;
    for (int64_t s = 2; s <= most && whole > CLT_COST_OF_WAKING; s = clt_gemm_next_slices(s)) {
        const double cost = clt_gemm_cpu_cost(gemm, target, s) + clt_gemm_sum_cost(gemm, target, s);
        if (cost >= *least)
            continue;
        *least = cost;
        best = s;
    }
    if (best == 1)
        *least = whole;
    return best;
}

double clt_gemm_tiled_cost(const clt_gemm *gemm, const clt_target *target)
{
    double cost;
    best_slices(gemm, target, &cost);
    return cost;
}

bool clt_gemm_split_accepts(const clt_gemm *gemm, const clt_node *node, const clt_target *target,
                            char *why)
{
    double cost;
    const clt_target plain = {
        .caps = target->caps, .lanes = target->lanes, .max_batch = target->max_batch};
    if (!clt_gemm_cpu_accepts(node, target, why))
        return false;
    if (clt_gemm_most_slices(gemm, target) < 2)
        return clt_decline(why, "a K of %lld is too short to divide",
                           (long long)clt_gemm_size(gemm->k, target));
    if (best_slices(gemm, &plain, &cost) < 2)
        return clt_decline(why, "dividing K would not keep the units busier");
    return true;
}

bool clt_gemm_split_tiles(const clt_node *node, const clt_target *target, int index, char *text)
{
    static const char *const choices[] = {"S=2",        "S=4",        "S=8",        "S=16",
                                          "S=2,TILE=1", "S=2,TILE=2", "S=4,TILE=2", "S=2,TILE=4",
                                          "S=4,TILE=4", "S=4,PB=1"};
    (void)node;
    (void)target;
    if (index >= (int)(sizeof choices / sizeof *choices))
        return false;
    snprintf(text, CLT_TILE_TEXT, "%s", choices[index]);
    return true;
}

int clt_gemm_sum_block(const clt_gemm *gemm, const clt_target *target, int64_t slices,
                       clt_program *program)
{
    return clt_scratch_add(program,
                           clt_fixed(slices * elements(gemm, target) * (int64_t)sizeof(float)));
}

void clt_gemm_sum(const clt_gemm *gemm, const clt_target *target, int64_t slices, int block,
                  clt_program *program)
{
    enum { SHARE = 1024 };
    /* infer made sure that at most one of pairs, m and n depends on the batch. */
    clt_extent items = clt_extent_dim(gemm->pairs < 0 ? gemm->pairs
                                      : gemm->m < 0   ? gemm->m
                                                      : gemm->n);
    const int64_t rows = gemm->pairs * gemm->m;
    items.mul *= gemm->pairs < 0 ? gemm->m * gemm->n : gemm->m < 0 ? gemm->pairs * gemm->n : rows;
    const bool half = clt_is_half(gemm->out_type);
    clt_launch_begin(program, "matmul/cpu/dot.cl", "sum", "-DVW=%d -DSHARE=%d%s%s",
                     target->caps->vector_width, SHARE, half ? " -DC_T=" : "",
                     half ? clt_storage_name(gemm->out_type) : "");
    clt_launch_sums(program);
    clt_launch_packed(program);
    CLT_ARGS(program, CLT_SCRATCH(block), CLT_IN(gemm->bias >= 0 ? gemm->bias : gemm->b),
             CLT_OUT(gemm->out), CLT_INT(clt_extent_dim(rows)), CLT_INT(clt_extent_dim(gemm->n)),
             CLT_FIXED(slices), CLT_RUN(CLT_RUN_ADDS), CLT_FIXED(gemm->bias >= 0),
             CLT_EPILOGUE(&gemm->epilogue));
    clt_range1(program, clt_extent_ceil(items, SHARE, 1), 1);
}

void clt_gemm_split(const clt_gemm *gemm, const clt_target *target, clt_program *program)
{
    double cost;
    clt_target plain = *target;
    plain.tile = NULL;
    const int64_t slices =
        clt_tile_number(target, "S", 1, MOST_SLICES, best_slices(gemm, &plain, &cost));
    const int block = clt_gemm_sum_block(gemm, target, slices, program);
    clt_gemm_cpu_slices(gemm, target, slices, block, program);
    clt_gemm_sum(gemm, target, slices, block, program);
}
