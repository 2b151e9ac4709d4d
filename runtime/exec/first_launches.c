#include "exec/first_launches.h"

#include <string.h>

#include "base/alloc.h"
#include "device/program/first_launch.h"

bool clt_exec_same_kernel(const clt_launch *a, const clt_launch *b)
{
    return a->kernel && b->kernel && !strcmp(a->kernel, b->kernel) && !strcmp(a->file, b->file) &&
           !strcmp(a->options ? a->options : "", b->options ? b->options : "") &&
           !memcmp(a->local, b->local, sizeof a->local);
}

void clt_exec_fit_group(const clt_device *device, size_t *local, int work_dim)
{
    const size_t most = (size_t)device->caps.max_work_group;
    size_t items = 1;
    for (int d = 0; d < work_dim; d++)
        items *= local[d];
    for (int d = 0; d < work_dim; d++)
        for (; items > most && local[d] > 1 && local[d] % 2 == 0; items /= 2)
            local[d] /= 2;
}

/* A kernel may touch whole vectors and blocks beyond the elements of a value. */
static int64_t with_slack(int64_t bytes)
{
    enum { SLACK = 64 << 10 };
    return bytes + SLACK;
}

static void add_value(clt_first_launch *first, const clt_plan *plan, const clt_value *value)
{
    if (!value) {
        clt_first_buffer(first, 0);
        return;
    }
    enum { MOST_LANES = 16 };
    const int64_t elements =
        clt_extent_at(clt_extent_stored(value, MOST_LANES), plan->options.max_batch);
    clt_first_buffer(first, with_slack(elements * clt_dtype_size(value->type.dtype)));
}

static void add_run_arg(clt_first_launch *first, const clt_plan *plan, int which)
{
    const cl_int count = (cl_int)plan->options.max_batch, added = 0;
    const cl_uint step = 0;
    const cl_ulong seed = 0;
    const cl_long sample = 0;
    switch ((clt_runtime_arg)which) {
    case CLT_RUN_COUNT:
        clt_first_arg(first, &count, sizeof count);
        break;
    case CLT_RUN_STEP:
        clt_first_arg(first, &step, sizeof step);
        break;
    case CLT_RUN_SEED:
        clt_first_arg(first, &seed, sizeof seed);
        break;
    case CLT_RUN_SAMPLE:
        clt_first_arg(first, &sample, sizeof sample);
        break;
    case CLT_RUN_ADDS:
        clt_first_arg(first, &added, sizeof added);
        break;
    }
}

/* Adds the arguments that exec sets at each enqueue. */
static void add_arg(clt_first_launch *first, const clt_plan *plan, const clt_plan_node *pn,
                    const clt_arg *arg)
{
    const cl_long zero = 0, number = clt_extent_at(arg->extent, plan->options.max_batch);
    const cl_int as_int = (cl_int)number;
    const cl_float as_float = arg->value;
    switch (arg->kind) {
    case CLT_ARG_IN:
    case CLT_ARG_OUT:
        add_value(first, plan,
                  arg->kind == CLT_ARG_IN ? pn->node->in[arg->index] : pn->node->out[arg->index]);
        clt_first_arg(first, &zero, sizeof zero);
        break;
    case CLT_ARG_SCRATCH:
        clt_first_buffer(first, with_slack(clt_extent_at(pn->program.scratch[arg->index],
                                                         plan->options.max_batch)));
        clt_first_arg(first, &zero, sizeof zero);
        break;
    case CLT_ARG_INT:
        clt_first_arg(first, &as_int, sizeof as_int);
        break;
    case CLT_ARG_LONG:
        clt_first_arg(first, &number, sizeof number);
        break;
    case CLT_ARG_FLOAT:
        clt_first_arg(first, &as_float, sizeof as_float);
        break;
    case CLT_ARG_RUN:
        add_run_arg(first, plan, arg->index);
        break;
    }
}

/* Returns whether the launch has a kernel and work at the plan's largest batch. */
static bool describe(const clt_device *device, const clt_plan *plan, const clt_plan_node *pn,
                     const clt_launch *launch, clt_first_launch *first)
{
    if (launch->blas)
        return false;
    *first = (clt_first_launch){.key = {launch->file, launch->options, launch->kernel, NULL},
                                .work_dim = launch->work_dim,
                                .global = {1, 1, 1}};
    for (int d = 0; d < launch->work_dim; d++) {
        first->global[d] = (size_t)clt_extent_at(launch->global[d], plan->options.max_batch);
        first->local[d] = (size_t)launch->local[d];
        if (!first->global[d])
            return false;
    }
    clt_exec_fit_group(device, first->local, launch->work_dim);
    for (int i = 0; i < launch->n_args; i++)
        add_arg(first, plan, pn, &launch->args[i]);
    return true;
}

/* As clt_merged_enqueue sets the arguments. */
static void describe_merged(const clt_plan *plan, const clt_merged *m, clt_first_launch *first)
{
    *first = (clt_first_launch){
        .key = clt_merged_key(m), .work_dim = 3, .global = {1, 1, 1}, .local = {1, 1, 1}};
    for (int d = 0; m->wide && d < m->wide->work_dim; d++)
        first->global[d] = (size_t)clt_extent_at(m->wide->global[d], plan->options.max_batch);
    const cl_long zero = 0;
    for (int i = 0; i < m->n_places; i++)
        clt_first_buffer(first, m->places[i].offset);
    for (int i = 0; i < m->n_places; i++)
        if (clt_merged_moves(m->places[i].kind))
            clt_first_arg(first, &zero, sizeof zero);
    for (int i = 0; i < m->n_offsets; i++)
        clt_first_arg(first, &m->offsets[i], sizeof m->offsets[i]);
    if (m->wide)
        clt_first_buffer(first, sizeof(cl_int));
    add_run_arg(first, plan, CLT_RUN_COUNT);
    add_run_arg(first, plan, CLT_RUN_STEP);
    add_run_arg(first, plan, CLT_RUN_SEED);
    add_run_arg(first, plan, CLT_RUN_SAMPLE);
}

void clt_exec_compile(clt_device *device, const clt_plan *plan, const clt_merged_list *merged)
{
    int most = 0, n = 0;
    if (!clt_first_launches_help(device))
        return;
    for (int i = 0; i < plan->n_nodes; i++)
        most += plan->nodes[i].program.n_launches;
    most += merged->count;
    clt_first_launch *launches = clt_calloc((size_t)most + 1, sizeof *launches);
    const clt_launch **of = clt_calloc((size_t)most + 1, sizeof *of);
    bool failed = !launches || !of;
    for (int i = 0; !failed && i < plan->n_nodes; i++)
        for (int j = 0; j < plan->nodes[i].program.n_launches; j++) {
            const clt_launch *launch = &plan->nodes[i].program.launches[j];
            int k = 0;
            while (k < n && !clt_exec_same_kernel(launch, of[k]))
                k++;
            if (k < n || clt_merged_has(plan, i, j) ||
                !describe(device, plan, &plan->nodes[i], launch, &launches[n]))
                continue;
            failed = failed || launches[n].args.failed;
            of[n++] = launch;
        }
    for (int i = 0; !failed && i < merged->count; i++) {
        int k = 0;
        while (strcmp(merged->all[k].source, merged->all[i].source))
            k++;
        if (k < i)
            continue;
        describe_merged(plan, &merged->all[i], &launches[n]);
        failed = launches[n++].args.failed;
    }
    if (!failed)
        clt_first_launches_compile(device, launches, n);
    for (int i = 0; i < n; i++)
        clt_str_free(&launches[i].args);
    CLT_FREE(launches, of);
}
