#include "train/core/device_threads.h"

#include <stdio.h>
#include <time.h>

#include "base/alloc.h"
#include "base/error.h"
#include "device/core/worker.h"

typedef struct member {
    clt_crew *crew;
    clt_worker *worker;
    int index;
} member;

struct clt_crew {
    int size;
    member *members;
    clt_crew_fn fn;
    void *arg;
    void (*idle)(void *arg);
    void *idle_arg;
};

clt_status clt_crew_create(int size, clt_crew **out)
{
    clt_crew *crew = CLT_NEW(clt_crew);
    if (!crew)
        return CLT_OUT_OF_MEMORY;
    crew->size = size;
    crew->members = clt_calloc((size_t)size, sizeof *crew->members);
    clt_status status = crew->members ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int i = 0; size > 1 && status == CLT_OK && i < size; i++) {
        char name[16];
        snprintf(name, sizeof name, "device %d", i % 1000);
        crew->members[i] = (member){.crew = crew, .index = i};
        status = clt_worker_create(name, &crew->members[i].worker);
    }
    if (status != CLT_OK) {
        clt_crew_destroy(crew);
        return status;
    }
    *out = crew;
    return CLT_OK;
}

void clt_crew_destroy(clt_crew *crew)
{
    if (!crew)
        return;
    for (int i = 0; crew->members && i < crew->size; i++)
        clt_worker_destroy(crew->members[i].worker);
    clt_free(crew->members);
    clt_free(crew);
}

static clt_status work(void *argument)
{
    const member *m = argument;
    return m->crew->fn(m->crew->arg, m->index);
}

void clt_crew_while_waiting(clt_crew *crew, void (*idle)(void *arg), void *arg)
{
    crew->idle = idle;
    crew->idle_arg = arg;
}

static bool all_rest(const clt_crew *crew)
{
    for (int i = 0; i < crew->size; i++)
        if (!clt_worker_rests(crew->members[i].worker))
            return false;
    return true;
}

clt_status clt_crew_run(clt_crew *crew, clt_crew_fn fn, void *arg)
{
    if (crew->size == 1)
        return fn(arg, 0);
    crew->fn = fn;
    crew->arg = arg;
    for (int i = 0; i < crew->size; i++)
        clt_worker_post(crew->members[i].worker, work, &crew->members[i]);
    while (crew->idle && !all_rest(crew)) {
        const struct timespec pause = {0, 20000};
        crew->idle(crew->idle_arg);
        nanosleep(&pause, NULL);
    }
    clt_status first = CLT_OK;
    char message[4096] = "";
    for (int i = 0; i < crew->size; i++) {
        const clt_status status = clt_worker_wait(crew->members[i].worker);
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
