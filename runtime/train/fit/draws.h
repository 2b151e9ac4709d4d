/* Batches that are drawn from a reservoir when a step begins. */
#ifndef CLT_TRAIN_FIT_DRAWS_H
#define CLT_TRAIN_FIT_DRAWS_H

#include "train/core/trainer.h"
#include "train/fit/batch_source.h"

typedef struct clt_draws clt_draws;

/* Fails if the trainer's devices cannot draw from reservoirs of their ranks. */
clt_status clt_draws_check(const clt_trainer *trainer, const clt_dataset *reservoir);

/*
 * Allocates the memory of batches: of the outputs of `gather`, which feed the inputs `names`.
 * `wait`: clt_draws_next waits for the first samples, and asks options->should_stop meanwhile.
 * `end`: the step after which an epoch ends, 0: none.
 */
clt_status clt_draws_create(clt_trainer *trainer, const clt_gather *gather,
                            const char *const *names, const clt_fit_options *options, int64_t batch,
                            uint64_t seed, bool wait, int64_t end, clt_draws **out);
void clt_draws_destroy(clt_draws *draws);

/* Draws the batch of the trainer's next step. The batch before the last one must not be read any
 * more. All ranks call it. out->slot is -1 if no rank has samples and the draws do not wait.
 * STOPPED on all ranks: one of them wants to stop while no rank has samples. */
clt_status clt_draws_next(clt_draws *draws, clt_source_batch *out);

/* Returns the number of the push that gave a sample of the rank's part of one of the last batches.
 */
int64_t clt_draws_number(const clt_draws *draws, int slot, int64_t sample);

/* Returns the position in the global batch of the first sample of the rank's part of the last
 * batch. */
int64_t clt_draws_first(const clt_draws *draws);

/* Returns the seconds of waiting for the first samples. */
double clt_draws_waited(const clt_draws *draws);

#endif
