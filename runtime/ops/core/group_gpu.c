#include "ops/core/group_gpu.h"

bool clt_gpu_group_accepts(const clt_node *node, const clt_target *target, char *why)
{
    if (clt_caps_is_cpu(target->caps))
        return clt_decline(why, "made for GPUs");
    if (!clt_all_plain(node))
        return clt_decline(why, "values are batch-blocked");
    if (target->caps->max_work_group < CLT_GPU_GROUP)
        return clt_decline(why, "work-groups of %d", target->caps->max_work_group);
    return true;
}

bool clt_gpu_elements_accepts(const clt_node *node, const clt_target *target, char *why)
{
    enum { MOST = 1 << 30 };
    if (!clt_gpu_group_accepts(node, target, why))
        return false;
    for (int i = 0; i < node->n_in + node->n_out; i++) {
        const clt_value *value = i < node->n_in ? node->in[i] : node->out[i - node->n_in];
        if (value && clt_type_elements(&value->type, target->max_batch) > MOST)
            return clt_decline(why, "more than %d elements", MOST);
    }
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

void clt_range_gpu(clt_program *p, clt_extent items, int64_t each)
{
    clt_range1(p, clt_extent_ceil(items, each * CLT_GPU_GROUP, CLT_GPU_GROUP), CLT_GPU_GROUP);
}
