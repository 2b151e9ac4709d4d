/*
 * Exchanges between devices without the host, in rounds of blocks that fit the scratch. First each
 * device copies its block of the others' data to its own scratch, and reduces it with its own data
 * in the order of the participants. If there is nothing to reduce, it copies its own data. Then
 * each device fetches the results that it needs. All devices wait for each other between the two
 * parts, and before results are overwritten: within a context by events, otherwise the reducer
 * waits on the host. A device's part goes to its `up` queue, which is in order.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/core/reduction.h"
#include "comm/transports/peer.h"
#include "device/core/cl.h"

/* The most scratch of a device for each participant. For four devices, a whole bucket of 32 MB
 * fits. */
enum { ROUND_BYTES = 8 << 20 };

static int64_t round_bytes(void)
{
#ifdef CLT_TESTING
    const long long asked = atomic_load(&clt_comm_testing_chunk_bytes);
    if (asked)
        return asked;
#endif
    return ROUND_BYTES;
}

/* Elements of a kind's result, counted over all participants. Device d first makes block d of the
 * result. */
typedef struct block {
    int64_t first, count;
} block;

typedef struct exchange {
    clt_comm *comm;
    clt_comm_request *request;
    bool stopped;     /* the communicator was aborted meanwhile */
    int k;            /* number of the operation */
    int64_t piece;    /* elements measured together */
    int64_t at, room; /* of each block: the round's first element, elements of a round */
    block blocks[CLT_COMM_MAX_DEVICES]; /* by device */
    cl_event reduced[CLT_COMM_MAX_DEVICES];
} exchange;

static bool reduces(clt_comm_kind kind)
{
    return kind == CLT_COMM_ALL_REDUCE || kind == CLT_COMM_REDUCE ||
           kind == CLT_COMM_REDUCE_SCATTER;
}

static const clt_comm_part *part_of(const exchange *x, int device)
{
    return &x->request->sides[device].parts[x->k];
}

static bool accepts(const clt_comm *comm, int device, const clt_comm_part *part, char *why)
{
    (void)device;
    if (!comm->peers)
        return clt_declines(why, "%s", comm->no_peers);
    if (!part)
        return true;
    const clt_comm_op *op = &part->op;
    if (clt_comm_is_exchange(op->kind) || op->kind == CLT_COMM_BARRIER)
        return clt_declines(why, "peers do no sends, receives and barriers; the host does");
    if (reduces(op->kind) && !comm->peers->reduces[op->dtype][op->reduction])
        return clt_declines(why, "the devices do not reduce %s to the host's bits; use f32 or i32",
                            clt_dtype_name(op->dtype));
    if ((op->flags & CLT_COMM_MEASURE) && !comm->peers->measures)
        return clt_declines(why,
                            "the devices have no doubles, which sums of squares need; leave out "
                            "CLT_COMM_MEASURE");
    if (op->leaves && comm->total > 2)
        return clt_declines(why, "peers add more than two participants in their order; the host "
                                 "adds in the order of a tree");
    if (op->residual)
        return clt_declines(why,
                            "the host keeps what rounding leaves over; leave out the residual");
    if (op->host)
        return clt_declines(why, "the data are in the host's memory; give a buffer");
    /* A result may overlap its input elsewhere in the same buffer. */
    return !op->out || op->out != op->mem ||
           clt_declines(why, "the result goes elsewhere in the same buffer; give another one");
}

/* --- events ----------------------------------------------------------------------------------- */

/* Makes commands enqueued later on any device wait for the events. If the reducer waits itself, it
 * first gives up the request's memory, so that an abort does not wait for devices. */
static clt_status order(exchange *x, const cl_event *events, int count)
{
    clt_comm *comm = x->comm;
    if (comm->peers->one_context) {
        for (int d = 0; d < comm->count && count; d++)
            CLT_TRY(clt_peer_check(
                comm, d, "waiting for its peers",
                clEnqueueMarkerWithWaitList(comm->members[d].up, (cl_uint)count, events, NULL)));
        return CLT_OK;
    }
    clt_comm_busy_end(comm, x->request);
    clt_status status = CLT_OK;
    for (int i = 0; i < count && status == CLT_OK; i++) {
        status = clt_comm_wait_event(comm, events[i]);
        if (status != CLT_OK)
            clt_comm_transfer_failed(status, x->request, i, part_of(x, i));
    }
    x->stopped = !clt_comm_busy_begin(comm, x->request);
    return status;
}

