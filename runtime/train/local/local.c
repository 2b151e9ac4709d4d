/* Makes replicas of trainers, and synchronises them for loops of the caller's own. */
#include "train/local/local.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "ops/core/ops.h"
#include "train/core/use.h"
#include "train/ranks/connect.h"

CLT_STRUCT_INIT(clt_local_options, .every_steps = 1)

/* --- checks ---------------------------------------------------------------------------------- */

static clt_status check_options(const clt_local_options *o)
{
    CLT_TRY(CLT_CHECK_STRUCT(o, clt_local_options));
    if (o->every_steps < 0 || !isfinite(o->every_seconds) || o->every_seconds < 0 ||
        (o->every_steps > 0) == (o->every_seconds > 0))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "clt_local_options: every_steps %lld and every_seconds %g: one must be "
                        "above 0, and the other 0",
                        (long long)o->every_steps, o->every_seconds);
    if (!clt_outer_name(o->outer.kind))
        return clt_fail(CLT_INVALID_ARGUMENT, "outer optimizer %d does not exist",
                        (int)o->outer.kind);
    if (o->outer.kind != CLT_OUTER_AVERAGE && !(o->outer.lr > 0 && isfinite(o->outer.lr) &&
                                                o->outer.momentum >= 0 && o->outer.momentum < 1))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "outer optimizer: lr %g must be above 0, and momentum %g from 0 to below 1",
                        o->outer.lr, o->outer.momentum);
    if (o->wire != CLT_F32 && o->wire != CLT_BF16 && o->wire != CLT_F16)
        return clt_fail(CLT_INVALID_ARGUMENT, "clt_local_options.wire %s: must be f32, bf16 or f16",
                        clt_dtype_name(o->wire));
    if (!isfinite(o->comm_timeout) || o->comm_timeout < 0)
        return clt_fail(CLT_INVALID_ARGUMENT, "time-out %g of reductions: must be at least 0",
                        o->comm_timeout);
    return CLT_OK;
}

/* What these trainers do beside samples of their own is not built for replicas. */
static clt_status check_built(const clt_trainer *t, int i)
{
    const char *other =
        t->options.zero || t->store->mesh.zero ? "zero"
        : t->store->owners                     ? "offload"
        : t->options.virtual_shards            ? "virtual shards"
        : t->options.average.kind              ? "averages of weights (clt_trainer_options.average)"
        : t->options.wire != CLT_F32 ? "gradients of 16 bits on the wire (clt_trainer_options.wire)"
        : clt_participants_have_axes(&t->all) ? "a mesh of other axes than dp"
                                              : NULL;
    if (other)
        return clt_fail(CLT_UNSUPPORTED, "replica %d has %s, which is not built beside local", i,
                        other);
    for (int k = 0; k < t->graph->n_nodes; k++)
        if (t->graph->nodes[k]->op == &clt_op_batch_rows_put)
            return clt_fail(
                CLT_UNSUPPORTED,
                "%s: states with rows of samples (clt_batch_rows_put) have no mean over "
                "replicas: train without local",
                t->graph->nodes[k]->name);
    return CLT_OK;
}

static clt_status check_trainer(clt_trainer *const *trainers, int i)
{
    const clt_trainer *t = trainers[i], *first = trainers[0];
    CLT_TRY(clt_store_check_devices(t->store));
    if (t->all.ranks > 1)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "replica %d: its trainer has a world of %d ranks; give the world to "
                        "clt_local_options, and let each rank have replicas of its own",
                        i, t->all.ranks);
    if (t->options.weights || t->options.rebalance)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "replica %d: its trainer has weights of devices, but replicas divide "
                        "batches equally among their devices",
                        i);
    for (int k = 0; k < i; k++)
        if (trainers[k]->store == t->store)
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "replicas %d and %d have the same store; each needs its own", k, i);
    if (clt_buckets_hash(&t->store->layout) != clt_buckets_hash(&first->store->layout) ||
        clt_optimizer_of(&t->options) != clt_optimizer_of(&first->options) ||
        t->options.batch != first->options.batch || t->all.total != first->all.total)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "replica %d has other parameters, another optimizer, batch or number of "
                        "devices than replica 0 of this rank",
                        i);
    return check_built(t, i);
}

