#include "train/core/trainer.h"
#include "train/step/shards.h"
#include "train/step/wire.h"
#include "train/store/parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "data/core/dataset.h"
#include "exec/testing/slow.h"
#include "train/core/use.h"
#include "train/planner/balance.h"
#include "train/setup/choices.h"
#include "train/saved/host_sections.h"
#include "train/setup/matrices.h"
#include "train/ranks/virtual_shards.h"
#include "train/ranks/whole.h"
#include <cltrain/checkpoint.h>
#include <cltrain/unstable.h>

CLT_STRUCT_INIT(clt_trainer_options, .optimizer = CLT_SGD, .lr = 0.1,
                .momentum = CLT_USUAL_MOMENTUM, .adamw_lr = CLT_USUAL_ADAMW_LR, .beta1 = 0.9,
                .beta2 = 0.999, .epsilon = 1e-8, .guard = 1, .batch = 256, .accumulate = 1,
                .quantum = 1, .alpha = 0.99)

CLT_STRUCT_INIT(clt_step_batch, )

CLT_STRUCT_INIT(clt_step_result, )

static clt_status out_of_range(const char *name, double value, const char *range)
{
    return clt_fail(CLT_INVALID_ARGUMENT, "%s %g is not possible; it must be %s", name, value,
                    range);
}

/* Names the option that does not go with virtual shards; NULL: there is none. */
static const char *beside_shards(const clt_trainer_options *o)
{
    return o->accumulate > 1 ? "accumulate (shards are micro-batches already)"
           : o->in_flight    ? "in_flight"
           : o->weights      ? "weights (all shards are equal)"
           : o->quantum > 1  ? "quantum (all shards are equal)"
           : o->rebalance    ? "rebalance"
           : o->tune_seconds > 0
               ? "tune_seconds (measurements would choose other kernels elsewhere)"
           : o->zero == 3       ? "zero 3"
           : o->wire != CLT_F32 ? "wire"
                                : NULL;
}

static clt_status check_virtual_shards(const clt_trainer_options *o)
{
    const int64_t shards = o->virtual_shards;
    if (shards < 0 || shards > CLT_MOST_VIRTUAL_SHARDS || (shards & (shards - 1)))
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "virtual shards %lld are not possible: give a power of two, at most %d",
                        (long long)shards, CLT_MOST_VIRTUAL_SHARDS);
    const char *other = shards ? beside_shards(o) : NULL;
    return other ? clt_fail(CLT_UNSUPPORTED, "virtual shards do not work with %s: leave it out",
                            other)
                 : CLT_OK;
}

static clt_status check_wire(const clt_trainer_options *o)
{
    if (o->wire != CLT_F32 && o->wire != CLT_F16 && o->wire != CLT_BF16)
        return clt_fail(CLT_INVALID_ARGUMENT, "wire %s is not possible: f32, bf16 or f16",
                        clt_dtype_name(o->wire));
    if (o->wire == CLT_F16 && o->precision != CLT_F16)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "wire f16 needs losses that are scaled, because small gradients would "
                        "vanish: choose wire bf16, or precision f16");
    if (o->wire == CLT_BF16 && o->precision == CLT_F16)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "with precision f16 gradients are f16 already, so wire bf16 would round "
                        "them again: choose wire f16 or f32");
    return CLT_OK;
}

static clt_status check_average(const clt_average *a)
{
    const bool known = a->kind >= CLT_AVERAGE_NONE && a->kind <= CLT_AVERAGE_EQUAL;
    if (known && (a->kind != CLT_AVERAGE_EMA || (a->decay >= 0 && a->decay < 1)) &&
        (a->kind != CLT_AVERAGE_EQUAL || (a->from >= 1 && a->every >= 1)))
        return CLT_OK;
    return clt_fail(CLT_INVALID_ARGUMENT,
                    "average of kind %d with decay %g, from %lld, every %lld is not possible: the "
                    "decay must be at least 0 and below 1, the numbers of steps at least 1",
                    (int)a->kind, a->decay, (long long)a->from, (long long)a->every);
}

