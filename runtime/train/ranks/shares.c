#include "base/error.h"
#include "train/ranks/shares.h"

static int64_t share_of(const clt_trainer *t, int d)
{
    return t->offsets[d + 1] - t->offsets[d];
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
        CLT_TRY(t->collectives.start(t->collectives.self, d, &what, 0, NULL, &request[d]));
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
