/* Builds several programs at once. */
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/thread.h"
#include "device/program/compile_watch.h"
#include "device/program/program.h"

enum { MAX_BUILDERS = 16 };

typedef struct build_list {
    clt_device *device;
    const clt_program_key *keys;
    int count;
    _Atomic int next, built;
    const bool *fresh; /* by key: its program is new, and no earlier key has it. NULL: not asked */
    int n_fresh;
} build_list;

/* Finds the programs that will be built. Plans have thousands of launches and tens of programs, so
 * a key is compared with the first key of each program only. */
static clt_status find_fresh(build_list *list, bool **out)
{
    bool *fresh = clt_calloc((size_t)list->count + 1, sizeof *fresh);
    int *firsts = clt_calloc((size_t)list->count + 1, sizeof *firsts), n = 0;
    if (!fresh || !firsts) {
        CLT_FREE(fresh, firsts);
        return CLT_OUT_OF_MEMORY;
    }
    for (int i = 0; i < list->count; i++) {
        int j = 0;
        while (j < n && !clt_program_keys_equal(&list->keys[i], &list->keys[firsts[j]]))
            j++;
        if (j < n)
            continue;
        firsts[n++] = i;
        fresh[i] = clt_program_is_new(list->device, &list->keys[i]);
        list->n_fresh += fresh[i];
    }
    clt_free(firsts);
    list->fresh = *out = fresh;
    return CLT_OK;
}

/* The program table keeps failures, where clt_device_prepare finds them in the order of the
 * list. */
static void *build_some(void *argument)
{
    build_list *list = argument;
    for (int i; (i = atomic_fetch_add(&list->next, 1)) < list->count;) {
        (void)clt_program_get_for(list->device, &list->keys[i], NULL);
        if (list->fresh && list->fresh[i])
            clt_compile_report(list->device, false, atomic_fetch_add(&list->built, 1) + 1,
                               list->n_fresh);
    }
    return NULL;
}

clt_status clt_device_prepare(clt_device *device, const clt_program_key *keys, int count)
{
    build_list list = {.device = device, .keys = keys, .count = count};
    pthread_t threads[MAX_BUILDERS];
    int started = 0;
    bool *fresh = NULL;
    if (clt_compile_is_watched())
        CLT_TRY(find_fresh(&list, &fresh));
    if (list.n_fresh)
        clt_compile_report(device, false, 0, list.n_fresh);
    const int cores = clt_processors();
    /* If threads cannot be created, this thread builds all programs. */
    while (started < count - 1 && started < cores - 1 && started < MAX_BUILDERS &&
           clt_thread_start(&threads[started], build_some, &list) == 0)
        started++;
    build_some(&list);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    clt_free(fresh);
    for (int i = 0; i < count; i++)
        CLT_TRY(clt_program_get_for(device, &keys[i], NULL));
    return CLT_OK;
}
