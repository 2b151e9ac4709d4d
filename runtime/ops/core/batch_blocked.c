#include "ops/core/batch_blocked.h"

int64_t clt_lanes_chunk(const clt_target *target, int64_t groups)
{
    const int64_t blocks = (target->max_batch + target->lanes - 1) / target->lanes;
    int64_t chunks = (8 * (int64_t)target->caps->compute_units + groups - 1) / groups;
    chunks = chunks > blocks ? blocks : chunks;
    return (blocks + chunks - 1) / chunks;
}

void clt_lanes_sum_chunks(clt_program *p, const clt_target *target, int block, int output,
                          int64_t count, int64_t chunk)
{
    enum { SPREAD = 1024 };
    clt_launch_begin(p, "conv/batch_blocked/conv_weight_grad.cl", "clt_lanes_sum_chunks",
                     "-DLANES=%d", target->lanes);
    clt_arg_scratch(p, block);
    clt_arg_out(p, output);
    clt_arg_int(p, clt_fixed(count));
    clt_arg_int(p, clt_fixed(chunk));
    clt_arg_run(p, CLT_RUN_COUNT);
    clt_range1(p, clt_fixed((count + SPREAD - 1) / SPREAD), 1);
}
