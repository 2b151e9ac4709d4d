/* A communicator from its creation to its end: create, abort, status, finalize, destroy. */
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/vec.h"
#include "comm/communicator/internal.h"
#include "device/core/cl.h"

enum { DEFAULT_IN_FLIGHT = 256, MAX_IN_FLIGHT = 65536, MAX_THREADS = 64 };

/* One thread leaves the other cores to devices that compute meanwhile. */
enum { DEFAULT_THREADS = 1 };

CLT_STRUCT_INIT(clt_comm_device, )

CLT_STRUCT_INIT(clt_comm_options, )

CLT_STRUCT_INIT(clt_comm_op, .residual_scale = 1)

CLT_STRUCT_INIT(clt_comm_result, .finite = 1)

void clt_comm_abort_locked(clt_comm *comm, clt_status status, const char *message)
{
    if (comm->abort_status == CLT_OK) {
        clt_ranks_notice *own = &comm->notice;
        snprintf(comm->abort_message, sizeof comm->abort_message, "%s",
                 message && *message ? message : "comm: aborted without a message");
        *own = (clt_ranks_notice){status == CLT_OK ? CLT_ABORTED : status, comm->number, ""};
        snprintf(own->text, sizeof own->text, "%.255s", comm->abort_message);
        /* A run that another rank ended fails with ABORTED. The reason is in that rank's notice. */
        if (own->status == CLT_ABORTED && !(comm->cluster && clt_cluster_heard(comm->cluster, own)))
            (void)(comm->node && clt_ranks_heard(comm->node, own));
        comm->abort_status = own->status;
        atomic_store(&comm->aborted, true);
    }
    if (comm->node)
        clt_ranks_abort(comm->node, &comm->notice);
    pthread_cond_broadcast(&comm->work);
    clt_comm_wake(comm);
}

clt_status clt_comm_aborted_locked(const clt_comm *comm)
{
    return clt_fail(CLT_ABORTED, "%s", comm->abort_message);
}

void clt_comm_enter(clt_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    comm->inside++;
    pthread_mutex_unlock(&comm->lock);
}

void clt_comm_leave(clt_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    if (--comm->inside == 0 && comm->stop)
        clt_comm_wake(comm);
    pthread_mutex_unlock(&comm->lock);
}

static clt_status read_options(const clt_comm_options *from, clt_comm_options *options)
{
    clt_comm_options_init(options);
    if (from) {
        CLT_TRY(CLT_CHECK_STRUCT(from, clt_comm_options));
        *options = *from;
    }
    if (!options->max_in_flight)
        options->max_in_flight = DEFAULT_IN_FLIGHT;
    if (options->path < CLT_COMM_PATH_AUTO || options->path > CLT_COMM_PATH_PEER)
        return clt_fail(CLT_INVALID_ARGUMENT, "comm: %d is not a path", (int)options->path);
    if (options->max_in_flight < 1 || options->max_in_flight > MAX_IN_FLIGHT)
        return clt_fail(CLT_INVALID_ARGUMENT, "comm: max_in_flight %d is not within 1 to %d",
                        options->max_in_flight, MAX_IN_FLIGHT);
    if (options->threads < 0 || options->threads > MAX_THREADS)
        return clt_fail(CLT_INVALID_ARGUMENT, "comm: threads %d is not within 0 to %d",
                        options->threads, MAX_THREADS);
    if (options->timeout_ms < 0 || options->wait_poll_us < 0)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "comm: timeout_ms %d and wait_poll_us %d may not be "
                        "negative",
                        options->timeout_ms, options->wait_poll_us);
    return CLT_OK;
}

static clt_status check_queue(int i, const clt_comm_member *m, cl_command_queue queue)
{
    cl_context context;
    cl_device_id device;
    cl_command_queue_properties properties;
    if (clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof context, &context, NULL) ||
        clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof device, &device, NULL) ||
        clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL))
        return clt_fail(CLT_INVALID_ARGUMENT, "comm: a queue of device %d is not valid", i);
    if (context != m->context || device != m->device)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "comm: a queue of device %d (%s) belongs to another device or context", i,
                        m->name);
    if (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)
        return clt_fail(CLT_UNSUPPORTED,
                        "comm: a queue of device %d (%s) is out of order; give one in order", i,
                        m->name);
    return CLT_OK;
}

