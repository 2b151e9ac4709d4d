/*
 * The host's part of a request, done by the threads of the devices themselves: drivers for CPUs run
 * host functions in a queue ("native kernels"). Behind a side's transfers such a function says that
 * this device's data are there. The last one to come does the host's part, and the others, who wait
 * for a moment, help. So nobody is woken between the end of a device's kernel and the sum, and sums
 * run on as many cores as there are devices. Nobody waits without end, but for CLT_COMM_QUEUED:
 * whoever has waited enough leaves, and the device goes on with what is queued; the last one does
 * not depend on others.
 */
#include <sched.h>
#include <time.h>

#include "base/error.h"
#include "comm/internal.h"
#include "comm/ranks/flag.h"
#include "device/core/cl.h"

/* How long a device waits for the others: what waking one of its threads may cost. One that is to
 * wait to the end naps after a while. */
enum { PATIENCE_NS = 100000, AWAKE_NS = 2000000, NAP_NS = 20000 };

/* Looks between two calls of the system: virtual machines stop a processor that pauses longer. */
enum { LOOKS = 16 };

/* Sums of so many pieces are worth waking a thread for; so many take as long as waking it. */
enum { WORTH_WAKING = 16, WAKING = 8 };

bool clt_comm_native_possible(const clt_comm *comm)
{
    /* Ranks that are threads may share what runs their devices, which one would wait in; between
     * nodes it may be the caller's thread that is needed. */
    if (comm->cluster || (comm->node && !comm->processes) || comm->options.threads ||
        comm->options.wait_poll_us || comm->piped)
        return false;
    for (int i = 0; i < comm->count; i++) {
        const clt_comm_member *m = &comm->members[i];
        cl_device_exec_capabilities can = 0;
        if (!m->can_map || m->wait_inside ||
            clGetDeviceInfo(m->device, CL_DEVICE_EXECUTION_CAPABILITIES, sizeof can, &can, NULL) ||
            !(can & CL_EXEC_NATIVE_KERNEL))
            return false;
    }
    return true;
}

bool clt_comm_native_apart(const clt_comm *comm)
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

/* Helps with this request, or with what is under way before it, until it has ended; for so long at
 * most. */
static void help(clt_comm *comm, int64_t sequence, int64_t ns)
{
    const int64_t until = now_ns() + ns;
    for (int i = 1; !is_over(comm, sequence); i++) {
        if (clt_team_has_work(comm->team))
            clt_team_join(comm->team);
        pause_a_little();
        if (i % LOOKS)
            continue;
        /* On its processor may be the thread that is to enqueue the other device's part. */
        sched_yield();
        if (now_ns() > until)
            return;
    }
}

/* To the end, or to the deadline, which aborts the communicator. */
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

static void wake(clt_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    pthread_cond_broadcast(&comm->done);
    pthread_mutex_unlock(&comm->lock);
}

static void do_piece(void *arg, int64_t piece)
{
    clt_comm *comm = arg;
    if (piece == comm->wake_at)
        wake(comm);
    clt_tasks_do(&comm->tasks, piece);
}

/* The threads in complete are woken a little before the end, so that they are there when it comes;
 * at the beginning where other devices are not there to help. */
void clt_comm_native_run(clt_comm *comm)
{
    const int64_t pieces = comm->tasks.pieces, own = pieces / comm->count;
    const bool alone = atomic_load(&comm->helpers) < comm->count - 1;
    comm->wake_at = pieces < WORTH_WAKING ? -1 : alone || own < WAKING ? 0 : own - WAKING;
    clt_team_open(comm->team, do_piece, comm, pieces, comm->count - 1);
    clt_team_finish(comm->team);
}

bool clt_comm_native_wait_locked(clt_comm *comm, clt_comm_request *r)
{
    if (!r->busy)
        return false;
    const int64_t sequence = r->sequence;
    pthread_mutex_unlock(&comm->lock);
    help(comm, sequence, PATIENCE_NS);
    pthread_mutex_lock(&comm->lock);
    /* An abort may have come meanwhile, which wakes nobody twice. */
    return r->done || comm->abort_status != CLT_OK;
}

/* The thread that waits for this device's request is about to give it work: that is there sooner if
 * the device does not fall asleep. */
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

/* Of the transfers that have events of their own: behind the last one of each device this runs. */
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

/* On the device's thread. */
static void CL_CALLBACK visit(void *args)
{
    clt_comm_side *side = *(clt_comm_side **)args;
    /* After all that start wrote: which locks drivers hold is their own affair. */
    atomic_load(&side->sent);
    clt_comm_request *r = side->request;
    clt_comm *comm = r->comm;
    /* Read now: afterwards the side may be another request's. */
    const int64_t sequence = r->sequence;
    const bool queued = side->queued;
    const int device = side->device, timeout_ms = clt_comm_timeout_ms(comm, &side->parts[0].op);
    atomic_fetch_add(&comm->visits, 1);
    side->ready_at = 1e-9 * (double)now_ns();
    if (atomic_fetch_add(&r->ready, 1) + 1 < comm->count) {
        atomic_fetch_add(&comm->helpers, 1);
        if (queued)
            help_to_the_end(comm, sequence, device, timeout_ms);
        else
            help(comm, sequence, PATIENCE_NS);
        atomic_fetch_sub(&comm->helpers, 1);
    } else {
        const clt_status status = check_transfers(r);
        if (status != CLT_OK)
            clt_comm_abort(comm, status, clt_error_message());
        clt_comm_do(comm, r);
    }
    if (!queued)
        linger(side);
    atomic_fetch_sub(&comm->visits, 1);
}

clt_status clt_comm_native_begin(clt_comm *comm, clt_comm_side *side, cl_event *event)
{
    const clt_comm_member *m = &comm->members[side->device];
    atomic_fetch_add(&side->sent, 1);
    const cl_int error =
        clEnqueueNativeKernel(m->queue, visit, &side, sizeof side, 0, NULL, NULL, 0, NULL, event);
    if (error != CL_SUCCESS)
        return clt_fail(CLT_OPENCL,
                        "comm: a native kernel on device %d (%s) failed with OpenCL error %d",
                        side->device, m->name, error);
    clt_object_created(CLT_OBJECT_EVENT);
    return CLT_OK;
}
