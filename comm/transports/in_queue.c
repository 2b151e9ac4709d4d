/*
 * Threads of the devices do the host's part of a request. Drivers for CPUs can run host functions
 * in a queue ("native kernels"). Behind a side's transfers, such a function reports that this
 * device's data are there. The last device to come does the host's part. The others wait for a
 * moment and help. So nobody is woken between the end of a device's kernel and the sum, and sums
 * run on as many cores as there are devices. The waiting is limited, except with CLT_COMM_QUEUED: a
 * device that has waited long enough goes on with its queue, and the last device does not need the
 * others.
 */
#include <sched.h>
#include <time.h>

#include "base/error.h"
#include "comm/communicator/internal.h"
#include "comm/ranks/flag.h"
#include "device/core/cl.h"

/* A device waits for the others about as long as waking one of its threads may take. It waits for
 * LAST_NS if the request is the last one that its thread has started: there is hardly other work. A
 * device that must wait to the end sleeps in short naps after AWAKE_NS. */
enum { PATIENCE_NS = 100000, LAST_NS = 1000000, AWAKE_NS = 2000000, NAP_NS = 20000 };

/* Polls between two system calls. Virtual machines stop a processor that polls longer. */
enum { LOOKS = 16 };

/* Sums of WORTH_WAKING pieces justify waking a thread. Waking it takes as long as WAKING pieces. */
enum { WORTH_WAKING = 16, WAKING = 8 };

bool clt_in_queue_possible(const clt_comm *comm, char *why)
{
    /* Ranks that are threads may share the driver's threads, and one rank would block them. Between
     * nodes, the caller's thread may be needed. */
    if (comm->cluster)
        return clt_declines(why, "the ranks are on several nodes, to which the host talks");
    if (comm->node && !comm->processes)
        return clt_declines(why, "ranks share a process; give each rank one of its own");
    if (comm->options.threads)
        return clt_declines(why, "%d host threads were asked for; set threads to 0",
                            comm->options.threads);
    if (comm->options.wait_poll_us)
        return clt_declines(why, "the host is to poll while it waits; set wait_poll_us to 0");
    for (int i = 0; i < comm->count; i++) {
        const clt_comm_member *m = &comm->members[i];
        cl_device_exec_capabilities can = 0;
        if (!m->can_map)
            return clt_declines(why, "device %d (%s) does not share the host's memory", i, m->name);
        if (m->piped)
            return clt_declines(
                why, "buffers of device %d (%s) are copied in chunks; set the path to auto", i,
                m->name);
        if (m->wait_inside)
            return clt_declines(why, "device %d (%s) computes only while the host waits in OpenCL",
                                i, m->name);
        if (clGetDeviceInfo(m->device, CL_DEVICE_EXECUTION_CAPABILITIES, sizeof can, &can, NULL) ||
            !(can & CL_EXEC_NATIVE_KERNEL))
            return clt_declines(why, "the driver of device %d (%s) runs no host functions", i,
                                m->name);
    }
    return true;
}

static bool accepts(const clt_comm *comm, int device, const clt_comm_part *part, char *why)
{
    if (!comm->on_devices)
        return why ? clt_in_queue_possible(comm, why) : false;
    return comm->options.path != CLT_COMM_PATH_MAPPED || !part ||
           clt_transports[CLT_COMM_MAPPED]->accepts(comm, device, part, why);
}

