#include "ops/core/batch_blocked.h"

int64_t clt_batch_blocked_chunk(const clt_target *target, int64_t groups)
{
    const int64_t blocks = (target->max_batch + target->lanes - 1) / target->lanes;
    int64_t chunks = (8 * (int64_t)target->caps->compute_units + groups - 1) / groups;
    chunks = chunks > blocks ? blocks : chunks;
    return (blocks + chunks - 1) / chunks;
}

void clt_batch_blocked_sum_chunks(clt_program *p, const clt_target *target, int block, int output,
                                  int64_t count, int64_t chunk)
{
    enum { SPREAD = 1024 };
    clt_launch_begin(p, "conv/batch_blocked/conv_weight_grad.cl", "clt_batch_blocked_sum_chunks",
                     "-DLANES=%d", target->lanes);
    CLT_ARGS(p, CLT_SCRATCH(block), CLT_OUT(output), CLT_FIXED(count), CLT_FIXED(chunk),
             CLT_RUN(CLT_RUN_COUNT));
    clt_range1(p, clt_fixed((count + SPREAD - 1) / SPREAD), 1);
}