static clt_status check_muon(const clt_trainer_options *o)
{
    if (o->muon_scale != CLT_MUON_ORIGINAL && o->muon_scale != CLT_MUON_MATCH_RMS_ADAMW)
        return out_of_range("muon_scale", o->muon_scale, "0 (original) or 1 (match_rms_adamw)");
    if (!isfinite(o->adamw_lr) || o->adamw_lr < 0)
        return out_of_range("rate of AdamW beside muon", o->adamw_lr, "finite and at least 0");
    if (o->optimizer != CLT_MUON || !o->zero)
        return CLT_OK;
    return clt_fail(CLT_UNSUPPORTED,
                    "optimizer muon needs whole matrices on each device, and zero %d divides the "
                    "optimizer's state: leave out zero, or take adamw",
                    o->zero);
}

clt_status clt_trainer_check_options(const clt_trainer_options *o)
{
    CLT_TRY(CLT_CHECK_STRUCT(o, clt_trainer_options));
    if (!clt_optimizer_of(o))
        return clt_fail(CLT_INVALID_ARGUMENT, "optimizer %d does not exist", (int)o->optimizer);
    if (!isfinite(o->lr) || o->lr < 0)
        return out_of_range("learning rate", o->lr, "finite and at least 0");
    if (!isfinite(o->weight_decay) || o->weight_decay < 0)
        return out_of_range("weight decay", o->weight_decay, "finite and at least 0");
    const double momentum = clt_optimizer_momentum(o);
    if (!(momentum >= 0 && momentum < 1))
        return out_of_range("momentum", momentum,
                            "at least 0 and below 1, or -1 for the optimizer's usual one");
    if (!(o->beta1 >= 0 && o->beta1 < 1) || !(o->beta2 >= 0 && o->beta2 < 1))
        return out_of_range("beta", o->beta1 >= 0 && o->beta1 < 1 ? o->beta2 : o->beta1,
                            "at least 0 and below 1");
    if (!(o->epsilon > 0) || !isfinite(o->epsilon))
        return out_of_range("epsilon", o->epsilon, "finite and above 0");
    if (!(o->alpha >= 0 && o->alpha < 1))
        return out_of_range("alpha", o->alpha, "at least 0 and below 1");
    if (!isfinite(o->lr_decay) || o->lr_decay < 0)
        return out_of_range("decay of the learning rate", o->lr_decay, "finite and at least 0");
    if (!isfinite(o->initial_accumulator) || o->initial_accumulator < 0)
        return out_of_range("initial accumulator", o->initial_accumulator, "finite and at least 0");
    if (o->zero != 0 && o->zero != 1 && o->zero != 3)
        return out_of_range("zero", o->zero, "0, 1 or 3");
    CLT_TRY(check_muon(o));
    if (!isfinite(o->clip_norm) || o->clip_norm < 0)
        return out_of_range("clip norm", o->clip_norm, "finite and at least 0");
    if (o->precision != CLT_F32 && o->precision != CLT_F16 && o->precision != CLT_BF16)
        return clt_fail(CLT_INVALID_ARGUMENT, "precision %s is not possible: f32, f16 or bf16",
                        clt_dtype_name(o->precision));
    CLT_TRY(check_wire(o));
    /* Kernels count samples with an int. */
    if (o->batch < 1 || o->batch > INT32_MAX)
        return clt_fail(CLT_INVALID_ARGUMENT, "batch %lld is not possible; it must be 1 to %d",
                        (long long)o->batch, INT32_MAX);
    if (o->schedule.kind == CLT_SCHEDULE_COSINE && o->schedule.minimum > o->lr)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "the schedule's minimum %g is above the learning rate %g",
                        o->schedule.minimum, o->lr);
    if (o->accumulate < 1 || o->accumulate > CLT_MOST_ACCUMULATE)
        return out_of_range("accumulate", o->accumulate, "1 to 1048576");
    if (o->in_flight < 0 || o->in_flight > o->accumulate)
        return out_of_range("in_flight", o->in_flight, "0 to the number of micro-batches");
    if (o->in_flight && o->rebalance)
        return clt_fail(CLT_INVALID_ARGUMENT, "rebalance changes the number of micro-batches, so "
                                              "in_flight must be 0");
    CLT_TRY(check_virtual_shards(o));
    CLT_TRY(check_average(&o->average));
    if (o->memory < 0)
        return out_of_range("memory", (double)o->memory, "at least 0");
    if (o->check_every < 0)
        return out_of_range("check_every", (double)o->check_every, "at least 0");
    if (!isfinite(o->comm_timeout) || o->comm_timeout < 0)
        return out_of_range("time-out of reductions", o->comm_timeout, "finite and at least 0");
    if (o->quantum < 1)
        return out_of_range("quantum of the split", (double)o->quantum, "at least 1");
    if (!isfinite(o->tune_seconds) || o->tune_seconds < 0)
        return out_of_range("tuning time", o->tune_seconds, "finite and at least 0");
    if (o->tune_steps < 0)
        return out_of_range("number of steps of tuning", (double)o->tune_steps, "at least 0");
    if (o->merge_steps < 0)
        return out_of_range("merge_steps", (double)o->merge_steps, "at least 0");
    return CLT_OK;
}

