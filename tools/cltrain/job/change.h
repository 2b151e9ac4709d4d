/* Tells about the number of ranks with which a run begins or goes on, for runs with --global-batch.
 */
#ifndef CLTRAIN_COMMAND_JOB_CHANGE_H
#define CLTRAIN_COMMAND_JOB_CHANGE_H

#include "job/job.h"
#include "output/metrics.h"

typedef struct change {
    int due;        /* nothing was reported yet */
    int ranks;      /* before; 0: unknown, or the run begins */
    char cause[16]; /* "asked", "lost" or "refused": the launcher's word; "": unknown */
    int64_t step;   /* that was begun last before: of the ranks the highest, or with replicas by
                       time the mean; 0: unknown */
    double stopped; /* when that step ended, in seconds since 1970; 0: unknown */
    const job *job;
    const char *how; /* --global-batch */
} change;

/* Reads what cltrain-launch left in the folder of --heartbeat about the ranks before
 * (change.json), and tells it about these ranks (job.json). On rank 0 only. */
void change_begin(change *c, const job *j, const settings *s);

/* Prints the change, and writes its record, when the first step is reported. `m` may be NULL.
 * Returns 0, or -1 if the metrics cannot be written. */
int change_report(change *c, const clt_progress *first, metrics *m, int quiet);

#endif
