/* The parameters that a run begins with. */
#ifndef CLTRAIN_COMMAND_JOB_FIRST_PARAMETERS_H
#define CLTRAIN_COMMAND_JOB_FIRST_PARAMETERS_H

#include "job/job.h"

/* Loads the parameters of --init and prints what was left out, unless `quiet`. Returns an exit
 * code. */
int load_first(job *j, const settings *s, int quiet);

#endif