static clt_status check_world(const clt_world *w)
{
    if (!w)
        return CLT_OK;
    CLT_TRY(CLT_CHECK_STRUCT(w, clt_world));
    if (w->ranks < 1 || w->rank < 0 || w->rank >= w->ranks || w->node_ranks < 1 ||
        w->node_rank < 0 || w->node_rank >= w->node_ranks)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "the world says rank %d of %d, and %d of %d on its node: ranks count from "
                        "0 and are below their number",
                        w->rank, w->ranks, w->node_rank, w->node_ranks);
    if (w->ranks > 1 && (!w->gather || !w->connect))
        return clt_fail(CLT_INVALID_ARGUMENT, "a world of %d ranks needs gather and connect",
                        w->ranks);
    return CLT_OK;
}

/* Trainers of one store update the same matrices with muon, because they share what it keeps. */
static clt_status take_matrices(const clt_trainer *t)
{
    clt_store *store = t->store;
    bool *own;
    CLT_TRY(clt_matrices_find(t->graph, store, &t->options, false, &own));
    const bool differ =
        store->keepers && (!own != !store->matrices ||
                           (own && memcmp(own, store->matrices, (size_t)store->layout.n_slots)));
    if (store->keepers)
        clt_free(own);
    else
        store->matrices = own;
    return differ ? clt_fail(CLT_UNSUPPORTED,
                             "another trainer on this store updates other matrices with muon: "
                             "destroy that trainer first, or give both the same muon_adamw")
                  : CLT_OK;
}

/* The store owns the optimizer's tensors. Trainers that exist at the same time share them. */
static clt_status join_store(clt_trainer *t)
{
    clt_store *store = t->store;
    const clt_optimizer_row *row = clt_optimizer_of(&t->options);
    t->feeds_back = t->options.wire != CLT_F32;
    store->feeders += t->feeds_back;
    if (t->options.average.kind && store->averaged)
        return clt_fail(CLT_UNSUPPORTED, "another trainer on this store keeps averages: destroy "
                                         "that trainer first");
    t->averages = t->options.average.kind != CLT_AVERAGE_NONE;
    store->averaged = store->averaged || t->averages;
    if (!row->n_slots)
        return CLT_OK;
    CLT_TRY(take_matrices(t));
    if (store->keeps && !clt_optimizer_keeps_same(store->keeps, row)) {
        char theirs[100], own[100];
        clt_optimizer_keeps(store->keeps, theirs, sizeof theirs);
        clt_optimizer_keeps(row, own, sizeof own);
        return clt_fail(CLT_UNSUPPORTED,
                        "another trainer on this store keeps %s for each parameter, where %s would "
                        "keep %s: destroy that trainer first, or give both an optimizer of one "
                        "kind",
                        theirs, row->name, own);
    }
    store->keeps = row;
    store->keepers++;
    t->keeps = true;
    return CLT_OK;
}

static void leave_store(clt_trainer *t)
{
    clt_store *store = t->store;
    const bool last = t->feeds_back && --store->feeders == 0;
    for (int d = 0; d < store->n_devices && t->averages; d++)
        clt_replica_forget_averages(&store->replicas[d]);
    store->averaged = store->averaged && !t->averages;
    for (int d = 0; d < store->n_devices && last; d++)
        clt_replica_forget_residuals(&store->replicas[d]);
    if (!t->keeps || --store->keepers)
        return;
    for (int d = 0; d < store->n_devices; d++)
        clt_replica_forget_slots(&store->replicas[d]);
    clt_free(store->matrices);
    store->matrices = NULL;
    store->keeps = NULL;
}

