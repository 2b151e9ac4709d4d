/* Which algorithm does which kind of collective: a new one is a file and a row here. */
#include "base/error.h"
#include "comm/internal.h"

typedef struct row {
    clt_comm_kind kind;
    const char *name;
    const clt_comm_algorithm *algorithm; /* NULL: none yet */
} row;

static const row rows[] = {
    {CLT_COMM_ALL_REDUCE, "all-reduce", &clt_comm_local_all_reduce},
    {CLT_COMM_REDUCE_SCATTER, "reduce-scatter", NULL},
    {CLT_COMM_ALL_GATHER, "all-gather", NULL},
    {CLT_COMM_BROADCAST, "broadcast", &clt_comm_local_broadcast},
    {CLT_COMM_REDUCE, "reduce", NULL},
    {CLT_COMM_SEND, "send", NULL},
    {CLT_COMM_RECEIVE, "receive", NULL},
    {CLT_COMM_BARRIER, "barrier", NULL},
};

clt_status clt_comm_choose(const clt_comm *comm, int device, const clt_comm_op *op,
                           const clt_comm_algorithm **algorithm)
{
    if (op->next)
        return clt_fail(CLT_UNSUPPORTED, "comm: groups of operations have no implementation yet; "
                                         "start them one by one");
    if (!clt_dtype_size(op->dtype))
        return clt_fail(CLT_INVALID_ARGUMENT, "comm: %d is not an element type", (int)op->dtype);
    bool mapped = comm->options.path == CLT_COMM_PATH_MAPPED;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].kind != op->kind)
            continue;
        if (!rows[i].algorithm)
            return clt_fail(CLT_UNSUPPORTED,
                            "comm: %s has no implementation between devices of a process yet",
                            rows[i].name);
        CLT_TRY(rows[i].algorithm->accepts(comm, op));
        if (mapped && op->mem && op->count > 0 && !clt_comm_maps(comm, device, op))
            return clt_fail(CLT_UNSUPPORTED,
                            "comm: device %d (%s) cannot map this operation's buffer: the "
                            "operation is not in place over the whole object; set "
                            "CLT_COMM_EXCLUSIVE or the path to auto",
                            device, comm->members[device].name);
        *algorithm = rows[i].algorithm;
        return CLT_OK;
    }
    return clt_fail(CLT_INVALID_ARGUMENT, "comm: %d is not a kind of collective", (int)op->kind);
}