static clt_status mark(exchange *x, int device, cl_event *event)
{
    const cl_command_queue queue = x->comm->members[device].up;
    CLT_TRY(clt_peer_check(x->comm, device, "an exchange with its peers",
                           clEnqueueMarkerWithWaitList(queue, 0, NULL, event)));
    clt_object_created(CLT_OBJECT_EVENT);
    return clt_peer_check(x->comm, device, "clFlush", clFlush(queue));
}

static clt_status order_behind_gates(exchange *x)
{
    cl_event gates[CLT_COMM_MAX_DEVICES];
    for (int d = 0; d < x->comm->count; d++)
        gates[d] = x->request->sides[d].gate;
    return order(x, gates, x->comm->count);
}

/* Waits until nobody reads the results of the last round. Reports a device that failed in it. */
static clt_status order_behind_done(exchange *x)
{
    cl_event done[CLT_COMM_MAX_DEVICES];
    int count = 0;
    for (int d = 0; d < x->comm->count; d++) {
        const cl_event event = x->comm->peers->members[d].done;
        if (!event)
            continue;
        const clt_status status = clt_comm_ended_event(event);
        if (status != CLT_OK)
            return clt_comm_transfer_failed(status, x->request, d, part_of(x, d));
        done[count++] = event;
    }
    return order(x, done, count);
}

/* --- data ------------------------------------------------------------------------------------- */

/* Divides the operation into blocks. If it is measured, blocks consist of whole pieces. */
static void divide(exchange *x)
{
    const clt_comm_op *op = &part_of(x, 0)->op;
    const int64_t n = x->comm->count;
    x->piece = clt_tasks_piece(op->count);
    const int64_t pieces = (op->count + x->piece - 1) / x->piece;
    for (int d = 0; d < n; d++) {
        int64_t first = d * op->count, end = first + op->count;
        if (op->kind == CLT_COMM_BROADCAST) {
            first = 0;
            end = d == op->root ? op->count : 0;
        } else if (op->kind == CLT_COMM_ALL_REDUCE || op->kind == CLT_COMM_REDUCE) {
            first = pieces * d / n * x->piece;
            end = pieces * (d + 1) / n * x->piece;
            end = end < op->count ? end : op->count;
        }
        x->blocks[d] = (block){first, end > first ? end - first : 0};
    }
    const int64_t most = round_bytes() / clt_dtype_size(op->dtype) / x->piece * x->piece;
    x->room = most > x->piece ? most : x->piece;
}

/* Returns the part of a device's block that belongs to this round. */
static block slice(const exchange *x, int device)
{
    const block b = x->blocks[device];
    const int64_t left = b.count - x->at;
    return (block){b.first + x->at, left < 0 ? 0 : left < x->room ? left : x->room};
}

static clt_status reserve(exchange *x)
{
    clt_comm *comm = x->comm;
    const clt_comm_op *op = &part_of(x, 0)->op;
    const size_t size = (size_t)clt_dtype_size(op->dtype);
    for (int d = 0; d < comm->count; d++) {
        clt_peer_member *p = &comm->peers->members[d];
        const int64_t n = x->blocks[d].count < x->room ? x->blocks[d].count : x->room;
        if (!n)
            continue;
        CLT_TRY(clt_peer_scratch_reserve(comm, d, &p->result, (size_t)n * size));
        if (reduces(op->kind) && comm->count > 1)
            CLT_TRY(clt_peer_scratch_reserve(comm, d, &p->others,
                                             (size_t)(comm->count - 1) * (size_t)n * size));
    }
    return CLT_OK;
}

/* Return the position of element i of the kind's result in a device's input or output. */
static int64_t input_at(const exchange *x, int device, int64_t i)
{
    const clt_comm_part *part = part_of(x, device);
    return part->in.first + i -
           (part->op.kind == CLT_COMM_ALL_GATHER ? device * part->op.count : 0);
}

static int64_t output_at(const exchange *x, int device, int64_t i)
{
    const clt_comm_part *part = part_of(x, device);
    return part->out.first + i -
           (part->op.kind == CLT_COMM_REDUCE_SCATTER ? device * part->op.count : 0);
}

static bool gets(const exchange *x, int device, int from)
{
    const clt_comm_part *part = part_of(x, device);
    return part->out.count && (part->op.kind != CLT_COMM_REDUCE_SCATTER || device == from);
}

