/* Continues without a failed device. Its part of the batches goes to the other devices of all
 * ranks. Updates are enqueued only once a step's reductions are complete. A failure before that
 * leaves every replica unchanged, and the step is repeated. After a later failure, the replica of a
 * device that did update is copied to all. */
#include <cltrain/train.h>

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "train/planner/balance.h"
#include "train/core/trainer.h"
#include "train/step/verify.h"
#include "train/ranks/world.h"

clt_status clt_lost_note(clt_trainer *t, int device, clt_status status)
{
    int none = -1;
    if (status == CLT_DEVICE_LOST || status == CLT_OPENCL)
        atomic_compare_exchange_strong(&t->lost, &none, device);
    return status;
}

/* Only ranks of one node learn of each other's failures at once. */
static bool one_node(const clt_trainer *t)
{
    return t->all.ranks == 1 || t->all.world->node_ranks == t->all.ranks;
}

clt_status clt_lost_reason(const clt_trainer *t, clt_status status)
{
    if (atomic_load(&t->lost) >= 0)
        return clt_lost_one_of_several(t) || clt_participants_have_axes(&t->all) ? CLT_DEVICE_LOST
                                                                                 : CLT_ABORTED;
    return status == CLT_DEVICE_LOST ? CLT_ABORTED : status;
}

/* Returns true if a device of another rank is lost. */
static bool stopped_for_lost(const clt_trainer *t)
{
    const clt_collectives *c = &t->exchange.collectives;
    return t->all.ranks > 1 && c->self && c->status(c->self) == CLT_DEVICE_LOST;
}

bool clt_lost_one_of_several(const clt_trainer *t)
{
    if (t->streams || !one_node(t) || clt_participants_have_axes(&t->all))
        return false;
    if (atomic_load(&t->lost) >= 0)
        return t->all.own > 1;
    return stopped_for_lost(t);
}

/* --- the plan of a recovery ------------------------------------------------------------------ */

typedef struct recovery {
    clt_rescue *reports; /* by rank */
    int64_t steps;       /* steps that are complete */
    int source;          /* new number of a participant that has done the steps; -1: all have */
    double *weights;     /* of the remaining devices; NULL: equal */
    clt_scaling scaling; /* after `steps` */
} recovery;

static void recovery_free(recovery *r)
{
    CLT_FREE(r->reports, r->weights);
}

static clt_rescue rescue_of(const clt_trainer *t, int lost)
{
    clt_rescue report = {.lost = lost, .least = INT64_MAX, .done = -1};
    for (int d = 0; d < t->all.own; d++) {
        const clt_updates *td = &t->devices[d];
        if (d == lost)
            continue;
        if (td->done > report.done) {
            report.done = td->done;
            report.device = d - (lost >= 0 && d > lost);
        }
        if (td->done < report.least)
            report.least = td->done;
        if (td->begun > report.begun)
            report.begun = td->begun;
    }
    return report;
}

static bool is_lost(const clt_trainer *t, const recovery *r, int participant)
{
    for (int k = 0; k < t->all.ranks; k++)
        if (r->reports[k].lost >= 0 && t->all.begins[k] + r->reports[k].lost == participant)
            return true;
    return false;
}

/* Finds the largest number of steps that a device has completed. Devices that have not get the
 * replica of one that has. */
static void find_source(const clt_trainer *t, recovery *r)
{
    int64_t least = INT64_MAX;
    r->steps = -1;
    for (int k = 0, first = 0; k < t->all.ranks; k++) {
        const clt_rescue *report = &r->reports[k];
        if (report->done > r->steps) {
            r->steps = report->done;
            r->source = first + report->device;
        }
        least = report->least < least ? report->least : least;
        first += t->all.begins[k + 1] - t->all.begins[k] - (report->lost >= 0);
    }
    if (least == r->steps)
        r->source = -1;
}

/* Only one device has the slots of a shard. Between an update and the gathering of the shards, only
 * one device has its new parameters. */
