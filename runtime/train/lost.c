/*
 * A device that fails is left behind: its part of the batches goes to the others. Updates are
 * enqueued only once a step's reductions are complete, so that a failure before leaves every
 * replica as it was, and the step is given again; after that, the replica of a device that did
 * update becomes that of all.
 */
#include <cltrain/train.h>

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "train/planner/balance.h"
#include "train/trainer.h"

clt_status clt_lost_note(clt_trainer *t, int device, clt_status status)
{
    int none = -1;
    if (status == CLT_DEVICE_LOST || status == CLT_OPENCL)
        atomic_compare_exchange_strong(&t->lost, &none, device);
    return status;
}

bool clt_lost_one_of_several(const clt_trainer *t)
{
    return atomic_load(&t->lost) >= 0 && t->n_devices > 1 && t->ranks == 1 && !t->streams;
}

/* A device that has enqueued the updates of the step that failed; -1: none. */
static int updated_device(const clt_trainer *t, int lost)
{
    for (int d = 0; d < t->n_devices; d++)
        if (d != lost && t->devices[d].done > t->steps)
            return d;
    return -1;
}

static void drop_from_store(clt_store *store, int lost)
{
    clt_replica_destroy(&store->replicas[lost]);
    clt_arena_destroy(&store->arenas[lost]);
    store->n_devices--;
    const size_t after = (size_t)(store->n_devices - lost);
    memmove(&store->replicas[lost], &store->replicas[lost + 1], after * sizeof *store->replicas);
    memmove(&store->arenas[lost], &store->arenas[lost + 1], after * sizeof *store->arenas);
}

/* Of what the caller gave; the trainer's own copy is made anew. */
static void drop_weight(clt_trainer *t, int lost, double *kept)
{
    for (int d = 0, at = 0; t->shares && d < t->n_devices; d++)
        if (d != lost)
            kept[at++] = t->shares[d];
    t->options.weights = t->shares ? kept : NULL;
    /* Plans for the larger parts; earlier divisions were among other devices. */
    t->options.per_device = 0;
    clt_split_history_free(t->history);
    t->history = NULL;
}

/* The others hold larger parts: in more micro-batches, where their memory asks for it. */
static clt_status rebuild(clt_trainer *t)
{
    t->options.tune_seconds = 0;
    clt_status status = clt_trainer_build(t);
    while (status == CLT_OUT_OF_DEVICE_MEMORY && t->options.accumulate < t->options.batch) {
        clt_trainer_unbuild(t);
        t->options.accumulate *= 2;
        status = clt_trainer_build(t);
    }
    return status;
}

clt_status clt_trainer_recover(clt_trainer *t, int *redo)
{
    const int lost = atomic_load(&t->lost);
    double weights[CLT_MOST_DEVICES];
    if (lost < 0)
        return clt_fail(CLT_STATE, "no device has failed");
    if (t->n_devices == 1 || t->ranks > 1)
        return clt_fail(CLT_STATE,
                        "training on %d device%s of %d rank%s cannot go on without the device that "
                        "failed",
                        t->n_devices, t->n_devices == 1 ? "" : "s", t->ranks,
                        t->ranks == 1 ? "" : "s");
    if (t->streams)
        return clt_fail(CLT_STATE,
                        "%s has failed, and without guard and clipping updates begin before a step "
                        "is complete: go on from the last checkpoint",
                        t->store->replicas[lost].device->label);
    int source = updated_device(t, lost);
    clt_log(CLT_LOG_WARN, "%s has failed, training goes on with %d device%s after step %lld: %s",
            t->store->replicas[lost].device->label, t->n_devices - 1, t->n_devices == 2 ? "" : "s",
            (long long)t->steps + (source >= 0), clt_error_message());
    const bool behind = source >= 0;
    drop_weight(t, lost, weights);
    clt_trainer_unbuild(t);
    drop_from_store(t->store, lost);
    t->n_devices--;
    atomic_store(&t->lost, -1);
    CLT_TRY(rebuild(t));
    if (behind) {
        t->steps++;
        source -= source > lost;
        CLT_TRY(clt_trainer_copy_replica(t, source));
    }
    for (int d = 0; d < t->n_devices; d++)
        t->devices[d].done = t->steps;
    *redo = !behind;
    return CLT_OK;
}