static bool probes_all(void)
{
#ifdef CLT_TESTING
    return clt_peer_testing_probe_all;
#else
    return false;
#endif
}

static void init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static clt_status open_member(clt_comm *comm, int i, const clt_comm_device *d)
{
    clt_comm_member *m = &comm->members[i];
    if (!d->context || !d->device || !d->compute)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "comm: device %d lacks a context, a device or a compute queue", i);
    cl_device_type type = 0;
    cl_bool shared = CL_FALSE;
    cl_platform_id platform;
    char vendor[64] = "", name[256] = "";
    if (clGetDeviceInfo(d->device, CL_DEVICE_NAME, sizeof name, name, NULL) ||
        clGetDeviceInfo(d->device, CL_DEVICE_TYPE, sizeof type, &type, NULL) ||
        clGetDeviceInfo(d->device, CL_DEVICE_HOST_UNIFIED_MEMORY, sizeof shared, &shared, NULL) ||
        clGetDeviceInfo(d->device, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL) ||
        clGetPlatformInfo(platform, CL_PLATFORM_VENDOR, sizeof vendor, vendor, NULL))
        return clt_fail(CLT_INVALID_ARGUMENT, "comm: device %d is not a valid OpenCL device", i);
    snprintf(m->name, sizeof m->name, "%.63s", name);
    m->context = d->context;
    m->device = d->device;
    m->can_map = shared || (type & CL_DEVICE_TYPE_CPU);
    m->wait_inside = (type & CL_DEVICE_TYPE_CPU) && strstr(vendor, "Intel");
    if (comm->options.path == CLT_COMM_PATH_MAPPED && !m->can_map)
        return clt_fail(CLT_UNSUPPORTED,
                        "comm: device %d (%s) does not share the host's memory: its buffers cannot "
                        "be mapped in place; use the path auto",
                        i, m->name);
    CLT_TRY(check_queue(i, m, d->compute));
    if (d->transfer)
        CLT_TRY(check_queue(i, m, d->transfer));
    m->piped = !m->can_map || comm->options.path == CLT_COMM_PATH_STAGED ||
               comm->options.path == CLT_COMM_PATH_PEER || probes_all();
    comm->piped |= m->piped;
    if (m->piped)
        CLT_TRY(clt_comm_pipe_open(m));
    pthread_mutex_init(&m->staging_lock, NULL);
    init_condition(&m->done);
    clRetainContext(d->context);
    clRetainCommandQueue(d->compute);
    m->compute = d->compute;
    m->queue = d->transfer ? d->transfer : d->compute;
    if (d->transfer)
        clRetainCommandQueue(d->transfer);
    return CLT_OK;
}

static void close_member(clt_comm_member *m)
{
    if (!m->compute) /* open_member retains everything or nothing */
        return;
    clt_staging_free(m);
    clt_comm_pipe_close(m);
    pthread_mutex_destroy(&m->staging_lock);
    pthread_cond_destroy(&m->done);
    if (m->queue != m->compute)
        clReleaseCommandQueue(m->queue);
    clReleaseCommandQueue(m->compute);
    clReleaseContext(m->context);
}

static const char *why_no_probe(const clt_comm *comm)
{
    return comm->ranks > 1    ? "there are several ranks; only devices of one process are peers"
           : comm->count == 1 ? "there is one device, which has no peers"
           : comm->options.path != CLT_COMM_PATH_AUTO
               ? "another path was asked for; set the path to auto or peer"
               : "devices share the host's memory; set the path to peer to have them copy";
}

