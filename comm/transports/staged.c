/*
 * Copies buffers of devices with their own memory through staging, in chunks. While chunk i comes
 * to the host, chunk i - 1 is summed and chunk i - 2 goes back. start enqueues all downloads on one
 * queue of the communicator. The reducer sums pieces as soon as their inputs are there, and
 * enqueues the uploads on another queue. So devices that can copy both ways at once do so, and
 * kernels that callers enqueue on their own queues meanwhile wait for neither. complete makes the
 * callers' queues wait for the last upload. Pieces, their order, and so the results' bits are the
 * same as for a request that is summed as a whole.
 */

#include "base/clock.h"
#include "base/error.h"
#include "base/vec.h"
#include "comm/communicator/internal.h"
#include "device/core/cl.h"

/*
 * A chunk of a megabyte takes 40 to 100 us on a link of 10 to 25 GB/s, and about as long to sum.
 * This is ten times the cost of enqueueing and waiting for a chunk. Only the first chunk's download
 * and the last chunk's upload do not overlap: each is a thirtieth of a bucket of 32 MB. Larger
 * buffers have larger chunks, so that the number of chunks stays small.
 */
enum { CHUNK_BYTES = 1 << 20, MOST_CHUNKS = 256, ALIGN = 64 };

#ifdef CLT_TESTING
atomic_llong clt_comm_testing_chunk_bytes;
atomic_int clt_comm_testing_groups_until_abort = -1;

static void may_abort(clt_comm *comm)
{
    if (atomic_load(&clt_comm_testing_groups_until_abort) >= 0 &&
        atomic_fetch_sub(&clt_comm_testing_groups_until_abort, 1) == 0)
        clt_comm_abort(comm, CLT_STOPPED, "stopped by the test");
}
#else
static void may_abort(clt_comm *comm)
{
    (void)comm;
}
#endif

static size_t chunk_bytes(void)
{
#ifdef CLT_TESTING
    const long long asked = atomic_load(&clt_comm_testing_chunk_bytes);
    if (asked)
        return (size_t)asked;
#endif
    return CHUNK_BYTES;
}

static clt_status make_queue(const clt_comm_member *m, cl_command_queue *out)
{
    cl_int error;
    cl_command_queue queue = clCreateCommandQueue(m->context, m->device, 0, &error);
    if (error != CL_SUCCESS)
        return clt_fail(CLT_OPENCL,
                        "comm: a queue for transfers of device %s failed with OpenCL error %d",
                        m->name, error);
    clt_object_created(CLT_OBJECT_QUEUE);
    *out = queue;
    return CLT_OK;
}

clt_status clt_comm_pipe_open(clt_comm_member *m)
{
    clt_status status = make_queue(m, &m->down);
    CLT_NEXT(status, make_queue(m, &m->up));
    if (status != CLT_OK)
        clt_comm_pipe_close(m);
    return status;
}

void clt_comm_pipe_close(clt_comm_member *m)
{
    cl_command_queue *queues[] = {&m->down, &m->up};
    for (int i = 0; i < 2; i++) {
        if (!*queues[i])
            continue;
        clFinish(*queues[i]);
        clReleaseCommandQueue(*queues[i]);
        clt_object_released(CLT_OBJECT_QUEUE);
        *queues[i] = NULL;
    }
}

/* --- downloads: on the device's thread -------------------------------------------------------- */

static clt_status download(clt_comm *comm, clt_comm_side *side, clt_comm_part *part, cl_event *gate)
{
    const clt_comm_member *m = &comm->members[side->device];
    const size_t bytes = clt_comm_bytes_of(part, part->in.count);
    const size_t first = clt_comm_bytes_of(part, part->in.first);
    size_t chunk = chunk_bytes();
    if (bytes / chunk >= MOST_CHUNKS)
        chunk = (bytes / MOST_CHUNKS + ALIGN) / ALIGN * ALIGN;
    part->chunk_bytes = chunk;
    part->first_chunk = side->chunk_count;
    part->chunk_count = (int)((bytes + chunk - 1) / chunk);
    CLT_TRY(CLT_RESERVE(side->chunks, side->chunk_count, side->chunk_room, part->chunk_count));
    for (int i = 0; i < part->chunk_count; i++) {
        const size_t from = (size_t)i * chunk, n = bytes - from < chunk ? bytes - from : chunk;
        cl_event event;
        CLT_TRY(clt_comm_check_call(
            comm, side->device, part, "reading",
            clEnqueueReadBuffer(m->down, part->op.mem, CL_FALSE, first + from, n,
                                part->host_in + from, *gate ? 1 : 0, *gate ? gate : NULL, &event)));
        clt_object_created(CLT_OBJECT_EVENT);
        clt_release_event(*gate);
        *gate = NULL;
        if (i == part->chunk_count - 1)
            part->ready = event;
        else
            side->chunks[side->chunk_count++] = event;
    }
    return CLT_OK;
}

