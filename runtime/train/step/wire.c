#include "train/step/wire.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/str.h"
#include "train/core/trainer.h"

static clt_status refuse(const clt_trainer *t, const char *what, const char *instead)
{
    return clt_fail(CLT_UNSUPPORTED, "wire %s does not work with %s: %s",
                    clt_dtype_name(t->options.wire), what, instead);
}

clt_status clt_wire_choose(clt_trainer *t)
{
    const clt_dtype wire = t->options.wire;
    t->exchange.wire.dtype = CLT_F32;
    t->exchange.wire.rounds = false;
    if (wire == CLT_F32)
        return CLT_OK;
    if (t->all.mesh.zero)
        return refuse(t, "zero 3", "its exchanges are part of the graph; choose zero 1 or 0");
    if (t->store->owners)
        return refuse(t, "offload", "leave out one of the two");
    if (clt_participants_replicas(&t->all) != t->all.total)
        return refuse(
            t, "the axes tp and pp",
            "its residuals are of whole gradients; leave it out, or use dp, space or time");
    if (t->all.total == 1)
        return CLT_OK;
    t->exchange.wire.dtype = wire;
    t->exchange.wire.rounds =
        t->options.precision == CLT_F32 || t->options.accumulate > 1 || t->options.rebalance;
    atomic_store(&t->exchange.wire.accepted, -1);
    return CLT_OK;
}

int64_t clt_wire_count(const clt_trainer *t, int bucket)
{
    const int shards = t->sharded ? clt_participants_replicas(&t->all) : 1;
    return clt_shard_bytes(&t->store->layout.buckets[bucket], shards) * shards / 4;
}

void clt_wire_free_arrays(const clt_trainer *t, float **arrays)
{
    for (int b = 0; arrays && b < t->store->layout.n_buckets; b++)
        clt_free(arrays[b]);
    clt_free(arrays);
}

/* The number of shards may change, and shards have room behind the bucket. */
static size_t room_of(const clt_trainer *t, int bucket)
{
    return (size_t)(t->store->layout.buckets[bucket].bytes + CLT_SHARD_ROOM) / sizeof(float);
}

clt_status clt_wire_arrays(const clt_trainer *t, float ***out)
{
    const clt_buckets *layout = &t->store->layout;
    float **arrays = clt_calloc((size_t)layout->n_buckets + 1, sizeof *arrays);
    CLT_TRY_MEMORY(arrays);
    for (int b = 0; b < layout->n_buckets; b++) {
        arrays[b] = layout->buckets[b].state ? NULL : clt_calloc(room_of(t, b), sizeof(float));
        if (!arrays[b] && !layout->buckets[b].state) {
            clt_wire_free_arrays(t, arrays);
            return CLT_OUT_OF_MEMORY;
        }
    }
    *out = arrays;
    return CLT_OK;
}

/* --- the communicator's residuals ------------------------------------------------------------ */

void clt_wire_free(clt_trainer *t)
{
    clt_wire_free_arrays(t, t->parked);
    t->parked = NULL;
}

/* A rank that sends to other nodes or ranks adds the numbers to its sum; else the owner does. */
static clt_status give(const clt_trainer *t, int bucket, const float *data)
{
    static const int order[] = {CLT_ROUNDS_NODE, CLT_ROUNDS_RANK, CLT_ROUNDS_SUM};
    const clt_collectives *c = &t->exchange.collectives;
    clt_status status = CLT_UNSUPPORTED;
    for (int i = 0; i < 3 && status == CLT_UNSUPPORTED; i++)
        status = c->residual_set(t->exchange.wire.sums[bucket], order[i], data);
    return status;
}

clt_status clt_wire_unpark(clt_trainer *t)
{
    const clt_buckets *layout = &t->store->layout;
    if (!t->parked || !t->exchange.wire.sums)
        return CLT_OK;
    for (int b = 0; b < layout->n_buckets; b++)
        if (!layout->buckets[b].state)
            CLT_TRY(give(t, b, t->parked[b]));
    clt_wire_free(t);
    return CLT_OK;
}

/* Describes the layout: for each rank its devices, and a bit for each rounding that it does;
 * whether devices have shards; and the buckets. */
static clt_status describe(clt_trainer *t)
{
    const clt_buckets *layout = &t->store->layout;
    clt_wire *w = &t->exchange.wire;
    int32_t own = 0;
    void *told;
    clt_str text = {0};
    for (int b = 0; b < layout->n_buckets; b++)
        for (int k = 0; w->sums[b] && k < CLT_ROUNDINGS; k++)
            own |= (t->exchange.collectives.residual_has(w->sums[b], k) == 1) << k;
    CLT_TRY(clt_ranks_gather(t->all.world, &own, sizeof own, &told));
    for (int r = 0; r < t->all.ranks; r++)
        clt_str_add(&text, "%d:%d,", t->all.begins[r + 1] - t->all.begins[r],
                    ((const int32_t *)told)[r]);
    /* The places of tensors and shards decide who owns which slice of a sum. */
    clt_str_add(&text, "%s,%s,%016llx", w->rounds ? "devices" : "ranks",
                t->sharded ? "shards" : "whole", (unsigned long long)clt_buckets_hash(layout));
    w->layout = text.failed ? NULL : clt_strdup(clt_str_text(&text));
    clt_str_free(&text);
    clt_free(told);
    return clt_world_agree(&t->all, w->layout ? CLT_OK : CLT_OUT_OF_MEMORY);
}