/* Probes whether devices with memory of their own can exchange without the host. */
static clt_status open_peers(clt_comm *comm)
{
    const bool forced = comm->options.path == CLT_COMM_PATH_PEER;
    bool all = comm->options.path == CLT_COMM_PATH_AUTO && comm->count > 1 && comm->ranks == 1;
    for (int i = 0; i < comm->count; i++)
        all = all && comm->members[i].piped;
    if (forced && (comm->count < 2 || comm->ranks > 1))
        return clt_fail(CLT_UNSUPPORTED,
                        "comm: the path 'peer' is between several devices of one process");
    if (!forced && !all) {
        clt_declines(comm->no_peers, "%s", why_no_probe(comm));
        return CLT_OK;
    }
    const clt_status status = clt_peers_open(comm, forced);
    if (status == CLT_OK || forced)
        return status;
    clt_log(CLT_LOG_INFO, "%s", clt_error_message());
    clt_declines(comm->no_peers, "%s", clt_error_message());
    snprintf(comm->transport_text, sizeof comm->transport_text, "through the host, in chunks: %s",
             clt_error_message());
    return CLT_OK;
}

static void describe_transport(clt_comm *comm)
{
    bool mapped = true;
    for (int i = 0; i < comm->count; i++)
        mapped = mapped && comm->members[i].can_map;
    if (!*comm->transport_text)
        snprintf(comm->transport_text, sizeof comm->transport_text, "%s%s",
                 !comm->piped ? "in the host's memory, mapped where possible"
                 : mapped     ? "through the host, in chunks (asked for)"
                              : "through the host, in chunks",
                 comm->on_devices ? ", by the devices' own threads" : "");
}

static clt_status build(clt_comm *comm, const clt_comm_device *devices)
{
    comm->ring_size = 2 * comm->options.max_in_flight;
    comm->members = clt_calloc((size_t)comm->count, sizeof *comm->members);
    comm->ring = clt_calloc((size_t)comm->ring_size, sizeof *comm->ring);
    comm->sides = clt_calloc((size_t)comm->ring_size * (size_t)comm->count, sizeof *comm->sides);
    CLT_TRY_MEMORY(comm->members && comm->ring && comm->sides);
    for (int i = 0; i < comm->ring_size; i++) {
        comm->ring[i].comm = comm;
        comm->ring[i].sequence = -1;
        comm->ring[i].sides = comm->sides + (size_t)i * (size_t)comm->count;
        for (int d = 0; d < comm->count; d++) {
            comm->ring[i].sides[d].request = &comm->ring[i];
            comm->ring[i].sides[d].device = d;
        }
    }
    /* Reserves room for one operation per side, which most requests have, so that no step allocates
     * it. */
    for (int i = 0; i < comm->ring_size * comm->count; i++)
        CLT_TRY(CLT_RESERVE(comm->sides[i].parts, 0, comm->sides[i].part_room, 1));
    for (int i = 0; i < comm->count; i++) {
        CLT_TRY(CLT_CHECK_STRUCT(&devices[i], clt_comm_device));
        CLT_TRY(open_member(comm, i, &devices[i]));
    }
    CLT_TRY(open_peers(comm));
    comm->between = clt_transport_between(comm);
    comm->on_devices = clt_in_queue_possible(comm, NULL);
    comm->separate = clt_in_queue_separate(comm);
    for (int i = 0; comm->on_devices && i < comm->count; i++)
        comm->members[i].gives_memory = clt_in_queue_gives_memory(&comm->members[i]);
    describe_transport(comm);
    CLT_TRY(clt_team_create(comm->options.threads ? comm->options.threads : DEFAULT_THREADS,
                            &comm->team));
    if (comm->on_devices)
        return CLT_OK;
    if (clt_thread_start(&comm->reducer, clt_comm_reducer, comm))
        return clt_fail(CLT_OUT_OF_MEMORY, "comm: the communicator's thread cannot be started");
    comm->reducer_started = true;
    return CLT_OK;
}

