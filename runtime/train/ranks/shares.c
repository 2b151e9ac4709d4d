#include "train/ranks/shares.h"

#include "base/alloc.h"
#include "train/ranks/connect.h"
#include <cltrain/data.h>

int64_t clt_share_begin(const clt_share *s, int micro)
{
    if (s->shards)
        return clt_virtual_shard_begin(s->total, s->shards, s->first_shard + micro) -
               clt_virtual_shard_begin(s->total, s->shards, s->first_shard);
    const int64_t quantum = s->quantum, each = (s->count + s->micro_batches - 1) / s->micro_batches;
    const int64_t whole = (each + quantum - 1) / quantum * quantum;
    if (quantum > 1 && whole <= s->per_run && whole * (s->micro_batches - 1) < s->count)
        return micro < s->micro_batches ? micro * whole : s->count;
    return s->count * micro / s->micro_batches;
}

clt_part clt_share_part(const clt_share *s, int micro)
{
    if (micro >= s->micro_batches)
        return (clt_part){s->begin + s->count, 0, s->begin, micro};
    const int64_t begin = clt_share_begin(s, micro);
    return (clt_part){s->begin + begin, clt_share_begin(s, micro + 1) - begin, s->begin, micro};
}

clt_status clt_shares_create(const clt_participants *all, clt_shares *s)
{
    s->parts = all->own_parts;
    s->first_part = all->first_part;
    s->all_parts = clt_participants_parts(all);
    s->part = clt_calloc((size_t)all->own, sizeof *s->part);
    s->stage = clt_calloc((size_t)all->own, sizeof *s->stage);
    s->offsets = clt_calloc((size_t)s->parts + 1, sizeof *s->offsets);
    s->counts = clt_calloc((size_t)all->own * (size_t)all->total, sizeof *s->counts);
    s->counts_results = clt_calloc((size_t)all->own, sizeof *s->counts_results);
    CLT_TRY_MEMORY(s->part && s->stage && s->offsets && s->counts && s->counts_results);
    for (int d = 0; d < all->own; d++) {
        const int replica = clt_participants_replica(all, all->first + d);
        s->part[d] =
            clt_mesh_coordinate(&all->mesh, CLT_AXIS_DATA, all->first + d) - all->first_part;
        s->stage[d] = clt_mesh_coordinate(&all->mesh, CLT_AXIS_PIPELINE, all->first + d);
        s->counts_results[d] = true;
        for (int e = 0; e < d; e++)
            if (clt_participants_replica(all, all->first + e) == replica &&
                s->stage[e] == s->stage[d])
                s->counts_results[d] = false;
    }
    return CLT_OK;
}

void clt_shares_free(clt_shares *s)
{
    CLT_FREE(s->part, s->stage, s->counts_results, s->offsets, s->counts, s->weights, s->bounds);
    s->part = s->stage = NULL;
    s->counts_results = NULL;
    s->offsets = NULL;
    s->counts = NULL;
    s->weights = NULL;
    s->bounds = NULL;
}

int64_t clt_shares_shard_begin(const clt_shares *s, int part)
{
    const int64_t shards = s->bounds[s->all_parts];
    return clt_virtual_shard_begin(s->total, shards, s->bounds[s->first_part + part]);
}

int64_t clt_shares_leaves(const clt_shares *s, int d)
{
    const int64_t *own = s->bounds ? s->bounds + s->first_part + s->part[d] : NULL;
    return own ? own[1] - own[0] : 1;
}

clt_status clt_shares_split(clt_shares *s, const clt_participants *all, int64_t count)
{
    const double *weights = s->weights ? s->weights + all->first_part : NULL;
    double sum = 0;
    for (int i = 0; s->bounds && i <= s->parts; i++)
        s->offsets[i] = clt_shares_shard_begin(s, i) - clt_shares_shard_begin(s, 0);
    if (s->bounds)
        return CLT_OK;
    for (int i = 0; weights && i < s->parts; i++)
        sum += weights[i];
    return clt_split(count, s->parts, sum > 0 ? weights : NULL, s->quantum, s->offsets);
}

