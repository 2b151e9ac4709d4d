/* Continues without a failed device. Its part of the batches goes to the other devices of all
 * ranks. On a mesh all devices leave that share its samples (setup/remains.c). Updates are enqueued
 * only once a step's reductions are complete. A failure before that leaves every replica unchanged,
 * and the step is repeated. After a later failure, the replica of devices that did update is copied
 * to all. */
#include <cltrain/train.h>

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "train/core/trainer.h"
#include "train/planner/balance.h"
#include "train/ranks/connect.h"
#include "train/ranks/world.h"
#include "train/setup/capacity.h"
#include "train/setup/remains.h"
#include "train/step/averages.h"
#include "train/step/verify.h"
#include "train/store/rest.h"

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

/* Returns true if a device of another rank is lost, and all ranks are to go on without it. */
static bool stopped_for_lost(const clt_trainer *t)
{
    const clt_collectives *c = &t->exchange.collectives;
    return t->all.ranks > 1 && c->self && c->status(c->self) == CLT_DEVICE_LOST;
}

/* Checks whether enough is left without a device of this process, whose number is `lost`. */
static clt_status check_rest(const clt_trainer *t, int lost)
{
    clt_remains remains;
    bool *flags = clt_calloc((size_t)t->all.total, sizeof *flags);
    CLT_TRY_MEMORY(flags);
    flags[t->all.first + lost] = true;
    const clt_status status = clt_remains_find(&t->all, t->store, flags, t->may_idle, &remains);
    clt_remains_free(&remains);
    clt_free(flags);
    return status;
}

static clt_status check(const clt_trainer *t, int lost)
{
    if (lost < 0 && !stopped_for_lost(t))
        return clt_fail(CLT_STATE, "no device has failed");
    if (t->all.mesh.zero)
        return clt_fail(CLT_STATE, "training cannot go on without it, because zero 3 divides the "
                                   "model along dp of the mesh");
    if (lost >= 0)
        CLT_TRY(check_rest(t, lost));
    if (!one_node(t))
        return clt_fail(CLT_STATE, "a device has failed, and ranks on several nodes cannot go on "
                                   "without it");
    if (t->streams)
        return clt_fail(
            CLT_STATE,
            "without guard and clipping updates begin before a step is complete, so that "
            "training cannot go on without the device");
    return CLT_OK;
}

bool clt_lost_one_of_several(const clt_trainer *t)
{
    char message[1024];
    snprintf(message, sizeof message, "%s", clt_error_message());
    const bool goes_on = check(t, atomic_load(&t->lost)) == CLT_OK;
    clt_error_restore(message);
    return goes_on;
}

clt_status clt_lost_explain(const clt_trainer *t, clt_status failure, const char *message)
{
    const int lost = atomic_load(&t->lost);
    if (lost < 0 || t->all.total == 1 || check(t, lost) == CLT_OK) {
        clt_error_restore(message);
        return failure;
    }
    char why[512];
    snprintf(why, sizeof why, "%s", clt_error_message());
    return clt_fail(failure, "%.400s; %s", message, why);
}

/* Other ranks call clt_trainer_recover if they get DEVICE_LOST, and else learn why all must end. */
void clt_lost_stop(const clt_trainer *t, clt_status status)
{
    const clt_collectives *c = &t->exchange.collectives;
    char message[1024];
    snprintf(message, sizeof message, "%s", clt_error_message());
    if (atomic_load(&t->lost) >= 0 && clt_lost_one_of_several(t))
        status = CLT_DEVICE_LOST;
    else if (clt_lost_explain(t, status, message) == CLT_DEVICE_LOST)
        status = CLT_ABORTED;
    c->stop(c->self, status, clt_error_message());
    clt_error_restore(message);
}

/* --- the plan of a recovery ------------------------------------------------------------------ */

/* Steps whose updates a device has begun to enqueue, and has enqueued. */
typedef struct progress {
    int64_t begun, done;
} progress;

typedef struct recovery {
    bool *lost;         /* by participant */
    progress *progress; /* by participant */
    clt_remains remains;
    int64_t steps;       /* steps that are complete */
    int source;          /* new number of a participant that has done the steps; -1: all have */
    double *weights;     /* of the remaining devices; NULL: equal */
    clt_scaling scaling; /* after `steps` */
    clt_rest *rest;      /* the ranks that go on; NULL: all */
    int64_t due;         /* the largest of the ranks' numbers, see clt_lost_recover */
} recovery;

static void recovery_free(recovery *r)
{
    CLT_FREE(r->lost, r->progress, r->weights);
    clt_remains_free(&r->remains);
    clt_rest_free(r->rest);
}

