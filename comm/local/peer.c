/*
 * Exchanges without the host. In rounds, for blocks that fit the scratch: each device copies its
 * block of the others' data to scratch of its own and reduces it with its own data in the order of
 * the participants (or copies what it alone has); then each device fetches the results it is to
 * get. Between the two, and before results are overwritten, all devices wait for each other: within
 * a context by events, else the reducer waits on the host. A device's part goes to its `up` queue,
 * which is in order.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/internal.h"
#include "comm/local/reduction.h"
#include "device/core/cl.h"

/* Scratch of a device is as much for each participant at most: a whole bucket of 32 MB on four. */
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

/* Elements of a kind's result, counted over all participants; of block d device d has the result
 * first. */
typedef struct block {
    int64_t first, count;
} block;

typedef struct exchange {
    clt_comm *comm;
    clt_comm_request *request;
    bool stopped;     /* aborted meanwhile */
    int k;            /* operation */
    int64_t piece;    /* elements that are measured together */
    int64_t at, room; /* of each block, elements: the round's first, and how many */
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

bool clt_peers_accept(const clt_comm *comm, const clt_comm_request *r)
{
    const clt_comm_side *first = &r->sides[0];
    if (clt_comm_may_exchange(first))
        return false;
    for (int k = 0; k < first->part_count; k++) {
        const clt_comm_op *op = &first->parts[k].op;
        if (reduces(op->kind) && !comm->peers->reduces[op->dtype][op->reduction])
            return false;
        if ((op->flags & CLT_COMM_MEASURE) && !comm->peers->measures)
            return false;
        for (int d = 0; d < comm->count; d++) {
            const clt_comm_op *own = &r->sides[d].parts[k].op;
            /* A result may overlap its input elsewhere in the same buffer. */
            if (own->host || (own->out && own->out == own->mem))
                return false;
        }
    }
    return true;
}

/* --- events ------------------------------------------------------------------------------------
 */

/* What is enqueued on any device from now on comes behind these events. The reducer, where it waits
 * itself, does so outside the request's memory: an abort is not to wait for devices. */
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

/* Nobody reads the last round's results any more; a device that failed then is heard of here. */
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

/* --- what moves --------------------------------------------------------------------------------
 */

/* The blocks of the operation: whole pieces, where it is measured. */
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

/* The part of a device's block that this round is about. */
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

/* Element i of the kind's result lies there in a device's input or output. */
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

/* Each device makes its block's result. */
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

/* Each device fetches what it is to get. */
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

/* --- sums of squares ---------------------------------------------------------------------------
 */

/* Room for the partial sums of all operations. */
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
        if (!more)
            return CLT_OUT_OF_MEMORY;
        p->sums = more;
        p->sum_room = pairs;
    }
    return CLT_OK;
}

/* Behind everything else, since a copy to memory that is not pinned may block. */
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

/* --- a request ---------------------------------------------------------------------------------
 */

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

/* complete's events: behind everything that each device does for the request. */
static clt_status mark_arrived(exchange *x)
{
    for (int d = 0; d < x->comm->count; d++)
        CLT_TRY(mark(x, d, &x->request->sides[d].arrived));
    return CLT_OK;
}

bool clt_peers_run(clt_comm *comm, clt_comm_request *r)
{
    exchange x = {.comm = comm, .request = r};
    const clt_ranks_job job = clt_comm_job_of(comm, r);
    r->contributors = job.contributors;
    r->votes = job.votes;
    if (!clt_comm_busy_begin(comm, r))
        return false;
    clt_status status = exchange_all(&x);
    if (status == CLT_OK && !x.stopped)
        status = mark_arrived(&x);
    if (x.stopped && status == CLT_OK)
        return false;
    if (status == CLT_OK) {
        clt_comm_busy_end(comm, r);
        status = fetch_partials(&x);
        if (status == CLT_OK && !clt_comm_busy_begin(comm, r))
            return false;
    }
    return clt_comm_done(comm, r, status);
}
