/*
 * Calls that only one thread may make: MPI's, if the program initialised MPI for one thread. A
 * reducer asks that thread, the owner of the communicator, which does the call in steps while it
 * waits in any of its communicators or in clt_comm_progress. No step waits. So the owner serves all
 * of its communicators by turns: the exchange of one may wait for a rank that first needs the
 * exchange of another.
 */
#include <stdio.h>

#include "base/error.h"
#include "comm/communicator/internal.h"
#include "comm/ranks/flag.h"

/* All communicators that need their owners, and a count of the times that an owner should look. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    uint32_t calls;
    clt_comm *first;
} owned = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void set_clock(void)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&owned.wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void clt_comm_own(clt_comm *comm)
{
    pthread_once(&once, set_clock);
    pthread_mutex_lock(&owned.lock);
    comm->next_owned = owned.first;
    owned.first = comm;
    pthread_mutex_unlock(&owned.lock);
}

void clt_comm_disown(const clt_comm *comm)
{
    pthread_mutex_lock(&owned.lock);
    for (clt_comm **at = &owned.first; *at; at = &(*at)->next_owned)
        if (*at == comm) {
            *at = comm->next_owned;
            break;
        }
    pthread_mutex_unlock(&owned.lock);
}

/* Returns the first communicator behind `comm` (NULL: of all) that this thread owns, or NULL. */
static clt_comm *next_owned(const clt_comm *comm)
{
    pthread_mutex_lock(&owned.lock);
    clt_comm *at = comm ? comm->next_owned : owned.first;
    while (at && !pthread_equal(at->owner, pthread_self()))
        at = at->next_owned;
    pthread_mutex_unlock(&owned.lock);
    return at;
}

bool clt_comm_owns(void)
{
    return next_owned(NULL) != NULL;
}

static void wake_owners(void)
{
    pthread_mutex_lock(&owned.lock);
    owned.calls++;
    if (owned.first)
        pthread_cond_broadcast(&owned.wake);
    pthread_mutex_unlock(&owned.lock);
}

void clt_comm_wake(clt_comm *comm)
{
    pthread_cond_broadcast(&comm->done);
    for (int i = 0; comm->members && i < comm->count; i++)
        pthread_cond_broadcast(&comm->members[i].done);
    wake_owners();
}

void clt_comm_wake_device(clt_comm *comm, int device)
{
    pthread_cond_broadcast(&comm->members[device].done);
    wake_owners();
}

uint32_t clt_comm_owner_calls(void)
{
    pthread_mutex_lock(&owned.lock);
    const uint32_t calls = owned.calls;
    pthread_mutex_unlock(&owned.lock);
    return calls;
}

/* Does a step of the call that the communicator's reducer waits for. Returns whether the call goes
 * on. The lock is held, but not during the step. */
static bool step_locked(clt_comm *comm)
{
    bool done = false;
    if (!comm->step || comm->stepping)
        return false;
    comm->stepping = comm->step_begun = true;
    pthread_mutex_unlock(&comm->lock);
    const clt_status status = comm->step(comm->step_arg, &done);
    pthread_mutex_lock(&comm->lock);
    comm->stepping = false;
    if (done || status != CLT_OK) {
        comm->step = NULL;
        comm->step_status = status;
        if (status != CLT_OK)
            snprintf(comm->step_message, sizeof comm->step_message, "%s", clt_error_message());
    }
    if (!comm->step || comm->abort_status != CLT_OK || comm->stop)
        pthread_cond_broadcast(&comm->work);
    return comm->step != NULL;
}

/* Does a step for each communicator that this thread owns, and listens to other nodes if asked.
 * Returns whether a call goes on. */
static bool serve(bool listens)
{
    bool active = false;
    for (clt_comm *comm = next_owned(NULL); comm; comm = next_owned(comm)) {
        pthread_mutex_lock(&comm->lock);
        active = step_locked(comm) || active;
        if (listens)
            clt_comm_listen_locked(comm);
        pthread_mutex_unlock(&comm->lock);
    }
    return active;
}

void clt_comm_owner_turn(uint32_t calls, int *looks)
{
    enum { FAST = 2000, LISTEN = 16, PAUSE_US = 20, IDLE_US = 10000 };
    const bool active = serve(++*looks % LISTEN == 0);
    if (active && *looks < FAST)
        return;
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_nsec += (active ? PAUSE_US : IDLE_US) * 1000;
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    pthread_mutex_lock(&owned.lock);
    if (owned.calls == calls)
        pthread_cond_timedwait(&owned.wake, &owned.lock, &at);
    pthread_mutex_unlock(&owned.lock);
    if (!active)
        serve(true);
}

void clt_comm_owner_progress(void)
{
    enum { LOOKS = 100 };
    for (int looks = 0; serve(looks == 0) && looks < LOOKS; looks++)
        ;
}

clt_status clt_comm_call_on_owner(void *self, clt_link_step step, void *arg)
{
    clt_comm *comm = self;
    pthread_mutex_lock(&comm->lock);
    comm->step = step;
    comm->step_arg = arg;
    comm->step_begun = false;
    if (pthread_equal(comm->owner, pthread_self())) {
        for (int looks = 0; comm->step;) {
            const uint32_t calls = clt_comm_owner_calls();
            pthread_mutex_unlock(&comm->lock);
            clt_comm_owner_turn(calls, &looks);
            pthread_mutex_lock(&comm->lock);
        }
    } else {
        clt_comm_wake(comm);
        while (comm->step && comm->abort_status == CLT_OK && !comm->stop)
            pthread_cond_wait(&comm->work, &comm->lock);
        /* A step that is under way ends soon. */
        while (comm->stepping)
            pthread_cond_wait(&comm->work, &comm->lock);
    }
    clt_status status = comm->step_status;
    if (comm->step)
        status = clt_comm_aborted_locked(comm);
    else if (status != CLT_OK)
        clt_error_restore(comm->step_message);
    comm->step = NULL;
    pthread_mutex_unlock(&comm->lock);
    return status;
}

/* --- the ends of ranks on other nodes --------------------------------------------------------- */

static bool may_call_bridge(const clt_comm *comm)
{
    return comm->cluster && comm->leads &&
           (!comm->needs_owner || pthread_equal(comm->owner, pthread_self()));
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
    const clt_ranks_notice end = {CLT_ABORTED, comm->number, "it destroyed its communicator"};
    clt_comm_listen_locked(comm);
    if (may_call_bridge(comm) && !comm->orderly)
        clt_cluster_tell(comm->cluster, &end, false);
}

struct timespec clt_comm_next_look(void)
{
    enum { LOOK_MS = 10 };
    return clt_deadline_in(LOOK_MS).at;
}
