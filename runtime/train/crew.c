#include "train/crew.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"

enum { MESSAGE_BYTES = 4096 };

typedef struct member {
    clt_crew *crew;
    int index;
    pthread_t thread;
    bool started;
    unsigned round; /* the last round it worked in */
    clt_status status;
    char message[MESSAGE_BYTES];
} member;

struct clt_crew {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    int size, busy;
    unsigned round;
    bool quit;
    clt_crew_fn fn;
    void *arg;
    member *members;
};

static void *serve(void *arg)
{
    member *m = arg;
    clt_crew *crew = m->crew;
    pthread_mutex_lock(&crew->lock);
    for (;;) {
        while (!crew->quit && m->round == crew->round)
            pthread_cond_wait(&crew->work, &crew->lock);
        if (crew->quit)
            break;
        m->round = crew->round;
        clt_crew_fn fn = crew->fn;
        void *fn_arg = crew->arg;
        pthread_mutex_unlock(&crew->lock);
        m->status = fn(fn_arg, m->index);
        if (m->status != CLT_OK)
            snprintf(m->message, sizeof m->message, "%s", clt_error_message());
        pthread_mutex_lock(&crew->lock);
        if (--crew->busy == 0)
            pthread_cond_signal(&crew->done);
    }
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

clt_status clt_crew_create(int size, clt_crew **out)
{
    clt_crew *crew = CLT_NEW(clt_crew);
    if (!crew)
        return CLT_OUT_OF_MEMORY;
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->work, NULL);
    pthread_cond_init(&crew->done, NULL);
    crew->size = size;
    crew->members = clt_calloc((size_t)size, sizeof *crew->members);
    if (!crew->members) {
        clt_crew_destroy(crew);
        return CLT_OUT_OF_MEMORY;
    }
    for (int i = 0; size > 1 && i < size; i++) {
        member *m = &crew->members[i];
        m->crew = crew;
        m->index = i;
        if (pthread_create(&m->thread, NULL, serve, m)) {
            clt_crew_destroy(crew);
            return clt_fail(CLT_OUT_OF_MEMORY, "no thread could be started for device %d", i);
        }
        m->started = true;
    }
    *out = crew;
    return CLT_OK;
}

void clt_crew_destroy(clt_crew *crew)
{
    if (!crew)
        return;
    pthread_mutex_lock(&crew->lock);
    crew->quit = true;
    pthread_cond_broadcast(&crew->work);
    pthread_mutex_unlock(&crew->lock);
    for (int i = 0; crew->members && i < crew->size; i++)
        if (crew->members[i].started)
            pthread_join(crew->members[i].thread, NULL);
    pthread_cond_destroy(&crew->work);
    pthread_cond_destroy(&crew->done);
    pthread_mutex_destroy(&crew->lock);
    clt_free(crew->members);
    clt_free(crew);
}

clt_status clt_crew_run(clt_crew *crew, clt_crew_fn fn, void *arg)
{
    if (crew->size == 1)
        return fn(arg, 0);
    pthread_mutex_lock(&crew->lock);
    crew->fn = fn;
    crew->arg = arg;
    crew->busy = crew->size;
    crew->round++;
    pthread_cond_broadcast(&crew->work);
    while (crew->busy)
        pthread_cond_wait(&crew->done, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
    /* A device that was aborted because another failed is not the cause. */
    const member *first = NULL;
    for (int i = 0; i < crew->size; i++) {
        const member *m = &crew->members[i];
        if (m->status != CLT_OK && (!first || first->status == CLT_ABORTED))
            first = m;
    }
    if (!first)
        return CLT_OK;
    clt_error_restore(first->message);
    return first->status;
}
