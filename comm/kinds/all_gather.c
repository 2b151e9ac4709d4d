/* All-gather: the elements of participant i become block i of every participant's result. */
#include "base/error.h"
#include "comm/communicator/internal.h"

static void ranges(const clt_comm *comm, int device, const clt_comm_op *op, clt_comm_range *in,
                   clt_comm_range *out)
{
    *in = (clt_comm_range){op->out ? op->offset : op->offset + (comm->first + device) * op->count,
                           op->count};
    *out = (clt_comm_range){op->out ? op->out_offset : op->offset, op->count * comm->total};
}

static clt_status tasks(const clt_comm *comm, const clt_comm_request *request, int k,
                        clt_task_list *list)
{
    const clt_comm_op *op = &request->sides[0].parts[k].op;
    const int64_t bytes = op->count * clt_dtype_size(op->dtype);
    for (int i = 0; i < comm->total; i++) {
        const clt_task task = {.copy = true, .count = bytes};
        const int device = clt_comm_device_of(comm, i);
        CLT_TRY(clt_tasks_add(list, &task));
        if (device >= 0)
            CLT_TRY(clt_tasks_in(list, request->sides[device].parts[k].host_in));
        for (int to = 0; to < comm->count; to++)
            CLT_TRY(clt_tasks_out(list, request->sides[to].parts[k].host_out + i * bytes));
    }
    return CLT_OK;
}

const clt_comm_algorithm clt_kind_all_gather = {.name = "all-gather",
                                                .accepts = clt_comm_accepts_copies,
                                                .ranges = ranges,
                                                .tasks = tasks,
                                                .passes = 1,
                                                .blocks = true};
