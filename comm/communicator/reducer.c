/* The communicator's thread: takes the requests in the order of their numbers, waits for their
 * transfers and does the host's part. */
#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "comm/communicator/internal.h"

static void do_piece(void *arg, int64_t piece)
{
    clt_comm *comm = arg;
    clt_tasks_do(&comm->tasks, piece);
}

clt_status clt_comm_transfer_failed(clt_status status, const clt_comm_request *request, int device,
                                    const clt_comm_part *part)
{
    const char *label = part->op.label;
    return clt_fail_prefix(status, "comm: device %d (%s), collective %lld%s%s%s: ", device,
                           request->comm->members[device].name, (long long)request->sequence,
                           label ? " (" : "", label ? label : "", label ? ")" : "");
}

clt_status clt_comm_wait_for_side(clt_comm *comm, clt_comm_request *request, int device)
{
    clt_comm_side *side = &request->sides[device];
    for (int k = 0; k < side->part_count; k++) {
        const clt_comm_part *part = &side->parts[k];
        if (!part->ready)
            continue;
        const clt_status status = clt_comm_wait_event(comm, part->ready);
        if (status != CLT_OK)
            return clt_comm_transfer_failed(status, request, device, part);
    }
    side->ready_at = clt_clock();
    return CLT_OK;
}

static clt_status wait_for_devices(clt_comm *comm, clt_comm_request *request)
{
    for (int i = 0; i < comm->count; i++)
        CLT_TRY(clt_comm_wait_for_side(comm, request, i));
    return CLT_OK;
}

static uint64_t add_number(uint64_t hash, int64_t number)
{
    return clt_hash(&number, sizeof number, hash);
}

/* Hashes everything in which the ranks must agree. */
static uint64_t signature_of(const clt_comm_request *r)
{
    uint64_t hash = add_number(0, r->sequence);
    if (clt_comm_may_exchange(&r->sides[0]))
        return add_number(hash, CLT_COMM_BARRIER);
    for (int k = 0; k < r->sides[0].part_count; k++) {
        const clt_comm_op *op = &r->sides[0].parts[k].op;
        hash = add_number(hash, op->kind);
        hash = add_number(hash, op->dtype);
        hash = add_number(hash, op->reduction);
        hash = add_number(hash, op->root);
        hash = add_number(hash, op->count);
        hash = add_number(hash, op->flags & CLT_COMM_MEASURE);
        hash = add_number(hash, op->leaves != 0);
        hash = add_number(hash, op->residual != NULL);
    }
    return hash;
}

clt_ranks_job clt_comm_job_of(clt_comm *comm, const clt_comm_request *r)
{
    const clt_comm_op *first = &r->sides[0].parts[0].op;
    clt_ranks_job job = {.signature = signature_of(r),
                         .sequence = r->sequence,
                         .kind = first->kind,
                         .label = first->label ? first->label : clt_comm_kind_name(first->kind),
                         .device = comm->members[0].name,
                         .timeout_ms = clt_comm_timeout_ms(comm, first),
                         .aborted = &comm->aborted,
                         .team = comm->team,
                         .patient = comm->on_devices,
                         .guests = comm->on_devices ? comm->count - 1 : 0};
    for (int i = 0; i < comm->count; i++) {
        job.contributors += !(r->sides[i].parts[0].op.flags & CLT_COMM_EMPTY);
        job.votes |= r->sides[i].parts[0].op.vote;
    }
    return job;
}

bool clt_comm_busy_begin(clt_comm *comm, clt_comm_request *request)
{
    pthread_mutex_lock(&comm->lock);
    const bool begins = comm->abort_status == CLT_OK;
    request->busy = begins;
    pthread_mutex_unlock(&comm->lock);
    return begins;
}

void clt_comm_busy_end(clt_comm *comm, clt_comm_request *request)
{
    pthread_mutex_lock(&comm->lock);
    request->busy = false;
    if (comm->abort_status != CLT_OK)
        clt_comm_wake(comm);
    pthread_mutex_unlock(&comm->lock);
}

bool clt_comm_mark_done(clt_comm *comm, clt_comm_request *request, clt_status status)
{
    pthread_mutex_lock(&comm->lock);
    request->busy = false;
    if (status == CLT_OK) {
        request->done = true;
        request->done_at = clt_clock();
        clt_counts_add_locked(comm, request);
        atomic_store(&comm->ended, request->sequence + 1);
        clt_comm_free_slot_locked(comm, request);
    } else {
        request->late = status == CLT_TIMEOUT && comm->abort_status == CLT_OK;
        clt_comm_abort_locked(comm, status, clt_error_message());
    }
    pthread_mutex_unlock(&comm->lock);
    return status == CLT_OK;
}

clt_status clt_comm_do(clt_comm *comm, clt_comm_request *r)
{
    if (!clt_comm_busy_begin(comm, r))
        return CLT_ABORTED;
    const clt_ranks_job job = clt_comm_job_of(comm, r);
    CLT_TRY(clt_comm_list_tasks(comm, r, &job));
    if (comm->between)
        return comm->between->run(comm, r);
    r->contributors = job.contributors;
    r->votes = job.votes;
    if (comm->on_devices)
        clt_in_queue_sum(comm);
    else
        clt_team_run(comm->team, do_piece, comm, comm->tasks.pieces);
    clt_tasks_measured(&comm->tasks, &r->sum_squares, &r->finite);
    return CLT_OK;
}

clt_status clt_comm_do_whole(clt_comm *comm, clt_comm_request *request)
{
    CLT_TRY(wait_for_devices(comm, request));
    return clt_comm_do(comm, request);
}

/* Waits for a request or the end. Between nodes, the end may come from another node. */
static void await_work_locked(clt_comm *comm)
{
    const struct timespec look = clt_comm_next_look();
    if (!comm->leads || comm->needs_owner)
        pthread_cond_wait(&comm->work, &comm->lock);
    else if (pthread_cond_timedwait(&comm->work, &comm->lock, &look) == ETIMEDOUT && !comm->stop &&
             !comm->finalized)
        clt_comm_listen_locked(comm);
}

void *clt_comm_reducer(void *arg)
{
    clt_comm *comm = arg;
    int64_t next = 0;
    pthread_mutex_lock(&comm->lock);
    while (!comm->stop && comm->abort_status == CLT_OK) {
        clt_comm_request *request = &comm->ring[next % comm->ring_size];
        if (request->sequence != next || request->joined < comm->count) {
            await_work_locked(comm);
            continue;
        }
        pthread_mutex_unlock(&comm->lock);
        const clt_status status = clt_transports[request->transport]->run(comm, request);
        const bool done = clt_comm_mark_done(comm, request, status);
        clt_comm_wake(comm);
        pthread_mutex_lock(&comm->lock);
        if (!done)
            break;
        next++;
    }
    clt_comm_listen_locked(comm);
    pthread_mutex_unlock(&comm->lock);
    return NULL;
}
