/* The calls of a device for a request: start, complete, test. */
#include <stdio.h>

#include "base/error.h"
#include "base/vec.h"
#include "comm/communicator/internal.h"
#include "comm/ranks/flag.h"
#include "device/core/cl.h"

static const char *label_of(const clt_comm_op *op)
{
    return op->label ? op->label : "unnamed";
}

static clt_status check_device(const clt_comm *comm, int device)
{
    if (device < 0 || device >= comm->count)
        return clt_fail(CLT_INVALID_ARGUMENT, "comm: there is no device %d, only 0 to %d", device,
                        comm->count - 1);
    return CLT_OK;
}

static clt_status check_buffer(const clt_comm *comm, int device, const clt_comm_op *op, cl_mem mem,
                               clt_comm_range range)
{
    const clt_comm_member *m = &comm->members[device];
    int64_t size = clt_dtype_size(op->dtype);
    cl_context context;
    size_t bytes;
    if (!range.count || op->host)
        return CLT_OK;
    if (!mem)
        return clt_fail(CLT_INVALID_ARGUMENT, "comm: %s: device %d has no buffer", label_of(op),
                        device);
    if (clGetMemObjectInfo(mem, CL_MEM_CONTEXT, sizeof context, &context, NULL) != CL_SUCCESS ||
        clGetMemObjectInfo(mem, CL_MEM_SIZE, sizeof bytes, &bytes, NULL) != CL_SUCCESS ||
        context != m->context)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "comm: %s: the buffer of device %d (%s) is not of that device's context",
                        label_of(op), device, m->name);
    int64_t room = (int64_t)bytes / size;
    if (range.first < 0 || range.first > room || range.count > room - range.first)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "comm: %s: elements %lld to %lld are not within the %lld of device %d's "
                        "buffer",
                        label_of(op), (long long)range.first,
                        (long long)(range.first + range.count), (long long)room, device);
    return CLT_OK;
}

clt_status clt_comm_read_part(const clt_comm *comm, int device, const clt_comm_op *op,
                              clt_comm_part *part)
{
    CLT_TRY(CLT_CHECK_STRUCT(op, clt_comm_op));
    *part = (clt_comm_part){.op = *op, .staging = -1};
    const clt_comm_algorithm *algorithm;
    const int64_t most = INT64_MAX / 64 / CLT_COMM_MAX_DEVICES;
    if (op->count < 0 || op->count > most || op->offset > most || op->out_offset > most)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "comm: %s: the count %lld or an offset is out of range", label_of(op),
                        (long long)op->count);
    CLT_TRY(clt_comm_choose(comm, device, op, &algorithm));
    if (op->host && (op->mem || op->out || op->offset < 0))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "comm: %s: data in the host's memory has neither buffers nor a negative "
                        "offset",
                        label_of(op));
    algorithm->ranges(comm, device, op, &part->in, &part->out);
    if (!part->in.count)
        part->in.first = part->out.first;
    if (!part->out.count)
        part->out.first = part->in.first;
    CLT_TRY(check_buffer(comm, device, op, op->mem, part->in));
    CLT_TRY(check_buffer(comm, device, op, op->out ? op->out : op->mem, part->out));
    part->maps = !clt_comm_is_nothing(part) && clt_comm_maps(comm, device, part, NULL);
    return CLT_OK;
}

/* Checks the operations, copies them into parts and chooses their transport. The parts belong to
 * the device's thread until the side is marked as brought. */
static clt_status read_parts(const clt_comm *comm, int device, const clt_comm_op *list,
                             clt_comm_side *side)
{
    side->part_count = 0;
    side->queued = false;
    for (; list; list = list->next) {
        clt_comm_part part;
        CLT_TRY(clt_comm_read_part(comm, device, list, &part));
        CLT_TRY(CLT_PUSH(side->parts, side->part_count, side->part_room, part));
    }
    bool exchanges = false, others = false;
    for (int k = 0; k < side->part_count; k++)
        *(clt_comm_is_exchange(side->parts[k].op.kind) ? &exchanges : &others) = true;
    if (exchanges && others)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "comm: %s: sends and receives cannot be in a group with other kinds",
                        label_of(&side->parts[0].op));
    return clt_transport_of(comm, side, &side->transport);
}

