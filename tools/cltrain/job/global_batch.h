/* --global-batch: the batch and the rate of a run whose number of devices changes. */
#ifndef CLTRAIN_COMMAND_JOB_GLOBAL_BATCH_H
#define CLTRAIN_COMMAND_JOB_GLOBAL_BATCH_H

#include "job/job.h"

/* Checks the option. Returns an exit code. */
int check_global_batch(const settings *s);

/* Returns with which batch and devices the run of a checkpoint began; all 0: without `scaled`. */
scaled_from scaled_begin(const clt_checkpoint *checkpoint);

/* Counts the devices of all ranks. If there is one, --zero is dropped. With `scaled`, makes batch
 * and rate proportional to them, from the batch and the devices with which the run began. Call this
 * after job_devices and before job_data. Collective; returns an exit code. */
int job_global_batch(job *j, settings *s);

#endif
