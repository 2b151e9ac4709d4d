/* Computes the last step of a run. */
#ifndef CLTRAIN_COMMAND_JOB_LAST_STEP_H
#define CLTRAIN_COMMAND_JOB_LAST_STEP_H

#include <cltrain/checkpoint.h>

#include "job/job.h"

/* Sets job->steps to the number of steps of a run from its beginning. Returns an exit code, after a
 * message. */
int count_steps(job *j, const settings *s);

/* Sets job->steps again once the number of replicas is known: those that are synchronised by time
 * may make steps of more samples than --batch. Returns an exit code, after a message. */
int count_steps_of_replicas(job *j, const settings *s);

/* Sets job->steps to the last step of a resumed run: the steps of the checkpoint plus the rest of
 * --epochs. Earlier epochs may have had batches of another size, so they are not computed again. */
void find_end(job *j, const settings *s, const clt_checkpoint *checkpoint);

#endif