clt_status clt_comm_supports(const clt_comm *comm, int device, const clt_comm_op *list)
{
    CLT_TRY(check_device(comm, device));
    for (; list; list = list->next) {
        const clt_comm_algorithm *algorithm;
        CLT_TRY(CLT_CHECK_STRUCT(list, clt_comm_op));
        CLT_TRY(clt_comm_choose(comm, device, list, &algorithm));
    }
    return CLT_OK;
}

static bool same_operation(const clt_comm_op *a, const clt_comm_op *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->reduction == b->reduction &&
           a->root == b->root && a->count == b->count && !a->leaves == !b->leaves &&
           a->residual == b->residual && a->residual_scale == b->residual_scale &&
           !((a->flags ^ b->flags) & CLT_COMM_MEASURE);
}

/* Returns the number of the first operation in which two sides differ; -1: there is none. */
static int difference(const clt_comm_side *a, const clt_comm_side *b)
{
    const bool exchanges =
        clt_comm_is_exchange(a->parts[0].op.kind) || clt_comm_is_exchange(b->parts[0].op.kind);
    if (exchanges)
        return clt_comm_may_exchange(a) && clt_comm_may_exchange(b) ? -1 : 0;
    for (int k = 0; k < a->part_count && k < b->part_count; k++)
        if (!same_operation(&a->parts[k].op, &b->parts[k].op))
            return k;
    return a->part_count == b->part_count ? -1 : 0;
}

static clt_status mismatch(const clt_comm_request *r, int device, int other, int k)
{
    const clt_comm_side *a = &r->sides[device], *b = &r->sides[other];
    const clt_comm_op *x = &a->parts[k].op, *y = &b->parts[k].op;
    return clt_fail(CLT_MISMATCH,
                    "comm: collective %lld: device %d brings %s (%s, %s x %lld, of %d in a group), "
                    "device %d brings %s (%s, %s x %lld, of %d); all must start the same in the "
                    "same order",
                    (long long)r->sequence, device, label_of(x), clt_comm_kind_name(x->kind),
                    clt_dtype_name(x->dtype), (long long)x->count, a->part_count, other,
                    label_of(y), clt_comm_kind_name(y->kind), clt_dtype_name(y->dtype),
                    (long long)y->count, b->part_count);
}

static void open_slot(clt_comm *comm, clt_comm_request *r, int64_t sequence)
{
    r->sequence = sequence;
    r->transport = 0;
    r->joined = r->completed = 0;
    r->busy = r->done = r->late = false;
    atomic_store(&r->ready, 0);
    r->sum_squares = 0;
    r->finite = true;
    r->contributors = r->votes = 0;
    for (int i = 0; i < comm->count; i++)
        r->sides[i].brought = r->sides[i].joined = r->sides[i].completed = false;
}

/* Finds or opens the slot of the device's next collective. The lock is held. On failure nothing
 * changes, except that a mismatch aborts. */