static clt_status join_nodes(clt_comm *comm, const clt_comm_ranks *ranks)
{
    const clt_comm_bridge *b = ranks->bridge;
    CLT_TRY(CLT_CHECK_STRUCT(b, clt_comm_bridge));
    if (b->nodes < 2 || b->node < 0 || b->node >= b->nodes || ranks->node_ranks < 1 ||
        ranks->node_rank < 0 || ranks->node_rank >= ranks->node_ranks || !b->gather ||
        !b->exchange || !b->broadcast || !b->transfer || !b->test || !b->cancel || !b->missing ||
        !b->busy || !b->tell || !b->hear || (ranks->node_rank == 0 && !b->first_ranks))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "comm: rank %d of %d on node %d of %d is not possible, or its bridge lacks "
                        "a function",
                        ranks->node_rank, ranks->node_ranks, b->node, b->nodes);
    if (b->nodes > CLT_RANKS_MOST)
        return clt_fail(CLT_UNSUPPORTED, "comm: at most %d nodes, not %d", CLT_RANKS_MOST,
                        b->nodes);
    comm->leads = ranks->node_rank == 0;
    comm->needs_owner = b->main_thread && comm->leads;
    CLT_TRY(clt_cluster_open(comm->node, comm->number, comm->leads, b,
                             b->main_thread ? clt_comm_call_on_owner : NULL, comm, &comm->cluster));
    if (comm->needs_owner)
        clt_comm_own(comm);
    return CLT_OK;
}

static clt_status join_ranks(clt_comm *comm, const clt_comm_ranks *ranks)
{
    CLT_TRY(CLT_CHECK_STRUCT(ranks, clt_comm_ranks));
    if (ranks->rank < 0 || ranks->rank >= ranks->ranks || !ranks->devices ||
        ranks->devices[ranks->rank] != comm->count)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "comm: rank %d of %d with %d devices is not what was announced",
                        ranks->rank, ranks->ranks, comm->count);
    comm->number = ranks->number < 0 ? ranks->rank : ranks->number;
    comm->ranks = ranks->ranks;
    comm->node_ranks = ranks->bridge ? ranks->node_ranks : ranks->ranks;
    comm->processes = ranks->processes;
    comm->total = 0;
    for (int r = 0; r < ranks->ranks; r++) {
        comm->first = r == ranks->rank ? comm->total : comm->first;
        comm->total += ranks->devices[r];
    }
    const int here = comm->node_ranks;
    const int own = ranks->bridge ? ranks->node_rank : ranks->rank;
    if (here > 1 && (!ranks->shared || ranks->shared_bytes < clt_comm_shared_bytes(here)))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "comm: %d ranks need %lld bytes of shared memory, not %lld", here,
                        (long long)clt_comm_shared_bytes(here), (long long)ranks->shared_bytes);
    if (here > 1)
        CLT_TRY(clt_ranks_open(ranks->shared, own, here, comm->number, &comm->node));
    return ranks->bridge ? join_nodes(comm, ranks) : CLT_OK;
}

int64_t clt_comm_shared_bytes(int ranks)
{
    return ranks > 1 ? (int64_t)clt_ranks_bytes(ranks) : 0;
}

CLT_STRUCT_INIT(clt_comm_bridge, .nodes = 1)

CLT_STRUCT_INIT(clt_comm_ranks, .ranks = 1, .number = -1)

clt_status clt_comm_create(const clt_comm_device *devices, int count,
                           const clt_comm_options *options, clt_comm **out)
{
    return clt_comm_create_between(devices, count, options, NULL, out);
}

