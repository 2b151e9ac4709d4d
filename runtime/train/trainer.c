#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "train/capacity.h"
#include "train/choices.h"
#include "train/reduce.h"
#include "train/world.h"

void clt_trainer_options_init(clt_trainer_options *options)
{
    *options = (clt_trainer_options){.struct_size = sizeof *options,
                                     .optimizer = CLT_SGD,
                                     .lr = 0.1,
                                     .momentum = 0.9,
                                     .beta1 = 0.9,
                                     .beta2 = 0.999,
                                     .epsilon = 1e-8,
                                     .guard = 1,
                                     .batch = 256,
                                     .accumulate = 1,
                                     .quantum = 1};
}

void clt_step_batch_init(clt_step_batch *batch)
{
    *batch = (clt_step_batch){.struct_size = sizeof *batch};
}

void clt_step_result_init(clt_step_result *result)
{
    *result = (clt_step_result){.struct_size = sizeof *result};
}

static clt_status out_of_range(const char *name, double value, const char *range)
{
    return clt_fail(CLT_INVALID_ARGUMENT, "%s %g is not possible; it must be %s", name, value,
                    range);
}

clt_status clt_trainer_check_options(const clt_trainer_options *o)
{
    if (o->struct_size != sizeof *o)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "trainer options were not set up by clt_trainer_options_init");
    if ((int)o->optimizer < 0 || o->optimizer > CLT_ADAMW)
        return clt_fail(CLT_INVALID_ARGUMENT, "optimizer %d does not exist", (int)o->optimizer);
    if (!isfinite(o->lr) || o->lr < 0)
        return out_of_range("learning rate", o->lr, "finite and at least 0");
    if (!isfinite(o->weight_decay) || o->weight_decay < 0)
        return out_of_range("weight decay", o->weight_decay, "finite and at least 0");
    if (!(o->momentum >= 0 && o->momentum < 1))
        return out_of_range("momentum", o->momentum, "at least 0 and below 1");
    if (!(o->beta1 >= 0 && o->beta1 < 1) || !(o->beta2 >= 0 && o->beta2 < 1))
        return out_of_range("beta", o->beta1 >= 0 && o->beta1 < 1 ? o->beta2 : o->beta1,
                            "at least 0 and below 1");
    if (!(o->epsilon > 0) || !isfinite(o->epsilon))
        return out_of_range("epsilon", o->epsilon, "finite and above 0");
    if (!isfinite(o->clip_norm) || o->clip_norm < 0)
        return out_of_range("clip norm", o->clip_norm, "finite and at least 0");
    /* Kernels count images with an int. */
    if (o->batch < 1 || o->batch > INT32_MAX)
        return clt_fail(CLT_INVALID_ARGUMENT, "batch %lld is not possible; it must be 1 to %d",
                        (long long)o->batch, INT32_MAX);
    if (o->schedule.kind == CLT_SCHEDULE_COSINE && o->schedule.minimum > o->lr)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "the schedule's minimum %g is above the learning rate %g",
                        o->schedule.minimum, o->lr);
    if (o->accumulate < 1)
        return out_of_range("accumulate", o->accumulate, "at least 1");
    if (o->check_every < 0)
        return out_of_range("check_every", (double)o->check_every, "at least 0");
    if (!isfinite(o->comm_timeout) || o->comm_timeout < 0)
        return out_of_range("time-out of reductions", o->comm_timeout, "finite and at least 0");
    if (o->quantum < 1)
        return out_of_range("quantum of the split", (double)o->quantum, "at least 1");
    if (!isfinite(o->tune_seconds) || o->tune_seconds < 0)
        return out_of_range("tuning time", o->tune_seconds, "finite and at least 0");
    return CLT_OK;
}

static clt_status make_sessions(clt_trainer *t, const clt_graph *graph)
{
    if (!graph->n_losses && !graph->n_seeds)
        return clt_fail(CLT_INVALID_ARGUMENT, "the graph has no loss: call clt_loss on it, or "
                                              "clt_output_gradient on an output");
    clt_status status =
        clt_capacity_check(graph, t->store, &t->options, t->total, t->options.batch);
    CLT_TRY(clt_capacity_explain(status, graph, t->store, &t->options, t->total));
    CLT_TRY(clt_capacity_share(t->total, &t->options, t->options.batch, &t->per_device));
    CLT_TRY(clt_choices_make(t, graph));
    clt_plan_options options = clt_capacity_options(&t->options, CLT_PLAN_TRAIN, t->per_device);
    const bool shared = t->ranks > 1;
    CLT_TRY(clt_session_create(graph, t->store, &options, t->tuning_of, t->options.accumulate,
                               shared, &t->training));
    options.mode = CLT_PLAN_EVALUATE;
    return clt_session_create(graph, t->store, &options, t->tuning_of, t->options.accumulate,
                              shared, &t->evaluation);
}

