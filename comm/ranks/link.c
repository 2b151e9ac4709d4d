#include "comm/ranks/link.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "comm/ranks/flag.h"
#include "comm/ranks/slow_link.h"

/* The message that a first rank sends to the others when a rank ends. */
typedef struct wire {
    int64_t calls; /* calls of the bridge that it took part in; -1: an abort */
    clt_ranks_notice notice;
} wire;

/* An exchange, to be begun by a thread that may call the bridge. */
typedef struct order {
    enum { GATHER, EXCHANGE, BROADCAST, TRANSFER } what;
    const void *from;
    void *to;
    int64_t bytes;
    const clt_comm_message *messages;
    int number; /* root, or number of messages */
    bool begun, over;
    int looks;
    double due; /* the exchange does not end before; see slow_link.h */
} order;

struct clt_link {
    clt_comm_bridge bridge;
    clt_link_run run;
    void *user;
    clt_slow_link slow;
    order order;
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

/* Polls fast for some microseconds and then less often, because waiting within MPI would keep a
 * core busy. */
static clt_status run_here(void *user, clt_link_step step, void *arg)
{
    enum { LOOKS = 2000 };
    bool done = false;
    (void)user;
    for (int looks = 0; !done; looks++) {
        CLT_TRY(step(arg, &done));
        if (!done && looks > LOOKS) {
            const struct timespec pause = {0, 20000};
            nanosleep(&pause, NULL);
        }
    }
    return CLT_OK;
}

clt_status clt_link_open(clt_ranks *node, int rank, const clt_comm_bridge *bridge, clt_link_run run,
                         void *user, clt_link **out)
{
    clt_link *l = CLT_NEW(clt_link);
    CLT_TRY_MEMORY(l);
    l->bridge = *bridge;
    l->run = run ? run : run_here;
    l->user = user;
    l->node = node;
    l->rank = rank;
    memcpy(l->first, bridge->first_ranks, (size_t)bridge->nodes * sizeof *l->first);
    const clt_status status = clt_slow_link_init(&l->slow);
    if (status != CLT_OK) {
        clt_free(l);
        return status;
    }
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
    return atomic_load(&l->failed) && (l->order.begun || l->bridge.busy(l->bridge.user));
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

static clt_status begin(clt_link *l)
{
    const clt_comm_bridge *b = &l->bridge;
    const order *o = &l->order;
    switch (o->what) {
    case GATHER:
        return b->gather(b->user, o->from, o->bytes, o->to);
    case EXCHANGE:
        return b->exchange(b->user, o->from, o->bytes, o->to);
    case BROADCAST:
        return b->broadcast(b->user, o->number, o->to, o->bytes);
    case TRANSFER:
        return b->transfer(b->user, o->messages, o->number);
    }
    return CLT_OK;
}

void clt_link_give_up(clt_link *l)
{
    if (l->order.begun)
        l->bridge.cancel(l->bridge.user);
    l->order.begun = false;
}

static clt_status step(void *arg, bool *done)
{
    clt_link *l = arg;
    order *o = &l->order;
    int ended = o->over;
    clt_status status = CLT_OK;
    if (!o->begun && !o->over) {
        o->begun = true;
        status = begin(l);
    }
    if (!o->over)
        CLT_NEXT(status, l->bridge.test(l->bridge.user, &ended));
    if (ended) {
        o->begun = false;
        o->over = true;
        ended = o->due <= 0 || clt_clock() >= o->due;
    }
    if (status == CLT_OK && !ended && ++o->looks % 16 == 0)
        status = (clt_status)cancelled(l);
    if (status != CLT_OK)
        clt_link_give_up(l);
    *done = ended;
    return explain(l, status);
}

/* Does what was ordered. `sent` bytes go to other nodes; `moved` bytes pass this node's link. */
static clt_status exchange(clt_link *l, const order *what, int64_t sent, int64_t moved)
{
    l->order = *what;
    l->order.due = clt_slow_link_due(&l->slow, moved);
    atomic_store(&l->needs, ++l->calls);
    atomic_fetch_add(&l->sent[l->kind], sent);
    const clt_status status = l->run(l->user, step, l);
    if (status != CLT_OK)
        atomic_store(&l->failed, true);
    return status;
}

clt_status clt_link_gather(clt_link *l, const void *mine, int64_t bytes, void *all)
{
    const order what = {.what = GATHER, .from = mine, .to = all, .bytes = bytes};
    const int64_t sent = bytes * (l->bridge.nodes - 1);
    return exchange(l, &what, sent, sent);
}

clt_status clt_link_exchange(clt_link *l, const void *blocks, int64_t bytes, void *received)
{
    const order what = {.what = EXCHANGE, .from = blocks, .to = received, .bytes = bytes};
    const int64_t sent = bytes * (l->bridge.nodes - 1);
    return exchange(l, &what, sent, sent);
}

clt_status clt_link_broadcast(clt_link *l, int root, void *data, int64_t bytes)
{
    const order what = {.what = BROADCAST, .to = data, .bytes = bytes, .number = root};
    const int64_t sent = root == l->bridge.node ? bytes * (l->bridge.nodes - 1) : 0;
    return exchange(l, &what, sent, sent ? sent : bytes);
}

clt_status clt_link_transfer(clt_link *l, const clt_comm_message *messages, int count)
{
    const order what = {.what = TRANSFER, .messages = messages, .number = count};
    int64_t sent = 0, received = 0;
    for (int i = 0; i < count; i++)
        *(messages[i].send ? &sent : &received) += messages[i].bytes;
    if (count)
        return exchange(l, &what, sent, sent > received ? sent : received);
    atomic_store(&l->needs, ++l->calls);
    return CLT_OK;
}
