/* What a plan's launches compute and move, for tools/gpu_compile/roofline.py. */
#include <stdio.h>

#include "gpu/plans.h"
#include "tune/measure_node.h"

const char *counted;

static double stored_bytes(const clt_value *value, int64_t batch)
{
    return (double)(clt_type_elements(&value->type, batch) * clt_dtype_size(value->type.dtype));
}

/* Returns the bytes of the launch's operands, results and scratch blocks, each counted once. */
static double launch_bytes(const clt_plan_node *pn, const clt_launch *l, int64_t batch)
{
    double bytes = 0;
    for (int i = 0; i < l->n_args; i++) {
        const clt_arg *arg = &l->args[i];
        bool before = false;
        for (int j = 0; j < i; j++)
            before = before || (l->args[j].kind == arg->kind && l->args[j].index == arg->index);
        if (before)
            continue;
        if (arg->kind == CLT_ARG_IN && pn->node->in[arg->index])
            bytes += stored_bytes(pn->node->in[arg->index], batch);
        else if (arg->kind == CLT_ARG_OUT)
            bytes += stored_bytes(pn->node->out[arg->index], batch);
        else if (arg->kind == CLT_ARG_SCRATCH)
            bytes += (double)clt_extent_at(pn->program.scratch[arg->index], batch);
    }
    return bytes;
}

void print_counts(const clt_plan *plan)
{
    const int64_t batch = plan->options.max_batch;
    for (int i = 0; i < plan->n_nodes; i++) {
        const clt_plan_node *pn = &plan->nodes[i];
        for (int j = 0; j < pn->program.n_launches; j++) {
            const clt_launch *l = &pn->program.launches[j];
            int64_t items = 1, local = 1;
            for (int d = 0; d < l->work_dim; d++) {
                items *= clt_extent_at(l->global[d], batch);
                local *= l->local[d] ? l->local[d] : 1;
            }
            if (l->blas || !items)
                continue;
            printf("%s\t%s\t%s\t%s\t%d\t%s\t%s\t%lld\t%lld\t%.0f\t%.0f\n", l->file, l->options,
                   l->kernel, counted, i, pn->node->op->name, pn->shape_class, (long long)items,
                   (long long)local, clt_node_flops(pn->node, batch), launch_bytes(pn, l, batch));
        }
    }
}