/* The public enumeration has the values of exec's. */
static clt_update_rule rule_of(const clt_trainer *t)
{
    return (clt_update_rule)t->options.optimizer;
}

static clt_status make_device(clt_trainer *t, int index)
{
    clt_trainer_device *d = &t->devices[index];
    clt_replica *replica = &t->store->replicas[index];
    const size_t n_buckets = (size_t)t->store->layout.n_buckets + 1;
    CLT_TRY(clt_replica_for_training(replica, clt_update_slots(rule_of(t))));
    if (t->options.accumulate > 1)
        CLT_TRY(clt_replica_for_micro_batches(replica));
    const clt_update_options update = {.rule = rule_of(t),
                                       .momentum = t->options.momentum,
                                       .beta1 = t->options.beta1,
                                       .beta2 = t->options.beta2,
                                       .epsilon = t->options.epsilon,
                                       .weight_decay = t->options.weight_decay,
                                       .decoupled = t->options.decoupled != 0,
                                       .clip_norm = t->options.clip_norm,
                                       .guard = t->options.guard != 0};
    CLT_TRY(clt_update_create(replica, &update, &d->update));
    d->requests = clt_calloc(n_buckets, sizeof *d->requests);
    d->squares = clt_calloc(n_buckets, sizeof *d->squares);
    d->shipped = clt_calloc(n_buckets, sizeof *d->shipped);
    d->word = clt_calloc(4 * CLT_RESULT_RING, sizeof *d->word);
    d->counts = clt_calloc((size_t)t->total, sizeof *d->counts);
    if (!d->requests || !d->shipped || !d->squares || !d->word || !d->counts)
        return CLT_OUT_OF_MEMORY;
    return clt_verify_create(t, index);
}

/* Which states depend on the batch: each device would give them a value of its own. */
static clt_status find_batch_states(clt_trainer *t, const clt_graph *graph)
{
    t->batch_states = clt_calloc((size_t)graph->n_assigns + 1, sizeof *t->batch_states);
    bool *depends = clt_calloc((size_t)graph->n_values + 1, sizeof *depends);
    if (!t->batch_states || !depends) {
        clt_free(depends);
        return CLT_OUT_OF_MEMORY;
    }
    for (int i = 0; i < graph->n_values; i++)
        depends[i] = graph->values[i]->kind == CLT_VALUE_INPUT;
    for (int i = 0; i < graph->n_nodes; i++)
        for (int j = 0; j < graph->nodes[i]->n_in; j++)
            for (int k = 0; k < graph->nodes[i]->n_out; k++)
                if (graph->nodes[i]->in[j] && depends[graph->nodes[i]->in[j]->id])
                    depends[graph->nodes[i]->out[k]->id] = true;
    clt_status status = CLT_OK;
    for (int i = 0; i < graph->n_assigns; i++) {
        t->batch_states[i] = depends[graph->assigns[i].value->id];
        if (t->batch_states[i] && t->total > 1)
            status = clt_fail(CLT_UNSUPPORTED,
                              "state %s takes a value that depends on the batch: the copies of %d "
                              "devices would differ. Train on one device",
                              graph->assigns[i].state->name, t->total);
    }
    clt_free(depends);
    return status;
}

/* The trainer's own copy of the weights. */
static clt_status copy_weights(clt_trainer *t)
{
    const size_t n = (size_t)t->total;
    if (!t->options.weights)
        return CLT_OK;
    t->shares = clt_calloc(n, sizeof *t->shares);
    if (!t->shares)
        return CLT_OUT_OF_MEMORY;
    memcpy(t->shares, t->options.weights, n * sizeof *t->shares);
    t->options.weights = t->shares;
    return CLT_OK;
}

