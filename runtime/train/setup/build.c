/* Builds the parts of a trainer that depend on the devices. They are made when the trainer is
 * created, and again when a device is lost. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "train/core/trainer.h"
#include "train/step/shards.h"
#include "train/setup/capacity.h"
#include "train/setup/choices.h"
#include "train/setup/matrices.h"
#include "train/planner/frozen.h"
#include "train/step/graph_collectives.h"
#include "train/step/states.h"
#include "train/step/programs.h"
#include "train/step/verify.h"
#include "train/step/wire.h"
#include "train/ranks/connect.h"
#include "train/ranks/virtual_shards.h"

/* Chooses the share of each device and the kernels. Runs before gradients and the optimizer's
 * tensors are allocated, since measuring needs memory for its own. */
static clt_status choose(clt_trainer *t, const clt_graph *graph)
{
    const int parts = clt_participants_parts(&t->all);
    if (!graph->n_losses && !graph->n_seeds && graph->n_nodes)
        return clt_fail(CLT_INVALID_ARGUMENT, "the graph has no loss: call clt_loss on it, or "
                                              "clt_output_gradient on an output");
    if (!graph->n_nodes && t->shares.max_micro_batches > 1)
        return clt_fail(CLT_INVALID_ARGUMENT, "a graph of parameters alone has no samples, so it "
                                              "has no micro-batches: accumulate must be 1");
    if (graph->n_seeds && t->options.precision == CLT_F16)
        return clt_fail(
            CLT_UNSUPPORTED,
            "f16 scales losses, and gradients that are given (clt_output_gradient) would "
            "not fit: train in bf16 or f32");
    clt_status status = clt_capacity_check(graph, t->store, &t->options, parts, t->options.batch);
    CLT_TRY(clt_capacity_explain(status, graph, t->store, &t->options, parts));
    CLT_TRY(clt_capacity_share(parts, &t->options, t->options.batch, &t->shares.per_run));
    if (!t->options.virtual_shards && t->options.per_device * t->shares.max_micro_batches >=
                                          t->shares.per_run * t->options.accumulate)
        t->shares.per_run = t->options.per_device;
    return clt_choices_make(graph, t->store, &t->options, t->shares.per_run, &t->choices);
}

static clt_status make_sessions(clt_trainer *t, const clt_graph *graph)
{
    const int parts = clt_participants_parts(&t->all);
    clt_plan_options options = clt_capacity_options(&t->options, CLT_PLAN_TRAIN, t->shares.per_run);
    options.several = parts > 1;
    int64_t limits[CLT_MOST_DEVICES];
    for (int d = 0; d < t->all.own; d++) {
        const clt_status status =
            clt_capacity_limit(graph, t->store, &t->options, parts, d, &options);
        CLT_TRY(clt_capacity_explain(status, graph, t->store, &t->options, parts));
        limits[d] = options.arena_limit;
    }
    const bool shared = clt_participants_share(&t->all);
    CLT_TRY(clt_session_create(graph, t->store, &options, limits, t->choices->of,
                               t->shares.max_micro_batches, shared, &t->training));
    options = clt_capacity_options(&t->options, CLT_PLAN_EVALUATE, t->shares.per_run);
    options.several = parts > 1;
    return clt_session_create(graph, t->store, &options, NULL, t->choices->of,
                              t->shares.max_micro_batches, shared, &t->evaluation);
}

/* A device with several shards adds up their gradients in the order of a tree. */
static clt_status make_shard_sums(clt_trainer *t, int index)
{
    return clt_shard_sums_of_gradients(
        &t->store->replicas[index], t->options.precision,
        clt_memory_terms(&t->options, clt_shares_leaves(&t->shares, index)),
        &t->devices[index].shard_sums);
}

static clt_update_options update_options(const clt_trainer *t)
{
    return (clt_update_options){.rule = clt_optimizer_rule_of(&t->options),
                                .clip_norm = t->options.clip_norm,
                                .guard = t->options.guard != 0,
                                .merges = t->options.virtual_shards != 0,
                                .matrices = t->store->matrices,
                                .precision = t->options.precision,
                                .merge = t->options.merge_launches,
                                .wire = t->exchange.wire.dtype};
}

/* The host reads the step status in place if it can, like results. */
static clt_status make_step_status(clt_device *device, clt_updates *d)
{
    if (!clt_shared_supported(device)) {
        d->step_status = clt_calloc(1, CLT_STEP_STATUS_BYTES);
        CLT_TRY_MEMORY(d->step_status);
        return CLT_OK;
    }
    CLT_TRY(clt_shared_create(device, CLT_STEP_STATUS_BYTES, "step status", &d->reports));
    d->step_status = d->reports.data;
    memset(d->step_status, 0, CLT_STEP_STATUS_BYTES);
    return CLT_OK;
}

