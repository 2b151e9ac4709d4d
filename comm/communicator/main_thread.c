/* Calls that only one thread may make: MPI's, if the program initialised MPI for one thread. The
 * reducer asks that thread, which does the call when it waits in the communicator or in
 * clt_comm_progress. */
#include <stdio.h>

#include "base/error.h"
#include "comm/communicator/internal.h"
#include "comm/ranks/flag.h"

clt_status clt_comm_call_on_main(void *self, clt_cluster_fn fn, void *arg)
{
    clt_comm *comm = self;
    pthread_mutex_lock(&comm->lock);
    if (pthread_equal(comm->owner, pthread_self())) {
        pthread_mutex_unlock(&comm->lock);
        return fn(arg);
    }
    comm->main_call = fn;
    comm->main_call_arg = arg;
    comm->main_call_done = false;
    pthread_cond_broadcast(&comm->done);
    while (!comm->main_call_done && comm->abort_status == CLT_OK && !comm->stop)
        pthread_cond_wait(&comm->work, &comm->lock);
    /* A task that is under way checks `aborted` itself. */
    while (!comm->main_call_done && !comm->main_call)
        pthread_cond_wait(&comm->work, &comm->lock);
    comm->main_call = NULL;
    clt_status status =
        comm->main_call_done ? comm->main_call_status : clt_comm_aborted_locked(comm);
    if (comm->main_call_done && status != CLT_OK)
        clt_error_restore(comm->main_call_message);
    pthread_mutex_unlock(&comm->lock);
    return status;
}

void clt_comm_main_call_locked(clt_comm *comm)
{
    if (!comm->main_call || !pthread_equal(comm->owner, pthread_self()))
        return;
    const clt_cluster_fn fn = comm->main_call;
    comm->main_call = NULL;
    pthread_mutex_unlock(&comm->lock);
    const clt_status status = fn(comm->main_call_arg);
    pthread_mutex_lock(&comm->lock);
    comm->main_call_status = status;
    if (status != CLT_OK)
        snprintf(comm->main_call_message, sizeof comm->main_call_message, "%s",
                 clt_error_message());
    comm->main_call_done = true;
    pthread_cond_broadcast(&comm->work);
}

/* --- the ends of ranks on other nodes --------------------------------------------------------- */

static bool may_call_bridge(const clt_comm *comm)
{
    return comm->cluster && comm->leads &&
           (!comm->needs_owner || pthread_equal(comm->owner, pthread_self()));
}

bool clt_comm_listens(const clt_comm *comm)
{
    return comm->needs_owner && may_call_bridge(comm);
}

void clt_comm_listen_locked(clt_comm *comm)
{
    clt_ranks_notice notice;
    if (!may_call_bridge(comm) || comm->orderly)
        return;
    if (comm->abort_status == CLT_OK && comm->node && clt_ranks_heard(comm->node, &notice)) {
        clt_fail(CLT_ABORTED, "comm: rank %d: %s", notice.rank, notice.text);
        clt_comm_abort_locked(comm, CLT_ABORTED, clt_error_message());
    }
    if (comm->abort_status == CLT_OK && clt_cluster_listen(comm->cluster) != CLT_OK)
        clt_comm_abort_locked(comm, CLT_ABORTED, clt_error_message());
    if (comm->abort_status != CLT_OK)
        clt_cluster_tell(comm->cluster, &comm->notice, true);
}

void clt_comm_part_nodes(clt_comm *comm)
{
    const clt_ranks_notice end = {CLT_ABORTED, comm->rank, "it destroyed its communicator"};
    clt_comm_listen_locked(comm);
    if (may_call_bridge(comm) && !comm->orderly)
        clt_cluster_tell(comm->cluster, &end, false);
}

struct timespec clt_comm_next_look(void)
{
    enum { LOOK_MS = 10 };
    return clt_deadline_in(LOOK_MS).at;
}
