/* Calls that only one thread may make: MPI's, where the program initialised it for one thread. The
 * reducer asks; the thread looks whenever it waits in the communicator or gives it its time. */
#include <stdio.h>

#include "base/error.h"
#include "comm/internal.h"

clt_status clt_comm_errand(void *self, clt_cluster_fn fn, void *arg)
{
    clt_comm *comm = self;
    pthread_mutex_lock(&comm->lock);
    if (pthread_equal(comm->owner, pthread_self())) {
        pthread_mutex_unlock(&comm->lock);
        return fn(arg);
    }
    comm->errand = fn;
    comm->errand_arg = arg;
    comm->errand_done = false;
    pthread_cond_broadcast(&comm->done);
    while (!comm->errand_done && comm->abort_status == CLT_OK && !comm->stop)
        pthread_cond_wait(&comm->work, &comm->lock);
    /* One that is under way looks at `aborted` itself. */
    while (!comm->errand_done && !comm->errand)
        pthread_cond_wait(&comm->work, &comm->lock);
    comm->errand = NULL;
    clt_status status = comm->errand_done ? comm->errand_status : clt_comm_aborted_locked(comm);
    if (comm->errand_done && status != CLT_OK)
        clt_error_restore(comm->errand_message);
    pthread_mutex_unlock(&comm->lock);
    return status;
}

void clt_comm_errand_locked(clt_comm *comm)
{
    if (!comm->errand || !pthread_equal(comm->owner, pthread_self()))
        return;
    const clt_cluster_fn fn = comm->errand;
    comm->errand = NULL;
    pthread_mutex_unlock(&comm->lock);
    const clt_status status = fn(comm->errand_arg);
    pthread_mutex_lock(&comm->lock);
    comm->errand_status = status;
    if (status != CLT_OK)
        snprintf(comm->errand_message, sizeof comm->errand_message, "%s", clt_error_message());
    comm->errand_done = true;
    pthread_cond_broadcast(&comm->work);
}
