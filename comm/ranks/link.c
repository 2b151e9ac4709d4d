#include "comm/ranks/link.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/ranks/flag.h"

/* The message that a first rank sends to the others when a rank ends. */
typedef struct wire {
    int64_t calls; /* calls of the bridge that it took part in; -1: an abort */
    clt_ranks_notice notice;
} wire;

struct clt_link {
    clt_comm_bridge bridge;
    clt_ranks *node;
    int rank;
    int first[CLT_RANKS_MOST]; /* number of the first rank, by node */
    const clt_ranks_job *job;
    clt_deadline deadline;
    int64_t calls; /* calls of the bridge begun */
    clt_comm_kind kind;
    _Atomic int64_t sent[CLT_COMM_BARRIER + 1]; /* bytes, by kind */
    _Atomic int64_t needs; /* number of the last call that the present request needs */
    atomic_bool failed, told;
    pthread_mutex_t hearing; /* guards the fields below and the bridge's `hear` */
    bool aborted, closed;    /* another rank did so */
    wire abort, close;       /* the first notice of each */
    atomic_bool heard;       /* one of them ended a request here; see `notice` */
    clt_ranks_notice notice;
};

clt_status clt_link_open(clt_ranks *node, int rank, const clt_comm_bridge *bridge, clt_link **out)
{
    clt_link *l = CLT_NEW(clt_link);
    CLT_TRY_MEMORY(l);
    l->bridge = *bridge;
    l->node = node;
    l->rank = rank;
    memcpy(l->first, bridge->first_ranks, (size_t)bridge->nodes * sizeof *l->first);
    pthread_mutex_init(&l->hearing, NULL);
    *out = l;
    return CLT_OK;
}

void clt_link_close(clt_link *l)
{
    if (!l)
        return;
    pthread_mutex_destroy(&l->hearing);
    clt_free(l);
}

void clt_link_begin(clt_link *l, const clt_ranks_job *job)
{
    l->job = job;
    l->kind = job->kind;
    l->deadline = clt_deadline_in(job->timeout_ms ? job->timeout_ms + job->grace_ms : 0);
    atomic_store(&l->needs, l->calls + 1);
}

void clt_link_end(clt_link *l)
{
    atomic_store(&l->needs, l->calls);
}

int clt_link_first(const clt_link *l, int node)
{
    return l->first[node];
}

bool clt_link_busy(const clt_link *l)
{
    return atomic_load(&l->failed) && l->bridge.busy(l->bridge.user);
}

/* --- notices ---------------------------------------------------------------------------------- */

static void take(clt_link *l, const wire *w)
{
    if (w->calls < 0 && !l->aborted) {
        l->aborted = true;
        l->abort = *w;
    } else if (w->calls >= 0 && (!l->closed || w->calls < l->close.calls)) {
        l->closed = true;
        l->close = *w;
    }
}

/* Whether another rank has ended the present request. A rank that took part in all calls that this
 * node needs may have ended since without harm. */
static bool ended(clt_link *l, clt_ranks_notice *notice)
{
    wire w;
    pthread_mutex_lock(&l->hearing);
    while (l->bridge.hear(l->bridge.user, &w, (int64_t)sizeof w))
        take(l, &w);
    const bool ends = l->aborted || (l->closed && l->close.calls < atomic_load(&l->needs));
    if (ends && !atomic_load(&l->heard)) {
        l->notice = l->aborted ? l->abort.notice : l->close.notice;
        l->notice.text[sizeof l->notice.text - 1] = 0;
        atomic_store(&l->heard, true);
    }
    pthread_mutex_unlock(&l->hearing);
    return clt_link_heard(l, notice);
}

bool clt_link_heard(clt_link *l, clt_ranks_notice *notice)
{
    if (!atomic_load(&l->heard))
        return false;
    *notice = l->notice; /* it is never written again */
    return true;
}