static clt_status check_shards(const clt_trainer *t, const recovery *r)
{
    if (!t->sharded)
        return CLT_OK;
    for (int k = 0; k < t->all.ranks; k++)
        if (r->reports[k].begun > r->steps)
            return clt_fail(CLT_STATE,
                            "a device was lost while devices updated their shards in step %lld: go "
                            "on from the last checkpoint",
                            (long long)r->reports[k].begun);
    if (clt_optimizer_find(t->options.optimizer)->n_slots)
        return clt_fail(CLT_STATE, "a shard of the optimizer's state went with the device that "
                                   "failed: go on from the last checkpoint");
    return CLT_OK;
}

/* Computes the weights of the remaining devices. While the division changes, ranks may have
 * different weights, so rank 0's are used. */
static clt_status find_weights(clt_trainer *t, recovery *r)
{
    double sum = 0;
    if (!t->shares.weights)
        return CLT_OK;
    CLT_TRY(clt_world_tell(&t->all, 0, t->shares.weights,
                           (int64_t)((size_t)t->all.total * sizeof *t->shares.weights)));
    CLT_TRY(clt_world_tell(&t->all, 0, &t->shares.quantum, sizeof t->shares.quantum));
    t->options.quantum = t->shares.quantum;
    r->weights = clt_calloc((size_t)t->all.total, sizeof *r->weights);
    CLT_TRY_MEMORY(r->weights);
    for (int p = 0, at = 0; p < t->all.total; p++)
        if (!is_lost(t, r, p)) {
            sum += t->shares.weights[p];
            r->weights[at++] = t->shares.weights[p];
        }
    if (!(sum > 0)) { /* no remaining device had samples */
        clt_free(r->weights);
        r->weights = NULL;
    }
    return CLT_OK;
}

/* Reads the loss scaling of a device that has completed the most steps. */
static clt_status find_scaling(const clt_trainer *t, int lost, recovery *r)
{
    int source = 0;
    r->scaling = clt_scaling_begin();
    for (int d = 0; d < t->all.own; d++)
        if (d != lost && t->devices[d].done == r->steps)
            r->scaling = t->devices[d].scaling;
    while (r->reports[source].done != r->steps)
        source++;
    return clt_world_tell(&t->all, source, &r->scaling, sizeof r->scaling);
}

static clt_status make_recovery(clt_trainer *t, int lost, recovery *r)
{
    char message[1024];
    snprintf(message, sizeof message, "%s", clt_error_message());
    const clt_rescue mine = rescue_of(t, lost);
    r->reports = clt_calloc((size_t)t->all.ranks, sizeof *r->reports);
    CLT_TRY_MEMORY(r->reports);
    CLT_TRY(clt_world_rescue(&t->all, &mine, r->reports));
    find_source(t, r);
    CLT_TRY(check_shards(t, r));
    CLT_TRY(find_weights(t, r));
    CLT_TRY(find_scaling(t, lost, r));
    clt_error_restore(message);
    return CLT_OK;
}

/* --- the recovery ---------------------------------------------------------------------------- */

static void drop_from_store(clt_store *store, int lost)
{
    clt_replica_destroy(&store->replicas[lost]);
    clt_arena_destroy(&store->arenas[lost]);
    store->n_devices--;
    const size_t after = (size_t)(store->n_devices - lost);
    memmove(&store->replicas[lost], &store->replicas[lost + 1], after * sizeof *store->replicas);
    memmove(&store->arenas[lost], &store->arenas[lost + 1], after * sizeof *store->arenas);
}

/* The other devices get larger shares. These run in more micro-batches if memory requires it. */
static clt_status rebuild(clt_trainer *t, const recovery *r)
{
    t->options.tune_seconds = 0;
    for (;;) {
        t->options.weights = r->weights; /* not the copy of the previous build */
        const clt_status status = clt_trainer_build(t);
        int64_t small = status == CLT_OUT_OF_DEVICE_MEMORY;
        if (status == CLT_OK)
            return status;
        char message[1024];
        snprintf(message, sizeof message, "%s", clt_error_message());
        CLT_TRY(clt_world_largest(&t->all, &small));
        clt_error_restore(message);
        if (!small || t->options.accumulate >= t->options.batch)
            return status;
        clt_trainer_unbuild(t);
        t->options.accumulate *= 2;
    }
}

