/* Broadcast between the devices of one process: the host copies the root's bytes to the others. */
#include <string.h>

#include "base/error.h"
#include "comm/internal.h"

enum { PIECE = 65536 }; /* bytes; read from memory once, from the cache for each further device */

static clt_status accepts(const clt_comm *comm, const clt_comm_op *op)
{
    if (op->root < 0 || op->root >= comm->count)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "comm: broadcast's root %d is not one of %d participants", op->root,
                        comm->count);
    if (op->flags & CLT_COMM_MEASURE)
        return clt_fail(CLT_UNSUPPORTED, "comm: broadcast cannot measure yet; clear "
                                         "CLT_COMM_MEASURE");
    return CLT_OK;
}

static void side_roles(const clt_comm *comm, const clt_comm_op *op, int device, bool *reads,
                       bool *writes)
{
    *reads = device == op->root;
    /* In place, the root has it already. */
    *writes = device != op->root || op->out;
    (void)comm;
}

static int64_t total_bytes(const clt_comm_request *request)
{
    const clt_comm_op *op = &request->sides[0].op;
    return op->count * clt_dtype_size(op->dtype);
}

static int64_t pieces(const clt_comm *comm, const clt_comm_request *request)
{
    (void)comm;
    return (total_bytes(request) + PIECE - 1) / PIECE;
}

static void work(clt_comm *comm, clt_comm_request *request, int64_t piece)
{
    int64_t from = piece * PIECE, left = total_bytes(request) - from;
    size_t n = (size_t)(left < PIECE ? left : PIECE);
    int root = request->sides[0].op.root;
    const char *source = request->sides[root].host + from;
    for (int i = 0; i < comm->count; i++) {
        const clt_comm_side *side = &request->sides[i];
        if (i != root && side->writes)
            memcpy(side->host + from, source, n);
    }
}

static void finish(clt_comm *comm, clt_comm_request *request)
{
    (void)comm;
    request->contributors = 1;
}

const clt_comm_algorithm clt_comm_local_broadcast = {
    .name = "local broadcast",
    .accepts = accepts,
    .side_roles = side_roles,
    .pieces = pieces,
    .work = work,
    .finish = finish,
};
