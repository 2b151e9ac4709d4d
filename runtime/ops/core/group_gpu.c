#include "ops/core/group_gpu.h"

bool clt_gpu_group_accepts(const clt_node *node, const clt_target *target, char *why)
{
    if (clt_caps_is_cpu(target->caps))
        return clt_decline(why, "made for GPUs");
    if (!clt_all_plain(node))
        return clt_decline(why, "values lie in lanes");
    if (target->caps->max_work_group < CLT_GPU_GROUP)
        return clt_decline(why, "work-groups of %d", target->caps->max_work_group);
    return true;
}

int clt_gpu_power(int64_t value, int least, int most)
{
    int power = least;
    while (power < value && power < most)
        power *= 2;
    return power;
}

int64_t clt_gpu_groups(const clt_target *target)
{
    enum { GROUPS_A_UNIT = 4 };
    const int units = target->caps->compute_units;
    return GROUPS_A_UNIT * (int64_t)(units > 0 ? units : 1);
}
