/* Reduce: like all-reduce, but only the root gets the result. */
#include "base/error.h"
#include "comm/communicator/internal.h"

static clt_status accepts(const clt_comm *comm, int device, const clt_comm_op *op)
{
    CLT_TRY(clt_comm_check_root(comm, op));
    return clt_comm_accepts_reduction(comm, device, op);
}

static void ranges(const clt_comm *comm, int device, const clt_comm_op *op, clt_comm_range *in,
                   clt_comm_range *out)
{
    if (!(op->flags & CLT_COMM_EMPTY))
        *in = (clt_comm_range){op->offset, op->count};
    if (comm->first + device == op->root)
        *out = (clt_comm_range){op->out ? op->out_offset : op->offset, op->count};
}

static clt_status tasks(const clt_comm *comm, const clt_comm_request *request, int k,
                        clt_task_list *list)
{
    const clt_comm_op *op = &request->sides[0].parts[k].op;
    char *to[CLT_COMM_MAX_DEVICES] = {NULL};
    const int root = clt_comm_device_of(comm, op->root);
    if (root >= 0)
        to[root] = request->sides[root].parts[k].host_out;
    return clt_comm_reduction_task(comm, request, k, 0, op->count, to, list);
}

const clt_comm_algorithm clt_kind_reduce = {
    .name = "reduce", .accepts = accepts, .ranges = ranges, .tasks = tasks, .passes = 1};
