/* Reduce-scatter between the devices of one process: block i of the reduction goes to device i. */
#include "base/error.h"
#include "comm/internal.h"

static clt_status accepts(const clt_comm *comm, int device, const clt_comm_op *op)
{
    (void)comm;
    (void)device;
    return clt_comm_accepts_reduction(op);
}

static void ranges(const clt_comm *comm, int device, const clt_comm_op *op, clt_comm_range *in,
                   clt_comm_range *out)
{
    if (!(op->flags & CLT_COMM_EMPTY))
        *in = (clt_comm_range){op->offset, op->count * comm->count};
    *out = (clt_comm_range){op->out ? op->out_offset : op->offset + device * op->count, op->count};
}

static clt_status tasks(const clt_comm *comm, const clt_comm_request *request, int k,
                        clt_task_list *list)
{
    const int64_t count = request->sides[0].parts[k].op.count;
    for (int i = 0; i < comm->count; i++) {
        char *to[CLT_COMM_MAX_DEVICES] = {NULL};
        to[i] = request->sides[i].parts[k].host_out;
        CLT_TRY(clt_comm_reduction_task(request, k, comm->count, i * count, count, to, list));
    }
    return CLT_OK;
}

const clt_comm_algorithm clt_comm_local_reduce_scatter = {accepts, ranges, tasks};
