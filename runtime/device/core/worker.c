#include "device/core/worker.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/thread.h"

enum { MESSAGE_BYTES = 4096 };

typedef struct call {
    clt_worker_fn fn;
    void *argument;
} call;

struct clt_worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t posted; /* a call was added, or `stop` was set */
    pthread_cond_t taken;  /* a call was started: there is room */
    pthread_cond_t idle;   /* all calls have run */
    call ring[CLT_WORKER_ROOM];
    int first, count;
    bool running, stop;
    clt_status status; /* first failure since the last wait */
    char message[MESSAGE_BYTES];
};

static void *work(void *argument)
{
    clt_worker *w = argument;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->count == 0 && !w->stop)
            pthread_cond_wait(&w->posted, &w->lock);
        if (w->count == 0)
            break;
        const call next = w->ring[w->first];
        w->first = (w->first + 1) % CLT_WORKER_ROOM;
        w->count--;
        w->running = true;
        pthread_cond_signal(&w->taken);
        pthread_mutex_unlock(&w->lock);
        clt_status status = next.fn(next.argument);
        pthread_mutex_lock(&w->lock);
        w->running = false;
        if (status != CLT_OK && w->status == CLT_OK) {
            w->status = status;
            snprintf(w->message, sizeof w->message, "%s", clt_error_message());
        }
        if (w->count == 0)
            pthread_cond_broadcast(&w->idle);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

clt_status clt_worker_create(const char *name, clt_worker **out)
{
    clt_worker *w = CLT_NEW(clt_worker);
    CLT_TRY_MEMORY(w);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->posted, NULL);
    pthread_cond_init(&w->taken, NULL);
    pthread_cond_init(&w->idle, NULL);
    const int error = clt_thread_start(&w->thread, work, w);
    if (error) {
        clt_free(w);
        return clt_fail(CLT_OUT_OF_MEMORY, "the thread '%s' cannot be started: %s", name,
                        strerror(error));
    }
    char shown[16];
    snprintf(shown, sizeof shown, "%.15s", name);
    pthread_setname_np(w->thread, shown);
    *out = w;
    return CLT_OK;
}

void clt_worker_destroy(clt_worker *w)
{
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->posted);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->idle);
    pthread_cond_destroy(&w->taken);
    pthread_cond_destroy(&w->posted);
    pthread_mutex_destroy(&w->lock);
    clt_free(w);
}

void clt_worker_post(clt_worker *w, clt_worker_fn fn, void *argument)
{
    pthread_mutex_lock(&w->lock);
    while (w->count == CLT_WORKER_ROOM)
        pthread_cond_wait(&w->taken, &w->lock);
    w->ring[(w->first + w->count++) % CLT_WORKER_ROOM] = (call){fn, argument};
    pthread_cond_signal(&w->posted);
    pthread_mutex_unlock(&w->lock);
}

bool clt_worker_rests(clt_worker *w)
{
    pthread_mutex_lock(&w->lock);
    const bool rests = w->count == 0 && !w->running;
    pthread_mutex_unlock(&w->lock);
    return rests;
}

clt_status clt_worker_wait(clt_worker *w)
{
    pthread_mutex_lock(&w->lock);
    while (w->count > 0 || w->running)
        pthread_cond_wait(&w->idle, &w->lock);
    clt_status status = w->status;
    w->status = CLT_OK;
    if (status != CLT_OK)
        clt_error_restore(w->message);
    pthread_mutex_unlock(&w->lock);
    return status;
}

clt_status clt_worker_run(clt_worker *w, clt_worker_fn fn, void *argument)
{
    clt_worker_post(w, fn, argument);
    return clt_worker_wait(w);
}

bool clt_worker_is_current(const clt_worker *w)
{
    return pthread_equal(pthread_self(), w->thread);
}