/* "bucket 3 (fc1.weight and 2 more)". */
static clt_status make_labels(clt_trainer *t)
{
    const clt_buckets *layout = &t->store->layout;
    t->labels = clt_calloc((size_t)layout->n_buckets + 1, sizeof *t->labels);
    if (!t->labels)
        return CLT_OUT_OF_MEMORY;
    for (int b = 0; b < layout->n_buckets; b++) {
        const clt_bucket *bucket = &layout->buckets[b];
        char text[256], more[32] = "";
        if (bucket->end - bucket->first > 1)
            snprintf(more, sizeof more, " and %d more", bucket->end - bucket->first - 1);
        snprintf(text, sizeof text, "bucket %d (%.180s%s)", b, layout->slots[bucket->first].name,
                 more);
        t->labels[b] = clt_strdup(text);
        if (!t->labels[b])
            return CLT_OUT_OF_MEMORY;
    }
    return CLT_OK;
}

static clt_status allocate(clt_trainer *t, const clt_graph *graph)
{
    const size_t n = (size_t)t->n_devices;
    t->devices = clt_calloc(n, sizeof *t->devices);
    t->begins = clt_calloc((size_t)t->ranks + 1, sizeof *t->begins);
    t->offsets = clt_calloc(n + 1, sizeof *t->offsets);
    if (!t->devices || !t->begins || !t->offsets)
        return CLT_OUT_OF_MEMORY;
    CLT_TRY(make_labels(t));
    if (t->options.heartbeat)
        CLT_TRY(clt_heartbeat_open(t->options.heartbeat, t->rank, t->ranks, t->labels,
                                   t->store->layout.n_buckets, &t->beat));
    return clt_graph_copy(graph, &t->graph);
}

/* What takes time: kernels are measured and compiled. */
static clt_status build(void *arg)
{
    clt_trainer *t = arg;
    CLT_TRY(copy_weights(t));
    CLT_TRY(find_batch_states(t, t->graph));
    for (int i = 0; i < t->n_devices; i++)
        CLT_TRY(make_device(t, i));
    CLT_TRY(make_sessions(t, t->graph));
    const size_t means = (size_t)t->training->n_means + 1;
    t->sums = clt_calloc(means, sizeof *t->sums);
    t->weights = clt_calloc(means, sizeof *t->weights);
    t->loss_weights = clt_calloc(means, sizeof *t->loss_weights);
    if (!t->sums || !t->weights || !t->loss_weights)
        return CLT_OUT_OF_MEMORY;
    return clt_crew_create(t->n_devices, &t->crew);
}

static clt_status make(clt_trainer *t, const clt_graph *graph)
{
    clt_status status = clt_graph_status(graph);
    if (status == CLT_OK)
        status = allocate(t, graph);
    bool alike;
    CLT_TRY(clt_world_meet(t, status, &alike));
    status = clt_owners_create(t, alike);
    CLT_TRY(clt_world_agree(t, status));
    CLT_TRY(clt_world_compare_plans(t));
    CLT_TRY(clt_world_in_turns(t, build, t));
    return t->total > 1 ? clt_trainer_connect(t) : CLT_OK;
}

static clt_status check_world(const clt_world *w)
{
    if (!w)
        return CLT_OK;
    if (w->struct_size != sizeof *w)
        return clt_fail(CLT_INVALID_ARGUMENT, "the world was not set up by clt_world_init");
    if (w->ranks < 1 || w->rank < 0 || w->rank >= w->ranks || w->node_ranks < 1 ||
        w->node_rank < 0 || w->node_rank >= w->node_ranks)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "rank %d of %d, number %d of %d on its node: no world has it", w->rank,
                        w->ranks, w->node_rank, w->node_ranks);
    if (w->ranks > 1 && (!w->gather || !w->connect))
        return clt_fail(CLT_INVALID_ARGUMENT, "a world of %d ranks needs gather and connect",
                        w->ranks);
    return CLT_OK;
}

clt_status clt_trainer_create(const clt_graph *graph, clt_store *store,
                              const clt_trainer_options *options, clt_trainer **out)
{
    CLT_TRY(clt_trainer_check_options(options));
    CLT_TRY(check_world(options->world));
    clt_trainer *t = CLT_NEW(clt_trainer);
    if (!t)
        return CLT_OUT_OF_MEMORY;
    t->store = store;
    t->options = *options;
    t->n_devices = store->n_devices;
    t->rank = options->world ? options->world->rank : 0;
    t->ranks = options->world ? options->world->ranks : 1;
    for (int i = 0; i < CLT_RESULT_RING; i++)
        t->records[i].step = -1;
    clt_status status = make(t, graph);
    if (status != CLT_OK) {
        clt_heartbeat_failed(t->beat, status, clt_error_message());
        clt_trainer_destroy(t);
        return status;
    }
    *out = t;
    return CLT_OK;
}

