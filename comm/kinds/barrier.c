/* Barrier: moves no data, and ends when all participants have joined. */
#include "comm/communicator/internal.h"

static clt_status accepts(const clt_comm *comm, int device, const clt_comm_op *op)
{
    (void)comm;
    (void)device;
    (void)op;
    return CLT_OK;
}

static void ranges(const clt_comm *comm, int device, const clt_comm_op *op, clt_comm_range *in,
                   clt_comm_range *out)
{
    (void)comm;
    (void)device;
    (void)op;
    (void)in;
    (void)out;
}

const clt_comm_algorithm clt_kind_barrier = {
    .name = "barrier", .accepts = accepts, .ranges = ranges};