static clt_status fetch_inputs(exchange *x, int d, block b, clt_peer_sum *sum)
{
    clt_peer_member *p = &x->comm->peers->members[d];
    const clt_comm_op *op = &part_of(x, d)->op;
    const size_t size = (size_t)clt_dtype_size(op->dtype);
    *sum = (clt_peer_sum){
        .dtype = op->dtype, .reduction = op->reduction, .stride = b.count, .count = b.count};
    for (int k = 0; k < x->comm->count; k++) {
        const clt_comm_part *part = part_of(x, k);
        if (!part->in.count)
            continue;
        if (k == d) {
            sum->has_own = true;
            sum->own = part->op.mem;
            sum->own_first = input_at(x, d, b.first);
            continue;
        }
        const int slot = sum->before + sum->after;
        CLT_TRY(clt_peer_copy(x->comm, k, part->op.mem, (size_t)input_at(x, k, b.first) * size, d,
                              p->others.mem, (size_t)(slot * b.count) * size,
                              (size_t)b.count * size));
        ++*(k < d ? &sum->before : &sum->after);
    }
    return CLT_OK;
}

static clt_status measure(exchange *x, int d, block b)
{
    clt_peer_member *p = &x->comm->peers->members[d];
    const clt_comm_op *op = &part_of(x, d)->op;
    const int64_t pieces = (b.count + x->piece - 1) / x->piece;
    CLT_TRY(clt_peer_measure(x->comm, d, op->dtype, b.count, x->piece, p->pairs));
    p->pairs += pieces * CLT_REDUCE_LANES;
    return CLT_OK;
}

/* Makes each device compute its block of the result. */
static clt_status produce(exchange *x)
{
    clt_comm *comm = x->comm;
    const clt_comm_op *op = &part_of(x, 0)->op;
    const size_t size = (size_t)clt_dtype_size(op->dtype);
    clt_peer_sum sums[CLT_COMM_MAX_DEVICES];
    for (int d = 0; d < comm->count; d++) {
        const block b = slice(x, d);
        if (!b.count || !reduces(op->kind))
            continue;
        CLT_TRY(fetch_inputs(x, d, b, &sums[d]));
        CLT_TRY(clt_peer_check(comm, d, "clFlush", clFlush(comm->members[d].up)));
    }
    CLT_TRY(order_behind_done(x));
    for (int d = 0; d < comm->count && !x->stopped; d++) {
        const block b = slice(x, d);
        if (b.count && reduces(op->kind))
            CLT_TRY(clt_peer_reduce(comm, d, &sums[d]));
        else if (b.count)
            CLT_TRY(clt_peer_copy(comm, d, part_of(x, d)->op.mem,
                                  (size_t)input_at(x, d, b.first) * size, d,
                                  comm->peers->members[d].result.mem, 0, (size_t)b.count * size));
        if (b.count && (op->flags & CLT_COMM_MEASURE))
            CLT_TRY(measure(x, d, b));
        CLT_TRY(mark(x, d, &x->reduced[d]));
    }
    return CLT_OK;
}

/* Makes each device fetch the blocks that it needs. */
static clt_status consume(exchange *x)
{
    clt_comm *comm = x->comm;
    CLT_TRY(order(x, x->reduced, comm->count));
    for (int e = 0; e < comm->count && !x->stopped; e++) {
        const clt_comm_part *part = part_of(x, e);
        clt_peer_member *p = &comm->peers->members[e];
        const size_t size = (size_t)clt_dtype_size(part->op.dtype);
        for (int d = 0; d < comm->count; d++) {
            const block b = slice(x, d);
            if (b.count && gets(x, e, d))
                CLT_TRY(clt_peer_copy(comm, d, comm->peers->members[d].result.mem, 0, e,
                                      part->op.out ? part->op.out : part->op.mem,
                                      (size_t)output_at(x, e, b.first) * size,
                                      (size_t)b.count * size));
        }
        clt_release_event(p->done);
        p->done = NULL;
        CLT_TRY(mark(x, e, &p->done));
    }
    return CLT_OK;
}

static clt_status run_round(exchange *x)
{
    memset(x->reduced, 0, sizeof x->reduced);
    clt_status status = produce(x);
    if (status == CLT_OK && !x->stopped)
        status = consume(x);
    for (int d = 0; d < x->comm->count; d++)
        clt_release_event(x->reduced[d]);
    return status;
}

