/* Selects the devices of a training run, and divides its batches among them. */
#ifndef CLTRAIN_COMMAND_JOB_DEVICE_SPLIT_H
#define CLTRAIN_COMMAND_JOB_DEVICE_SPLIT_H

#include "job/job.h"

/* Returns whether the planner may leave devices out. True if --devices was not set, or names only
 * all, gpu and cpu. */
int planner_may_choose(const char *list);

/* Checks --split. Returns an exit code. */
int check_split(const settings *s);

/* Reads the divisions of batches from the file of --replay. The first one takes the place of
 * --split, which must not be set. Also sets options.rebalance. Returns an exit code. */
int job_replay(job *j, const settings *s);

/* Sets j->options.weights and .quantum as --split says: by measured speed, equally, or by the
 * weights of the option. A resumed run takes the measured division of its checkpoint. Closes
 * devices that the planner leaves out. Prints the result unless `quiet`. Needs devices and graph;
 * call this before the store is made. Collective. Returns an exit code. */
int job_split(job *j, const settings *s, int quiet);

#endif
