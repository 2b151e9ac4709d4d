/* A loader whose batches can be fed to a trainer directly. */
#ifndef CLT_TRAIN_FIT_BATCH_SOURCE_H
#define CLT_TRAIN_FIT_BATCH_SOURCE_H

#include "data/loader/loader.h"
#include "train/core/session.h"
#include <cltrain/fit.h>

typedef struct clt_source clt_source;

typedef struct clt_source_batch {
    int slot; /* -1: the data has ended */
    bool last_of_epoch;
    int64_t epoch, next_epoch, next_sample;
    clt_step_batch step; /* its pointers are valid until the slot is released */
} clt_source_batch;

/* Creates a source that feeds the session's inputs from the data set's fields of the same names. It
 * never ends if `end_epoch` is 0. */
clt_status clt_source_create(const clt_participants *all, const clt_shares *shares,
                             clt_session *session, clt_dataset *dataset,
                             const clt_fit_options *options, int64_t batch, int64_t seed,
                             clt_position start, int64_t end_epoch, clt_source **source);

/* The same for training without end, of which options->queued_steps may be queued where steps are
 * small. Then devices may read the loader's memory in place: the feeds have no memory of the host.
 */
clt_status clt_source_create_queued(clt_trainer *t, clt_dataset *dataset,
                                    const clt_fit_options *options, int64_t batch, int64_t seed,
                                    clt_position start, clt_source **source);

/* The same for batches that clt_source_deal names, of an epoch's order. */
clt_status clt_source_create_dealt(const clt_participants *all, const clt_shares *shares,
                                   clt_session *session, clt_dataset *dataset,
                                   const clt_fit_options *options, int64_t batch, int64_t seed,
                                   clt_source **source);

/* Names positions [offset, offset + count) of an epoch as the next batch, which is then assembled.
 * A few may wait. Errors: STATE if too many wait, INVALID_ARGUMENT. */
clt_status clt_source_deal(clt_source *source, int64_t epoch, int64_t offset, int64_t count);

/* The same, whose batches begin where `claims` says; see clt_loader_set_claims. */
clt_status clt_source_create_claimed(const clt_participants *all, const clt_shares *shares,
                                     clt_session *session, clt_dataset *dataset,
                                     const clt_fit_options *options, int64_t batch, int64_t seed,
                                     clt_loader_claim_fn claims, void *user, clt_source **source);

/* The same for batches that are drawn from a reservoir; see fit/draws.h. Copies nothing of
 * `options`. */
clt_status clt_source_create_drawn(clt_trainer *trainer, clt_dataset *reservoir,
                                   const clt_fit_options *options, int64_t batch, uint64_t seed,
                                   bool wait, int64_t end, clt_source **source);

/* Returns the number of the push that gave sample `sample` of the global batch in `slot`; 0 if this
 * rank does not know it. */
int64_t clt_source_number(const clt_source *source, int slot, int64_t sample);

/* Asks for claims again after clt_source_next gave none. */
void clt_source_ask_again(clt_source *source);

/* Stops the loader. Transfers from its memory must have ended. NULL may be passed. */
void clt_source_destroy(clt_source *source);

/* Waits for the next batch. At most clt_source_queue batches may be held at once; release a batch
 * only when its step has ended. */
clt_status clt_source_next(clt_source *source, clt_source_batch *batch);
/* Makes a batch of `total` samples of which this rank has none. Used after clt_source_next has
 * failed. */
void clt_source_none(clt_source *source, int64_t total, clt_step_batch *batch);

/* Returns how many steps may be queued. */
int clt_source_queue(const clt_source *source);

clt_status clt_source_release(clt_source *source, int slot);

/* Returns the seconds for which clt_source_next waited. */
double clt_source_waited(const clt_source *source);

#endif
