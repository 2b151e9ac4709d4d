/* Functions that all reducing kinds use. */
#include "base/error.h"
#include "comm/communicator/internal.h"
#include "comm/core/reduction.h"

clt_status clt_comm_accepts_reduction(const clt_comm *comm, int device, const clt_comm_op *op)
{
    (void)comm;
    (void)device;
    const char *kind = clt_comm_kind_name(op->kind);
    if (op->reduction < CLT_COMM_SUM || op->reduction > CLT_COMM_MAX)
        return clt_fail(CLT_INVALID_ARGUMENT, "comm: %s: %d is not a reduction", kind,
                        (int)op->reduction);
    if (!clt_reduce_for(op->dtype, op->dtype))
        return clt_fail(CLT_UNSUPPORTED,
                        "comm: %s of %s has no implementation; use f32, f64, f16, bf16 or i32",
                        kind, clt_dtype_name(op->dtype));
    return CLT_OK;
}

clt_status clt_comm_reduction_task(const clt_comm *comm, const clt_comm_request *request, int k,
                                   int64_t first, int64_t count, char *const *to,
                                   clt_task_list *tasks)
{
    const clt_comm_op *op = &request->sides[0].parts[k].op;
    const int64_t skip = first * clt_dtype_size(op->dtype);
    const clt_task task = {.from = op->dtype,
                           .to = op->dtype,
                           .reduction = op->reduction,
                           .measure = op->flags & CLT_COMM_MEASURE,
                           .count = count};
    CLT_TRY(clt_tasks_add(tasks, &task));
    for (int i = 0; i < comm->count; i++) {
        const clt_comm_part *part = &request->sides[i].parts[k];
        if (part->in.count)
            CLT_TRY(clt_tasks_in(tasks, part->host_in + skip));
    }
    for (int i = 0; i < comm->count; i++)
        if (to[i])
            CLT_TRY(clt_tasks_out(tasks, to[i]));
    return CLT_OK;
}
