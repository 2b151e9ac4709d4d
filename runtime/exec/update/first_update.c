/* Lists the launches at the end of a step for helper processes, which compile them together with
 * those of the plans. The functions that enqueue these kernels describe them, because their calls
 * go to clt_described_arg and clt_described_run meanwhile. */
#include "exec/update/update_internal.h"

#include "base/alloc.h"
#include "base/vec.h"
#include "device/program/first_launch.h"

/* The calls under way. */
struct clt_described {
    clt_first_launch next; /* has the arguments so far */
    clt_first_launch *all;
    int count, room;
    int64_t most_bytes; /* of a launch */
    bool failed;
};

/* Buffers that are made later are the step status and the partial norms. */
static int64_t buffer_bytes(const clt_update *u, cl_mem buffer)
{
    size_t bytes = CLT_STEP_STATUS * sizeof(float) +
                   ((size_t)u->stretches.partials + 1) * (size_t)CLT_PARTIAL_BYTES;
    if (buffer)
        clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof bytes, &bytes, NULL);
    return (int64_t)bytes;
}

void clt_described_arg(call *c, char kind, size_t bytes, const void *value)
{
    struct clt_described *d = c->update->described;
    if (kind == 'b')
        clt_first_buffer(&d->next, buffer_bytes(c->update, *(const cl_mem *)value));
    else
        clt_first_arg(&d->next, value, (int)bytes);
}

void clt_described_run(call *c, size_t global, size_t local, int64_t bytes)
{
    struct clt_described *d = c->update->described;
    d->next.key = clt_update_key(c->update, c->which);
    d->next.work_dim = 1;
    d->next.global[0] = global;
    d->next.local[0] = local;
    d->next.global[1] = d->next.global[2] = 1;
    d->most_bytes = bytes > d->most_bytes ? bytes : d->most_bytes;
    d->failed =
        d->failed || d->next.args.failed || CLT_PUSH(d->all, d->count, d->room, d->next) != CLT_OK;
    if (d->failed)
        clt_str_free(&d->next.args);
    d->next = (clt_first_launch){.n_args = 0};
}

void clt_update_compile_later(clt_replica *replica, const clt_update_options *options)
{
    struct clt_described d = {.count = 0};
    clt_update u = {.replica = replica, .options = *options, .described = &d};
    if (!clt_first_launches_help(replica->device) || options->matrices)
        return;
    clt_update_name_kernels(&u);
    clt_status status = clt_stretches_list(replica, options->merges, &u.stretches);
    CLT_NEXT(status, clt_update_status(&u));
    CLT_NEXT(status, clt_update_apply(&u, options->rule.rate, 0));
    const bool merges = options->merge != CLT_MERGE_OFF && d.most_bytes <= CLT_ENDING_BYTES;
    if (status == CLT_OK && !d.failed && !merges)
        clt_first_launches_later(replica->device, d.all, d.count);
    for (int i = 0; i < d.count; i++)
        clt_str_free(&d.all[i].args);
    CLT_FREE(d.all, u.stretches.all);
}