clt_status clt_comm_create_between(const clt_comm_device *devices, int count,
                                   const clt_comm_options *options, const clt_comm_ranks *ranks,
                                   clt_comm **out)
{
    if (count < 1 || !devices)
        return clt_fail(CLT_INVALID_ARGUMENT, "comm: a communicator needs at least one device");
    if (count > CLT_COMM_MAX_DEVICES)
        return clt_fail(CLT_UNSUPPORTED,
                        "comm: a communicator takes at most %d devices of a process, not %d",
                        CLT_COMM_MAX_DEVICES, count);
    clt_comm_options checked;
    CLT_TRY(read_options(options, &checked));
    clt_comm *comm = CLT_NEW(clt_comm);
    CLT_TRY_MEMORY(comm);
    comm->options = checked;
    comm->count = comm->total = count;
    comm->ranks = comm->node_ranks = 1;
    comm->owner = pthread_self();
    /* Devices take this lock at the same time, and hold it for less time than waking a thread
     * takes. */
    pthread_mutexattr_t adaptive;
    pthread_mutexattr_init(&adaptive);
    pthread_mutexattr_settype(&adaptive, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&comm->lock, &adaptive);
    pthread_mutexattr_destroy(&adaptive);
    init_condition(&comm->work);
    init_condition(&comm->done);
    clt_status status = ranks ? join_ranks(comm, ranks) : CLT_OK;
    CLT_NEXT(status, build(comm, devices));
    if (status != CLT_OK) {
        clt_comm_destroy(comm);
        return status;
    }
    if (ranks) {
        comm->release = ranks->release;
        comm->release_user = ranks->user;
    }
    *out = comm;
    return CLT_OK;
}

/* Ends everything of a side that is under way. Only destroy's thread is left. */
static void clear_side(clt_comm *comm, clt_comm_request *r, int device)
{
    clt_comm_side *side = &r->sides[device];
    for (int k = 0; k < side->part_count; k++) {
        clt_comm_part *part = &side->parts[k];
        if (!part->ready)
            continue;
        clWaitForEvents(1, &part->ready);
        clt_release_event(part->ready);
        part->ready = NULL;
    }
    for (int i = 0; i < side->chunk_count; i++)
        clWaitForEvents(1, &side->chunks[i]);
    clt_comm_release_chunks(side);
    if (!side->joined || side->completed)
        return;
    if (comm->members[device].piped)
        clt_comm_pipe_end(comm, side, true, NULL);
    for (int k = 0; k < side->part_count && !comm->members[device].piped; k++)
        clt_comm_transfer_end(comm, device, &side->parts[k], true, NULL);
    clt_comm_release_buffers(side);
    side->completed = true;
}

void clt_comm_destroy(clt_comm *comm)
{
    if (!comm)
        return;
    pthread_mutex_lock(&comm->lock);
    bool in_use = false;
    for (int i = 0; comm->members && i < comm->count; i++)
        in_use |= comm->members[i].oldest < comm->members[i].next ||
                  comm->members[i].next != comm->members[0].next;
    if (in_use)
        clt_comm_abort_locked(comm, CLT_ABORTED,
                              "comm: the communicator was destroyed with requests in flight");
    comm->stop = true;
    pthread_cond_broadcast(&comm->work);
    while (comm->inside > 0)
        pthread_cond_wait(&comm->done, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
    if (comm->reducer_started)
        pthread_join(comm->reducer, NULL);
    for (int i = 0; comm->ring && comm->sides && i < comm->ring_size; i++) {
        for (int d = 0; d < comm->count && comm->ring[i].sequence >= 0; d++)
            clear_side(comm, &comm->ring[i], d);
    }
    /* Uploads and unmaps may still use the staging. */
    for (int i = 0; comm->members && i < comm->count; i++) {
        if (comm->members[i].compute)
            clFinish(comm->members[i].queue);
        if (comm->members[i].compute && comm->members[i].piped) {
            clFinish(comm->members[i].down);
            clFinish(comm->members[i].up);
        }
    }
    while (atomic_load(&comm->visits))
        sched_yield();
    clt_team_destroy(comm->team);
    clt_comm_disown(comm);
    clt_comm_part_nodes(comm);
    clt_cluster_close(comm->cluster);
    clt_ranks_close(comm->node);
    clt_peers_close(comm);
    for (int i = 0; comm->members && i < comm->count; i++)
        close_member(&comm->members[i]);
    if (comm->release)
        comm->release(comm->release_user, !comm->orderly);
    pthread_cond_destroy(&comm->work);
    pthread_cond_destroy(&comm->done);
    pthread_mutex_destroy(&comm->lock);
    clt_tasks_free(&comm->tasks);
    clt_free(comm->messages);
    for (int i = 0; comm->sides && i < comm->ring_size * comm->count; i++) {
        CLT_FREE(comm->sides[i].parts, comm->sides[i].chunks);
    }
    CLT_FREE(comm->sides, comm->ring, comm->members, comm);
}

int clt_comm_size(const clt_comm *comm)
{
    return comm->total;
}

int clt_comm_device_count(const clt_comm *comm)
{
    return comm->count;
}

const char *clt_comm_describe_transport(const clt_comm *comm)
{
    return comm->transport_text;
}

const char *clt_comm_way(const clt_comm *comm)
{
    return clt_comm_describe_transport(comm);
}

int clt_comm_participant(const clt_comm *comm, int device)
{
    return device >= 0 && device < comm->count ? comm->first + device : -1;
}

clt_status clt_comm_reserve(clt_comm *comm, int device, int64_t bytes, int requests)
{
    if (device < 0 || device >= comm->count || bytes < 1 || requests < 0)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "comm: cannot reserve for %d requests of %lld bytes on device %d of %d",
                        requests, (long long)bytes, device, comm->count);
    clt_comm_member *m = &comm->members[device];
    clt_comm_enter(comm);
    pthread_mutex_lock(&comm->lock);
    bool idle = m->oldest == m->next;
    pthread_mutex_unlock(&comm->lock);
    clt_status status =
        idle
            ? clt_staging_reserve(m, (size_t)bytes, requests)
            : clt_fail(CLT_STATE, "comm: device %d has requests in flight; reserve before", device);
    clt_comm_leave(comm);
    return status;
}