static clt_status join_locked(clt_comm *comm, int device, int64_t sequence, const clt_comm_op *op,
                              clt_comm_request **joined)
{
    clt_comm_member *m = &comm->members[device];
    if (comm->abort_status != CLT_OK)
        return clt_comm_aborted_locked(comm);
    if (comm->finalized)
        return clt_fail(CLT_STATE, "comm: %s: the communicator was finalized", label_of(op));
    if (m->next - m->oldest >= comm->options.max_in_flight)
        return clt_fail(CLT_STATE,
                        "comm: %s: device %d has %d requests in flight; complete one, or raise "
                        "max_in_flight",
                        label_of(op), device, comm->options.max_in_flight);
    /* A device is at most max_in_flight requests ahead of its oldest request, and its oldest is at
     * most as far ahead of another device's. So with twice as many slots, this slot is free or
     * belongs to the same collective. */
    clt_comm_request *r = &comm->ring[m->next % comm->ring_size];
    if (r->sequence >= 0 && r->sequence != m->next)
        return clt_fail(CLT_STATE,
                        "comm: %s: device %d is %d requests ahead of what has ended; finish its "
                        "queue, or raise max_in_flight",
                        label_of(op), device, comm->ring_size);
    CLT_TRY(read_parts(comm, device, op, &r->sides[device]));
    if (sequence >= 0 && sequence != m->next) {
        clt_fail(CLT_MISMATCH, "comm: %s: device %d starts collective %lld where %lld is its next",
                 label_of(op), device, (long long)sequence, (long long)m->next);
        clt_comm_abort_locked(comm, CLT_MISMATCH, clt_error_message());
        return CLT_MISMATCH;
    }
    if (r->sequence < 0)
        open_slot(comm, r, m->next);
    for (int i = 0; i < comm->count; i++) {
        const int k = r->sides[i].brought ? difference(&r->sides[device], &r->sides[i]) : -1;
        if (k < 0)
            continue;
        clt_status status = mismatch(r, device, i, k);
        clt_comm_abort_locked(comm, status, clt_error_message());
        return status;
    }
    r->sides[device].brought = true;
    if (r->sides[device].transport > r->transport)
        r->transport = r->sides[device].transport;
    atomic_store(&m->last, m->next++);
    *joined = r;
    return CLT_OK;
}

static void retain_buffers(const clt_comm_side *side)
{
    for (int k = 0; k < side->part_count; k++) {
        const clt_comm_op *op = &side->parts[k].op;
        if (op->mem)
            clRetainMemObject(op->mem);
        if (op->out)
            clRetainMemObject(op->out);
    }
}

void clt_comm_release_buffers(const clt_comm_side *side)
{
    for (int k = 0; k < side->part_count; k++) {
        const clt_comm_op *op = &side->parts[k].op;
        if (op->mem)
            clReleaseMemObject(op->mem);
        if (op->out)
            clReleaseMemObject(op->out);
    }
}

void clt_comm_release_chunks(clt_comm_side *side)
{
    for (int i = 0; i < side->chunk_count; i++)
        clt_release_event(side->chunks[i]);
    side->chunk_count = 0;
    clt_release_event(side->gate);
    clt_release_event(side->arrived);
    side->gate = side->arrived = NULL;
}

static clt_status start(clt_comm *comm, int device, int64_t sequence, const clt_comm_op *op,
                        int wait_count, const cl_event *wait_list, clt_comm_request **request)
{
    clt_comm_request *r = NULL;
    pthread_mutex_lock(&comm->lock);
    clt_status status = join_locked(comm, device, sequence, op, &r);
    pthread_mutex_unlock(&comm->lock);
    if (status != CLT_OK)
        return status;

    clt_comm_side *side = &r->sides[device];
    retain_buffers(side);
    status = clt_transports[side->transport]->begin(comm, side, wait_count, wait_list);

    pthread_mutex_lock(&comm->lock);
    side->joined = true; /* also on failure, so that destroy cleans up */
    r->joined++;
    if (status != CLT_OK)
        clt_comm_abort_locked(comm, status, clt_error_message());
    else if (r->joined == comm->count && !comm->on_devices)
        pthread_cond_signal(&comm->work);
    pthread_mutex_unlock(&comm->lock);
    if (status == CLT_OK)
        *request = r;
    return status;
}

clt_status clt_comm_start(clt_comm *comm, int device, int64_t sequence, const clt_comm_op *from,
                          int wait_count, const cl_event *wait_list, clt_comm_request **request)
{
    CLT_TRY(check_device(comm, device));
    CLT_TRY(CLT_CHECK_STRUCT(from, clt_comm_op));
    if (wait_count < 0 || (wait_count > 0 && !wait_list))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "comm: %s: %d events to wait for, but the wait list is NULL",
                        label_of(from), wait_count);
    clt_comm_enter(comm);
    clt_status status =
        start(comm, device, sequence, from, wait_count, wait_count ? wait_list : NULL, request);
    clt_comm_leave(comm);
    return status;
}