static clt_status check(clt_trainer *const *trainers, int count, const clt_local_options *options)
{
    CLT_TRY(check_options(options));
    if (count < 1 || count > CLT_MOST_DEVICES)
        return clt_fail(CLT_INVALID_ARGUMENT, "%d replicas of a rank: must be 1 to %d", count,
                        CLT_MOST_DEVICES);
    for (int i = 0; i < count; i++)
        CLT_TRY(check_trainer(trainers, i));
    return CLT_OK;
}

/* --- making ---------------------------------------------------------------------------------- */

/* What a rank tells the others about itself. */
typedef struct member {
    int32_t replicas, node_rank, node_ranks;
} member;

/* Whether the replicas of each rank, of each node and of all are nodes of one binary tree. */
static bool makes_tree(const member *members, int ranks)
{
    const int each = members[0].replicas, node = members[0].node_ranks;
    bool tree = !(each & (each - 1)) && !(ranks & (ranks - 1)) && !(node & (node - 1));
    for (int r = 0; r < ranks; r++)
        tree = tree && members[r].replicas == each && members[r].node_ranks == node &&
               members[r].node_rank == r % node;
    return tree;
}

/* Numbers the replicas of all ranks. */
static clt_status meet(clt_local *local)
{
    const clt_world *world = local->all.world;
    const member own = {local->own, world ? world->node_rank : 0, world ? world->node_ranks : 1};
    void *members;
    local->begins = clt_calloc((size_t)local->all.ranks + 1, sizeof *local->begins);
    CLT_TRY(clt_world_agree(&local->all, local->begins ? CLT_OK : CLT_OUT_OF_MEMORY));
    CLT_TRY(clt_ranks_gather(world, &own, sizeof own, &members));
    for (int r = 0; r < local->all.ranks; r++) {
        const int count = ((const member *)members)[r].replicas;
        local->begins[r + 1] = local->begins[r] + count;
        local->most = count > local->most ? count : local->most;
    }
    local->tree = makes_tree(members, local->all.ranks);
    clt_free(members);
    local->first = local->begins[local->all.rank];
    local->total = local->begins[local->all.ranks];
    return CLT_OK;
}

/* Ranks must be synchronised at the same steps, by the same rule. */
static clt_status compare(const clt_local *local)
{
    const clt_trainer *t = local->trainers[0];
    const clt_local_options *o = &local->options;
    const double numbers[] = {
        (double)o->every_steps, o->every_seconds,     (double)o->outer.kind, o->outer.lr,
        o->outer.momentum,      (double)t->all.total, (double)o->wire};
    CLT_TRY(clt_ranks_compare(local->all.world, clt_hash(numbers, sizeof numbers, 0),
                              "way to synchronise replicas (steps or seconds, outer optimizer, "
                              "devices of a replica, type on the wire)"));
    return clt_world_compare_plans(&local->all, t->graph, t->store, &t->options);
}

static clt_status make(clt_local *local)
{
    CLT_TRY(meet(local));
    CLT_TRY(compare(local));
    CLT_TRY(clt_world_agree(&local->all, clt_device_threads_create(local->own, &local->threads)));
    CLT_TRY(clt_outer_open(local));
    return clt_outer_adopt(local);
}

clt_status clt_local_create(clt_trainer *const *trainers, int count,
                            const clt_local_options *options, clt_local **out)
{
    clt_status status = check(trainers, count, options);
    const clt_world *world = options->world && options->world->ranks > 1 ? options->world : NULL;
    clt_local *local = CLT_NEW(clt_local);
    CLT_TRY_MEMORY(local);
    local->options = *options;
    local->own = status == CLT_OK ? count : 0;
    local->all = (clt_participants){
        .world = world, .rank = world ? world->rank : 0, .ranks = world ? world->ranks : 1};
    local->trainers = clt_calloc((size_t)local->own + 1, sizeof *local->trainers);
    CLT_NEXT(status, local->trainers ? CLT_OK : CLT_OUT_OF_MEMORY);
    for (int i = 0; status == CLT_OK && i < count; i++)
        (local->trainers[i] = trainers[i])->is_replica = true;
    if (status == CLT_OK)
        clt_heartbeat_rank_is(trainers[0]->exchange.beat, local->all.rank, local->all.ranks);
    status = clt_world_agree(&local->all, status);
    CLT_NEXT(status, make(local));
    if (status != CLT_OK) {
        clt_local_destroy(local);
        return status;
    }
    *out = local;
    return CLT_OK;
}