clt_status clt_link_listen(clt_link *l, const clt_ranks_job *job)
{
    clt_ranks_notice notice;
    if (!ended(l, &notice))
        return CLT_OK;
    return job ? clt_ranks_ended(job, &notice)
               : clt_fail(CLT_ABORTED, "comm: rank %d: %s", notice.rank, notice.text);
}

void clt_link_tell(clt_link *l, const clt_ranks_notice *notice, bool aborted)
{
    wire w;
    if (atomic_exchange(&l->told, true))
        return;
    memset(&w, 0, sizeof w);
    w.calls = aborted ? -1 : l->calls;
    w.notice = *notice;
    l->bridge.tell(l->bridge.user, &w, (int64_t)sizeof w);
}

/* --- calls ------------------------------------------------------------------------------------ */

/* The bridge's functions call this while they wait. Returns 0, or the status to end with. */
static int cancelled(void *arg)
{
    clt_link *l = arg;
    clt_ranks_notice notice;
    if (l->job->aborted && atomic_load(l->job->aborted))
        return CLT_ABORTED;
    if (ended(l, &notice) || (l->node && clt_ranks_heard(l->node, &notice)))
        return CLT_ABORTED;
    return clt_deadline_passed(&l->deadline) ? CLT_TIMEOUT : CLT_OK;
}

clt_status clt_link_late(const clt_link *l, const clt_ranks_job *job)
{
    const uint64_t missing = l->bridge.missing(l->bridge.user);
    char own[32];
    snprintf(own, sizeof own, "rank %d", l->rank);
    return missing ? clt_ranks_waited(job, l->rank, l->first, missing)
                   : clt_ranks_timeout(job, own, "the first ranks of other nodes");
}

static clt_status explain(clt_link *l, clt_status status)
{
    clt_ranks_notice notice;
    if (status == CLT_OK)
        return CLT_OK;
    atomic_store(&l->failed, true);
    if (status == CLT_TIMEOUT)
        return clt_link_late(l, l->job);
    if (status != CLT_ABORTED)
        return status;
    if (clt_link_heard(l, &notice) || (l->node && clt_ranks_heard(l->node, &notice)))
        return clt_ranks_ended(l->job, &notice);
    return clt_fail(status, "comm: the communicator was aborted");
}

void clt_link_kind(clt_link *l, clt_comm_kind kind)
{
    l->kind = kind;
}

int64_t clt_link_sent(const clt_link *l, clt_comm_kind kind)
{
    return atomic_load(&l->sent[kind]);
}

/* `bytes` go to each other node. */
static void *begin_call(clt_link *l, int64_t bytes)
{
    atomic_store(&l->needs, ++l->calls);
    atomic_fetch_add(&l->sent[l->kind], bytes * (l->bridge.nodes - 1));
    return l->bridge.user;
}

clt_status clt_link_gather(clt_link *l, const void *mine, int64_t bytes, void *all)
{
    void *user = begin_call(l, bytes);
    return explain(l, l->bridge.gather(user, mine, bytes, all, cancelled, l));
}

clt_status clt_link_exchange(clt_link *l, const void *blocks, int64_t bytes, void *received)
{
    void *user = begin_call(l, bytes);
    return explain(l, l->bridge.exchange(user, blocks, bytes, received, cancelled, l));
}

clt_status clt_link_broadcast(clt_link *l, int root, void *data, int64_t bytes)
{
    void *user = begin_call(l, root == l->bridge.node ? bytes : 0);
    return explain(l, l->bridge.broadcast(user, root, data, bytes, cancelled, l));
}

clt_status clt_link_transfer(clt_link *l, const clt_comm_message *messages, int count)
{
    void *user = begin_call(l, 0);
    for (int i = 0; i < count; i++)
        atomic_fetch_add(&l->sent[l->kind], messages[i].send ? messages[i].bytes : 0);
    return count ? explain(l, l->bridge.transfer(user, messages, count, cancelled, l)) : CLT_OK;
}