void clt_trainer_destroy(clt_trainer *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->n_devices; i++)
        clt_device_finish(t->store->replicas[i].device);
    clt_trainer_disconnect(t);
    clt_crew_destroy(t->crew);
    clt_session_destroy(t->training);
    clt_session_destroy(t->evaluation);
    clt_session_destroy(t->prediction);
    clt_graph_destroy(t->graph);
    for (int i = 0; t->devices && i < t->n_devices; i++) {
        clt_update_destroy(t->devices[i].update);
        clt_free(t->devices[i].requests);
        clt_free(t->devices[i].squares);
        clt_free(t->devices[i].shipped);
        clt_free(t->devices[i].checksums);
        clt_checksum_destroy(t->devices[i].checksum);
        clt_free(t->devices[i].word);
        clt_free(t->devices[i].counts);
    }
    for (int b = 0; t->labels && b < t->store->layout.n_buckets; b++)
        clt_free(t->labels[b]);
    clt_free(t->labels);
    clt_free(t->owners);
    clt_free(t->begins);
    clt_heartbeat_close(t->beat);
    clt_free(t->devices);
    clt_choices_free(t);
    clt_free(t->batch_states);
    clt_free(t->shares);
    clt_free(t->offsets);
    clt_free(t->sums);
    clt_free(t->weights);
    clt_free(t->loss_weights);
    clt_free(t);
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
}

const char *clt_trainer_slot_name(const clt_trainer *t, int slot)
{
    return clt_update_slot_name(rule_of(t), slot);
}

static clt_status find_slot(const clt_trainer *t, int slot, const char *name, size_t bytes,
                            const clt_slot **out)
{
    if (!clt_trainer_slot_name(t, slot))
        return clt_fail(CLT_INVALID_ARGUMENT, "the optimizer has no slot %d", slot);
    CLT_TRY(clt_store_slot(t->store, name, out));
    if ((*out)->state || (int64_t)bytes != (*out)->bytes)
        return clt_fail(CLT_INVALID_ARGUMENT, "%s is no parameter of %zu bytes", name, bytes);
    return CLT_OK;
}

clt_status clt_trainer_slot_get(clt_trainer *t, int slot, const char *name, void *data,
                                size_t bytes)
{
    const clt_slot *where;
    CLT_TRY(find_slot(t, slot, name, bytes, &where));
    CLT_TRY(clt_owners_share_slots(t));
    const clt_replica *r = &t->store->replicas[0];
    return clt_replica_read(r, r->slots[slot][where->bucket], where->offset, where->bytes, data);
}

clt_status clt_trainer_slot_set(clt_trainer *t, int slot, const char *name, const void *data,
                                size_t bytes)
{
    const clt_slot *where;
    CLT_TRY(find_slot(t, slot, name, bytes, &where));
    for (int i = 0; i < t->n_devices; i++) {
        const clt_replica *r = &t->store->replicas[i];
        CLT_TRY(
            clt_replica_write(r, r->slots[slot][where->bucket], where->offset, where->bytes, data));
    }
    return CLT_OK;
}

clt_status clt_trainer_gradient(clt_trainer *t, int device, const char *name, void *data,
                                size_t bytes)
{
    const clt_slot *where;
    CLT_TRY(clt_store_slot(t->store, name, &where));
    if (device < 0 || device >= t->n_devices || where->state || (int64_t)bytes != where->bytes)
        return clt_fail(CLT_INVALID_ARGUMENT, "device %d has no gradient %s of %zu bytes", device,
                        name, bytes);
    if (t->owners && t->phase != 2) { /* once reduced, the owner has it */
        device = t->owners[where->bucket] - t->first;
        if (device < 0 || device >= t->n_devices)
            return clt_fail(CLT_UNSUPPORTED,
                            "the devices are of several kinds, so only the owner of %s has its "
                            "whole gradient: a device of another rank",
                            name);
    }
    const clt_replica *r = &t->store->replicas[device];
    return clt_replica_read(r, r->gradients[where->bucket], where->offset, where->bytes, data);
}

clt_status clt_trainer_wait(clt_trainer *t)
{
    for (int i = 0; i < t->n_devices; i++)
        CLT_TRY(clt_device_finish(t->store->replicas[i].device));
    return CLT_OK;
}