clt_share clt_share_of(const clt_shares *s, int64_t count)
{
    const int64_t needed = (count + s->per_run - 1) / s->per_run;
    const int64_t micro_batches = needed > s->accumulate ? needed : s->accumulate;
    clt_share share = {.count = count, .per_run = s->per_run, .quantum = s->quantum};
    share.micro_batches = share.rounds = (int)(count < micro_batches ? count : micro_batches);
    return share;
}

clt_share clt_shares_device(const clt_shares *s, int d)
{
    clt_share share = clt_share_of(s, clt_shares_samples(s, d));
    share.begin = clt_shares_begin(s, d);
    share.rounds = s->rounds ? s->rounds : share.rounds;
    if (s->bounds) {
        const int64_t *own = s->bounds + s->first_part + s->part[d];
        share.shards = s->bounds[s->all_parts];
        share.first_shard = own[0];
        share.total = s->total;
        share.micro_batches = share.rounds = share.count ? (int)clt_shares_leaves(s, d) : 0;
    }
    return share;
}

bool clt_shares_leads(const clt_shares *s, int device)
{
    for (int d = 0; d < device; d++)
        if (s->part[d] == s->part[device] && s->stage[d] == s->stage[device])
            return false;
    return true;
}

/* Devices of a part may be on several ranks, whose callers give them the part's samples. */
static clt_status check_parts(const clt_shares *s, const clt_participants *all)
{
    for (int p = 0; p < all->total; p++) {
        const int part = clt_mesh_coordinate(&all->mesh, CLT_AXIS_DATA, p);
        const int first = clt_participants_of(all, part);
        if (s->counts[p] != s->counts[first])
            return clt_fail(CLT_INVALID_ARGUMENT,
                            "devices %d and %d of the mesh are both at place %d of dp, so their "
                            "ranks must give them the same samples, not %d and %d",
                            first, p, part, s->counts[first], s->counts[p]);
    }
    return CLT_OK;
}

clt_status clt_shares_gather(const clt_participants *all, const clt_collectives *c,
                             const char *label, int32_t *numbers, int64_t count)
{
    clt_collective_request request[CLT_MOST_DEVICES];
    clt_collective_result result;
    for (int d = 0; all->ranks > 1 && d < all->own; d++) {
        const clt_collective what = {.kind = CLT_COLLECTIVE_ALL_GATHER,
                                     .host = numbers + d * all->total * count,
                                     .count = count,
                                     .dtype = CLT_I32,
                                     .label = label};
        CLT_TRY(c->start(c->self, d, &what, 0, NULL, &request[d]));
    }
    for (int d = 0; all->ranks > 1 && d < all->own; d++)
        CLT_TRY(c->complete(c->self, d, &request[d], &result));
    return CLT_OK;
}

clt_status clt_shares_count(clt_shares *s, const clt_participants *all, const clt_collectives *c)
{
    if (s->counted)
        return CLT_OK;
    for (int d = 0; d < all->own; d++)
        for (int own = 0; own < all->own; own++)
            s->counts[d * all->total + all->first + own] = (int32_t)clt_shares_samples(s, own);
    CLT_TRY(clt_shares_gather(all, c, "samples of the ranks", s->counts, 1));
    CLT_TRY(check_parts(s, all));
    s->counted = true;
    return CLT_OK;
}

clt_status clt_shares_place(clt_shares *s, const clt_participants *all, const clt_collectives *c,
                            clt_step_batch *batch)
{
    if (all->ranks == 1)
        batch->total = batch->count;
    if (all->ranks == 1 || batch->total > 0)
        return CLT_OK;
    CLT_TRY(clt_shares_count(s, all, c));
    batch->first = 0;
    for (int part = 0; part < clt_participants_parts(all); part++) {
        if (part == all->first_part)
            batch->first = batch->total;
        batch->total += s->counts[clt_participants_of(all, part)];
    }
    return CLT_OK;
}
