/* --profile of train: a trace of the commands of all devices of a rank. */
#ifndef CLTRAIN_COMMAND_PROFILES_H
#define CLTRAIN_COMMAND_PROFILES_H

#include <cltrain/unstable.h>

#include "job/job.h"

/* The profiles of a rank's trainers: one, or one for each replica. */
typedef struct profile_set {
    clt_profile **of;
    double *began; /* by profile: seconds */
    int count;
} profile_set;

clt_status profiles_start(const job *j, profile_set *set);

/* Ends the profiles and writes the rank's file, also after a run that stopped or failed. Keeps the
 * error message of the run. Does nothing without profiles. Returns an exit code. */
int profiles_save(const job *j, profile_set *set, const char *path);

#endif
