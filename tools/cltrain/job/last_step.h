/* Where a run ends. */
#ifndef CLTRAIN_COMMAND_JOB_LAST_STEP_H
#define CLTRAIN_COMMAND_JOB_LAST_STEP_H

#include <cltrain/checkpoint.h>

#include "job/job.h"

/* Sets job->steps to the steps of a run from its beginning. Returns an exit code, after a message.
 */
int count_steps(job *j, const settings *s);

/* Sets job->steps to the steps in all: those of the checkpoint, and of what is left of --epochs.
 * The epochs before may have had batches of another size. */
void find_end(job *j, const settings *s, const clt_checkpoint *checkpoint);

#endif
