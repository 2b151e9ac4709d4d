/* Broadcast between the participants: the host copies the root's bytes to the others. */
#include "base/error.h"
#include "comm/communicator/internal.h"

static clt_status accepts(const clt_comm *comm, int device, const clt_comm_op *op)
{
    CLT_TRY(clt_comm_check_root(comm, op));
    return clt_comm_accepts_copies(comm, device, op);
}

static void ranges(const clt_comm *comm, int device, const clt_comm_op *op, clt_comm_range *in,
                   clt_comm_range *out)
{
    const bool root = comm->first + device == op->root;
    if (root)
        *in = (clt_comm_range){op->offset, op->count};
    /* The root of an operation in place has the data already. */
    if (!root || op->out)
        *out = (clt_comm_range){op->out ? op->out_offset : op->offset, op->count};
}

static clt_status tasks(const clt_comm *comm, const clt_comm_request *request, int k,
                        clt_task_list *list)
{
    const clt_comm_op *op = &request->sides[0].parts[k].op;
    const clt_task task = {.copy = true, .count = op->count * clt_dtype_size(op->dtype)};
    CLT_TRY(clt_tasks_add(list, &task));
    const int root = clt_comm_device_of(comm, op->root);
    if (root >= 0)
        CLT_TRY(clt_tasks_in(list, request->sides[root].parts[k].host_in));
    for (int i = 0; i < comm->count; i++)
        if (request->sides[i].parts[k].host_out)
            CLT_TRY(clt_tasks_out(list, request->sides[i].parts[k].host_out));
    return CLT_OK;
}

const clt_comm_algorithm clt_kind_broadcast = {
    .name = "broadcast", .accepts = accepts, .ranges = ranges, .tasks = tasks, .passes = 1};
