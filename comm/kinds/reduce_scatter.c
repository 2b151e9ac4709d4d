/* Reduce-scatter between the participants: block i of the reduction goes to participant i. */
#include "base/error.h"
#include "comm/communicator/internal.h"

static void ranges(const clt_comm *comm, int device, const clt_comm_op *op, clt_comm_range *in,
                   clt_comm_range *out)
{
    if (!(op->flags & CLT_COMM_EMPTY))
        *in = (clt_comm_range){op->offset, op->count * comm->total};
    *out = (clt_comm_range){
        op->out ? op->out_offset : op->offset + (comm->first + device) * op->count, op->count};
}

static clt_status tasks(const clt_comm *comm, const clt_comm_request *request, int k,
                        clt_task_list *list)
{
    const int64_t count = request->sides[0].parts[k].op.count;
    for (int i = 0; i < comm->total; i++) {
        char *to[CLT_COMM_MAX_DEVICES] = {NULL};
        const int device = clt_comm_device_of(comm, i);
        if (device >= 0)
            to[device] = request->sides[device].parts[k].host_out;
        CLT_TRY(clt_comm_reduction_task(comm, request, k, i * count, count, to, list));
    }
    return CLT_OK;
}

const clt_comm_algorithm clt_kind_reduce_scatter = {.name = "reduce-scatter",
                                                    .accepts = clt_comm_accepts_reduction,
                                                    .ranges = ranges,
                                                    .tasks = tasks,
                                                    .passes = 1,
                                                    .blocks = true};