/* Learns which devices are lost, and how far all are. */
static clt_status ask_all(const clt_trainer *t, int lost, recovery *r)
{
    const clt_participants *all = &t->all;
    progress mine[CLT_MOST_DEVICES] = {{0, 0}};
    int *lost_of = clt_calloc((size_t)all->ranks, sizeof *lost_of);
    void *told = NULL;
    r->lost = clt_calloc((size_t)all->total, sizeof *r->lost);
    r->progress = clt_calloc((size_t)all->total, sizeof *r->progress);
    clt_status status = lost_of && r->lost && r->progress ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int d = 0; d < all->own; d++)
        mine[d] = (progress){t->devices[d].begun, t->devices[d].done};
    CLT_NEXT(status, clt_world_rescue(all, lost, lost_of));
    CLT_NEXT(status, clt_ranks_gather(all->world, mine, sizeof mine, &told));
    for (int k = 0; status == CLT_OK && k < all->ranks; k++) {
        const int begin = all->begins[k], count = all->begins[k + 1] - begin;
        memcpy(r->progress + begin, (const progress *)told + (size_t)k * CLT_MOST_DEVICES,
               (size_t)count * sizeof *r->progress);
        if (lost_of[k] >= 0)
            r->lost[begin + lost_of[k]] = true;
    }
    CLT_FREE(lost_of, told);
    return status;
}

/* Tries to divide the samples over the places that stay. */
static clt_status divides(const clt_trainer *t, const clt_remains *r)
{
    clt_plan_options options = clt_capacity_options(&t->options, CLT_PLAN_EVALUATE, 1);
    clt_plan *plan;
    int d = 0;
    if (!clt_remains_left(r, t->all.rank))
        return CLT_OK;
    while (!r->stays[t->all.first + d])
        d++;
    const clt_replica *replica = &t->store->replicas[d];
    options.mesh = &r->mesh;
    options.participant = clt_remains_number(r, t->all.first + d);
    CLT_TRY(
        clt_plan_create(t->graph, replica->layout, &replica->device->caps, NULL, &options, &plan));
    clt_plan_destroy(plan);
    return CLT_OK;
}

/* Fewer places of space or time may not divide the rows or positions, so still fewer are tried. */
static clt_status find_remains(const clt_trainer *t, recovery *r)
{
    CLT_TRY(clt_remains_find(&t->all, t->store, r->lost, t->may_idle, &r->remains));
    while (r->remains.axis != CLT_AXIS_DATA) {
        const clt_status status = divides(t, &r->remains);
        int64_t failed = status != CLT_OK;
        CLT_TRY(clt_world_largest(&t->all, &failed));
        if (!failed)
            return CLT_OK;
        if (!clt_remains_fewer(&t->all, &r->remains))
            return status == CLT_OK ? clt_fail(CLT_ABORTED, "another rank cannot make its plan")
                                    : status;
    }
    return CLT_OK;
}

/* Whether all that stay and have a place of the samples have done the steps. */
static bool has_done(const clt_trainer *t, const recovery *r, int place)
{
    for (int p = 0; p < t->all.total; p++)
        if (r->remains.stays[p] && clt_participants_replica(&t->all, p) == place &&
            r->progress[p].done != r->steps)
            return false;
    return true;
}

/* Finds the largest number of steps that a device has completed. Devices that have not get the
 * replica of a place that has, with all its parts and stages. */
static clt_status find_source(const clt_trainer *t, recovery *r)
{
    const bool *stays = r->remains.stays;
    int source = -1;
    bool behind = false;
    r->steps = -1;
    for (int p = 0; p < t->all.total; p++)
        if (stays[p] && r->progress[p].done > r->steps)
            r->steps = r->progress[p].done;
    for (int p = t->all.total - 1; p >= 0; p--)
        if (stays[p] && has_done(t, r, clt_participants_replica(&t->all, p)))
            source = p;
        else if (stays[p])
            behind = true;
    if (source < 0)
        return clt_fail(CLT_STATE,
                        "a device was lost while devices updated their parts of the model in step "
                        "%lld",
                        (long long)r->steps);
    r->source = behind ? clt_remains_number(&r->remains, source) : -1;
    return CLT_OK;
}

/* Only one device has the slots of a shard; an owner is not lost. Between an update and the
 * gathering of the shards, only one device has its new parameters. */
static clt_status check_shards(const clt_trainer *t, const recovery *r)
{
    char axes[64];
    if (!t->sharded)
        return CLT_OK;
    for (int p = 0; p < t->all.total; p++)
        if (r->remains.stays[p] && r->progress[p].begun > r->steps)
            return clt_fail(CLT_STATE,
                            "a device was lost while devices updated their shards in step %lld",
                            (long long)r->progress[p].begun);
    if (!t->store->owners && clt_optimizer_of(&t->options)->n_slots)
        return clt_fail(CLT_STATE,
                        "a shard of the optimizer's state went with the device that failed, "
                        "because that state is divided along %s",
                        clt_remains_axes(&t->all.mesh, true, axes));
    return CLT_OK;
}

