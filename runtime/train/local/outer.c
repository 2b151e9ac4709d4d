/*
 * The exchange of a synchronisation, on the host. Replicas send how far their parameters are from
 * the anchor instead of the parameters: a parameter that nobody changed keeps its bits, and small
 * differences lose fewer digits than large sums would.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "train/local/outer_wire.h"
#include "train/ranks/connect.h"
#include "train/step/profile.h"

/* --- what is exchanged ----------------------------------------------------------------------- */

static void add_parameters(clt_outer_state *o, const clt_buckets *layout)
{
    for (int b = 0; b < layout->n_buckets; b++) {
        const clt_bucket *bucket = &layout->buckets[b];
        if (bucket->state || !bucket->bytes)
            continue;
        o->floats[o->n_floats++] = (clt_outer_span){b, 0, bucket->bytes, o->count};
        o->count += bucket->bytes / (int64_t)sizeof(float);
    }
    o->n_parameters = o->n_floats;
    o->parameters = o->count;
}

/* Names the sum of states as profiles of dp do. */
static char *label_states(const char *first)
{
    char text[160];
    snprintf(text, sizeof text, "means of states (%.100s, ..)", first);
    return clt_strdup(text);
}

static clt_status add_states(clt_outer_state *o, const clt_buckets *layout)
{
    for (int i = 0; i < layout->n_slots; i++) {
        const clt_slot *slot = &layout->slots[i];
        if (!clt_slot_changes_apart(slot))
            continue;
        clt_outer_span span = {slot->bucket, slot->offset, slot->bytes, o->count};
        if (slot->type.dtype == CLT_F32) {
            if (o->n_floats == o->n_parameters)
                CLT_TRY_MEMORY(o->states_label = label_states(slot->name));
            o->floats[o->n_floats++] = span;
            o->count += slot->bytes / (int64_t)sizeof(float);
        } else {
            span.at = o->other_bytes;
            o->others[o->n_others++] = span;
            o->other_bytes += (slot->bytes + 3) / 4 * 4;
        }
    }
    return CLT_OK;
}

static clt_status allocate(clt_local *local)
{
    clt_outer_state *o = &local->outer;
    const size_t floats = (size_t)o->count + 1;
    o->anchor = clt_calloc(floats, sizeof *o->anchor);
    o->hosts = clt_calloc((size_t)local->own, sizeof *o->hosts);
    o->whole = clt_calloc((size_t)local->own, sizeof *o->whole);
    o->frozen = clt_calloc((size_t)local->own, sizeof *o->frozen);
    CLT_TRY_MEMORY(o->anchor && o->hosts && o->whole && o->frozen);
    if (local->options.outer.kind != CLT_OUTER_AVERAGE) {
        o->velocity = clt_calloc((size_t)o->parameters + 1, sizeof *o->velocity);
        CLT_TRY_MEMORY(o->velocity);
    }
    for (int i = 0; i < local->own; i++) {
        o->hosts[i] = clt_calloc(floats, sizeof **o->hosts);
        o->whole[i] = clt_calloc((size_t)o->other_bytes + 1, 1);
        CLT_TRY_MEMORY(o->hosts[i] && o->whole[i]);
    }
    return clt_outer_wire_allocate(local);
}

static clt_status prepare(clt_local *local)
{
    const clt_buckets *layout = &local->trainers[0]->store->layout;
    clt_outer_state *o = &local->outer;
    const size_t room = (size_t)(layout->n_buckets + layout->n_slots) + 1;
    o->floats = clt_calloc(room, sizeof *o->floats);
    o->others = clt_calloc(room, sizeof *o->others);
    CLT_TRY_MEMORY(o->floats && o->others);
    add_parameters(o, layout);
    CLT_TRY(add_states(o, layout));
    return allocate(local);
}

clt_status clt_outer_open(clt_local *local)
{
    clt_device *devices[CLT_MOST_DEVICES];
    CLT_TRY(clt_world_agree(&local->all, prepare(local)));
    if (local->total == 1)
        return CLT_OK;
    for (int i = 0; i < local->own; i++)
        devices[i] = local->trainers[i]->store->replicas[0].device;
    CLT_TRY(clt_world_agree(&local->all,
                            clt_collectives_open(devices, local->own, local->all.world,
                                                 local->options.comm_timeout, CLT_CONNECT_AUTO,
                                                 &local->outer.collectives)));
    return clt_outer_wire_open(local);
}

