/* Counts requests that are done, by kind and transport, for clt_comm_counts. */
#include "base/error.h"
#include "comm/communicator/internal.h"

static double bytes_of(const clt_comm *comm, const clt_comm_op *op)
{
    const double bytes = (double)op->count * (double)clt_dtype_size(op->dtype);
    return clt_comm_kinds[op->kind]->blocks ? bytes * comm->total : bytes;
}

/* Counts an operation among g participants of the transport. */
static void add(clt_comm *comm, clt_comm_transport transport, const clt_comm_op *op, int g)
{
    clt_count *c = &comm->counts[op->kind][transport];
    const double bytes = bytes_of(comm, op);
    c->calls++;
    c->payload += (int64_t)bytes;
    c->sent += clt_comm_kinds[op->kind]->passes * (g - 1) * bytes / g;
}

/* Counts a message: only its sender sends the bytes, within the process or to another process. */
static void add_message(clt_comm *comm, clt_comm_transport transport, const clt_comm_op *op,
                        bool within)
{
    clt_count *c = &comm->counts[op->kind][transport];
    const bool stays = clt_comm_device_of(comm, op->peer) >= 0;
    c->calls++;
    c->payload += (int64_t)bytes_of(comm, op);
    if (op->kind == CLT_COMM_SEND && stays == within)
        c->sent += bytes_of(comm, op) / (within ? comm->count : 1);
}

static void add_part(clt_comm *comm, const clt_comm_request *r, const clt_comm_op *op)
{
    const bool message = clt_comm_kinds[op->kind]->message;
    if (message)
        add_message(comm, (clt_comm_transport)r->transport, op, true);
    else
        add(comm, (clt_comm_transport)r->transport, op, comm->count);
    if (comm->node && message)
        add_message(comm, CLT_COMM_SHARED_MEMORY, op, false);
    else if (comm->node)
        add(comm, CLT_COMM_SHARED_MEMORY, op, comm->node_ranks);
    /* Bytes sent between nodes are counted in ranks/link.c. */
    if (comm->cluster) {
        clt_count *c = &comm->counts[op->kind][CLT_COMM_MPI];
        c->calls++;
        c->payload += (int64_t)bytes_of(comm, op);
    }
}

void clt_counts_add_locked(clt_comm *comm, const clt_comm_request *r)
{
    for (int d = 0; d < comm->count; d++)
        for (int k = 0; k < r->sides[d].part_count; k++) {
            const clt_comm_op *op = &r->sides[d].parts[k].op;
            /* Each device brings its own messages. All other operations are common to the devices
             * and counted once. A device without messages brings a barrier. */
            if (clt_comm_kinds[op->kind]->message || d == 0)
                add_part(comm, r, op);
        }
}

CLT_STRUCT_INIT(clt_comm_count, )

clt_status clt_comm_counts(clt_comm *comm, clt_comm_kind kind, clt_comm_transport transport,
                           clt_comm_count *count)
{
    CLT_TRY(CLT_CHECK_STRUCT(count, clt_comm_count));
    if (!clt_comm_kind_name(kind) || !clt_comm_transport_name(transport))
        return clt_fail(CLT_INVALID_ARGUMENT, "comm: there is no kind %d, or no transport %d",
                        (int)kind, (int)transport);
    pthread_mutex_lock(&comm->lock);
    const clt_count c = comm->counts[kind][transport];
    pthread_mutex_unlock(&comm->lock);
    count->calls = c.calls;
    count->payload = c.payload;
    count->sent = transport == CLT_COMM_MPI && comm->cluster
                      ? (double)clt_cluster_sent(comm->cluster, kind)
                      : c.sent;
    return CLT_OK;
}
