/* All-reduce: the host reduces all contributions in the order of the participants and writes the
 * result for each. */
#include "comm/communicator/internal.h"

static void ranges(const clt_comm *comm, int device, const clt_comm_op *op, clt_comm_range *in,
                   clt_comm_range *out)
{
    (void)comm;
    (void)device;
    if (!(op->flags & CLT_COMM_EMPTY))
        *in = (clt_comm_range){op->offset, op->count};
    *out = (clt_comm_range){op->out ? op->out_offset : op->offset, op->count};
}

static clt_status tasks(const clt_comm *comm, const clt_comm_request *request, int k,
                        clt_task_list *list)
{
    char *to[CLT_COMM_MAX_DEVICES];
    for (int i = 0; i < comm->count; i++)
        to[i] = request->sides[i].parts[k].host_out;
    return clt_comm_reduction_task(comm, request, k, 0, request->sides[0].parts[k].op.count, to,
                                   list);
}

const clt_comm_algorithm clt_kind_all_reduce = {.name = "all-reduce",
                                                .accepts = clt_comm_accepts_reduction,
                                                .ranges = ranges,
                                                .tasks = tasks,
                                                .passes = 2};