static clt_status make_device(clt_trainer *t, int index)
{
    clt_updates *d = &t->devices[index];
    clt_replica *replica = &t->store->replicas[index];
    const clt_optimizer_rule rule = clt_optimizer_rule_of(&t->options);
    const bool begins = replica->n_slots == 0;
    CLT_TRY(clt_replica_for_training(
        replica, t->options.precision, clt_optimizer_find(&rule)->n_slots,
        t->sharded ? clt_participants_replica(&t->all, t->all.first + index) : 0,
        t->sharded ? clt_participants_replicas(&t->all) : 1));
    if (begins && rule.initial > 0)
        CLT_TRY(clt_replica_fill_slots(replica, (float)rule.initial));
    if (clt_capacity_micro_batches(&t->options) > 1 && t->options.precision != CLT_F32 &&
        !t->options.virtual_shards)
        CLT_TRY(clt_replica_for_gradient_sums(replica));
    if (t->exchange.wire.dtype != CLT_F32)
        CLT_TRY(clt_replica_for_wire(replica, t->exchange.wire.dtype, t->exchange.wire.rounds));
    const clt_update_options update = update_options(t);
    clt_update_compile_later(replica, &update);
    CLT_TRY(make_step_status(replica->device, d));
    d->scaling = clt_scaling_begin();
    d->gradients = clt_replica_gradients(replica, t->options.precision);
    d->sent = t->exchange.wire.dtype != CLT_F32 ? replica->half_gradients : d->gradients;
    return t->options.virtual_shards ? make_shard_sums(t, index) : CLT_OK;
}

/* Runs after the sessions are made. Helper processes have compiled these kernels with the plans'.
 */
static clt_status make_update(clt_trainer *t, int index)
{
    clt_updates *d = &t->devices[index];
    clt_replica *replica = &t->store->replicas[index];
    const clt_update_options options = update_options(t);
    CLT_TRY(clt_update_create(replica, &options, &d->update));
    clt_update_follow(d->update, t->training->devices[index].plan);
    return t->options.average.kind
               ? clt_averager_create(replica, &t->options.average,
                                     clt_update_status_buffer(d->update), &d->averager)
               : CLT_OK;
}

/* The caller gives a weight for each device, and those with one part of the batch have the same. */
static clt_status copy_weights(const clt_participants *all, const double *weights, double *parts)
{
    for (int i = 0; i < clt_participants_parts(all); i++)
        parts[i] = weights ? weights[clt_participants_of(all, i)] : 1;
    for (int p = 0; weights && p < all->total; p++)
        if (!isfinite(weights[p]))
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "the weights need a finite number for each of %d devices, and number "
                            "%d is %g",
                            all->total, p, weights[p]);
    for (int p = 0; weights && p < all->total; p++) {
        const int part = clt_mesh_coordinate(&all->mesh, CLT_AXIS_DATA, p);
        if (weights[p] != parts[part])
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "devices %d and %d of the mesh are both at place %d of dp, so they "
                            "need equal weights, not %g and %g",
                            clt_participants_of(all, part), p, part, parts[part], weights[p]);
    }
    return CLT_OK;
}

/* Finds which virtual shards each device has. The shards are the micro-batches of a device. */
static clt_status make_bounds(clt_trainer *t)
{
    int64_t most = 1;
    if (!t->options.virtual_shards)
        return CLT_OK;
    CLT_TRY(clt_virtual_shards_bounds(t->options.virtual_shards, &t->all, &t->shares.bounds));
    for (int p = 0; p < t->all.total; p++)
        if (t->shares.bounds[p + 1] - t->shares.bounds[p] > most)
            most = t->shares.bounds[p + 1] - t->shares.bounds[p];
    t->options.accumulate = (int)most;
    return CLT_OK;
}

/* Copies the weights: the caller keeps its own. Owners of the optimizer's state have no samples. */
static clt_status make_shares(clt_trainer *t)
{
    const size_t n = (size_t)clt_participants_parts(&t->all);
    t->shares.max_micro_batches = clt_capacity_micro_batches(&t->options);
    t->shares.accumulate = t->options.accumulate;
    t->shares.quantum = t->options.quantum;
    CLT_TRY(clt_shares_create(&t->all, &t->shares));
    t->options.rebalance = t->options.rebalance && t->all.total > 1;
    if (!t->options.weights && !t->options.rebalance && !t->store->owners)
        return CLT_OK;
    t->shares.weights = clt_calloc(n, sizeof *t->shares.weights);
    CLT_TRY_MEMORY(t->shares.weights);
    CLT_TRY(copy_weights(&t->all, t->options.weights, t->shares.weights));
    clt_store_weigh(t->store, true, t->shares.weights);
    t->options.weights = t->shares.weights;
    return CLT_OK;
}

