#include "commands/profiles.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bench/bench_nodes.h"
#include "text/message.h"

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

clt_status profiles_start(const job *j, profile_set *set)
{
    const int count = j->replicas.total ? j->replicas.own : 1;
    clt_status status = CLT_OK;
    set->of = calloc((size_t)count, sizeof *set->of);
    set->began = calloc((size_t)count, sizeof *set->began);
    if (!set->of || !set->began)
        return clt_error_set(CLT_OUT_OF_MEMORY, "no memory for profiles");
    for (; status == CLT_OK && set->count < count; set->count += status == CLT_OK) {
        clt_trainer *t = j->replicas.total ? j->replicas.trainers[set->count] : j->trainer;
        set->began[set->count] = seconds_now();
        status = clt_profile_start(t, &set->of[set->count]);
    }
    return status;
}

/* Appends the records of a profile, whose first device is number `first` of the rank. */
static clt_status append(const profile_set *set, int i, int first, clt_profile_record **all,
                         int *total)
{
    const clt_profile_record *records;
    int count;
    clt_status status = clt_profile_read(set->of[i], &records, &count);
    if (status != CLT_OK)
        return status;
    clt_profile_record *more = realloc(*all, ((size_t)(*total + count) + 1) * sizeof *more);
    if (!more)
        return clt_error_set(CLT_OUT_OF_MEMORY, "no memory for the profile");
    *all = more;
    for (int k = 0; k < count; k++) {
        clt_profile_record *r = &more[(*total)++];
        *r = records[k];
        r->device += first;
        r->start += set->began[i] - set->began[0];
        r->end += set->began[i] - set->began[0];
    }
    return CLT_OK;
}

int profiles_save(const job *j, profile_set *set, const char *path)
{
    char message[1024], own[4096];
    const int rank = j->ranks.world.rank;
    clt_profile_record *all = NULL;
    clt_status status = CLT_OK;
    int total = 0, code = 0;
    if (!set->of)
        return 0;
    snprintf(message, sizeof message, "%s", clt_error_message());
    for (int i = 0; status == CLT_OK && i < set->count; i++)
        status = append(set, i, i * j->n_devices / set->count, &all, &total);
    /* Each rank writes its own file. Trace viewers can load several. */
    snprintf(own, sizeof own, rank ? "%s.rank%d" : "%s", path, rank);
    code = status == CLT_OK ? write_trace(own, all, total, j->devices, j->n_devices, rank)
                            : library_failure(status);
    free(all); /* the records refer to the profiles */
    for (int i = 0; i < set->count; i++)
        clt_profile_stop(set->of[i]);
    free(set->of);
    free(set->began);
    *set = (profile_set){0};
    clt_error_set(CLT_INTERNAL, message);
    return code;
}
