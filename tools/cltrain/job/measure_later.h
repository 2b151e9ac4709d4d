/* Measures kernels of new shapes when the run is over, if it was too short to repay measuring
 * before its first step. */
#ifndef CLTRAIN_COMMAND_JOB_MEASURE_LATER_H
#define CLTRAIN_COMMAND_JOB_MEASURE_LATER_H

#include "job/job.h"

/* Without --tune, lets the trainer measure only before runs that repay it. Call it before the
 * trainer is made. */
void measure_before_long_runs(job *j, const settings *s);

/* Prints how many kernels were left by measuring, or that it comes after the run. */
void print_measuring(const job *j, const settings *s);

/* The run begins, and has ended: sets how long measuring may take afterwards. Several ranks and
 * replicas would disturb each other, so they do not measure then. */
void measure_later_begin(job *j);
void measure_later_end(job *j, const settings *s);

/* Measures. The trainer was destroyed, store and devices were not. `samples` is its
 * clt_trainer_run_samples. A failure is only logged, because the run is saved and done. */
void measure_later(job *j, int64_t samples);

#endif
