/*
 * Deals the samples of the epochs to workers, in batches, so that each is applied exactly once an
 * epoch. Pure: no sockets, no clock.
 *
 * A batch that is dealt is out until it is applied or given back. One that is given back is dealt
 * again before new ones. An epoch is complete when all of its batches are applied; batches of the
 * next epoch are dealt before that, because nobody waits for anybody.
 */
#ifndef CLT_TRAIN_ASYNC_DEAL_H
#define CLT_TRAIN_ASYNC_DEAL_H

#include <stdbool.h>
#include <stdint.h>

#include <cltrain/status.h>

/* A batch: positions [offset, offset + count) of an epoch. */
typedef struct clt_deal_batch {
    int64_t epoch, offset, count;
    int tries;     /* how often it was dealt before */
    int nonfinite; /* how often its gradient was not finite */
} clt_deal_batch;

typedef struct clt_deal_lease {
    int64_t lease; /* number of the deal, from 1 on */
    uint64_t who;
    clt_deal_batch batch;
} clt_deal_lease;

typedef struct clt_deal {
    int64_t samples, batch, per_epoch; /* per_epoch: batches */
    int64_t total, applied;            /* batches of the run */
    int64_t epoch, offset;             /* of the next new batch */
    int64_t begun;                     /* new batches that were dealt */
    int64_t last_lease;
    clt_deal_batch *back; /* given back, to be dealt first */
    int n_back, back_room;
    clt_deal_lease *out;
    int n_out, out_room;
} clt_deal;

typedef enum clt_dealt { CLT_DEALT, CLT_DEAL_WAIT, CLT_DEAL_END } clt_dealt;

/* `total`: batches of the whole run. Errors: INVALID_ARGUMENT. */
clt_status clt_deal_make(int64_t samples, int64_t batch, bool drop_last, int64_t total,
                         clt_deal *deal);
void clt_deal_free(clt_deal *deal);

/* Sets the state after a checkpoint: `applied` batches were applied, new batches begin at (epoch,
 * offset), and those in `back` are to be dealt first. Errors: FORMAT if these do not fit together.
 */
clt_status clt_deal_resume(clt_deal *deal, int64_t applied, int64_t epoch, int64_t offset,
                           const clt_deal_batch *back, int n_back);

/* Deals a batch to a worker. WAIT: all that is left is out. END: all is applied. */
clt_status clt_deal_next(clt_deal *deal, uint64_t who, clt_dealt *dealt, clt_deal_lease *lease);

/* Finds a batch that is out to the worker; NULL: it is not. */
const clt_deal_lease *clt_deal_find(const clt_deal *deal, uint64_t who, int64_t lease);

/* The batch of the lease is applied. */
void clt_deal_apply(clt_deal *deal, int64_t lease);

/* Returns how many batches are out to the worker. */
int clt_deal_count(const clt_deal *deal, uint64_t who);

/* Takes back the batch of a lease, or all batches of a worker. Returns the number. Room for them
 * is kept from the deal on. `nonfinite`: because its gradient was not finite. */
int clt_deal_give_back(clt_deal *deal, int64_t lease, bool nonfinite);
int clt_deal_drop(clt_deal *deal, uint64_t who);

/* Whether all batches of an epoch are applied. */
bool clt_deal_complete(const clt_deal *deal, int64_t epoch);

/* Finds the position of the first sample that is not applied. */
void clt_deal_position(const clt_deal *deal, int64_t *epoch, int64_t *sample);

#endif