/* Marks a part without input. The host may write to it only after the buffer's users have ended. */
static clt_status mark(clt_comm *comm, clt_comm_side *side, clt_comm_part *part, cl_event *gate)
{
    const clt_comm_member *m = &comm->members[side->device];
    CLT_TRY(clt_comm_check_call(
        comm, side->device, part, "ordering",
        clEnqueueMarkerWithWaitList(m->down, *gate ? 1 : 0, *gate ? gate : NULL, &part->ready)));
    clt_object_created(CLT_OBJECT_EVENT);
    clt_release_event(*gate);
    *gate = NULL;
    return CLT_OK;
}

static clt_status download_side(clt_comm *comm, clt_comm_side *side)
{
    const clt_comm_member *m = &comm->members[side->device];
    for (int k = 0; k < side->part_count; k++) {
        clt_comm_part *part = &side->parts[k];
        if (clt_comm_is_nothing(part))
            continue;
        CLT_TRY(clt_comm_place_on_host(comm, side->device, part));
        if (part->in.count && !part->op.host)
            CLT_TRY(download(comm, side, part, &side->gate));
        else
            CLT_TRY(mark(comm, side, part, &side->gate));
    }
    return clt_comm_check_call(comm, side->device, &side->parts[0], "flushing", clFlush(m->down));
}

clt_status clt_comm_pipe_gate(clt_comm *comm, clt_comm_side *side, int wait_count,
                              const cl_event *wait_list)
{
    const clt_comm_member *m = &comm->members[side->device];
    const clt_comm_part *first = &side->parts[0];
    if (m->queue != m->compute && wait_count)
        CLT_TRY(
            clt_comm_check_call(comm, side->device, first, "flushing before", clFlush(m->compute)));
    CLT_TRY(clt_comm_check_call(
        comm, side->device, first, "ordering",
        clEnqueueMarkerWithWaitList(m->queue, (cl_uint)wait_count, wait_list, &side->gate)));
    clt_object_created(CLT_OBJECT_EVENT);
    return clt_comm_check_call(comm, side->device, first, "flushing", clFlush(m->queue));
}

/* Begins a side. If there are peers, the downloads start later: only when all devices have joined
 * is it known whether data come to the host. */
static clt_status begin(clt_comm *comm, clt_comm_side *side, int wait_count,
                        const cl_event *wait_list)
{
    if (!comm->members[side->device].piped)
        return clt_on_queue_begin(comm, side, wait_count, wait_list);
    CLT_TRY(clt_comm_pipe_gate(comm, side, wait_count, wait_list));
    return comm->peers ? CLT_OK : download_side(comm, side);
}

clt_status clt_comm_pipe_end(clt_comm *comm, clt_comm_side *side, bool undo, cl_event *event)
{
    clt_comm_member *m = &comm->members[side->device];
    clt_comm_part *last = &side->parts[side->part_count - 1];
    /* The reducer may still look at the side. No later request will need the staging. */
    if (undo)
        return CLT_OK;
    for (int k = 0; k < side->part_count; k++) {
        clt_comm_part *part = &side->parts[k];
        if (part->staging >= 0)
            clt_staging_give(m, part->staging);
        part->staging = -1;
    }
    if (!side->arrived && !event)
        return CLT_OK;
    CLT_TRY(clt_comm_check_call(comm, side->device, last, "ordering",
                                clEnqueueMarkerWithWaitList(m->queue, side->arrived ? 1 : 0,
                                                            side->arrived ? &side->arrived : NULL,
                                                            event)));
    const cl_int error = clFlush(m->queue);
    if (error != CL_SUCCESS && event)
        clReleaseEvent(*event);
    return clt_comm_check_call(comm, side->device, last, "flushing", error);
}

/* --- the host's part: on the reducer's thread ------------------------------------------------- */

/* Waits for the first `bytes` bytes of a part's input; at least until the side's buffer is free. */
static clt_status wait_for(clt_comm *comm, clt_comm_request *r, int device, clt_comm_part *part,
                           size_t bytes)
{
    clt_comm_side *side = &r->sides[device];
    const int most = part->chunk_count ? part->chunk_count : 1;
    int needed = part->chunk_bytes ? (int)((bytes + part->chunk_bytes - 1) / part->chunk_bytes) : 1;
    needed = needed > most ? most : needed < 1 ? 1 : needed;
    for (; part->chunks_seen < needed; part->chunks_seen++) {
        const cl_event event = part->chunks_seen == most - 1
                                   ? part->ready
                                   : side->chunks[part->first_chunk + part->chunks_seen];
        const clt_status status = event ? clt_comm_wait_event(comm, event) : CLT_OK;
        if (status != CLT_OK)
            return clt_comm_transfer_failed(status, r, device, part);
        side->ready_at = clt_clock();
    }
    return CLT_OK;
}

