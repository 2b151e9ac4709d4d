/* The communicator's one thread: it takes the requests in the order of their numbers, waits for
 * their transfers and does the host's part. */
#include "base/error.h"
#include "comm/internal.h"

static void do_piece(void *arg, int64_t piece)
{
    clt_comm *comm = arg;
    clt_tasks_do(&comm->tasks, piece);
}

static clt_status wait_for_devices(clt_comm *comm, clt_comm_request *request)
{
    for (int i = 0; i < comm->count; i++) {
        clt_comm_side *side = &request->sides[i];
        for (int k = 0; k < side->part_count; k++) {
            const clt_comm_part *part = &side->parts[k];
            if (!part->ready)
                continue;
            clt_status status = clt_comm_wait_event(comm, part->ready);
            const char *label = part->op.label;
            if (status != CLT_OK)
                return clt_fail_prefix(status, "comm: device %d (%s), collective %lld%s%s%s: ", i,
                                       comm->members[i].name, (long long)request->sequence,
                                       label ? " (" : "", label ? label : "", label ? ")" : "");
        }
    }
    return CLT_OK;
}

static void work(clt_comm *comm, clt_comm_request *request)
{
    clt_team_run(comm->team, do_piece, comm, comm->tasks.pieces);
    clt_tasks_measured(&comm->tasks, &request->sum_squares, &request->finite);
    for (int i = 0; i < comm->count; i++)
        request->contributors += !(request->sides[i].parts[0].op.flags & CLT_COMM_EMPTY);
}

void *clt_comm_reducer(void *arg)
{
    clt_comm *comm = arg;
    int64_t next = 0;
    pthread_mutex_lock(&comm->lock);
    while (!comm->stop && comm->abort_status == CLT_OK) {
        clt_comm_request *request = &comm->ring[next % comm->ring_size];
        if (request->sequence != next || request->joined < comm->count) {
            pthread_cond_wait(&comm->work, &comm->lock);
            continue;
        }
        pthread_mutex_unlock(&comm->lock);
        clt_status status = clt_comm_list_tasks(comm, request, &comm->tasks);
        if (status == CLT_OK)
            status = wait_for_devices(comm, request);
        pthread_mutex_lock(&comm->lock);
        /* The first abort stays, so that this one is only heard where nobody was faster. */
        if (status != CLT_OK)
            clt_comm_abort_locked(comm, status, clt_error_message());
        if (comm->abort_status != CLT_OK)
            break;
        request->busy = true;
        pthread_mutex_unlock(&comm->lock);

        work(comm, request);

        pthread_mutex_lock(&comm->lock);
        request->busy = false;
        request->done = true;
        next++;
        pthread_cond_broadcast(&comm->done);
    }
    pthread_mutex_unlock(&comm->lock);
    return NULL;
}