static bool is_over(const exchange *x)
{
    for (int d = 0; d < x->comm->count; d++)
        if (x->blocks[d].count > x->at)
            return false;
    return true;
}

/* --- sums of squares -------------------------------------------------------------------------- */

/* Reserves memory for the partial sums of all operations. */
static clt_status reserve_partials(exchange *x)
{
    clt_comm *comm = x->comm;
    for (int d = 0; d < comm->count; d++) {
        clt_peer_member *p = &comm->peers->members[d];
        int64_t pairs = 0;
        for (x->k = 0; x->k < x->request->sides[0].part_count; x->k++) {
            divide(x);
            if (part_of(x, d)->op.flags & CLT_COMM_MEASURE)
                pairs += (x->blocks[d].count + x->piece - 1) / x->piece * CLT_REDUCE_LANES;
        }
        p->pairs = 0;
        CLT_TRY(clt_peer_scratch_reserve(comm, d, &p->partial,
                                         (size_t)(2 * pairs) * sizeof(double) + sizeof(double)));
        if (pairs <= p->sum_room)
            continue;
        double *more = clt_realloc(p->sums, (size_t)(2 * pairs) * sizeof *more);
        CLT_TRY_MEMORY(more);
        p->sums = more;
        p->sum_room = pairs;
    }
    return CLT_OK;
}

/* Reads the partial sums after everything else, because a copy to memory that is not pinned may
 * block. */
static clt_status fetch_partials(exchange *x)
{
    clt_comm *comm = x->comm;
    for (int d = 0; d < comm->count; d++) {
        clt_peer_member *p = &comm->peers->members[d];
        if (!p->pairs)
            continue;
        CLT_TRY(clt_peer_check(comm, d, "reading sums of squares",
                               clEnqueueReadBuffer(comm->members[d].up, p->partial.mem, CL_TRUE, 0,
                                                   (size_t)(2 * p->pairs) * sizeof(double), p->sums,
                                                   0, NULL, NULL)));
        p->pairs = 0;
    }
    for (x->k = 0; x->k < x->request->sides[0].part_count; x->k++) {
        const clt_comm_op *op = &part_of(x, 0)->op;
        if (!(op->flags & CLT_COMM_MEASURE))
            continue;
        divide(x);
        for (int d = 0; d < comm->count; d++) {
            clt_peer_member *p = &comm->peers->members[d];
            const int64_t pieces = (x->blocks[d].count + x->piece - 1) / x->piece;
            clt_peer_add(p, op->dtype, p->pairs, pieces, &x->request->sum_squares,
                         &x->request->finite);
            p->pairs += pieces * CLT_REDUCE_LANES;
        }
    }
    return CLT_OK;
}

/* --- a request -------------------------------------------------------------------------------- */

static clt_status exchange_all(exchange *x)
{
    CLT_TRY(reserve_partials(x));
    x->k = 0;
    CLT_TRY(order_behind_gates(x));
    for (x->k = 0; x->k < x->request->sides[0].part_count; x->k++) {
        divide(x);
        CLT_TRY(reserve(x));
        for (x->at = 0; !is_over(x); x->at += x->room) {
            CLT_TRY(run_round(x));
            if (x->stopped)
                return CLT_OK;
        }
    }
    return CLT_OK;
}

/* Makes the events that complete returns, behind all commands of each device for the request. */
static clt_status mark_arrived(exchange *x)
{
    for (int d = 0; d < x->comm->count; d++)
        CLT_TRY(mark(x, d, &x->request->sides[d].arrived));
    return CLT_OK;
}

static clt_status run(clt_comm *comm, clt_comm_request *r)
{
    exchange x = {.comm = comm, .request = r};
    const clt_ranks_job job = clt_comm_job_of(comm, r);
    r->contributors = job.contributors;
    r->votes = job.votes;
    if (!clt_comm_busy_begin(comm, r))
        return CLT_ABORTED;
    CLT_TRY(exchange_all(&x));
    if (!x.stopped)
        CLT_TRY(mark_arrived(&x));
    if (x.stopped)
        return CLT_ABORTED;
    clt_comm_busy_end(comm, r);
    CLT_TRY(fetch_partials(&x));
    return clt_comm_busy_begin(comm, r) ? CLT_OK : CLT_ABORTED;
}

const clt_transport clt_transport_peer = {.name = "peer",
                                          .accepts = accepts,
                                          .begin = clt_comm_pipe_gate,
                                          .run = run,
                                          .end = clt_comm_pipe_end};