bool clt_in_queue_separate(const clt_comm *comm)
{
    for (int i = 0; i < comm->count; i++)
        for (int k = 0; k < i; k++)
            if (comm->members[i].device == comm->members[k].device)
                return false;
    return true;
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void pause_a_little(void)
{
#if defined __x86_64__ || defined __i386__
    __builtin_ia32_pause();
#endif
}

static bool is_over(clt_comm *comm, int64_t sequence)
{
    return atomic_load(&comm->ended) > sequence || atomic_load(&comm->aborted);
}

/* Helps with this request, or with an earlier one that is under way, until the request has ended;
 * at most for `ns`. */
static void help(clt_comm *comm, int64_t sequence, int64_t ns)
{
    const int64_t until = now_ns() + ns;
    for (int i = 1; !is_over(comm, sequence); i++) {
        if (clt_team_has_work(comm->team))
            clt_team_join(comm->team);
        pause_a_little();
        if (i % LOOKS)
            continue;
        /* The thread that enqueues the other device's part may need this processor. */
        sched_yield();
        if (now_ns() > until)
            return;
    }
}

/* Helps until the request has ended. The deadline aborts the communicator. */
static void help_to_the_end(clt_comm *comm, int64_t sequence, int device, int timeout_ms)
{
    const struct timespec nap = {0, NAP_NS};
    const clt_deadline deadline = clt_deadline_in(timeout_ms);
    help(comm, sequence, AWAKE_NS);
    while (!is_over(comm, sequence) && !clt_deadline_passed(&deadline)) {
        nanosleep(&nap, NULL);
        if (clt_team_has_work(comm->team))
            clt_team_join(comm->team);
    }
    if (!is_over(comm, sequence)) {
        clt_fail(
            CLT_TIMEOUT,
            "comm: collective %lld: device %d (%s) waited in its queue until the deadline; not "
            "all devices have come to it",
            (long long)sequence, device, comm->members[device].name);
        clt_comm_abort(comm, CLT_TIMEOUT, clt_error_message());
    }
}

static void do_piece(void *arg, int64_t piece)
{
    clt_comm *comm = arg;
    if (piece == comm->wake_at)
        clt_comm_wake(comm);
    clt_tasks_do(&comm->tasks, piece);
}

/* Sums the pieces. The threads in complete are woken a little before the end, so that they are
 * awake when it comes. They are woken at the beginning if other devices do not help. */
void clt_in_queue_sum(clt_comm *comm)
{
    const int64_t pieces = comm->tasks.pieces, own = pieces / comm->count;
    const bool alone = atomic_load(&comm->helpers) < comm->count - 1;
    comm->wake_at = pieces < WORTH_WAKING ? -1 : alone || own < WAKING ? 0 : own - WAKING;
    clt_team_open(comm->team, do_piece, comm, pieces, comm->count - 1);
    clt_team_finish(comm->team);
}

bool clt_in_queue_wait_locked(clt_comm *comm, clt_comm_request *r)
{
    if (!r->busy)
        return false;
    const int64_t sequence = r->sequence;
    pthread_mutex_unlock(&comm->lock);
    help(comm, sequence, PATIENCE_NS);
    pthread_mutex_lock(&comm->lock);
    /* An abort may have come meanwhile. It wakes waiters only once. */
    return r->done || comm->abort_status != CLT_OK;
}

/* Keeps the device's thread awake for a moment. The thread that waits for this device's request is
 * about to enqueue more work, which then starts sooner. */
static void linger(const clt_comm_side *side)
{
    const int64_t until = now_ns() + PATIENCE_NS;
    for (int i = 1; atomic_load(&side->waits); i++) {
        pause_a_little();
        if (i % LOOKS)
            continue;
        sched_yield();
        if (now_ns() > until)
            return;
    }
}

/* Checks the transfers that have their own events. All of them have ended: this runs behind each
 * device's last transfer. */
static clt_status check_transfers(const clt_comm_request *r)
{
    for (int i = 0; i < r->comm->count; i++) {
        const clt_comm_side *side = &r->sides[i];
        for (int k = 0; k < side->part_count; k++) {
            const clt_comm_part *part = &side->parts[k];
            const clt_status status = clt_comm_ended_event(part->silent ? NULL : part->ready);
            if (status != CLT_OK)
                return clt_comm_transfer_failed(status, r, i, part);
        }
    }
    return CLT_OK;
}

/* The argument of a function in a queue. The driver replaces `memory`, which is the buffer at
 * first, by the buffer's memory. A function is given one buffer only: PoCL 3.1 sorts several and
 * removes duplicates, so that it gives functions the memory of other buffers. */
typedef struct visitor {
    clt_comm_side *side;
    cl_mem mem; /* NULL: no part is direct */
    void *memory;
} visitor;

/* Sets where the host reads and writes the direct parts of one buffer. Runs on the device's thread.
 */
static void CL_CALLBACK take_memory(void *args)
{
    const visitor *v = args;
    clt_comm_side *side = v->side;
    char *host = v->memory;
    /* This load makes everything visible that start wrote. Locks of the driver do not guarantee
     * this. */
    atomic_load(&side->sent);
    for (int k = 0; v->mem && k < side->part_count; k++) {
        clt_comm_part *part = &side->parts[k];
        if (!part->direct || part->op.mem != v->mem)
            continue;
        part->host_in = part->in.count ? host + clt_comm_bytes_of(part, part->in.first) : NULL;
        part->host_out = part->out.count ? host + clt_comm_bytes_of(part, part->out.first) : NULL;
    }
}

/*
 * What a device's function does that is not the last to come. While it waits, it wakes the thread
 * that waits for its device in complete, as soon as it sees that the request has ended. Both then
 * use the same processor, and all devices' threads are woken at once. If it has gone on with its
 * queue, the device that came last wakes that thread.
 */
enum { WAITS = 1, GONE, ENDED };

/* Called by the device that came last, when the request has ended. */
static void announce(clt_comm_request *r, int device)
{
    clt_comm *comm = r->comm;
    for (int i = 0; i < comm->count; i++)
        if (i == device || atomic_exchange(&r->sides[i].guest, ENDED) == GONE)
            clt_comm_wake_device(comm, i);
    pthread_cond_broadcast(&comm->done);
}

/* Whether the device's thread waits in complete, and has not started another request. Devices that
 * are not separate may need the same core. */
static bool is_last(const clt_comm_side *side, int64_t sequence)
{
    const clt_comm *comm = side->request->comm;
    return comm->separate && atomic_load(&side->waits) &&
           atomic_load(&comm->members[side->device].last) == sequence;
}

/* Runs on the device's thread. */
static void CL_CALLBACK visit(void *args)
{
    clt_comm_side *side = ((const visitor *)args)->side;
    take_memory(args);
    clt_comm_request *r = side->request;
    clt_comm *comm = r->comm;
    /* These are read now, because the side may later belong to another request. */
    const int64_t sequence = r->sequence;
    const bool queued = side->queued;
    const int device = side->device, timeout_ms = clt_comm_timeout_ms(comm, &side->parts[0].op);
    atomic_fetch_add(&comm->visits, 1);
    side->ready_at = 1e-9 * (double)now_ns();
    atomic_store(&side->guest, WAITS);
    if (atomic_fetch_add(&r->ready, 1) + 1 < comm->count) {
        atomic_fetch_add(&comm->helpers, 1);
        if (queued)
            help_to_the_end(comm, sequence, device, timeout_ms);
        else
            help(comm, sequence, PATIENCE_NS);
        if (!queued && is_last(side, sequence))
            help(comm, sequence, LAST_NS);
        atomic_fetch_sub(&comm->helpers, 1);
        int expected = WAITS;
        if (!atomic_compare_exchange_strong(&side->guest, &expected, GONE))
            clt_comm_wake_device(comm, device);
    } else {
        const clt_status status = check_transfers(r);
        if (status != CLT_OK)
            clt_comm_abort(comm, status, clt_error_message());
        clt_comm_mark_done(comm, r, clt_comm_do(comm, r));
        announce(r, device);
    }
    if (!queued)
        linger(side);
    atomic_fetch_sub(&comm->visits, 1);
}

/* Enqueues a function that the driver gives the memory of a buffer, whose handle the argument has
 * at `memory`. */
static cl_int enqueue(cl_command_queue queue, void(CL_CALLBACK *function)(void *), void *argument,
                      size_t size, void **memory, cl_uint waits, const cl_event *wait_list,
                      cl_event *event)
{
    cl_mem buffer = memory ? *memory : NULL;
    const void *place = memory;
    return clEnqueueNativeKernel(queue, function, argument, size, buffer ? 1 : 0,
                                 buffer ? &buffer : NULL, buffer ? &place : NULL, waits, wait_list,
                                 event);
}

/* --- whether the driver gives a buffer's memory to functions ---------------------------------- */

enum { PROBED = 64 };

typedef struct probe {
    atomic_int *seen; /* number of elements that were as expected */
    void *memory;
} probe;

static void CL_CALLBACK count_up(void *args)
{
    const probe *p = args;
    int *data = p->memory;
    int seen = atomic_load(p->seen); /* see take_memory */
    for (int i = 0; data && i < PROBED; i++) {
        seen += data[i] == i;
        data[i]++;
    }
    atomic_store(p->seen, seen);
}

bool clt_in_queue_gives_memory(const clt_comm_member *m)
{
    int from[PROBED], to[PROBED], right = 0;
    atomic_int seen;
    probe p = {.seen = &seen};
    for (int i = 0; i < PROBED; i++)
        from[i] = i;
    p.memory = clCreateBuffer(m->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, sizeof from,
                              NULL, NULL);
    if (!p.memory)
        return false;
    cl_mem buffer = p.memory;
    atomic_store(&seen, 0);
    if (!clEnqueueWriteBuffer(m->queue, buffer, CL_TRUE, 0, sizeof from, from, 0, NULL, NULL) &&
        !enqueue(m->queue, count_up, &p, sizeof p, &p.memory, 0, NULL, NULL) &&
        !clEnqueueReadBuffer(m->queue, buffer, CL_TRUE, 0, sizeof to, to, 0, NULL, NULL))
        for (int i = 0; i < PROBED; i++)
            right += to[i] == i + 1;
    clFinish(m->queue);
    clReleaseMemObject(buffer);
    return atomic_load(&seen) == PROBED && right == PROBED;
}

/* --- a request -------------------------------------------------------------------------------- */

/* Buffers that could be mapped are not: functions are given their memory. The memory of a
 * sub-buffer is not probed. */
static bool is_direct(const clt_comm_member *m, const clt_comm_part *part)
{
    cl_mem parent = NULL;
    return m->gives_memory && part->maps &&
           clGetMemObjectInfo(part->op.mem, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof parent, &parent,
                              NULL) == CL_SUCCESS &&
           !parent;
}

/* Returns whether a direct part is the first one of its buffer. */
static bool is_first(const clt_comm_side *side, int part)
{
    for (int k = 0; k < part; k++)
        if (side->parts[k].direct && side->parts[k].op.mem == side->parts[part].op.mem)
            return false;
    return side->parts[part].direct;
}

/* Enqueues a function of the device's thread. The first command of a side waits for the caller's
 * events, and clears `*waits`. */
static clt_status call(const clt_comm *comm, clt_comm_side *side,
                       void(CL_CALLBACK *function)(void *), cl_mem mem, cl_uint *waits,
                       const cl_event *wait_list, cl_event *event)
{
    const clt_comm_member *m = &comm->members[side->device];
    visitor v = {.side = side, .mem = mem, .memory = mem};
    if (*waits && m->queue != m->compute)
        CLT_TRY(clt_comm_check_call(comm, side->device, &side->parts[0], "flushing before",
                                    clFlush(m->compute)));
    atomic_fetch_add(&side->sent, 1);
    const cl_int error = enqueue(m->queue, function, &v, sizeof v, mem ? &v.memory : NULL, *waits,
                                 *waits ? wait_list : NULL, event);
    *waits = 0;
    if (error != CL_SUCCESS)
        return clt_fail(CLT_OPENCL,
                        "comm: a native kernel on device %d (%s) failed with OpenCL error %d",
                        side->device, m->name, error);
    return CLT_OK;
}

/* Enqueues the transfers, a function for each buffer, and the function that does the host's part,
 * which is given the last buffer. */
static clt_status begin_parts(clt_comm *comm, clt_comm_side *side, cl_uint waits,
                              const cl_event *wait_list)
{
    const clt_comm_member *m = &comm->members[side->device];
    cl_mem mem = NULL;
    for (int k = 0; k < side->part_count; k++) {
        clt_comm_part *part = &side->parts[k];
        part->direct = is_direct(m, part);
        if (part->direct)
            continue;
        CLT_TRY(clt_comm_transfer_begin(comm, side->device, part, (int)waits, wait_list));
        waits = 0;
    }
    for (int k = 0; k < side->part_count; k++) {
        if (!is_first(side, k))
            continue;
        if (mem)
            CLT_TRY(call(comm, side, take_memory, mem, &waits, wait_list, NULL));
        mem = side->parts[k].op.mem;
    }
    cl_event *event = &side->parts[side->part_count - 1].ready;
    CLT_TRY(call(comm, side, visit, mem, &waits, wait_list, event));
    clt_object_created(CLT_OBJECT_EVENT);
    return CLT_OK;
}

static clt_status begin(clt_comm *comm, clt_comm_side *side, int wait_count,
                        const cl_event *wait_list)
{
    const clt_comm_member *m = &comm->members[side->device];
    const int last = side->part_count - 1;
    side->queued = comm->separate && (side->parts[0].op.flags & CLT_COMM_QUEUED);
    /* The function has the event. Nobody looks at the events of other transfers if nobody waits. */
    for (int k = 0; k <= last; k++)
        side->parts[k].silent = side->queued || k == last;
    CLT_TRY(begin_parts(comm, side, (cl_uint)wait_count, wait_list));
    return clt_comm_check_call(comm, side->device, &side->parts[0], "flushing", clFlush(m->queue));
}

const clt_transport clt_transport_in_queue = {.name = "in-queue",
                                              .accepts = accepts,
                                              .begin = begin,
                                              .run = clt_comm_do,
                                              .end = clt_on_queue_end};