void clt_outer_close(clt_local *local)
{
    clt_outer_state *o = &local->outer;
    clt_outer_wire_close(local);
    clt_collectives_close(&o->collectives);
    for (int i = 0; i < local->own; i++) {
        if (o->hosts)
            clt_free(o->hosts[i]);
        if (o->whole)
            clt_free(o->whole[i]);
    }
    CLT_FREE(o->floats, o->others, o->anchor, o->velocity, o->hosts, o->whole, o->frozen,
             o->states_label);
    *o = (clt_outer_state){0};
}

int64_t clt_outer_place(const clt_outer_state *o, const clt_slot *slot)
{
    int k = 0;
    while (o->floats[k].bucket != slot->bucket)
        k++;
    return o->floats[k].at + slot->offset / (int64_t)sizeof(float);
}

/* --- devices --------------------------------------------------------------------------------- */

static clt_status read_replica(clt_local *local, int i)
{
    const clt_outer_state *o = &local->outer;
    const clt_replica *r = &local->trainers[i]->store->replicas[0];
    for (int k = 0; k < o->n_floats; k++) {
        const clt_outer_span *s = &o->floats[k];
        CLT_TRY(
            clt_replica_read(r, r->values[s->bucket], s->offset, s->bytes, o->hosts[i] + s->at));
    }
    for (int k = 0; k < o->n_others; k++) {
        const clt_outer_span *s = &o->others[k];
        CLT_TRY(
            clt_replica_read(r, r->values[s->bucket], s->offset, s->bytes, o->whole[i] + s->at));
    }
    return CLT_OK;
}

/* Waits for the replica's steps, and reads it. */
static clt_status fetch(void *arg, int i)
{
    clt_local *local = arg;
    CLT_TRY(clt_trainer_wait(local->trainers[i]));
    return read_replica(local, i);
}

/* Makes the replica's part of the sum. */
static clt_status weigh(void *arg, int i)
{
    clt_local *local = arg;
    const clt_outer_state *o = &local->outer;
    const bool rounds = clt_outer_wire_sends(local);
    const double weight = local->weights[local->first + i];
    const double scaled = rounds ? o->wire.scale * weight : weight;
    CLT_TRY(fetch(arg, i));
    float *host = o->hosts[i];
    for (int64_t k = 0; k < o->count; k++)
        host[k] = (float)((k < o->parameters ? scaled : weight) *
                          ((double)o->anchor[k] - (double)host[k]));
    if (rounds)
        clt_outer_wire_round(local, i);
    return CLT_OK;
}

static clt_status write_device(const clt_outer_state *o, const clt_replica *r, const char *whole)
{
    for (int k = 0; k < o->n_floats; k++) {
        const clt_outer_span *s = &o->floats[k];
        CLT_TRY(clt_replica_write(r, r->values[s->bucket], s->offset, s->bytes, o->anchor + s->at));
    }
    for (int k = 0; k < o->n_others; k++) {
        const clt_outer_span *s = &o->others[k];
        CLT_TRY(clt_replica_write(r, r->values[s->bucket], s->offset, s->bytes, whole + s->at));
    }
    return CLT_OK;
}

static clt_status spread(void *arg, int i)
{
    const clt_local *local = arg;
    const clt_store *store = local->trainers[i]->store;
    for (int d = 0; d < store->n_devices; d++)
        CLT_TRY(write_device(&local->outer, &store->replicas[d], local->outer.whole[i]));
    return CLT_OK;
}

/* --- between replicas ------------------------------------------------------------------------ */

/* Most collectives that are started before the first is completed. */
enum { IN_FLIGHT = 64 };

/* Gives what a replica of this rank brings to collective number k. Returns false behind the last.
 */
typedef bool (*describe_fn)(const clt_local *local, int i, int k, clt_collective *what);

/* A sum has the name of the bucket's gradients in profiles of dp. */
static void note_profile(const clt_local *local, int i, int k, const clt_collective *what,
                         const clt_collective_result *result)
{
    const clt_outer_state *o = &local->outer;
    const clt_exchange *e = &local->trainers[i]->exchange;
    if (e->profile && what->kind == CLT_COLLECTIVE_ALL_REDUCE)
        clt_profile_synchronisation(
            e->profile, k < o->n_parameters ? e->labels[o->floats[k].bucket] : o->states_label,
            what->count * clt_dtype_size(what->dtype), result);
}

