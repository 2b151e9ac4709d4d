/* What a step's devices and ranks add up: gradients, results, numbers of samples. */
#include "base/error.h"
#include "train/reduce.h"

static int64_t share_of(const clt_trainer *t, int d)
{
    return t->offsets[d + 1] - t->offsets[d];
}

clt_status clt_reduce_begin(clt_trainer *t, int d, const clt_collective *what, void **request)
{
    return t->collectives.start(t->collectives.self, d, what, 0, NULL, request);
}

clt_status clt_reduce_one(clt_trainer *t, int d, const clt_collective *what)
{
    void *request;
    clt_collective_result result;
    CLT_TRY(clt_reduce_begin(t, d, what, &request));
    return t->collectives.complete(t->collectives.self, d, request, &result);
}

clt_status clt_reduce_results(clt_trainer *t, int d, int micros)
{
    clt_collective what;
    if (t->ranks == 1)
        return CLT_OK;
    CLT_TRY(clt_session_share(t->session, d, t->entry, micros, &what));
    return clt_reduce_begin(t, d, &what, &t->devices[d].sharing);
}

clt_status clt_reduce_results_end(clt_trainer *t, int d)
{
    clt_collective_result result;
    return t->ranks == 1
               ? CLT_OK
               : t->collectives.complete(t->collectives.self, d, t->devices[d].sharing, &result);
}

clt_status clt_reduce_start(clt_trainer *t, int d, int bucket)
{
    const clt_replica *replica = &t->store->replicas[d];
    const clt_collective what = {
        .kind = t->owners ? CLT_COLLECTIVE_REDUCE : CLT_COLLECTIVE_ALL_REDUCE,
        .root = t->owners ? t->owners[bucket] : 0,
        .buffer = clt_replica_gradients(replica, t->options.precision)[bucket],
        .count = replica->layout->buckets[bucket].bytes / 4,
        .dtype = t->options.precision,
        .whole = true,
        .empty = share_of(t, d) == 0,
        .measure = true,
        .vote = t->vote,
        .label = t->labels[bucket]};
    clt_heartbeat_start(d == 0 ? t->beat : NULL, bucket);
    return clt_reduce_begin(t, d, &what, &t->devices[d].requests[bucket]);
}

clt_status clt_reduce_complete(clt_trainer *t, int d, bool *finite, double *squares)
{
    const clt_plan *plan = t->session->devices[d].plan;
    *finite = true;
    *squares = 0;
    t->devices[d].votes = 0;
    for (int i = 0; i < plan->n_ready; i++) {
        const int bucket = plan->ready[i];
        clt_collective_result result;
        CLT_TRY(t->collectives.complete(t->collectives.self, d, t->devices[d].requests[bucket],
                                        &result));
        clt_heartbeat_complete(d == 0 ? t->beat : NULL, bucket);
        t->devices[d].squares[bucket] = result.sum_squares;
        t->devices[d].votes |= result.votes;
        if (t->streams && t->phase != 2 && !(result.votes & CLT_VOTE_DROP) &&
            (!t->owners || t->owners[bucket] == t->first + d))
            CLT_TRY(
                clt_update_bucket(t->devices[d].update, bucket, t->records[t->entry].lr, t->steps));
        if (t->profile)
            clt_profile_reduction(
                t->profile, d, t->labels[bucket], true,
                clt_bucket_gradient_bytes(&plan->buckets.buckets[bucket], t->options.precision),
                &result);
        if (i == plan->n_ready - 1) /* all before it went on during backward */
            t->devices[d].exposed += result.done - result.ready;
        *finite = *finite && result.finite;
    }
    for (int b = 0; b < plan->buckets.n_buckets; b++)
        if (!plan->buckets.buckets[b].state)
            *squares += t->devices[d].squares[b];
    return CLT_OK;
}

clt_status clt_reduce_shares(clt_trainer *t)
{
    void *request[CLT_MOST_DEVICES];
    clt_collective_result result;
    if (t->counted)
        return CLT_OK;
    for (int d = 0; d < t->n_devices; d++)
        for (int own = 0; own < t->n_devices; own++)
            t->devices[d].counts[t->first + own] = (int32_t)share_of(t, own);
    for (int d = 0; t->ranks > 1 && d < t->n_devices; d++) {
        const clt_collective what = {.kind = CLT_COLLECTIVE_ALL_GATHER,
                                     .host = t->devices[d].counts,
                                     .count = 1,
                                     .dtype = CLT_I32,
                                     .label = "samples of the ranks"};
        CLT_TRY(clt_reduce_begin(t, d, &what, &request[d]));
    }
    for (int d = 0; t->ranks > 1 && d < t->n_devices; d++)
        CLT_TRY(t->collectives.complete(t->collectives.self, d, request[d], &result));
    t->counted = true;
    return CLT_OK;
}

/* Where this rank's samples lie in the global batch, and how many it has. */
clt_status clt_reduce_counts(clt_trainer *t)
{
    if (t->ranks == 1)
        t->current.total = t->current.count;
    if (t->ranks == 1 || t->current.total > 0)
        return CLT_OK;
    CLT_TRY(clt_reduce_shares(t));
    t->current.first = 0;
    for (int p = 0; p < t->total; p++) {
        if (p == t->first)
            t->current.first = t->current.total;
        t->current.total += t->devices[0].counts[p];
    }
    return CLT_OK;
}