/* Finds the part of a piped member to which this host memory belongs, or NULL. */
static clt_comm_part *owner_of(const clt_comm *comm, clt_comm_request *r, const void *host,
                               bool out, int *device)
{
    const uintptr_t p = (uintptr_t)host;
    for (int i = 0; i < comm->count; i++) {
        clt_comm_side *side = &r->sides[i];
        for (int k = 0; k < side->part_count && comm->members[i].piped; k++) {
            clt_comm_part *part = &side->parts[k];
            const uintptr_t begin = (uintptr_t)(out ? part->host_out : part->host_in);
            const size_t bytes = clt_comm_bytes_of(part, out ? part->out.count : part->in.count);
            if (begin && p >= begin && p < begin + bytes && part->staging >= 0) {
                *device = i;
                return part;
            }
        }
    }
    return NULL;
}

/* Waits for the inputs of the pieces [first, end). */
static clt_status wait_for_inputs(clt_comm *comm, clt_comm_request *r, int64_t first, int64_t end)
{
    for (int64_t piece = first; piece < end;) {
        clt_task_span span;
        piece = clt_tasks_span(&comm->tasks, piece, end, &span);
        for (int i = 0; i < span.task->in_count; i++) {
            int device;
            clt_comm_part *part = owner_of(comm, r, span.in[i], false, &device);
            if (part)
                CLT_TRY(wait_for(comm, r, device, part,
                                 (size_t)((char *)span.in[i] - part->host_in) + span.to));
        }
    }
    return CLT_OK;
}

/* Notes the outputs of the pieces. Tasks write each part from its beginning to its end. */
static void note_outputs(clt_comm *comm, clt_comm_request *r, int64_t first, int64_t end)
{
    for (int64_t piece = first; piece < end;) {
        clt_task_span span;
        piece = clt_tasks_span(&comm->tasks, piece, end, &span);
        for (int i = 0; i < span.task->out_count; i++) {
            int device;
            clt_comm_part *part = owner_of(comm, r, span.out[i], true, &device);
            if (part)
                part->written = (size_t)((char *)span.out[i] - part->host_out) + span.to;
        }
    }
}

static clt_status upload_side(clt_comm *comm, clt_comm_side *side, bool whole)
{
    const clt_comm_member *m = &comm->members[side->device];
    bool sent = false;
    for (int k = 0; k < side->part_count; k++) {
        clt_comm_part *part = &side->parts[k];
        if (part->staging < 0)
            continue;
        if (whole)
            part->written = clt_comm_bytes_of(part, part->out.count);
        if (part->written == part->uploaded)
            continue;
        CLT_TRY(clt_comm_check_call(
            comm, side->device, part, "writing back",
            clEnqueueWriteBuffer(m->up, part->op.out ? part->op.out : part->op.mem, CL_FALSE,
                                 clt_comm_bytes_of(part, part->out.first) + part->uploaded,
                                 part->written - part->uploaded, part->host_out + part->uploaded, 0,
                                 NULL, NULL)));
        part->uploaded = part->written;
        sent = true;
    }
    if (whole) {
        CLT_TRY(clt_comm_check_call(comm, side->device, &side->parts[0], "ordering",
                                    clEnqueueMarkerWithWaitList(m->up, 0, NULL, &side->arrived)));
        clt_object_created(CLT_OBJECT_EVENT);
        sent = true;
    }
    return sent ? clt_comm_check_call(comm, side->device, &side->parts[0], "flushing",
                                      clFlush(m->up))
                : CLT_OK;
}

/* Enqueues the uploads of everything that the host wrote for piped members and has not sent.
 * `whole`: the host has written everything. */
static clt_status upload(clt_comm *comm, clt_comm_request *r, bool whole)
{
    for (int i = 0; i < comm->count; i++)
        if (comm->members[i].piped)
            CLT_TRY(upload_side(comm, &r->sides[i], whole));
    return CLT_OK;
}

/* Whether reading and writing may overlap. They may not if an operation's result overlaps its input
 * elsewhere in the same buffer: then everything is read before anything is written. */
static bool can_overlap(const clt_comm *comm, const clt_comm_request *r)
{
    for (int i = 0; i < comm->count; i++)
        for (int k = 0; k < r->sides[i].part_count; k++) {
            const clt_comm_op *op = &r->sides[i].parts[k].op;
            if (op->out && op->out == op->mem)
                return false;
        }
    return true;
}