void clt_comm_abort(clt_comm *comm, clt_status status, const char *message)
{
    pthread_mutex_lock(&comm->lock);
    clt_comm_abort_locked(comm, status, message);
    pthread_mutex_unlock(&comm->lock);
}

clt_status clt_comm_status(clt_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    clt_status status = comm->abort_status;
    if (status != CLT_OK)
        clt_fail(status, "%s", comm->abort_message);
    pthread_mutex_unlock(&comm->lock);
    return status;
}

int clt_comm_needs_progress(const clt_comm *comm)
{
    return comm->needs_owner;
}

clt_status clt_comm_progress(clt_comm *comm)
{
    clt_comm_owner_progress();
    return clt_comm_status(comm);
}

clt_status clt_comm_finalize(clt_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    clt_status status = CLT_OK;
    if (comm->abort_status != CLT_OK)
        status = clt_comm_aborted_locked(comm);
    for (int i = 0; status == CLT_OK && i < comm->count; i++) {
        const clt_comm_member *m = &comm->members[i];
        if (m->oldest < m->next)
            status = clt_fail(CLT_STATE,
                              "comm: device %d has not completed collective %lld; complete all "
                              "requests before finalizing",
                              i, (long long)m->oldest);
    }
    /* Requests that are only enqueued end soon, because all devices have started them. */
    while (status == CLT_OK && comm->on_devices &&
           atomic_load(&comm->ended) < comm->members[0].next) {
        if (comm->abort_status != CLT_OK)
            status = clt_comm_aborted_locked(comm);
        else
            pthread_cond_wait(&comm->done, &comm->lock);
    }
    if (status == CLT_OK)
        comm->finalized = true;
    pthread_mutex_unlock(&comm->lock);
    if (status == CLT_OK && (comm->node || comm->cluster)) {
        const clt_ranks_job job = {.label = "finalize",
                                   .kind = CLT_COMM_BARRIER,
                                   .sequence = comm->members[0].next,
                                   .timeout_ms = comm->options.timeout_ms,
                                   .aborted = &comm->aborted};
        status = comm->cluster ? clt_cluster_barrier(comm->cluster, &job)
                               : clt_ranks_barrier(comm->node, &job);
        /* A rank that passed the barrier knows that all ranks came and had nothing left to do. */
        comm->orderly = status == CLT_OK;
        if (status != CLT_OK)
            clt_comm_abort(comm, status, clt_error_message());
    }
    return status;
}