/* Names everything that a request still waits for. The lock is held. */
static clt_status timed_out(const clt_comm *comm, const clt_comm_request *r, int device)
{
    const clt_comm_op *op = &r->sides[device].parts[0].op;
    const clt_ranks_job job = {.sequence = r->sequence,
                               .label = label_of(op),
                               .device = comm->members[device].name,
                               .timeout_ms = clt_comm_timeout_ms(comm, op)};
    char own[96], missing[400] = "";
    size_t used = 0;
    for (int i = 0; i < comm->count && used < sizeof missing; i++)
        if (!r->sides[i].joined)
            used += (size_t)snprintf(missing + used, sizeof missing - used, "%sdevice %d (%.64s)",
                                     used ? ", " : "", i, comm->members[i].name);
    snprintf(own, sizeof own, "device %d (%.64s)", device, comm->members[device].name);
    if (!used && comm->step && !comm->step_begun)
        return clt_ranks_timeout(&job, own,
                                 "the thread that made the communicator, which may call MPI");
    const clt_status late = comm->cluster && !used ? clt_cluster_late(comm->cluster, &job) : CLT_OK;
    if (late != CLT_OK)
        return late;
    const uint64_t ranks = comm->node && !used ? clt_ranks_missing(comm->node) : 0;
    if (ranks)
        return clt_ranks_late(comm->node, &job, ranks);
    return clt_ranks_timeout(&job, own, used ? missing : "transfers, which all devices have begun");
}

/* Waits until something may have changed. Threads that own communicators work for them meanwhile.
 * Returns whether the deadline has passed. */
static bool wait_locked(clt_comm *comm, int device, const clt_deadline *deadline, bool owns,
                        int *looks)
{
    pthread_cond_t *done = &comm->members[device].done;
    if (owns) {
        const uint32_t calls = clt_comm_owner_calls();
        pthread_mutex_unlock(&comm->lock);
        clt_comm_owner_turn(calls, looks);
        pthread_mutex_lock(&comm->lock);
    } else if (deadline->set) {
        pthread_cond_timedwait(done, &comm->lock, &deadline->at);
    } else {
        pthread_cond_wait(done, &comm->lock);
    }
    return clt_deadline_passed(deadline);
}

/* The reducer has the same deadline as the thread that waits, and may notice first. */
static clt_status ended_locked(const clt_comm *comm, const clt_comm_request *r)
{
    if (r->late)
        return clt_fail(CLT_TIMEOUT, "%s", comm->abort_message);
    return comm->abort_status == CLT_OK ? CLT_OK : clt_comm_aborted_locked(comm);
}

/* Blocks until the request is done or the communicator aborted. The lock is held. */
static clt_status await_locked(clt_comm *comm, clt_comm_request *r, int device)
{
    clt_comm_side *side = &r->sides[device];
    const clt_comm_part *last = &side->parts[side->part_count - 1];
    const int timeout_ms = clt_comm_timeout_ms(comm, &side->parts[0].op);
    clt_deadline deadline = clt_deadline_in(timeout_ms);
    const bool owns = clt_comm_owns();
    int looks = 0;
    bool late = false;
    if (!r->done && !deadline.set && !owns && comm->members[device].wait_inside && !comm->peers &&
        last->ready) {
        pthread_mutex_unlock(&comm->lock);
        clWaitForEvents(1, &last->ready); /* a failure reaches the reducer too */
        pthread_mutex_lock(&comm->lock);
    }
    clt_status timeout = CLT_OK;
    while (!r->done && comm->abort_status == CLT_OK) {
        if (comm->on_devices && !comm->step && clt_in_queue_wait_locked(comm, r))
            continue;
        if (!wait_locked(comm, device, &deadline, owns, &looks) || r->done ||
            comm->abort_status != CLT_OK)
            continue;
        if (comm->cluster && r->joined == comm->count && !late) {
            /* The reducer has its own deadlines, and knows better what is missing. */
            late = true;
            deadline = clt_deadline_in(3 * clt_cluster_grace_ms(timeout_ms));
            continue;
        }
        timeout = timed_out(comm, r, device);
        clt_comm_abort_locked(comm, timeout, clt_error_message());
    }
    if (comm->abort_status != CLT_OK && owns)
        clt_comm_listen_locked(comm);
    /* The reducer works in the mapped memory. This takes only a moment, because an abort ends its
     * waiting for other ranks. */
    while (r->busy)
        pthread_cond_wait(&comm->members[device].done, &comm->lock);
    return timeout != CLT_OK ? timeout : ended_locked(comm, r);
}

