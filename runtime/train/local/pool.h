/*
 * The samples that are left of an epoch, when each replica goes at its own speed. All ranks know
 * what is left, and deal it to the ranks. The replicas of a rank take batches from the rank's part.
 */
#ifndef CLT_TRAIN_LOCAL_POOL_H
#define CLT_TRAIN_LOCAL_POOL_H

#include <pthread.h>

#include "data/loader/loader.h"

/* Positions of an epoch, from `begin` on. */
typedef struct clt_span {
    int64_t begin, count;
} clt_span;

typedef struct clt_spans {
    clt_span *of;
    int n, room;
} clt_spans;

/* Appends positions; those that follow the last ones make these longer. */
clt_status clt_spans_add(clt_spans *list, int64_t begin, int64_t count);

/* Appends what is left of `from` when its first `taken` positions are taken. */
clt_status clt_spans_rest(clt_spans *list, const clt_spans *from, int64_t taken);

int64_t clt_spans_total(const clt_spans *list);

/* Returns the batches of up to `unit` neighbouring positions that a list makes. */
int64_t clt_spans_batches(const clt_spans *list, int64_t unit);

/* Deals all positions of `left` to `ranks` lists, which are emptied before: about in proportion to
 * the speeds, in multiples of `unit` but for the last. If no speed is above 0, all are equal. */
clt_status clt_spans_deal(const clt_spans *left, int ranks, const double *speeds, int64_t unit,
                          clt_spans *dealt);

/* Most batches that a replica has claimed and not finished. */
enum { CLT_POOL_HELD = 8 };

/* What a replica has claimed and not finished, in order. */
typedef struct clt_pool_held {
    clt_span of[CLT_POOL_HELD];
    int n;
} clt_pool_held;

/* The samples of one rank. */
typedef struct clt_pool {
    pthread_mutex_t lock;
    int64_t epoch;
    clt_spans *dealt; /* by rank */
    int ranks, rank;
    bool open;
    int64_t taken;       /* samples of this rank since they were dealt */
    int64_t allowed;     /* batches that this rank may still claim */
    clt_pool_held *held; /* by replica of this rank */
} clt_pool;

clt_status clt_pool_create(int rank, int ranks, int replicas, clt_pool *pool);
void clt_pool_free(clt_pool *pool, int ranks);

/* Ends claims, so that `taken` and `held` stay. */
void clt_pool_close(clt_pool *pool);

/* Deals the positions of `left`, and lets replicas claim batches of up to `unit` samples: `batches`
 * on all ranks together, in proportion to what the ranks have. */
clt_status clt_pool_deal(clt_pool *pool, int64_t epoch, const clt_spans *left, const double *speeds,
                         int64_t unit, int64_t batches);

/* Claims up to `most` samples for a replica. Returns false if none is left, or claims have ended.
 * Any thread. */
bool clt_pool_claim(clt_pool *pool, int replica, int64_t most, clt_loader_claim *claim);

/* A replica has finished the batch that it claimed first. Any thread. */
void clt_pool_finish(clt_pool *pool, int replica);

#endif
