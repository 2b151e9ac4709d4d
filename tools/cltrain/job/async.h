/* `train --async`: which part of the job this process has, and how it takes part. */
#ifndef CLTRAIN_COMMAND_JOB_ASYNC_H
#define CLTRAIN_COMMAND_JOB_ASYNC_H

#include <cltrain/async.h>

#include "job/job.h"

typedef enum async_role {
    SYNCHRONOUS,
    LEADER,   /* holder 0: evaluates, saves, prints and writes metrics */
    FOLLOWER, /* another holder */
    WORKER
} async_role;

/* Returns this process' role. */
async_role async_role_of(const settings *s);

/* Checks the options of asynchronous training, and those that exclude it. Returns an exit code. */
int async_check(const settings *s);

/* Changes the options of a process that neither saves nor prints. */
void async_quieten(settings *s);

/* Runs holder 0 or a worker, instead of clt_fit. */
clt_status async_run(job *j, const settings *s, const clt_fit_options *fit);

/* Runs another holder, from options to end. `stop` says whether a signal asks for the end. Returns
 * an exit code. */
int async_follow(const settings *s, int (*stop)(void));

#endif
