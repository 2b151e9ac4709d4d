/* Which algorithm does which kind of collective: a new one is a file and a row here. */
#include <string.h>

#include "base/error.h"
#include "comm/internal.h"

typedef struct row {
    const char *name;
    const clt_comm_algorithm *algorithm;
} row;

static const row rows[] = {
    [CLT_COMM_ALL_REDUCE] = {"all-reduce", &clt_comm_local_all_reduce},
    [CLT_COMM_REDUCE_SCATTER] = {"reduce-scatter", &clt_comm_local_reduce_scatter},
    [CLT_COMM_ALL_GATHER] = {"all-gather", &clt_comm_local_all_gather},
    [CLT_COMM_BROADCAST] = {"broadcast", &clt_comm_local_broadcast},
    [CLT_COMM_REDUCE] = {"reduce", &clt_comm_local_reduce},
    [CLT_COMM_SEND] = {"send", &clt_comm_local_send},
    [CLT_COMM_RECEIVE] = {"receive", &clt_comm_local_receive},
    [CLT_COMM_BARRIER] = {"barrier", &clt_comm_local_barrier},
};
enum { KINDS = sizeof rows / sizeof *rows };

static const row *row_of(clt_comm_kind kind)
{
    return (int)kind >= 0 && (int)kind < KINDS ? &rows[kind] : NULL;
}

const char *clt_comm_kind_name(clt_comm_kind kind)
{
    const row *r = row_of(kind);
    return r ? r->name : "unknown";
}

bool clt_comm_is_exchange(clt_comm_kind kind)
{
    return kind == CLT_COMM_SEND || kind == CLT_COMM_RECEIVE;
}

clt_status clt_comm_accepts_copies(const clt_comm_op *op)
{
    const char *kind = clt_comm_kind_name(op->kind);
    if (op->flags & CLT_COMM_MEASURE)
        return clt_fail(CLT_UNSUPPORTED, "comm: %s does not measure; clear CLT_COMM_MEASURE", kind);
    if (op->flags & CLT_COMM_EMPTY)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "comm: %s has no empty devices, only reductions have; clear CLT_COMM_EMPTY",
                        kind);
    return CLT_OK;
}

clt_status clt_comm_choose(const clt_comm *comm, int device, const clt_comm_op *op,
                           const clt_comm_algorithm **algorithm)
{
    const row *r = row_of(op->kind);
    if (!clt_dtype_size(op->dtype))
        return clt_fail(CLT_INVALID_ARGUMENT, "comm: %d is not an element type", (int)op->dtype);
    if (!r)
        return clt_fail(CLT_INVALID_ARGUMENT, "comm: %d is not a kind of collective",
                        (int)op->kind);
    CLT_TRY(r->algorithm->accepts(comm, device, op));
    *algorithm = r->algorithm;
    return CLT_OK;
}

bool clt_comm_may_exchange(const clt_comm_side *side)
{
    const clt_comm_kind first = side->parts[0].op.kind;
    return clt_comm_is_exchange(first) || (first == CLT_COMM_BARRIER && side->part_count == 1);
}

clt_status clt_comm_list_tasks(clt_comm *comm, const clt_comm_request *request,
                               const clt_ranks_job *job)
{
    const clt_comm_side *side = &request->sides[0];
    clt_tasks_clear(&comm->tasks);
    /* Where this process has only barriers, others may send to each other. */
    if (clt_comm_may_exchange(side))
        CLT_TRY(clt_comm_exchange_tasks(comm, request, job));
    else
        for (int k = 0; k < side->part_count; k++) {
            const clt_comm_algorithm *a = rows[side->parts[k].op.kind].algorithm;
            if (a->tasks)
                CLT_TRY(a->tasks(comm, request, k, &comm->tasks));
        }
    return clt_tasks_cut(&comm->tasks);
}
