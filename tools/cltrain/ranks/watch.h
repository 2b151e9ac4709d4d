/* Calls that block, and may never return since another rank was stopped or hangs: MPI_Init. */
#ifndef CLTRAIN_COMMAND_RANKS_WATCH_H
#define CLTRAIN_COMMAND_RANKS_WATCH_H

/* From now on a thread, which calls no MPI, ends this process with a line if unwatch does not come
 * within `late` seconds, or another rank of this node is stopped for `stopped` seconds. `what` is
 * for that line, and stays. 0 seconds: without end. */
void watch(const char *what, double stopped, double late);
void unwatch(void);

/*
 * Watches the process that started this rank: MPICH's hydra_pmi_proxy, Open MPI's prted or mpirun,
 * Slurm's slurmstepd. It need not be the parent: scripts may lie between. Once it has ended, nobody
 * reads what ranks print, and nobody ends them. Call this after MPI_Init: a process that only
 * started the manager is gone by then. A rank without such a process (the system's first process is
 * its parent) is not watched.
 *
 * `seconds`: how long the rank may take to save and end, after manager_ended has told so. Then, or
 * at once if it is 0, the process ends with a message.
 */
void watch_manager(double seconds);
int manager_ended(void);

#endif