/* Says which operators cost all places of an axis the whole work. */
static void warn_of_gathers(const clt_trainer *t)
{
    const clt_partition_report *report = &t->training->devices[0].plan->partition;
    if (t->all.rank || !report->gathers)
        return;
    clt_log(CLT_LOG_WARN,
            "%d operator%s cannot be divided, so every place computes %s whole: %s%s; plan "
            "--explain names all",
            report->gathers, report->gathers > 1 ? "s" : "", report->gathers > 1 ? "them" : "it",
            report->gathers > 1 ? "the first is " : "", report->gathered);
}

clt_status clt_trainer_create(const clt_graph *graph, clt_store *store,
                              const clt_trainer_options *options, clt_trainer **out)
{
    CLT_TRY(clt_trainer_check_options(options));
    CLT_TRY(check_world(options->world));
    clt_trainer *t = CLT_NEW(clt_trainer);
    CLT_TRY_MEMORY(t);
    t->store = store;
    t->options = *options;
    t->all = (clt_participants){.world = options->world, .ranks = 1, .own = store->n_devices};
    if (options->world) {
        t->all.rank = options->world->rank;
        t->all.ranks = options->world->ranks;
        clt_slow_rank(t->all.rank);
    }
    t->lost = -1;
    t->schedule_step = -1;
    t->queued = 2;
    for (int i = 0; i < CLT_RESULT_RING; i++)
        t->results.records[i].step = -1;
    clt_status status = clt_graph_status(graph);
    CLT_NEXT(status, clt_store_check_devices(store));
    CLT_NEXT(status, clt_graph_copy(graph, &t->graph));
    CLT_NEXT(status, join_store(t));
    status = clt_world_agree(&t->all, status);
    CLT_NEXT(status, clt_trainer_build(t));
    if (status == CLT_OK && options->zero == 1 && clt_participants_replicas(&t->all) == 1)
        status = clt_fail(CLT_INVALID_ARGUMENT,
                          t->all.total == 1
                              ? "zero 1 divides the optimizer's state among devices, and there is "
                                "one: leave it out"
                              : "zero 1 divides the optimizer's state along the axis dp of the "
                                "mesh, which has one place: leave it out");
    if (status != CLT_OK) {
        clt_heartbeat_failed(t->exchange.beat, status, clt_error_message());
        clt_trainer_destroy(t);
        return status;
    }
    warn_of_gathers(t);
    *out = t;
    return CLT_OK;
}

static void free_now(clt_trainer *t)
{
    t->ends = true;
    clt_trainer_unbuild(t);
    if (t->drawn)
        t->drawn_free(t->drawn);
    clt_wire_free(t);
    leave_store(t);
    clt_heartbeat_close(t->exchange.beat);
    clt_free(t->use);
    clt_free(t->policies);
    clt_host_sections_free(t);
    clt_split_history_free(t->history);
    clt_graph_destroy(t->graph);
    clt_free(t);
}

void clt_trainer_destroy(clt_trainer *t)
{
    if (t && clt_in_use_free(&t->in_use))
        free_now(t);
}

void clt_use_begin(const clt_use *use)
{
    clt_in_use_begin(&use->trainer->in_use);
    for (size_t i = 0; i < sizeof use->sets / sizeof *use->sets; i++)
        clt_dataset_hold(use->sets[i]);
}

clt_status clt_use_end(const clt_use *use, clt_status status)
{
    char message[1024];
    snprintf(message, sizeof message, "%s", clt_error_message());
    if (clt_in_use_end(&use->trainer->in_use)) /* first: it may have one of the data sets */
        free_now(use->trainer);
    for (size_t i = 0; i < sizeof use->sets / sizeof *use->sets; i++)
        clt_dataset_let_go(use->sets[i]);
    clt_error_restore(message);
    return status;
}

clt_status clt_trainer_set_lr(clt_trainer *t, double lr)
{
    if (!isfinite(lr) || lr < 0)
        return out_of_range("learning rate", lr, "finite and at least 0");
    t->options.lr = lr;
    return CLT_OK;
}

int64_t clt_trainer_steps(const clt_trainer *t)
{
    return t->steps;
}

void clt_trainer_set_steps(clt_trainer *t, int64_t steps)
{
    t->steps = steps;
    atomic_store(&t->exchange.wire.accepted, -1);
    for (int d = 0; d < t->all.own; d++)
        t->devices[d].begun = t->devices[d].done = steps;
}