static clt_status allocate(clt_trainer *t)
{
    t->devices = clt_calloc((size_t)t->all.own, sizeof *t->devices);
    CLT_TRY_MEMORY(t->devices);
    CLT_TRY(clt_exchange_create(t->store->replicas[0].layout, t->all.own, &t->exchange));
    return t->options.heartbeat && !t->exchange.beat
               ? clt_heartbeat_open(t->options.heartbeat, t->all.rank, t->all.ranks,
                                    t->exchange.labels, t->exchange.n_buckets, &t->exchange.beat)
               : CLT_OK;
}

/* Does the slow part: kernels are measured and compiled. */
static clt_status build(void *arg)
{
    clt_trainer *t = arg;
    CLT_TRY(make_shares(t));
    CLT_TRY(choose(t, t->graph));
    for (int i = 0; i < t->all.own; i++)
        CLT_TRY(make_device(t, i));
    CLT_TRY(clt_verification_create(t->store, &t->all, &t->verification));
    CLT_TRY(clt_states_create(t->graph, t->store, &t->all, &t->shares, &t->states));
    CLT_TRY(make_sessions(t, t->graph));
    for (int i = 0; i < t->all.own; i++)
        CLT_TRY(make_update(t, i));
    CLT_TRY(clt_exchange_reserve_words(&t->exchange, &t->all));
    CLT_TRY(clt_segments_prepare(t->graph, t->training, t->evaluation, &t->exchange));
    const size_t means = (size_t)t->training->n_means + 1;
    t->results.sums = clt_calloc(means, sizeof *t->results.sums);
    t->results.weights = clt_calloc(means, sizeof *t->results.weights);
    t->call.loss_weights = clt_calloc(means, sizeof *t->call.loss_weights);
    CLT_TRY_MEMORY(t->results.sums && t->results.weights && t->call.loss_weights);
    return clt_device_threads_create(t->all.own, &t->threads);
}

bool clt_trainer_streams(const clt_trainer_options *options)
{
    return !options->guard && options->clip_norm == 0 && options->precision != CLT_F16;
}

static clt_status connect(clt_trainer *t)
{
    clt_device *devices[CLT_MOST_DEVICES];
    for (int d = 0; d < t->all.own; d++)
        devices[d] = t->store->replicas[d].device;
    CLT_TRY(clt_collectives_open(devices, t->all.own, t->all.world, t->options.comm_timeout,
                                 CLT_CONNECT_AUTO, &t->exchange.collectives));
    if (t->exchange.collectives.needs_progress(t->exchange.collectives.self))
        clt_device_threads_while_waiting(t->threads, t->exchange.collectives.progress,
                                         t->exchange.collectives.self);
    CLT_TRY(clt_exchange_split(&t->exchange, &t->all));
    return clt_programs_join_stages(t);
}

/* `alike`: all devices are of one kind. Only devices that divide the samples must have equal
 * replicas. */
static clt_status choose_shards(clt_trainer *t, bool alike)
{
    const int parts = clt_participants_replicas(&t->all);
    t->unlike = !alike && (!clt_participants_have_axes(&t->all) ||
                           clt_split_differs(&t->all, t->store, CLT_AXIS_SAMPLES) >= 0);
    t->sharded =
        parts > 1 && !t->all.mesh.zero && (t->unlike || t->options.zero || t->store->owners);
    if (t->sharded && parts > CLT_MOST_SHARDS)
        return clt_fail(CLT_UNSUPPORTED, "at most %d devices can have shards, not %d",
                        CLT_MOST_SHARDS, parts);
    return CLT_OK;
}

/* A pipeline with fewer micro-batches than stages has stages that wait all the time. */
static clt_status check_stages(const clt_trainer *t)
{
    const int stages = clt_store_stages(t->store);
    if (t->options.accumulate < stages)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "%d stages of axis pp need at least as many micro-batches (accumulate), "
                        "not %d",
                        stages, t->options.accumulate);
    return CLT_OK;
}

