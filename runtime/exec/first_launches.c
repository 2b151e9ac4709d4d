#include "exec/first_launches.h"

#include <string.h>

#include "base/alloc.h"
#include "device/program/first_launch.h"
#include "exec/launch_arguments.h"

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

typedef struct describing {
    const clt_plan *plan;
    const clt_plan_node *node;
    clt_first_launch *to;
} describing;

static int64_t stored_bytes(const clt_plan *plan, const clt_value *value)
{
    enum { MOST_LANES = 16 };
    return clt_extent_at(clt_extent_stored(value, MOST_LANES), plan->options.max_batch) *
           clt_dtype_size(value->type.dtype);
}

static cl_int add_buffer(void *user, const clt_arg *arg, cl_long *offset)
{
    const describing *d = user;
    const clt_plan_node *pn = d->node;
    const clt_value *value = clt_arg_value(arg, pn->node);
    const bool scratch = arg->kind == CLT_ARG_SCRATCH;
    *offset = 0;
    if (scratch || value)
        clt_first_buffer(d->to, with_slack(scratch ? clt_extent_at(pn->program.scratch[arg->index],
                                                                   d->plan->options.max_batch)
                                                   : stored_bytes(d->plan, value)));
    else
        clt_first_buffer(d->to, 0);
    return CL_SUCCESS;
}

static cl_int add_number(void *user, const clt_arg *arg, const void *value, size_t bytes)
{
    (void)arg;
    clt_first_arg(((const describing *)user)->to, value, (int)bytes);
    return CL_SUCCESS;
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
    describing d = {plan, pn, first};
    const clt_argument_taker taker = {&d, add_buffer, add_number};
    const clt_run run = {.count = plan->options.max_batch};
    return clt_arguments_give(launch, &run, false, &taker) == CL_SUCCESS;
}

/* As clt_merged_enqueue sets the arguments. */
static void describe_merged(const clt_plan *plan, clt_merged *m, clt_first_launch *first)
{
    *first = (clt_first_launch){
        .key = clt_merged_key(m), .work_dim = 3, .global = {1, 1, 1}, .local = {1, 1, 1}};
    for (int d = 0; m->wide && d < m->wide->work_dim; d++)
        first->global[d] = (size_t)clt_extent_at(m->wide->global[d], plan->options.max_batch);
    clt_merged_set_numbers(m, &(clt_run){.count = plan->options.max_batch}, NULL);
    for (int i = 0; i < m->n_places; i++)
        clt_first_buffer(first, m->places[i].offset);
    if (m->wide)
        clt_first_buffer(first, sizeof(cl_int));
    for (int i = 0; i < m->n_vectors; i++)
        clt_first_arg(first, m->numbers + (size_t)i * CLT_PACKED_LANES, sizeof(cl_long16));
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
