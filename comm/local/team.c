#include "comm/local/team.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/alloc.h"
#include "base/error.h"

/* Below this many pieces waking a helper costs more than it saves. */
enum { MIN_PIECES = 4 };

struct clt_team {
    pthread_mutex_t lock;
    pthread_cond_t begin, end;
    pthread_t *threads;
    int helpers;
    bool stop;
    int64_t job; /* counts the jobs; a helper works on each once */
    int working; /* helpers that have not finished the present job */
    clt_team_fn fn;
    void *arg;
    int64_t pieces;
    _Atomic int64_t next;
};

static void take_pieces(clt_team *t, clt_team_fn fn, void *arg, int64_t pieces)
{
    for (;;) {
        int64_t piece = atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed);
        if (piece >= pieces)
            return;
        fn(arg, piece);
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
        clt_team_fn fn = t->fn;
        void *fn_arg = t->arg;
        int64_t pieces = t->pieces;
        pthread_mutex_unlock(&t->lock);
        take_pieces(t, fn, fn_arg, pieces);
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
    if (!t)
        return CLT_OUT_OF_MEMORY;
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
        if (pthread_create(&t->threads[t->helpers], NULL, helper, t)) {
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
    clt_free(t->threads);
    clt_free(t);
}

void clt_team_run(clt_team *t, clt_team_fn fn, void *arg, int64_t pieces)
{
    if (!t->helpers || pieces < MIN_PIECES) {
        for (int64_t piece = 0; piece < pieces; piece++)
            fn(arg, piece);
        return;
    }
    pthread_mutex_lock(&t->lock);
    t->fn = fn;
    t->arg = arg;
    t->pieces = pieces;
    atomic_store_explicit(&t->next, 0, memory_order_relaxed);
    t->working = t->helpers;
    t->job++;
    pthread_cond_broadcast(&t->begin);
    pthread_mutex_unlock(&t->lock);
    take_pieces(t, fn, arg, pieces);
    pthread_mutex_lock(&t->lock);
    while (t->working)
        pthread_cond_wait(&t->end, &t->lock);
    pthread_mutex_unlock(&t->lock);
}
