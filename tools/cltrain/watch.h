/* Calls that block, and may never return since another rank was stopped or hangs: MPI_Init. */
#ifndef CLTRAIN_COMMAND_WATCH_H
#define CLTRAIN_COMMAND_WATCH_H

/* From now on a thread, which calls no MPI, ends this process with a line if unwatch does not come
 * within `late` seconds, or another rank of this node is stopped for `stopped` seconds. `what` is
 * for that line, and stays. 0 seconds: without end. */
void watch(const char *what, double stopped, double late);
void unwatch(void);

#endif
