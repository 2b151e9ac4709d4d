/* The policies that options ask for: --keep-best, --patience and --schedule plateau. */
#ifndef CLTRAIN_COMMAND_JOB_POLICIES_H
#define CLTRAIN_COMMAND_JOB_POLICIES_H

#include "job/job.h"

/* Reads --schedule: a schedule of the library, or plateau with a schedule that is constant but for
 * its warm-up. */
clt_status schedule_read(const char *text, int64_t steps, clt_schedule *schedule);

/* Checks --keep-best, --patience, --min-delta and --monitor as far as that needs no model. Returns
 * an exit code. */
int check_policies(const settings *s);

/* Makes the policies for the graph's metrics, and sets the options of clt_fit. Returns an exit
 * code. */
int job_policies(job *j, const settings *s, clt_fit_options *fit);

void job_policies_close(job *j);

#endif