static int64_t group_end(const clt_comm *comm, int64_t first)
{
    size_t bytes = 0;
    int64_t end = first;
    while (end < comm->tasks.pieces && bytes < chunk_bytes())
        bytes += clt_tasks_piece_bytes(&comm->tasks, end++);
    return end;
}

typedef struct group {
    clt_comm *comm;
    int64_t first;
} group;

static void do_piece(void *arg, int64_t piece)
{
    const group *g = arg;
    clt_tasks_do(&g->comm->tasks, g->first + piece);
}

/* Waits until the buffers of all sides are free, and for all data of sides that are not piped. */
static clt_status wait_for_turns(clt_comm *comm, clt_comm_request *r)
{
    for (int i = 0; i < comm->count; i++) {
        if (!comm->members[i].piped)
            CLT_TRY(clt_comm_wait_for_side(comm, r, i));
        for (int k = 0; k < r->sides[i].part_count && comm->members[i].piped; k++)
            CLT_TRY(wait_for(comm, r, i, &r->sides[i].parts[k], 1));
    }
    return CLT_OK;
}

/* Waits happen before the request is `busy`, so that an abort does not wait for transfers. */
static clt_status run_groups(clt_comm *comm, clt_comm_request *r, bool *stopped)
{
    const clt_ranks_job job = clt_comm_job_of(comm, r);
    CLT_TRY(clt_comm_list_tasks(comm, r, &job));
    CLT_TRY(wait_for_turns(comm, r));
    r->contributors = job.contributors;
    r->votes = job.votes;
    if (!can_overlap(comm, r))
        CLT_TRY(wait_for_inputs(comm, r, 0, comm->tasks.pieces));
    group g = {comm, 0};
    for (int64_t end; g.first < comm->tasks.pieces; g.first = end) {
        end = group_end(comm, g.first);
        CLT_TRY(wait_for_inputs(comm, r, g.first, end));
        may_abort(comm);
        if (!clt_comm_busy_begin(comm, r)) {
            *stopped = true;
            return CLT_OK;
        }
        clt_team_run(comm->team, do_piece, &g, end - g.first);
        note_outputs(comm, r, g.first, end);
        const clt_status status = upload(comm, r, false);
        clt_comm_busy_end(comm, r);
        CLT_TRY(status);
    }
    clt_tasks_measured(&comm->tasks, &r->sum_squares, &r->finite);
    return CLT_OK;
}

/* Starts the downloads of a request that the peers do not take. They wait for earlier uploads:
 * complete has given back staging of earlier requests, and their uploads may still read it. The
 * order of the queues alone does not ensure this, because it was fixed when this request
 * started. */
static clt_status download_late(clt_comm *comm, clt_comm_side *side)
{
    const clt_comm_member *m = &comm->members[side->device];
    const clt_comm_part *first = &side->parts[0];
    cl_event uploaded;
    CLT_TRY(clt_comm_check_call(comm, side->device, first, "ordering",
                                clEnqueueMarkerWithWaitList(m->up, 0, NULL, &uploaded)));
    clt_object_created(CLT_OBJECT_EVENT);
    cl_int error = clFlush(m->up);
    if (error == CL_SUCCESS)
        error = clEnqueueMarkerWithWaitList(m->down, 1, &uploaded, NULL);
    clt_release_event(uploaded);
    CLT_TRY(clt_comm_check_call(comm, side->device, first, "ordering", error));
    return download_side(comm, side);
}

/* Runs the host's part. In one process it runs chunk by chunk as data arrive. Between ranks a
 * request is exchanged as a whole. */
static clt_status run(clt_comm *comm, clt_comm_request *r)
{
    bool stopped = false;
    for (int i = 0; i < comm->count && comm->peers; i++)
        CLT_TRY(download_late(comm, &r->sides[i]));
    if (!comm->piped)
        return clt_comm_do_whole(comm, r);
    if (comm->between)
        CLT_TRY(clt_comm_do_whole(comm, r));
    else
        CLT_TRY(run_groups(comm, r, &stopped));
    if (stopped || (!comm->between && !clt_comm_busy_begin(comm, r)))
        return CLT_ABORTED;
    return upload(comm, r, true);
}

static clt_status end(clt_comm *comm, clt_comm_side *side, bool undo, cl_event *event)
{
    return comm->members[side->device].piped ? clt_comm_pipe_end(comm, side, undo, event)
                                             : clt_on_queue_end(comm, side, undo, event);
}

static bool accepts(const clt_comm *comm, int device, const clt_comm_part *part, char *why)
{
    (void)device;
    (void)part;
    return comm->options.path != CLT_COMM_PATH_MAPPED ||
           clt_declines(why, "the path 'mapped' was asked for; set it to auto");
}

const clt_transport clt_transport_staged = {
    .name = "staged", .accepts = accepts, .begin = begin, .run = run, .end = end};