/* Computes the weights of the remaining devices. While the division changes, ranks may have
 * different weights, so rank 0's are used. */
static clt_status find_weights(clt_trainer *t, recovery *r)
{
    const size_t parts = (size_t)clt_participants_parts(&t->all);
    double sum = 0;
    if (!t->shares.weights)
        return CLT_OK;
    CLT_TRY(clt_world_tell(&t->all, 0, t->shares.weights,
                           (int64_t)(parts * sizeof *t->shares.weights)));
    CLT_TRY(clt_world_tell(&t->all, 0, &t->shares.quantum, sizeof t->shares.quantum));
    t->options.quantum = t->shares.quantum;
    r->weights = clt_calloc((size_t)t->all.total, sizeof *r->weights);
    CLT_TRY_MEMORY(r->weights);
    for (int p = 0, at = 0; p < t->all.total; p++)
        if (r->remains.stays[p]) {
            const double weight =
                t->shares.weights[clt_mesh_coordinate(&t->all.mesh, CLT_AXIS_DATA, p)];
            sum += weight;
            r->weights[at++] = weight;
        }
    if (!(sum > 0)) { /* no remaining device had samples */
        clt_free(r->weights);
        r->weights = NULL;
    }
    return CLT_OK;
}

/* Returns the loss scaling of a device after its last complete step. */
static clt_status scaling_of(const clt_trainer *t, int device, int64_t steps, clt_scaling *scaling)
{
    const clt_updates *u = &t->devices[device];
    const int entry = (int)((steps - 1) % CLT_RESULT_RING);
    const float *floats = u->step_status + CLT_STEP_STATUS * entry;
    *scaling = u->scaling;
    if (!t->options.virtual_shards || t->options.precision != CLT_F16 || steps < 1 ||
        t->results.records[entry].step != steps - 1)
        return CLT_OK;
    CLT_TRY(clt_device_finish(t->store->replicas[device].device));
    *scaling = (clt_scaling){.scale = floats[CLT_STEP_STATUS_SCALE],
                             .good = (int32_t)floats[CLT_STEP_STATUS_GOOD],
                             .skipped = (int32_t)floats[CLT_STEP_STATUS_SKIPPED]};
    return CLT_OK;
}

/* Reads the loss scaling of a device that has completed the most steps. */
static clt_status find_scaling(const clt_trainer *t, recovery *r)
{
    int p = 0, rank = 0;
    while (!r->remains.stays[p] || r->progress[p].done != r->steps)
        p++;
    while (p >= t->all.begins[rank + 1])
        rank++;
    r->scaling = clt_scaling_begin();
    if (rank == t->all.rank)
        CLT_TRY(scaling_of(t, p - t->all.first, r->steps, &r->scaling));
    return clt_world_tell(&t->all, rank, &r->scaling, sizeof r->scaling);
}

/* Makes the world of the ranks that keep a device. */
static clt_status find_rest(const clt_trainer *t, recovery *r)
{
    bool *has = clt_calloc((size_t)t->all.ranks, sizeof *has), all = true;
    clt_status status = has ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int k = 0; has && k < t->all.ranks; k++) {
        has[k] = clt_remains_left(&r->remains, k) > 0;
        all = all && has[k];
    }
    if (has && !all)
        status = clt_rest_create(t->all.world, has, &r->rest);
    clt_free(has);
    return clt_world_agree(&t->all, status);
}

static clt_status make_recovery(clt_trainer *t, int lost, const int64_t due[2], recovery *r)
{
    CLT_TRY(ask_all(t, lost, r));
    CLT_TRY(find_remains(t, r));
    CLT_TRY(find_source(t, r));
    CLT_TRY(check_shards(t, r));
    CLT_TRY(find_weights(t, r));
    CLT_TRY(find_scaling(t, r));
    CLT_TRY(find_rest(t, r));
    r->due = due[t->steps != r->steps];
    return clt_world_largest(&t->all, &r->due);
}

/* --- the recovery ---------------------------------------------------------------------------- */

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
        if (!small || t->options.virtual_shards || t->options.accumulate >= t->options.batch)
            return status;
        clt_trainer_unbuild(t);
        t->options.accumulate *= 2;
    }
}

