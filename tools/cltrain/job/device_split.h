/* Which devices a training uses, and how its batches are divided among them. */
#ifndef CLTRAIN_COMMAND_JOB_DEVICE_SPLIT_H
#define CLTRAIN_COMMAND_JOB_DEVICE_SPLIT_H

#include "job/job.h"

/* Whether --devices leaves the choice to the planner: nothing, or all, gpu and cpu alone. */
int planner_may_choose(const char *list);

/* Checks --split. Returns an exit code. */
int check_split(const settings *s);

/* Reads --replay: the changes of the division; the first one is --split's, if that is not given.
 * Also sets options.rebalance. Returns an exit code. */
int job_replay(job *j, const settings *s);

/* Sets j->options.weights and .quantum as --split says: by speed, which is measured, unless the
 * checkpoint that the run goes on from has a division; equally; or by given weights. Closes devices
 * that the planner leaves out. Prints what was decided unless `quiet`. Needs devices and graph, and
 * no store yet. Collective; returns an exit code. */
int job_split(job *j, const settings *s, int quiet);

#endif
