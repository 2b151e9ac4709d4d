/*
 * Send and receive. Within a request, the j-th send of a to b belongs to the j-th receive of b from
 * a. A participant that neither sends nor receives joins with a barrier.
 */
#include <string.h>

#include "base/error.h"
#include "base/vec.h"
#include "comm/communicator/internal.h"

static clt_status accepts(const clt_comm *comm, int device, const clt_comm_op *op)
{
    const int own = comm->first + device;
    if (op->peer < 0 || op->peer >= comm->total || op->peer == own)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "comm: participant %d cannot %s participant %d: give another of the %d",
                        own, op->kind == CLT_COMM_SEND ? "send to" : "receive from", op->peer,
                        comm->total);
    return clt_comm_accepts_copies(comm, device, op);
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

static clt_status add_own(clt_comm *comm, const clt_comm_request *request)
{
    for (int i = 0; i < comm->count; i++)
        for (int k = 0; k < request->sides[i].part_count; k++) {
            const clt_comm_part *part = &request->sides[i].parts[k];
            if (!clt_comm_is_exchange(part->op.kind))
                continue;
            const bool send = part->op.kind == CLT_COMM_SEND;
            const int own = comm->first + i;
            const clt_message m = {.kind = (int32_t)part->op.kind,
                                   .from = send ? own : part->op.peer,
                                   .to = send ? part->op.peer : own,
                                   .dtype = (int32_t)part->op.dtype,
                                   .count = part->op.count,
                                   .host = send ? part->host_in : part->host_out};
            CLT_TRY(CLT_PUSH(comm->messages, comm->message_count, comm->message_room, m));
        }
    return CLT_OK;
}

/* Adds a rank's messages to the list, without the rank's pointers. */
static clt_status take(void *user, const void *from, size_t bytes)
{
    clt_comm *comm = user;
    const int count = (int)(bytes / sizeof(clt_message));
    CLT_TRY(CLT_RESERVE(comm->messages, comm->message_count, comm->message_room, count));
    for (int i = 0; i < count; i++) {
        clt_message m;
        memcpy(&m, (const char *)from + (size_t)i * sizeof m, sizeof m);
        const int owner = m.kind == CLT_COMM_SEND ? m.from : m.to;
        if (clt_comm_device_of(comm, owner) >= 0)
            continue;
        m.host = NULL;
        comm->messages[comm->message_count++] = m;
    }
    return CLT_OK;
}

static clt_status tell_ranks(clt_comm *comm, const clt_ranks_job *job)
{
    const size_t bytes = (size_t)comm->message_count * sizeof(clt_message);
    if (bytes > CLT_RANKS_SHARE)
        return clt_fail(CLT_UNSUPPORTED,
                        "comm: collective %lld: at most %d sends and receives a rank in a group",
                        (long long)job->sequence, (int)(CLT_RANKS_SHARE / sizeof(clt_message)));
    if (comm->cluster)
        return clt_cluster_share(comm->cluster, job, comm->messages, bytes, take, comm);
    return clt_ranks_share(comm->node, job, comm->messages, bytes, take, comm);
}

/* Returns the j-th message of a kind from one participant to another, or NULL. */
static const clt_message *find(const clt_comm *comm, int kind, int from, int to, int j)
{
    for (int i = 0; i < comm->message_count; i++) {
        const clt_message *m = &comm->messages[i];
        if (m->kind == kind && m->from == from && m->to == to && j-- == 0)
            return m;
    }
    return NULL;
}

static clt_status add_task(clt_comm *comm, int64_t sequence, int j, const clt_message *send,
                           const clt_message *receive)
{
    const clt_message *any = send ? send : receive;
    if (!send || !receive)
        return clt_fail(CLT_MISMATCH,
                        "comm: collective %lld: participant %d has %s number %d %s participant %d, "
                        "which has no such %s",
                        (long long)sequence, send ? any->from : any->to,
                        send ? "a send" : "a receive", j, send ? "to" : "from",
                        send ? any->to : any->from, send ? "receive" : "send");
    if (send->dtype != receive->dtype || send->count != receive->count)
        return clt_fail(CLT_MISMATCH,
                        "comm: collective %lld: send %d of participant %d to %d has %s x %lld, its "
                        "receive %s x %lld",
                        (long long)sequence, j, any->from, any->to,
                        clt_dtype_name((clt_dtype)send->dtype), (long long)send->count,
                        clt_dtype_name((clt_dtype)receive->dtype), (long long)receive->count);
    const clt_task task = {.copy = true,
                           .count = send->count * clt_dtype_size((clt_dtype)send->dtype),
                           .kind = CLT_COMM_SEND};
    CLT_TRY(clt_tasks_add(&comm->tasks, &task));
    if (send->host)
        CLT_TRY(clt_tasks_in(&comm->tasks, send->host));
    if (receive->host)
        CLT_TRY(clt_tasks_out(&comm->tasks, receive->host));
    return CLT_OK;
}

clt_status clt_comm_exchange_tasks(clt_comm *comm, const clt_comm_request *request,
                                   const clt_ranks_job *job)
{
    comm->message_count = 0;
    CLT_TRY(add_own(comm, request));
    if (comm->node || comm->cluster)
        CLT_TRY(tell_ranks(comm, job));
    /* The order of the tasks must be the same on all ranks. */
    for (int pair = 0; pair < comm->total * comm->total && comm->message_count; pair++) {
        const int from = pair / comm->total, to = pair % comm->total;
        for (int j = 0;; j++) {
            const clt_message *send = find(comm, CLT_COMM_SEND, from, to, j);
            const clt_message *receive = find(comm, CLT_COMM_RECEIVE, from, to, j);
            if (!send && !receive)
                break;
            CLT_TRY(add_task(comm, request->sequence, j, send, receive));
        }
    }
    return CLT_OK;
}

const clt_comm_algorithm clt_kind_send = {
    .name = "send", .accepts = accepts, .ranges = send_ranges, .message = true};
const clt_comm_algorithm clt_kind_receive = {
    .name = "receive", .accepts = accepts, .ranges = receive_ranges, .message = true};
