/*
 * Send and receive between the devices of one process: the j-th send of a to b in a request goes to
 * the j-th receive of b from a in the same request. A device that has none of either joins with a
 * barrier.
 */
#include "base/error.h"
#include "comm/internal.h"

static clt_status accepts(const clt_comm *comm, int device, const clt_comm_op *op)
{
    if (comm->ranks > 1)
        return clt_fail(CLT_UNSUPPORTED, "comm: %s has no implementation between processes yet",
                        clt_comm_kind_name(op->kind));
    if (op->peer < 0 || op->peer >= comm->count || op->peer == device)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "comm: device %d cannot %s participant %d: give another of the %d", device,
                        op->kind == CLT_COMM_SEND ? "send to" : "receive from", op->peer,
                        comm->count);
    return clt_comm_accepts_copies(op);
}

static void send_ranges(const clt_comm *comm, int device, const clt_comm_op *op, clt_comm_range *in,
                        clt_comm_range *out)
{
    (void)comm;
    (void)device;
    (void)out;
    *in = (clt_comm_range){op->offset, op->count};
}

static void receive_ranges(const clt_comm *comm, int device, const clt_comm_op *op,
                           clt_comm_range *in, clt_comm_range *out)
{
    (void)comm;
    (void)device;
    (void)in;
    *out = (clt_comm_range){op->out ? op->out_offset : op->offset, op->count};
}

/* The j-th part of that kind with that peer, or NULL; how many there are in *count. */
static const clt_comm_part *find(const clt_comm_side *side, clt_comm_kind kind, int peer, int j,
                                 int *count)
{
    const clt_comm_part *found = NULL;
    *count = 0;
    for (int k = 0; k < side->part_count; k++) {
        const clt_comm_part *part = &side->parts[k];
        if (part->op.kind != kind || part->op.peer != peer)
            continue;
        if ((*count)++ == j)
            found = part;
    }
    return found;
}

static const char *label_of(const clt_comm_part *part)
{
    return part->op.label ? part->op.label : "unnamed";
}

static clt_status add(int from, int to, int j, const clt_comm_part *send,
                      const clt_comm_part *receive, clt_task_list *list)
{
    if (send->op.dtype != receive->op.dtype || send->op.count != receive->op.count)
        return clt_fail(CLT_MISMATCH,
                        "comm: send %d of device %d to %d (%s) has %s x %lld, its receive (%s) has "
                        "%s x %lld",
                        j, from, to, label_of(send), clt_dtype_name(send->op.dtype),
                        (long long)send->op.count, label_of(receive),
                        clt_dtype_name(receive->op.dtype), (long long)receive->op.count);
    const clt_task task = {.copy = true, .count = send->op.count * clt_dtype_size(send->op.dtype)};
    CLT_TRY(clt_tasks_add(list, &task));
    CLT_TRY(clt_tasks_in(list, send->host_in));
    return clt_tasks_out(list, receive->host_out);
}

/* All of the request at once, when it is asked for its first operation: positions mean nothing. */
static clt_status tasks(const clt_comm *comm, const clt_comm_request *request, int k,
                        clt_task_list *list)
{
    for (int pair = 0; pair < comm->count * comm->count && k == 0; pair++) {
        const int from = pair / comm->count, to = pair % comm->count;
        int sends = 1, receives = 1;
        for (int j = 0; j < sends || j < receives; j++) {
            const clt_comm_part *send = find(&request->sides[from], CLT_COMM_SEND, to, j, &sends);
            const clt_comm_part *receive =
                find(&request->sides[to], CLT_COMM_RECEIVE, from, j, &receives);
            if (sends != receives)
                return clt_fail(CLT_MISMATCH,
                                "comm: collective %lld: device %d sends %d times to device %d, "
                                "which receives %d times from it",
                                (long long)request->sequence, from, sends, to, receives);
            if (send && receive)
                CLT_TRY(add(from, to, j, send, receive, list));
        }
    }
    return CLT_OK;
}

const clt_comm_algorithm clt_comm_local_send = {accepts, send_ranges, tasks};
const clt_comm_algorithm clt_comm_local_receive = {accepts, receive_ranges, tasks};