static clt_status go_on(clt_trainer *t, int lost, const recovery *r)
{
    if (lost >= 0)
        clt_log(CLT_LOG_WARN,
                "%s has failed, training goes on with %d device%s after step %lld: %s",
                t->store->replicas[lost].device->label, t->all.own - 1, t->all.own == 2 ? "" : "s",
                (long long)r->steps, clt_error_message());
    /* Make plans for the larger shares. The history of divisions is dropped: it was among other
     * devices. */
    t->options.per_device = 0;
    clt_split_history_free(t->history);
    t->history = NULL;
    clt_trainer_unbuild(t);
    if (lost >= 0) {
        drop_from_store(t->store, lost);
        t->all.own--;
    }
    atomic_store(&t->lost, -1);
    CLT_TRY(rebuild(t, r));
    t->steps = r->steps;
    t->exchange.vote = t->exchange.votes = 0;
    CLT_TRY(clt_trainer_copy_replica(t, r->source));
    CLT_TRY(clt_trainer_set_scaling(t, &r->scaling));
    clt_verification_skip(t->verification);
    for (int d = 0; d < t->all.own; d++)
        t->devices[d].begun = t->devices[d].done = t->steps;
    return CLT_OK;
}

/* Names the axes other than dp. */
static const char *axes_of(const clt_mesh *mesh, char *text, size_t bytes)
{
    size_t used = 0;
    *text = '\0';
    for (int a = CLT_AXIS_DATA + 1; a < CLT_AXES; a++)
        if (mesh->size[a] > 1 && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? " and " : "",
                                     clt_axis_name((clt_axis)a));
    return text;
}

static clt_status check(const clt_trainer *t, int lost)
{
    char axes[64];
    if (clt_participants_have_axes(&t->all))
        return clt_fail(CLT_STATE,
                        "training cannot go on without it, because the model is divided along %s "
                        "of the mesh: resume from the last checkpoint",
                        axes_of(&t->all.mesh, axes, sizeof axes));
    if (t->all.mesh.zero)
        return clt_fail(CLT_STATE, "training cannot go on without it, because zero 3 divides the "
                                   "model along dp of the mesh: resume from the last checkpoint");
    const bool heard = stopped_for_lost(t);
    if (lost < 0 && !heard)
        return clt_fail(CLT_STATE, "no device has failed");
    if (lost >= 0 && t->all.own == 1)
        return clt_fail(CLT_STATE,
                        "training cannot go on without %s, which failed: rank %d of %d "
                        "has no other device",
                        t->store->replicas[0].device->label, t->all.rank, t->all.ranks);
    if (!one_node(t))
        return clt_fail(CLT_STATE, "a device has failed, and ranks on several nodes cannot go on "
                                   "without it: go on from the last checkpoint");
    if (t->streams)
        return clt_fail(
            CLT_STATE,
            "without guard and clipping updates begin before a step is complete, so that "
            "training cannot go on without the device: go on from the last checkpoint");
    return CLT_OK;
}

clt_status clt_lost_explain(const clt_trainer *t, clt_status failure, const char *message)
{
    const int lost = atomic_load(&t->lost);
    const bool axes = clt_participants_have_axes(&t->all);
    const bool unknown = lost < 0 && !(axes && stopped_for_lost(t));
    if (unknown || (t->all.own == 1 && !axes) || check(t, lost) == CLT_OK) {
        clt_error_restore(message);
        return failure;
    }
    char why[512];
    snprintf(why, sizeof why, "%s", clt_error_message());
    return clt_fail(failure, "%.400s; %s", message, why);
}

clt_status clt_trainer_recover(clt_trainer *t, int *redo)
{
    const int lost = atomic_load(&t->lost);
    char message[1024];
    snprintf(message, sizeof message, "%s", clt_error_message());
    CLT_TRY(check(t, lost));
    clt_error_restore(message);
    if (t->all.ranks > 1)
        t->exchange.collectives.stop(t->exchange.collectives.self, CLT_DEVICE_LOST, message);
    recovery r = {0};
    const int64_t before = t->steps;
    clt_status status = make_recovery(t, lost, &r);
    CLT_NEXT(status, go_on(t, lost, &r));
    *redo = before == r.steps;
    t->options.weights = t->shares.weights;
    recovery_free(&r);
    return status;
}
