#include "comm/core/team.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/thread.h"

/* With fewer pieces than MIN_PIECES, waking a helper costs more than it saves. */
enum { MIN_PIECES = 4, MOST_PARTS = 16, LINE = 64, LOOKS = 2000 };

/* A range of pieces. `next` is the next one to do. */
typedef struct part {
    _Atomic int64_t next;
    int64_t end;
    char pad[LINE - 2 * sizeof(int64_t)]; /* gives each part a cache line of its own */
} part;

struct clt_team {
    pthread_mutex_t lock;
    pthread_cond_t begin, end;
    pthread_t *threads;
    int helpers;
    bool stop;
    int64_t job; /* number of the present job; a helper works on each job once */
    int begun;   /* helpers that have begun the present job */
    int working; /* helpers that have not finished it */
    clt_team_fn fn;
    void *arg;
    int part_count;
    part parts[MOST_PARTS];
    atomic_bool open;   /* guests may join */
    atomic_int guests;  /* threads within clt_team_join */
    atomic_int arrived; /* guests of this job so far */
};

/* Takes pieces of the thread's own part first, then of the other parts. A thread that reads memory
 * in order is faster than threads that take turns. */
static void take_pieces(clt_team *t, int thread)
{
    for (int k = 0; k < t->part_count; k++) {
        part *p = &t->parts[(thread + k) % t->part_count];
        for (;;) {
            const int64_t piece = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
            if (piece >= p->end)
                break;
            t->fn(t->arg, piece);
        }
    }
}

static void share_out(clt_team *t, clt_team_fn fn, void *arg, int64_t pieces, int threads)
{
    const int parts = threads < MOST_PARTS ? threads : MOST_PARTS;
    t->fn = fn;
    t->arg = arg;
    t->part_count = parts;
    for (int i = 0; i < parts; i++) {
        atomic_store_explicit(&t->parts[i].next, pieces * i / parts, memory_order_relaxed);
        t->parts[i].end = pieces * (i + 1) / parts;
    }
}

static void *helper(void *arg)
{
    clt_team *t = arg;
    int64_t seen = 0;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (!t->stop && t->job == seen)
            pthread_cond_wait(&t->begin, &t->lock);
        if (t->stop)
            break;
        seen = t->job;
        const int number = ++t->begun;
        pthread_mutex_unlock(&t->lock);
        take_pieces(t, number);
        pthread_mutex_lock(&t->lock);
        if (--t->working == 0)
            pthread_cond_signal(&t->end);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

clt_status clt_team_create(int threads, clt_team **team)
{
    clt_team *t = CLT_NEW(clt_team);
    CLT_TRY_MEMORY(t);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->begin, NULL);
    pthread_cond_init(&t->end, NULL);
    if (threads > 1) {
        t->threads = clt_calloc((size_t)threads - 1, sizeof *t->threads);
        if (!t->threads) {
            clt_team_destroy(t);
            return CLT_OUT_OF_MEMORY;
        }
    }
    for (; t->helpers < threads - 1; t->helpers++) {
        if (clt_thread_start(&t->threads[t->helpers], helper, t)) {
            clt_team_destroy(t);
            return clt_fail(CLT_OUT_OF_MEMORY,
                            "comm: thread %d of %d for sums cannot be started; ask for fewer",
                            t->helpers + 2, threads);
        }
    }
    *team = t;
    return CLT_OK;
}
void clt_team_destroy(clt_team *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_broadcast(&t->begin);
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < t->helpers; i++)
        pthread_join(t->threads[i], NULL);
    pthread_cond_destroy(&t->begin);
    pthread_cond_destroy(&t->end);
    pthread_mutex_destroy(&t->lock);
    CLT_FREE(t->threads, t);
}

void clt_team_run(clt_team *t, clt_team_fn fn, void *arg, int64_t pieces)
{
    if (!t->helpers || pieces < MIN_PIECES) {
        for (int64_t piece = 0; piece < pieces; piece++)
            fn(arg, piece);
        return;
    }
    pthread_mutex_lock(&t->lock);
    share_out(t, fn, arg, pieces, t->helpers + 1);
    t->begun = 0;
    t->working = t->helpers;
    t->job++;
    pthread_cond_broadcast(&t->begin);
    pthread_mutex_unlock(&t->lock);
    take_pieces(t, 0);
    pthread_mutex_lock(&t->lock);
    while (t->working)
        pthread_cond_wait(&t->end, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

void clt_team_open(clt_team *t, clt_team_fn fn, void *arg, int64_t pieces, int guests)
{
    share_out(t, fn, arg, pieces, guests + 1);
    atomic_store(&t->arrived, 0);
    atomic_store(&t->open, true);
}

void clt_team_finish(clt_team *t)
{
    take_pieces(t, 0);
    /* A guest that comes now sees that the job is closed. Other guests work on their last piece. */
    atomic_store(&t->open, false);
    for (int i = 1; atomic_load(&t->guests); i++)
        if (i % LOOKS == 0)
            sched_yield();
}

bool clt_team_has_work(clt_team *t)
{
    bool any = false;
    if (!atomic_load(&t->open))
        return false;
    atomic_fetch_add(&t->guests, 1);
    for (int i = 0; atomic_load(&t->open) && i < t->part_count; i++)
        any |= atomic_load_explicit(&t->parts[i].next, memory_order_relaxed) < t->parts[i].end;
    atomic_fetch_sub(&t->guests, 1);
    return any;
}

void clt_team_join(clt_team *t)
{
    atomic_fetch_add(&t->guests, 1);
    if (atomic_load(&t->open))
        take_pieces(t, 1 + atomic_fetch_add(&t->arrived, 1));
    atomic_fetch_sub(&t->guests, 1);
}