const char *clt_trainer_slot_name(const clt_trainer *t, int slot)
{
    const clt_optimizer_row *row = clt_optimizer_of(&t->options);
    return slot >= 0 && slot < row->n_slots ? row->slots[slot] : NULL;
}

static clt_status find_slot(const clt_trainer *t, int slot, const char *name, size_t bytes,
                            const clt_slot **out)
{
    if (!clt_trainer_slot_name(t, slot))
        return clt_fail(CLT_INVALID_ARGUMENT, "the optimizer has no slot %d", slot);
    CLT_TRY(clt_store_slot(t->store, name, out));
    if ((*out)->frozen)
        return clt_fail(CLT_INVALID_ARGUMENT, "%s is frozen: the optimizer has nothing of it",
                        name);
    if ((*out)->state || (int64_t)bytes != (*out)->bytes)
        return clt_fail(CLT_INVALID_ARGUMENT, "%s is no parameter of %zu bytes", name, bytes);
    return CLT_OK;
}

clt_status clt_trainer_slot_get(clt_trainer *t, int slot, const char *name, void *data,
                                size_t bytes)
{
    const clt_slot *where;
    CLT_TRY(clt_store_check_devices(t->store));
    CLT_TRY(find_slot(t, slot, name, bytes, &where));
    if (!clt_whole_is_apart(&t->all, t->store, slot, where)) {
        CLT_TRY(clt_slot_check_data(where, data));
        return clt_store_read(t->store, slot, where, data);
    }
    CLT_TRY(clt_world_agree(&t->all, clt_trainer_wait(t)));
    return clt_whole_collect(&t->all, t->store, slot, where, data);
}

clt_status clt_trainer_slot_set(clt_trainer *t, int slot, const char *name, const void *data,
                                size_t bytes)
{
    const clt_slot *where;
    CLT_TRY(clt_store_check_devices(t->store));
    CLT_TRY(find_slot(t, slot, name, bytes, &where));
    CLT_TRY(clt_slot_check_data(where, data));
    return clt_shards_write(t, slot, where, data);
}

clt_status clt_trainer_set_scaling(clt_trainer *t, const clt_scaling *scaling)
{
    for (int d = 0; d < t->all.own; d++) {
        t->devices[d].scaling = *scaling;
        CLT_TRY(clt_update_set_scaling(t->devices[d].update, scaling));
    }
    return CLT_OK;
}

clt_status clt_trainer_wait(clt_trainer *t)
{
    for (int i = 0; i < t->all.own; i++)
        CLT_TRY(clt_device_finish(t->store->replicas[i].device));
    return CLT_OK;
}

clt_status clt_trainer_finish(clt_trainer *t)
{
    if (t->all.ranks < 2 || !t->exchange.collectives.self)
        return CLT_OK;
    CLT_TRY(clt_trainer_wait(t));
    return t->exchange.collectives.finish(t->exchange.collectives.self);
}

void clt_trainer_tuning(const clt_trainer *t, int *classes, int *left)
{
    *classes = t->choices ? t->choices->classes : 0; /* an idle rank has none */
    *left = t->choices ? t->choices->left : 0;
}

int clt_trainer_tunes_later(const clt_trainer *t)
{
    return t->choices && t->choices->later;
}

int64_t clt_trainer_run_samples(const clt_trainer *t)
{
    return t->shares.per_run;
}

clt_status clt_trainer_set_weights(clt_trainer *t, const double *weights, int64_t quantum)
{
    CLT_TRY(clt_step_allowed(t));
    CLT_TRY(clt_store_check_devices(t->store));
    if (!t->options.rebalance)
        return clt_fail(CLT_STATE, "this trainer was made without rebalance: its division stays");
    if (t->phase)
        return clt_fail(CLT_STATE, "the division cannot change within a step");
    CLT_TRY(clt_balance_check_room(&t->all, &t->shares, t->options.batch, weights, quantum));
    CLT_TRY(clt_split_history_add(&t->history, t->all.total, t->steps, weights, quantum));
    memcpy(t->shares.weights, weights, (size_t)t->all.total * sizeof *weights);
    t->shares.quantum = quantum;
    return CLT_OK;
}
