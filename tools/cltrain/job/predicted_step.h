/* Prints the step times that the planner predicts. */
#ifndef CLTRAIN_COMMAND_JOB_PREDICTED_STEP_H
#define CLTRAIN_COMMAND_JOB_PREDICTED_STEP_H

#include <cltrain/planner.h>

#include "job/job.h"

/* Checks --simulate and --link. Returns an exit code, after a message. */
int check_simulation(const settings *s);

/* Reads the next number of --simulate and moves *at behind it. Returns 0 if it is not a valid
 * number of ranks. */
int next_ranks(const char **at);

/* Prints the planner's text, and the table of --simulate. Returns an exit code. */
int print_prediction(const settings *s, const clt_planner *planner);

#endif
