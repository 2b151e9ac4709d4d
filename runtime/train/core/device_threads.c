#include "train/core/device_threads.h"

#include <stdio.h>
#include <time.h>

#include "base/alloc.h"
#include "base/error.h"
#include "device/core/worker.h"

typedef struct member {
    clt_device_threads *threads;
    clt_worker *worker;
    int index;
} member;

struct clt_device_threads {
    int size;
    member *members;
    clt_device_threads_fn fn;
    void *arg;
    void (*idle)(void *arg);
    void *idle_arg;
};

clt_status clt_device_threads_create(int size, clt_device_threads **out)
{
    clt_device_threads *threads = CLT_NEW(clt_device_threads);
    CLT_TRY_MEMORY(threads);
    threads->size = size;
    threads->members = clt_calloc((size_t)size, sizeof *threads->members);
    clt_status status = threads->members ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int i = 0; size > 1 && status == CLT_OK && i < size; i++) {
        char name[16];
        snprintf(name, sizeof name, "device %d", i % 1000);
        threads->members[i] = (member){.threads = threads, .index = i};
        status = clt_worker_create(name, &threads->members[i].worker);
    }
    if (status != CLT_OK) {
        clt_device_threads_destroy(threads);
        return status;
    }
    *out = threads;
    return CLT_OK;
}

void clt_device_threads_destroy(clt_device_threads *threads)
{
    if (!threads)
        return;
    for (int i = 0; threads->members && i < threads->size; i++)
        clt_worker_destroy(threads->members[i].worker);
    CLT_FREE(threads->members, threads);
}

static clt_status work(void *argument)
{
    const member *m = argument;
    return m->threads->fn(m->threads->arg, m->index);
}

void clt_device_threads_while_waiting(clt_device_threads *threads, void (*idle)(void *arg),
                                      void *arg)
{
    threads->idle = idle;
    threads->idle_arg = arg;
}

static bool all_rest(const clt_device_threads *threads)
{
    for (int i = 0; i < threads->size; i++)
        if (!clt_worker_rests(threads->members[i].worker))
            return false;
    return true;
}

clt_status clt_device_threads_run(clt_device_threads *threads, clt_device_threads_fn fn, void *arg)
{
    if (threads->size == 1)
        return fn(arg, 0);
    threads->fn = fn;
    threads->arg = arg;
    for (int i = 0; i < threads->size; i++)
        clt_worker_post(threads->members[i].worker, work, &threads->members[i]);
    while (threads->idle && !all_rest(threads)) {
        const struct timespec pause = {0, 20000};
        threads->idle(threads->idle_arg);
        nanosleep(&pause, NULL);
    }
    clt_status first = CLT_OK;
    char message[4096] = "";
    for (int i = 0; i < threads->size; i++) {
        const clt_status status = clt_worker_wait(threads->members[i].worker);
        /* A device that was aborted because another failed is not the cause. */
        if (status != CLT_OK && (first == CLT_OK || first == CLT_ABORTED)) {
            first = status;
            snprintf(message, sizeof message, "%s", clt_error_message());
        }
    }
    if (first != CLT_OK)
        clt_error_restore(message);
    return first;
}