/* Says what training goes on with. The first message is kept. */
static void report(const clt_trainer *t, int lost, const recovery *r)
{
    const clt_remains *remains = &r->remains;
    const int left = clt_remains_left(remains, t->all.rank);
    if (lost >= 0 && left)
        clt_log(CLT_LOG_WARN,
                "%s has failed, training goes on with %d device%s after step %lld: %s",
                t->store->replicas[lost].device->label, left, left == 1 ? "" : "s",
                (long long)r->steps, clt_error_message());
    for (int d = 0; d < t->all.own; d++)
        if (!remains->stays[t->all.first + d] && d != lost)
            clt_log(CLT_LOG_WARN,
                    "%s is left out: the mesh has %d place%s of %s instead of %d after a device "
                    "has failed",
                    t->store->replicas[d].device->label, remains->mesh.size[remains->axis],
                    remains->mesh.size[remains->axis] == 1 ? "" : "s", clt_axis_name(remains->axis),
                    t->all.mesh.size[remains->axis]);
    const int others = remains->begins[t->all.ranks];
    if (!left)
        clt_log(CLT_LOG_WARN,
                "%s%sthis rank has no device left and is idle, training goes on with %d device%s "
                "of other ranks after step %lld%s%s",
                lost >= 0 ? t->store->replicas[lost].device->label : "",
                lost >= 0 ? " has failed, " : "", others, others == 1 ? "" : "s",
                (long long)r->steps, lost >= 0 ? ": " : "", lost >= 0 ? clt_error_message() : "");
}

/* From here on only the ranks that have devices are ranks of the trainer and the store. */
static void leave_ranks(clt_trainer *t, recovery *r)
{
    clt_store *store = t->store;
    clt_rest *const before = store->rest;
    if (!r->rest)
        return;
    store->rest = r->rest;
    r->rest = NULL;
    t->all.world = t->options.world = &store->rest->world;
    t->all.rank = store->rest->world.rank;
    t->all.ranks = store->rest->world.ranks;
    if (store->world.ranks > 1)
        store->world = store->rest->world;
    clt_rest_free(before);
}

/* The number of steps in the averages is that of the replica that was copied to all. */
static clt_status tell_average(clt_trainer *t, int source)
{
    int rank = 0;
    while (source >= 0 && t->all.ranks > 1 && source >= t->all.begins[rank + 1])
        rank++;
    int64_t steps = 0;
    if (source < 0 || !t->options.average.kind)
        return CLT_OK;
    if (rank == t->all.rank)
        CLT_TRY(clt_averager_count(t->devices[source - t->all.first].averager, &steps));
    CLT_TRY(clt_world_tell(&t->all, rank, &steps, sizeof steps));
    return clt_averages_set(t, steps);
}

static clt_status go_on(clt_trainer *t, int lost, recovery *r)
{
    const clt_participants before = t->all;
    report(t, lost, r);
    /* Make plans for the larger shares. The history of divisions is dropped: it was among other
     * devices. */
    t->options.per_device = 0;
    clt_split_history_free(t->history);
    t->history = NULL;
    clt_trainer_unbuild(t);
    clt_remains_apply(&r->remains, &before, t->store);
    leave_ranks(t, r);
    t->all.own = t->store->n_devices;
    atomic_store(&t->lost, -1);
    if (!t->all.own) {
        t->steps = r->steps;
        return CLT_OK;
    }
    CLT_TRY(rebuild(t, r));
    t->steps = r->steps;
    t->exchange.vote = t->exchange.votes = 0;
    CLT_TRY(clt_trainer_copy_replica(t, r->source));
    CLT_TRY(tell_average(t, r->source));
    CLT_TRY(clt_trainer_set_scaling(t, &r->scaling));
    clt_verification_skip(t->verification);
    for (int d = 0; d < t->all.own; d++)
        t->devices[d].begun = t->devices[d].done = t->steps;
    return CLT_OK;
}

clt_status clt_lost_recover(clt_trainer *t, const int64_t due[2], int64_t *largest, int *redo)
{
    const int lost = atomic_load(&t->lost);
    char message[1024], why[512];
    snprintf(message, sizeof message, "%s", clt_error_message());
    CLT_TRY(check(t, lost));
    clt_error_restore(message);
    if (t->all.ranks > 1)
        t->exchange.collectives.stop(t->exchange.collectives.self, CLT_DEVICE_LOST, message);
    recovery r = {0};
    const int64_t before = t->steps;
    clt_status status = make_recovery(t, lost, due, &r);
    if (status == CLT_OK) {
        clt_error_restore(message);
        status = go_on(t, lost, &r);
        *redo = before == r.steps;
        *largest = r.due;
        t->options.weights = t->shares.weights;
    } else if (*message && lost >= 0) {
        snprintf(why, sizeof why, "%s", clt_error_message());
        clt_fail(status, "%.400s; %s", message, why);
    }
    recovery_free(&r);
    return status;
}

clt_status clt_trainer_recover(clt_trainer *t, int *redo)
{
    const int64_t due[2] = {0, 0};
    int64_t largest;
    CLT_TRY(clt_step_allowed(t));
    CLT_TRY(clt_averages_away(t, "clt_trainer_recover"));
    return clt_lost_recover(t, due, &largest, redo);
}
