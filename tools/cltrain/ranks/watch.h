/* Watches calls that block, such as MPI_Init. They may never return if another rank is stopped or
 * hangs. */
#ifndef CLTRAIN_COMMAND_RANKS_WATCH_H
#define CLTRAIN_COMMAND_RANKS_WATCH_H

/* Starts a thread that watches the call `what`. The thread makes no MPI calls. It prints a message
 * and ends this process if unwatch is not called within `late` seconds, or if another rank of this
 * node is stopped for `stopped` seconds. 0 seconds stands for no limit. `what` must stay valid. */
void watch(const char *what, double stopped, double late);
void unwatch(void);

/*
 * Watches the process that started this rank: MPICH's hydra_pmi_proxy, Open MPI's prted or mpirun,
 * or Slurm's slurmstepd. Scripts may lie between this process and the rank. After it ends, nobody
 * reads what ranks print, and nobody ends them. A rank whose parent is the system's first process
 * is not watched. Call this after MPI_Init: a process that only started the manager is gone by
 * then.
 *
 * `seconds`: how long the rank may take to save and end after manager_ended returns 1. Then the
 * process ends with a message. 0 ends it at once.
 */
void watch_manager(double seconds);
int manager_ended(void);

#endif
