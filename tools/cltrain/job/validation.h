/* The validation set of --val: a fraction of the training samples, those that a field marks, or
 * other files. */
#ifndef CLTRAIN_COMMAND_JOB_VALIDATION_H
#define CLTRAIN_COMMAND_JOB_VALIDATION_H

#include "job/job.h"

/* Checks --val and --val-every. Returns an exit code. */
int check_validation(const settings *s);

/* Finds the seed of the draw for a fraction: the checkpoint's, if a run resumes without --seed.
 * Rank 0 tells it to the others, which need not have the checkpoint. Collective. Returns an exit
 * code. */
int job_validation_seed(job *j, const settings *s);

/* Divides the training samples, or opens other files. Call it after the training samples were
 * opened, before anything else is made from them. Returns an exit code. */
int job_validation(job *j, const settings *s);

/* Checks that a field of the validation samples is that of the training samples. */
clt_status same_validation_field(const job *j, const char *name);

/* Sets the options of clt_fit. Returns an exit code. */
int fit_validation(const job *j, const settings *s, clt_fit_options *fit);

#endif
