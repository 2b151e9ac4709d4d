/* Builds several programs at once. */
#include <stdatomic.h>

#include "base/thread.h"
#include "device/program/program.h"

enum { MAX_BUILDERS = 16 };

typedef struct build_list {
    clt_device *device;
    const clt_program_key *keys;
    int count;
    _Atomic int next;
} build_list;

/* The program table keeps failures, where clt_device_prepare finds them in the order of the
 * list. */
static void *build_some(void *argument)
{
    build_list *list = argument;
    for (int i; (i = atomic_fetch_add(&list->next, 1)) < list->count;) {
        (void)clt_program_get_for(list->device, &list->keys[i], NULL);
    }
    return NULL;
}

clt_status clt_device_prepare(clt_device *device, const clt_program_key *keys, int count)
{
    build_list list = {.device = device, .keys = keys, .count = count};
    pthread_t threads[MAX_BUILDERS];
    int started = 0;
    const int cores = clt_processors();
    /* If threads cannot be created, this thread builds all programs. */
    while (started < count - 1 && started < cores - 1 && started < MAX_BUILDERS &&
           clt_thread_start(&threads[started], build_some, &list) == 0)
        started++;
    build_some(&list);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < count; i++)
        CLT_TRY(clt_program_get_for(device, &keys[i], NULL));
    return CLT_OK;
}
