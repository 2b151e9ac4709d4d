/* All-reduce between the devices of one process: the host adds all contributions in the order of
 * the devices and writes the result for each. */
#include "base/error.h"
#include "comm/internal.h"
#include "comm/local/sum.h"

enum { PIECE = 16384 }; /* elements; 64 KB of f32 from each device fits the second-level cache */

/* Most devices whose pointers fit on the stack. */
enum { MAX_DEVICES = 64 };

static clt_status accepts(const clt_comm *comm, const clt_comm_op *op)
{
    if (op->reduction != CLT_COMM_SUM)
        return clt_fail(CLT_UNSUPPORTED,
                        "comm: all-reduce has no reduction %d yet; use CLT_COMM_SUM",
                        (int)op->reduction);
    if (!clt_sum_for(op->dtype))
        return clt_fail(CLT_UNSUPPORTED,
                        "comm: all-reduce of %s has no implementation yet; use f32, "
                        "f64 or i32",
                        clt_dtype_name(op->dtype));
    if (comm->count > MAX_DEVICES)
        return clt_fail(CLT_UNSUPPORTED,
                        "comm: all-reduce takes at most %d devices of a process, "
                        "not %d",
                        MAX_DEVICES, comm->count);
    return CLT_OK;
}

static void side_roles(const clt_comm *comm, const clt_comm_op *op, int device, bool *reads,
                       bool *writes)
{
    (void)comm;
    (void)device;
    *reads = !(op->flags & CLT_COMM_EMPTY);
    *writes = true;
}

/* Elements of a piece. It depends on the count alone, and so does the order in which partial sums
 * of squares are added. */
static int64_t piece_elements(int64_t count)
{
    int64_t elements = PIECE;
    while ((count + elements - 1) / elements > CLT_COMM_MAX_PIECES)
        elements *= 2;
    return elements;
}

static int64_t pieces(const clt_comm *comm, const clt_comm_request *request)
{
    (void)comm;
    int64_t count = request->sides[0].op.count, elements = piece_elements(count);
    return (count + elements - 1) / elements;
}

static void work(clt_comm *comm, clt_comm_request *request, int64_t piece)
{
    const clt_comm_op *op = &request->sides[0].op;
    int64_t elements = piece_elements(op->count), from = piece * elements;
    int64_t n = op->count - from < elements ? op->count - from : elements;
    int64_t skip = from * clt_dtype_size(op->dtype);
    const void *in[MAX_DEVICES];
    void *out[MAX_DEVICES];
    int in_count = 0, out_count = 0;
    for (int i = 0; i < comm->count; i++) {
        const clt_comm_side *side = &request->sides[i];
        if (side->reads)
            in[in_count++] = side->host + skip;
        if (side->writes)
            out[out_count++] = side->host + skip;
    }
    clt_comm_partial *partial = &comm->partials[piece];
    bool measure = op->flags & CLT_COMM_MEASURE;
    clt_sum_for(op->dtype)(in, in_count, out, out_count, n, measure ? &partial->sum_squares : NULL,
                           &partial->finite);
}

static void finish(clt_comm *comm, clt_comm_request *request)
{
    for (int i = 0; i < comm->count; i++)
        request->contributors += !(request->sides[i].op.flags & CLT_COMM_EMPTY);
    if (!(request->sides[0].op.flags & CLT_COMM_MEASURE))
        return;
    int64_t n = pieces(comm, request);
    for (int64_t i = 0; i < n; i++) {
        request->sum_squares += comm->partials[i].sum_squares;
        request->finite &= comm->partials[i].finite;
    }
}

const clt_comm_algorithm clt_comm_local_all_reduce = {
    .name = "local all-reduce",
    .accepts = accepts,
    .side_roles = side_roles,
    .pieces = pieces,
    .work = work,
    .finish = finish,
};
