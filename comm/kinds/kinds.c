/* The table of the kinds of collectives. A new kind is a file and a row here. */
#include "base/array.h"
#include "base/error.h"
#include "comm/communicator/internal.h"
#include "comm/core/residual.h"

extern const clt_comm_algorithm clt_kind_all_reduce, clt_kind_reduce_scatter, clt_kind_all_gather,
    clt_kind_broadcast, clt_kind_reduce, clt_kind_send, clt_kind_receive, clt_kind_barrier;

const clt_comm_algorithm *const clt_comm_kinds[CLT_COMM_KINDS] = {
    [CLT_COMM_ALL_REDUCE] = &clt_kind_all_reduce,
    [CLT_COMM_REDUCE_SCATTER] = &clt_kind_reduce_scatter,
    [CLT_COMM_ALL_GATHER] = &clt_kind_all_gather,
    [CLT_COMM_BROADCAST] = &clt_kind_broadcast,
    [CLT_COMM_REDUCE] = &clt_kind_reduce,
    [CLT_COMM_SEND] = &clt_kind_send,
    [CLT_COMM_RECEIVE] = &clt_kind_receive,
    [CLT_COMM_BARRIER] = &clt_kind_barrier,
};

static bool is_kind(clt_comm_kind kind)
{
    return (int)kind >= 0 && (int)kind < CLT_COMM_KINDS;
}

const char *clt_comm_kind_name(clt_comm_kind kind)
{
    return is_kind(kind) ? clt_comm_kinds[kind]->name : NULL;
}

bool clt_comm_is_exchange(clt_comm_kind kind)
{
    return kind == CLT_COMM_SEND || kind == CLT_COMM_RECEIVE;
}

clt_status clt_comm_check_root(const clt_comm *comm, const clt_comm_op *op)
{
    if (op->root >= 0 && op->root < comm->total)
        return CLT_OK;
    return clt_fail(CLT_INVALID_ARGUMENT, "comm: %s's root %d is not one of %d participants",
                    clt_comm_kind_name(op->kind), op->root, comm->total);
}

clt_status clt_comm_accepts_copies(const clt_comm *comm, int device, const clt_comm_op *op)
{
    (void)comm;
    (void)device;
    const char *kind = clt_comm_kind_name(op->kind);
    if (op->flags & CLT_COMM_MEASURE)
        return clt_fail(CLT_UNSUPPORTED, "comm: %s does not measure; clear CLT_COMM_MEASURE", kind);
    if (op->residual)
        return clt_fail(CLT_INVALID_ARGUMENT, "comm: %s rounds nothing; leave out the residual",
                        kind);
    if (op->flags & CLT_COMM_EMPTY)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "comm: %s has no empty devices, only reductions have; clear CLT_COMM_EMPTY",
                        kind);
    return CLT_OK;
}

clt_status clt_comm_choose(const clt_comm *comm, int device, const clt_comm_op *op,
                           const clt_comm_algorithm **algorithm)
{
    if (!clt_dtype_of_tensor(op->dtype))
        return clt_fail(CLT_INVALID_ARGUMENT, "comm: %d is not an element type", (int)op->dtype);
    if (!is_kind(op->kind))
        return clt_fail(CLT_INVALID_ARGUMENT, "comm: %d is not a kind of collective",
                        (int)op->kind);
    CLT_TRY(clt_comm_kinds[op->kind]->accepts(comm, device, op));
    *algorithm = clt_comm_kinds[op->kind];
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
    /* Also if this process has only barriers, other processes may send to each other. */
    if (clt_comm_may_exchange(side))
        CLT_TRY(clt_comm_exchange_tasks(comm, request, job));
    else
        for (int k = 0; k < side->part_count; k++) {
            const clt_comm_kind kind = side->parts[k].op.kind;
            const int first = comm->tasks.count;
            if (side->parts[k].op.residual)
                side->parts[k].op.residual->written = true;
            if (clt_comm_kinds[kind]->tasks)
                CLT_TRY(clt_comm_kinds[kind]->tasks(comm, request, k, &comm->tasks));
            for (int i = first; i < comm->tasks.count; i++)
                comm->tasks.tasks[i].kind = kind;
        }
    return clt_tasks_cut(&comm->tasks);
}
