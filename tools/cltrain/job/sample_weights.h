/* --class-weights and --sample-weights. */
#ifndef CLTRAIN_COMMAND_JOB_SAMPLE_WEIGHTS_H
#define CLTRAIN_COMMAND_JOB_SAMPLE_WEIGHTS_H

#include "job/job.h"

/* Gives the model the weights of its classes, and the training samples their weights, if the
 * options ask for them. Call it when the training samples are open. Returns an exit code. */
int set_weights(job *j, const settings *s);

#endif