clt_status clt_local_finish(clt_local *local)
{
    const clt_collectives *c = &local->outer.collectives;
    return local->all.ranks > 1 && c->self ? c->finish(c->self) : CLT_OK;
}

/* Leaves local->trainers to the caller. */
static void free_now(clt_local *local)
{
    clt_outer_close(local);
    for (int i = 0; i < local->own; i++)
        local->trainers[i]->is_replica = false;
    clt_device_threads_destroy(local->threads);
    CLT_FREE(local->begins, local);
}

void clt_local_destroy(clt_local *local)
{
    if (!local || !clt_in_use_free(&local->in_use))
        return;
    clt_trainer **trainers = local->trainers;
    free_now(local);
    clt_free(trainers);
}

void clt_local_use_begin(clt_local *local, clt_dataset *train, clt_dataset *test)
{
    clt_in_use_begin(&local->in_use);
    for (int i = 0; i < local->own; i++)
        clt_use_begin(&(clt_use){local->trainers[i], {train, test}});
}

clt_status clt_local_use_end(clt_local *local, clt_dataset *train, clt_dataset *test,
                             clt_status status)
{
    clt_trainer **trainers = local->trainers;
    const int own = local->own;
    const bool freed = clt_in_use_end(&local->in_use);
    char message[1024];
    snprintf(message, sizeof message, "%s", clt_error_message());
    if (freed) /* before its trainers */
        free_now(local);
    clt_error_restore(message);
    for (int i = 0; i < own; i++)
        status = clt_use_end(&(clt_use){trainers[i], {train, test}}, status);
    if (freed)
        clt_free(trainers);
    return status;
}

int clt_local_replicas(const clt_local *local)
{
    return local->total;
}

int clt_local_first(const clt_local *local)
{
    return local->first;
}

/* --- synchronising --------------------------------------------------------------------------- */

clt_status clt_local_each(clt_local *local, clt_device_threads_fn fn, void *arg)
{
    return clt_device_threads_run(local->threads, fn, arg);
}

bool clt_local_weigh(const clt_local *local, const double *samples, double *weights)
{
    double sum = 0;
    for (int r = 0; r < local->total; r++)
        sum += samples[r];
    for (int r = 0; r < local->total; r++)
        weights[r] = sum > 0 ? samples[r] / sum : 0;
    return sum > 0;
}

static clt_status check_samples(const clt_local *local, const double *samples)
{
    for (int i = 0; i < local->own; i++)
        if (!isfinite(samples[i]) || samples[i] < 0)
            return clt_fail(CLT_INVALID_ARGUMENT, "replica %d: %g samples: must be at least 0",
                            local->first + i, samples[i]);
    return CLT_OK;
}

/* Puts the numbers of all ranks in the order of the replicas. `mine` has local->most numbers. */
static clt_status gather(const clt_local *local, const double *mine, double *of_replicas)
{
    void *all;
    CLT_TRY(clt_ranks_gather(local->all.world, mine, (size_t)local->most * sizeof *mine, &all));
    for (int r = 0; r < local->all.ranks; r++)
        memcpy(of_replicas + local->begins[r], (const double *)all + r * local->most,
               (size_t)(local->begins[r + 1] - local->begins[r]) * sizeof *mine);
    clt_free(all);
    return CLT_OK;
}

clt_status clt_local_sync(clt_local *local, const double *samples)
{
    double *numbers = clt_calloc((size_t)(local->most + 2 * local->total), sizeof *numbers);
    clt_status status = numbers ? check_samples(local, samples) : CLT_OUT_OF_MEMORY;
    if (status == CLT_OK)
        memcpy(numbers, samples, (size_t)local->own * sizeof *samples);
    status = clt_world_agree(&local->all, status);
    double *all = numbers + local->most, *weights = all + local->total;
    CLT_NEXT(status, gather(local, numbers, all));
    if (status == CLT_OK && clt_local_weigh(local, all, weights))
        status = clt_outer_exchange(local, weights);
    clt_free(numbers);
    return status;
}
