/* The table of transports, in the order in which they are asked. A new one is a file and a row
 * here. */
#include <stdarg.h>
#include <stdio.h>

#include "base/error.h"
#include "comm/communicator/internal.h"

extern const clt_transport clt_transport_peer, clt_transport_in_queue, clt_transport_mapped,
    clt_transport_staged, clt_transport_shared_memory, clt_transport_mpi;

const clt_transport *const clt_transports[CLT_COMM_TRANSPORTS] = {
    [CLT_COMM_PEER] = &clt_transport_peer,
    [CLT_COMM_IN_QUEUE] = &clt_transport_in_queue,
    [CLT_COMM_MAPPED] = &clt_transport_mapped,
    [CLT_COMM_STAGED] = &clt_transport_staged,
    [CLT_COMM_SHARED_MEMORY] = &clt_transport_shared_memory,
    [CLT_COMM_MPI] = &clt_transport_mpi,
};

bool clt_declines(char *why, const char *format, ...)
{
    va_list args;
    if (!why)
        return false;
    va_start(args, format);
    vsnprintf(why, CLT_REASON, format, args);
    va_end(args);
    return false;
}

static bool takes_all(const clt_transport *t, const clt_comm *comm, const clt_comm_side *side,
                      char *why)
{
    for (int k = 0; k < side->part_count; k++)
        if (!t->accepts(comm, side->device, &side->parts[k], why))
            return false;
    return true;
}

clt_status clt_transport_of(const clt_comm *comm, const clt_comm_side *side, int *transport)
{
    char why[CLT_REASON];
    for (int i = 0; i < CLT_COMM_TRANSPORTS; i++)
        if (!clt_transports[i]->between && takes_all(clt_transports[i], comm, side, NULL)) {
            *transport = i;
            return CLT_OK;
        }
    /* This happens only if the caller asked for a path that is not available. The reason is that of
     * the mapped transport. */
    takes_all(clt_transports[CLT_COMM_MAPPED], comm, side, why);
    return clt_fail(
        CLT_UNSUPPORTED,
        "comm: %s of device %d (%s): its buffer cannot be mapped: %s; or set the path to "
        "auto",
        clt_comm_kind_name(side->parts[0].op.kind), side->device, comm->members[side->device].name,
        why);
}

const clt_transport *clt_transport_between(const clt_comm *comm)
{
    for (int i = 0; i < CLT_COMM_TRANSPORTS; i++)
        if (clt_transports[i]->between && clt_transports[i]->accepts(comm, 0, NULL, NULL))
            return clt_transports[i];
    return NULL;
}

const char *clt_comm_transport_name(clt_comm_transport transport)
{
    return (int)transport >= 0 && (int)transport < CLT_COMM_TRANSPORTS
               ? clt_transports[transport]->name
               : NULL;
}

clt_status clt_comm_accepts(const clt_comm *comm, int device, clt_comm_transport transport,
                            const clt_comm_op *op)
{
    clt_comm_part part = {.staging = -1};
    char why[CLT_REASON] = "";
    if (!clt_comm_transport_name(transport) || device < 0 || device >= comm->count)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "comm: there is no transport %d, or no device %d of %d", (int)transport,
                        device, comm->count);
    if (op)
        CLT_TRY(clt_comm_read_part(comm, device, op, &part));
    if (clt_transports[transport]->accepts(comm, device, op ? &part : NULL, why))
        return CLT_OK;
    return clt_fail(CLT_UNSUPPORTED, "%s%sdevice %d (%s): %s",
                    op ? clt_comm_kind_name(op->kind) : "", op ? " of " : "", device,
                    comm->members[device].name, why);
}