static clt_status open_residuals(clt_trainer *t)
{
    const clt_buckets *layout = &t->store->layout;
    clt_wire *w = &t->exchange.wire;
    w->sums = clt_calloc((size_t)layout->n_buckets + 1, sizeof *w->sums);
    CLT_TRY_MEMORY(w->sums);
    for (int b = 0; b < layout->n_buckets; b++)
        if (!layout->buckets[b].state)
            CLT_TRY(t->exchange.collectives.residual_open(t->exchange.collectives.self, 0,
                                                          clt_wire_count(t, b), &w->sums[b]));
    return CLT_OK;
}

clt_status clt_wire_connect(clt_trainer *t)
{
    if (t->exchange.wire.dtype == CLT_F32)
        return CLT_OK;
    CLT_TRY(clt_world_agree(&t->all, open_residuals(t)));
    CLT_TRY(describe(t));
    return clt_wire_unpark(t);
}

static void add(float **sums, int bucket, const float *term, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        sums[bucket][i] += term[i];
}

/* Adds what of the residuals of a bucket no other rank has. */
static clt_status park_bucket(clt_trainer *t, const clt_collectives *c, int bucket)
{
    const int64_t count = clt_wire_count(t, bucket);
    float *data = clt_alloc((size_t)count * sizeof *data);
    CLT_TRY_MEMORY(data);
    for (int k = 0; k < CLT_ROUNDINGS; k++)
        if (c->residual_has(t->exchange.wire.sums[bucket], k) == 1) {
            c->residual_get(t->exchange.wire.sums[bucket], k, data);
            add(t->parked, bucket, data, count);
        }
    clt_free(data);
    return CLT_OK;
}

void clt_wire_disconnect(clt_trainer *t, const clt_collectives *c, bool park)
{
    clt_wire *w = &t->exchange.wire;
    clt_status status = CLT_OK;
    if (w->sums && park && !t->parked)
        status = clt_wire_arrays(t, &t->parked);
    for (int b = 0; w->sums && b < t->store->layout.n_buckets; b++) {
        if (w->sums[b] && park)
            CLT_NEXT(status, park_bucket(t, c, b));
        if (w->sums[b])
            c->residual_close(w->sums[b]);
    }
    CLT_FREE(w->sums, w->layout);
    w->sums = NULL;
    w->layout = NULL;
    if (status != CLT_OK)
        clt_log(CLT_LOG_WARN, "wire: out of memory: what ranks have rounded away is lost");
}

clt_status clt_wire_park_device(clt_trainer *t)
{
    clt_replica *r = &t->store->replicas[0];
    clt_status status = CLT_OK;
    if (t->all.total > 1 || !r->residuals || t->store->feeders > 1)
        return CLT_OK;
    if (!t->parked)
        CLT_TRY(clt_wire_arrays(t, &t->parked));
    for (int b = 0; b < t->store->layout.n_buckets && status == CLT_OK; b++) {
        const int64_t bytes = t->store->layout.buckets[b].bytes;
        float *data = t->parked[b] ? clt_alloc((size_t)bytes) : NULL;
        if (!t->parked[b])
            continue;
        status = data ? clt_replica_read(r, r->residuals[b], 0, bytes, data) : CLT_OUT_OF_MEMORY;
        if (status == CLT_OK)
            add(t->parked, b, data, bytes / 4);
        clt_free(data);
    }
    clt_replica_forget_residuals(r);
    return status;
}

/* --- within a step --------------------------------------------------------------------------- */

static bool is_half(const clt_bound *b)
{
    return b->call->session->devices[b->device].plan->options.precision != CLT_F32;
}

/* A device without samples sends nothing, so its residuals stay. */
static bool sends(const clt_bound *b)
{
    return b->exchange->wire.rounds && (b->share.count || b->call->given);
}

bool clt_wire_rounds_buckets(const clt_bound *b)
{
    return sends(b) && !is_half(b);
}

static clt_status each(const clt_bound *b, clt_status (*fn)(clt_update *update, int bucket))
{
    const clt_buckets *layout = b->replica->layout;
    for (int i = 0; i < layout->n_buckets; i++)
        if (!layout->buckets[i].state)
            CLT_TRY(fn(b->updates->update, i));
    return CLT_OK;
}

clt_status clt_wire_round_sum(const clt_bound *b)
{
    if (!sends(b))
        return clt_update_round_sum(b->updates->update);
    b->updates->rounded = true;
    return each(b, clt_update_send);
}

clt_status clt_wire_keep(const clt_bound *b, int bucket)
{
    const bool rounded = clt_wire_rounds_buckets(b) || b->updates->rounded;
    if (!b->exchange->wire.rounds || !rounded)
        return CLT_OK;
    if (bucket >= 0)
        return b->exchange->devices[b->device].reduced[bucket].finite
                   ? clt_update_keep(b->updates->update, bucket)
                   : CLT_OK;
    b->updates->rounded = false;
    return b->updates->keeps ? each(b, clt_update_keep) : CLT_OK;
}

/* The device that comes first does it. It has completed the requests of all buckets, and the next
 * ones cannot begin without it. */
void clt_wire_accept(const clt_bound *b)
{
    clt_wire *w = &b->exchange->wire;
    const int64_t step = b->call->step + 1;
    int64_t before = atomic_load(&w->accepted);
    if (!w->sums || !b->updates->keeps || before == step ||
        !atomic_compare_exchange_strong(&w->accepted, &before, step))
        return;
    for (int i = 0; i < b->replica->layout->n_buckets; i++)
        if (w->sums[i])
            b->exchange->collectives.residual_accept(w->sums[i]);
}