/* Completes `count` collectives from number `first` on. */
static clt_status complete(const clt_local *local, describe_fn describe,
                           clt_collective_request requests[][CLT_MOST_DEVICES], int first,
                           int count, bool *finite)
{
    const clt_collectives *c = &local->outer.collectives;
    clt_collective_result result;
    clt_collective what;
    for (int k = 0; k < count; k++)
        for (int i = 0; i < local->own; i++) {
            CLT_TRY(c->complete(c->self, i, &requests[k][i], &result));
            *finite = *finite && result.finite;
            describe(local, i, first + k, &what);
            note_profile(local, i, first + k, &what, &result);
        }
    return CLT_OK;
}

/* A thread serves all replicas of the rank: it starts on all of them, then completes on all.
 * *finite: whether all results are that are measured. */
static clt_status exchange(const clt_local *local, describe_fn describe, bool *finite)
{
    clt_collective_request requests[IN_FLIGHT][CLT_MOST_DEVICES];
    const clt_collectives *c = &local->outer.collectives;
    clt_collective what;
    int k = 0, begun = 0;
    *finite = true;
    if (!c->self)
        return CLT_OK;
    for (; describe(local, 0, k, &what); k++) {
        if (k - begun == IN_FLIGHT) {
            CLT_TRY(complete(local, describe, requests, begun, IN_FLIGHT, finite));
            begun = k;
        }
        for (int i = 0; i < local->own; i++) {
            describe(local, i, k, &what);
            CLT_TRY(c->start(c->self, i, &what, 0, NULL, &requests[k - begun][i]));
        }
    }
    return complete(local, describe, requests, begun, k - begun, finite);
}

/* A tree has no empty leaves. */
static bool sums_as_tree(const clt_local *local)
{
    bool all = local->tree;
    for (int r = 0; r < local->total; r++)
        all = all && local->weights[r] > 0;
    return all;
}

/* Number k of the sums: a bucket, then all states together. */
static bool describe_sum(const clt_local *local, int i, int k, clt_collective *what)
{
    const clt_outer_state *o = &local->outer;
    const bool states = k == o->n_parameters;
    if (k > o->n_parameters || (states && o->count == o->parameters))
        return false;
    const int64_t at = states ? o->parameters : o->floats[k].at;
    *what = (clt_collective){
        .kind = CLT_COLLECTIVE_ALL_REDUCE,
        .host = o->hosts[i] + at,
        .count = states ? o->count - o->parameters : o->floats[k].bytes / (int64_t)sizeof(float),
        .dtype = CLT_F32,
        .empty = local->weights[local->first + i] == 0,
        .leaves = sums_as_tree(local),
        .label = states ? "states of the replicas" : "parameters of the replicas"};
    if (clt_outer_wire_sends(local) && !states) {
        what->host = o->wire.sent[i] + at;
        what->dtype = local->options.wire;
        what->residual = o->wire.sums[k];
        what->residual_scale = o->wire.scale;
        what->measure = true;
        what->leaves = 0; /* sums with residuals go in the order of the participants */
    }
    return true;
}

static bool describe_others(const clt_local *local, int i, int k, clt_collective *what)
{
    const clt_outer_state *o = &local->outer;
    *what = (clt_collective){.kind = CLT_COLLECTIVE_BROADCAST,
                             .host = o->whole[i],
                             .count = o->other_bytes / 4,
                             .dtype = CLT_I32,
                             .label = "states of replica 0"};
    return k == 0 && o->other_bytes > 0;
}

static bool describe_adopted(const clt_local *local, int i, int k, clt_collective *what)
{
    const clt_outer_state *o = &local->outer;
    const bool floats = k == 0 && o->count > 0;
    if (!floats)
        return describe_others(local, i, k - (o->count > 0), what);
    *what = (clt_collective){.kind = CLT_COLLECTIVE_BROADCAST,
                             .host = o->hosts[i],
                             .count = o->count,
                             .dtype = CLT_F32,
                             .label = "parameters of replica 0"};
    return true;
}

static bool describe_frozen(const clt_local *local, int i, int k, clt_collective *what)
{
    const clt_outer_state *o = &local->outer;
    *what = (clt_collective){.kind = CLT_COLLECTIVE_BROADCAST,
                             .host = o->frozen[i],
                             .count = (o->frozen_slot->bytes + 3) / 4,
                             .dtype = CLT_I32,
                             .label = "frozen parameters of replica 0"};
    return k == 0;
}

