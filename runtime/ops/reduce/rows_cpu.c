#include "ops/reduce/rows_cpu.h"

bool clt_rows_cpu_accepts(const clt_node *node, const clt_target *target, int axis, char *why)
{
    const clt_type *x = &node->in[0]->type;
    int64_t inner = 1;
    for (int k = axis + 1; k < x->rank; k++)
        inner *= x->dims[k];
    if (!clt_accepts_cpu_vectors(node, target, why))
        return false;
    if (inner != 1)
        return clt_decline(why, "%lld elements at distance %lld", (long long)x->dims[axis],
                           (long long)inner);
    return true;
}

void clt_rows_cpu_begin(clt_program *program, const clt_target *target, const char *kernel)
{
    clt_launch_begin(program, "reduce/cpu/rows.cl", kernel, "-DVW=%d", target->caps->vector_width);
}

int64_t clt_rows_cpu_share(const clt_target *target, clt_extent rows, int64_t columns)
{
    enum { ELEMENTS = 16384, ITEMS_A_UNIT = 4 };
    const int64_t count = clt_extent_at(rows, target->max_batch);
    int64_t share = ELEMENTS / columns;
    const int64_t most = count / (ITEMS_A_UNIT * (int64_t)target->caps->compute_units);
    share = share > most ? most : share;
    return share < 1 ? 1 : share;
}

void clt_rows_cpu_range(clt_program *program, const clt_target *target, clt_extent rows,
                        int64_t columns)
{
    const int64_t share = clt_rows_cpu_share(target, rows, columns);
    CLT_ARGS(program, CLT_FIXED(share));
    clt_range1(program, clt_extent_ceil(rows, share, 1), 1);
}
