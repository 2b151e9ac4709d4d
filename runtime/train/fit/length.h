/* How long a run is, and where its schedule is, from the position in the data. */
#ifndef CLT_TRAIN_FIT_LENGTH_H
#define CLT_TRAIN_FIT_LENGTH_H

#include <cltrain/fit.h>

/* Returns the steps in which batches of `batch` go through `samples` samples. A partial batch
 * counts as a step, unless it is dropped. */
int64_t clt_fit_steps_of(const clt_fit_options *options, int64_t samples, int64_t batch);

/* Returns the step at which the schedule is for a batch that starts at `position` in epochs of
 * `samples` samples; -1, which stands for the number of steps done, without schedule_batch. */
int64_t clt_fit_schedule_at(const clt_fit_options *options, int64_t samples, clt_position position);

/* Returns the steps of `batch` samples from a position to the end of the last epoch, or of the
 * steps that options->steps counts by schedule_batch. */
int64_t clt_fit_steps_left(const clt_fit_options *options, int64_t samples, int64_t batch,
                           clt_position position);

#endif