static clt_status read_frozen(void *arg, int i)
{
    const clt_local *local = arg;
    const clt_outer_state *o = &local->outer;
    const clt_replica *r = &local->trainers[i]->store->replicas[0];
    const clt_slot *s = o->frozen_slot;
    o->frozen[i] = clt_calloc((size_t)s->bytes + 4, 1);
    CLT_TRY_MEMORY(o->frozen[i]);
    return clt_replica_read(r, r->values[s->bucket], s->offset, s->bytes, o->frozen[i]);
}

static clt_status write_frozen(void *arg, int i)
{
    const clt_local *local = arg;
    const clt_store *store = local->trainers[i]->store;
    const clt_slot *s = local->outer.frozen_slot;
    for (int d = 0; d < store->n_devices; d++) {
        const clt_replica *r = &store->replicas[d];
        CLT_TRY(clt_replica_write(r, r->values[s->bucket], s->offset, s->bytes,
                                  local->outer.frozen[i]));
    }
    return CLT_OK;
}

/* Gives all replicas the frozen parameters of replica 0, one at a time. */
static clt_status adopt_frozen(clt_local *local)
{
    const clt_buckets *layout = &local->trainers[0]->store->layout;
    clt_outer_state *o = &local->outer;
    clt_status status = CLT_OK;
    bool finite;
    for (int k = 0; status == CLT_OK && local->total > 1 && k < layout->n_slots; k++) {
        o->frozen_slot = &layout->slots[k];
        if (!o->frozen_slot->state || !o->frozen_slot->frozen)
            continue;
        status = clt_world_agree(&local->all, clt_local_each(local, read_frozen, local));
        CLT_NEXT(status, exchange(local, describe_frozen, &finite));
        if (status == CLT_OK)
            status = clt_world_agree(&local->all, clt_local_each(local, write_frozen, local));
        for (int i = 0; i < local->own; i++) {
            clt_free(o->frozen[i]);
            o->frozen[i] = NULL;
        }
    }
    return status;
}

clt_status clt_outer_adopt(clt_local *local)
{
    clt_outer_state *o = &local->outer;
    bool finite;
    CLT_TRY(clt_world_agree(&local->all, clt_local_each(local, fetch, local)));
    CLT_TRY(exchange(local, describe_adopted, &finite));
    memcpy(o->anchor, o->hosts[0], (size_t)o->count * sizeof *o->anchor);
    CLT_TRY(clt_world_agree(&local->all, clt_local_each(local, spread, local)));
    return adopt_frozen(local);
}

/* As PyTorch's SGD without dampening, with d as the gradient. States only take the mean. */
static void update(const clt_outer *by, clt_outer_state *o, const float *d)
{
    const bool moves = by->kind != CLT_OUTER_AVERAGE;
    const float lr = (float)by->lr, momentum = (float)by->momentum;
    for (int64_t k = 0; moves && k < o->parameters; k++) {
        o->velocity[k] = momentum * o->velocity[k] + d[k];
        const float step =
            by->kind == CLT_OUTER_NESTEROV ? d[k] + momentum * o->velocity[k] : o->velocity[k];
        o->anchor[k] -= lr * step;
    }
    for (int64_t k = moves ? o->parameters : 0; k < o->count; k++)
        o->anchor[k] -= d[k];
}

clt_status clt_outer_exchange(clt_local *local, const double *weights)
{
    bool finite, others;
    local->weights = weights;
    clt_status status = clt_world_agree(&local->all, clt_local_each(local, weigh, local));
    CLT_NEXT(status, exchange(local, describe_sum, &finite));
    CLT_NEXT(status, exchange(local, describe_others, &others));
    local->weights = NULL;
    CLT_TRY(status);
    if (clt_outer_wire_sends(local))
        CLT_TRY(clt_outer_wire_take(local, finite));
    update(&local->options.outer, &local->outer, local->outer.hosts[0]);
    CLT_TRY(clt_world_agree(&local->all, clt_local_each(local, spread, local)));
    local->syncs++;
    return CLT_OK;
}

int64_t clt_local_syncs(const clt_local *local)
{
    return local->syncs;
}

int64_t clt_local_sync_bytes(const clt_local *local)
{
    const clt_outer_state *o = &local->outer;
    const int64_t states = o->count - o->parameters;
    return local->total > 1 ? o->parameters * clt_dtype_size(local->options.wire) +
                                  states * (int64_t)sizeof(float)
                            : 0;
}
