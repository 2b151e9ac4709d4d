/* All-gather between the devices of one process: device i's elements become block i for all. */
#include "base/error.h"
#include "comm/internal.h"

static clt_status accepts(const clt_comm *comm, int device, const clt_comm_op *op)
{
    (void)comm;
    (void)device;
    return clt_comm_accepts_copies(op);
}

static void ranges(const clt_comm *comm, int device, const clt_comm_op *op, clt_comm_range *in,
                   clt_comm_range *out)
{
    *in = (clt_comm_range){op->out ? op->offset : op->offset + device * op->count, op->count};
    *out = (clt_comm_range){op->out ? op->out_offset : op->offset, op->count * comm->count};
}

static clt_status tasks(const clt_comm *comm, const clt_comm_request *request, int k,
                        clt_task_list *list)
{
    const clt_comm_op *op = &request->sides[0].parts[k].op;
    const int64_t bytes = op->count * clt_dtype_size(op->dtype);
    for (int i = 0; i < comm->count; i++) {
        const clt_task task = {.copy = true, .count = bytes};
        CLT_TRY(clt_tasks_add(list, &task));
        CLT_TRY(clt_tasks_in(list, request->sides[i].parts[k].host_in));
        for (int to = 0; to < comm->count; to++)
            CLT_TRY(clt_tasks_out(list, request->sides[to].parts[k].host_out + i * bytes));
    }
    return CLT_OK;
}

const clt_comm_algorithm clt_comm_local_all_gather = {accepts, ranges, tasks};