static clt_status check_zero(const clt_trainer *t)
{
    if (t->store->owners && t->options.zero)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "offload and zero %d divide the optimizer's state in two ways: choose one",
                        t->options.zero);
    if (t->store->owners && t->options.rebalance)
        return clt_fail(CLT_UNSUPPORTED, "rebalance does not work with offload");
    if (t->all.mesh.zero && t->options.rebalance)
        return clt_fail(CLT_UNSUPPORTED, "rebalance does not work with zero 3");
    if ((t->options.zero == 3) == t->all.mesh.zero)
        return CLT_OK;
    return t->all.mesh.zero
               ? clt_fail(CLT_INVALID_ARGUMENT,
                          "the store was made with zero 3 and the trainer with zero %d: both need "
                          "the same",
                          t->options.zero)
               : clt_fail(CLT_INVALID_ARGUMENT,
                          "zero 3 needs a store that has shards of the parameters "
                          "(clt_store_options.zero)");
}

/* Fails on all ranks, or on none: all know of all devices whether they are alike. */
static clt_status check_matrices(const clt_trainer *t)
{
    bool *matrices;
    CLT_TRY(clt_matrices_find(t->graph, t->store, &t->options, t->unlike, &matrices));
    clt_free(matrices);
    return CLT_OK;
}

/* Fails on all ranks, or on none. */
static clt_status check_axes(const clt_trainer *t)
{
    CLT_TRY(check_zero(t));
    if (!clt_participants_have_axes(&t->all))
        return CLT_OK;
    if (t->options.rebalance)
        return clt_fail(CLT_UNSUPPORTED, "rebalance needs a mesh that has no other axis than dp");
    CLT_TRY(check_stages(t));
    return clt_split_check_kinds(&t->all, t->store);
}

clt_status clt_trainer_build(clt_trainer *t)
{
    bool alike;
    t->builds++;
    CLT_TRY(clt_participants_meet(&t->all, t->store, allocate(t), &alike));
    CLT_TRY(clt_split_identities(&t->all, t->store));
    CLT_TRY(choose_shards(t, alike));
    CLT_TRY(clt_world_compare_plans(&t->all, t->graph, t->store, &t->options));
    CLT_TRY(check_matrices(t));
    CLT_TRY(check_axes(t));
    if (t->options.virtual_shards)
        CLT_TRY(clt_virtual_shards_check(t->graph, clt_participants_have_axes(&t->all),
                                         t->store->owners != 0, alike));
    CLT_TRY(make_bounds(t));
    CLT_TRY(clt_wire_choose(t));
    CLT_TRY(clt_ranks_in_turns(t->all.world, build, t));
    CLT_TRY(clt_segments_agree(t->graph, t->training, t->evaluation, &t->all));
    t->streams = t->all.total > 1 && !clt_participants_have_axes(&t->all) && !t->all.mesh.zero &&
                 clt_trainer_streams(&t->options);
    CLT_TRY(clt_programs_create(t));
    if (t->all.total == 1)
        return clt_wire_park_device(t);
    CLT_TRY(connect(t));
    CLT_TRY(clt_world_agree(&t->all, clt_wire_connect(t)));
    return clt_segments_reserve(t->training, t->evaluation, &t->all, &t->exchange);
}

static void free_devices(clt_trainer *t)
{
    for (int i = 0; t->devices && i < t->all.own; i++) {
        clt_averager_destroy(t->devices[i].averager);
        clt_update_destroy(t->devices[i].update);
        clt_shard_sums_destroy(t->devices[i].shard_sums);
        if (!t->devices[i].reports.data)
            clt_free(t->devices[i].step_status);
        clt_shared_destroy(&t->devices[i].reports);
    }
    clt_free(t->devices);
    t->devices = NULL;
}

void clt_trainer_unbuild(clt_trainer *t)
{
    for (int i = 0; i < t->all.own; i++)
        clt_device_finish(t->store->replicas[i].device);
    const clt_collectives collectives = t->exchange.collectives;
    clt_exchange_free(&t->exchange);
    clt_wire_disconnect(t, &collectives, !t->ends);
    clt_device_threads_destroy(t->threads);
    clt_session_destroy(t->training);
    clt_session_destroy(t->evaluation);
    clt_session_destroy(t->prediction);
    clt_programs_destroy(t);
    clt_states_destroy(t->states);
    clt_verification_destroy(t->verification);
    free_devices(t);
    void *const arrays[] = {t->results.sums, t->results.weights, t->call.loss_weights, t->given};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        clt_free(arrays[i]);
    clt_shards_drop(t);
    clt_shares_free(&t->shares);
    clt_participants_part(&t->all);
    clt_choices_free(t->choices);
    t->threads = NULL;
    t->training = t->evaluation = t->prediction = t->call.session = NULL;
    t->states = NULL;
    t->verification = NULL;
    t->choices = NULL;
    t->results.sums = t->results.weights = t->call.loss_weights = NULL;
    t->given = NULL;
    t->phase = 0;
    t->has_gradients = false;
    for (int i = 0; i < CLT_RESULT_RING; i++)
        t->results.records[i].step = -1;
}