void clt_comm_free_slot_locked(const clt_comm *comm, clt_comm_request *r)
{
    if (r->done && r->completed == comm->count)
        r->sequence = -1;
}

static void side_end_locked(clt_comm *comm, clt_comm_request *r, int device)
{
    clt_comm_member *m = &comm->members[device];
    r->sides[device].completed = true;
    r->completed++;
    clt_comm_free_slot_locked(comm, r);
    while (m->oldest < m->next) {
        const clt_comm_request *old = &comm->ring[m->oldest % comm->ring_size];
        if (old->sequence == m->oldest && !old->sides[device].completed)
            break;
        m->oldest++;
    }
}

clt_status clt_comm_complete(clt_comm_request *r, int device, clt_comm_result *result,
                             cl_event *event)
{
    clt_comm *comm = r->comm;
    CLT_TRY(check_device(comm, device));
    if (result)
        CLT_TRY(CLT_CHECK_STRUCT(result, clt_comm_result));
    clt_comm_enter(comm);
    clt_comm_side *side = &r->sides[device];
    pthread_mutex_lock(&comm->lock);
    clt_status status = CLT_OK;
    if (r->sequence < 0 || !side->joined || side->completed)
        status = clt_fail(CLT_STATE,
                          "comm: device %d has not started this request, or completed "
                          "it before",
                          device);
    if (status != CLT_OK) {
        pthread_mutex_unlock(&comm->lock);
        clt_comm_leave(comm);
        return status;
    }
    const bool queued = side->queued && !result;
    atomic_store(&side->waits, !queued);
    status = queued ? ended_locked(comm, r) : await_locked(comm, r, device);
    bool undo = status != CLT_OK;
    clt_comm_result learned = {.struct_size = sizeof learned};
    if (!queued && !undo)
        learned = (clt_comm_result){.struct_size = sizeof learned,
                                    .sum_squares = r->sum_squares,
                                    .finite = r->finite,
                                    .contributors = r->contributors,
                                    .votes = r->votes,
                                    .ready = side->ready_at,
                                    .done = r->done_at};
    pthread_mutex_unlock(&comm->lock);

    char message[sizeof comm->abort_message];
    if (undo)
        snprintf(message, sizeof message, "%s", clt_error_message());
    cl_event arrived = NULL;
    const clt_status end =
        clt_transports[side->transport]->end(comm, side, undo, !undo && event ? &arrived : NULL);
    atomic_store(&side->waits, false);
    if (undo)
        clt_error_restore(message);
    else
        status = end;
    clt_comm_release_buffers(side);

    pthread_mutex_lock(&comm->lock);
    if (!undo && status != CLT_OK)
        clt_comm_abort_locked(comm, status, clt_error_message());
    /* After an abort the reducer may still wait for this event, so destroy releases it. */
    for (int k = 0; k < side->part_count && !undo; k++) {
        if (!side->parts[k].ready)
            continue;
        clt_release_event(side->parts[k].ready);
        side->parts[k].ready = NULL;
    }
    if (!undo)
        clt_comm_release_chunks(side);
    /* After an abort slots are not used again. Kept slots keep their events. */
    if (undo)
        side->completed = true;
    else
        side_end_locked(comm, r, device);
    pthread_mutex_unlock(&comm->lock);
    clt_comm_leave(comm);
    if (status != CLT_OK)
        return status;
    if (result)
        *result = learned;
    if (event)
        *event = arrived;
    return CLT_OK;
}

clt_status clt_comm_test(clt_comm_request *r, int device, int *done)
{
    CLT_TRY(check_device(r->comm, device));
    pthread_mutex_lock(&r->comm->lock);
    bool ended = r->done || (r->comm->abort_status != CLT_OK && !r->busy);
    pthread_mutex_unlock(&r->comm->lock);
    *done = ended;
    return CLT_OK;
}
