/*
 * The command under mpiexec: MPI, and which of the node's devices and cores a rank has.
 *
 * The list of --devices names the node's devices; its ranks are dealt them in order. Where there
 * are fewer devices than ranks, one that is a whole CPU is first split evenly, by restricting each
 * of its ranks to its own cores. With --oversubscribe every rank uses the whole list.
 */
#ifndef CLTRAIN_COMMAND_RANKS_H
#define CLTRAIN_COMMAND_RANKS_H

#include <cltrain/world.h>

#include "options.h"

typedef struct rank_set {
    clt_world world;
    int began;        /* MPI was initialised here */
    int first, count; /* of the devices that the list opens, those of this rank; 0: all */
} rank_set;

/* Begins MPI where a process manager started the command, or with --mpi, and deals the node's
 * devices; before the first OpenCL call, and before messages that all ranks would print. *r is zero
 * before. Usage errors are held from then on, see
 * message.h. Collective; returns an exit code. */
int ranks_begin(rank_set *r, const settings *s);

/* Whether a process manager started the command, so that ranks_begin will find others. */
int ranks_expected(void);

/* The largest of all ranks' codes; those that have none of their own exit with it silently. A usage
 * error that was held is printed by the first rank that has it. */
int ranks_agree(const rank_set *r, int code);

/* Instead of ranks_begin, for a rank that cannot read its options; all is over then. */
int ranks_refuse(int code);

/* Ends MPI. After a failure the other ranks have a few seconds to come to their end too; then all
 * are aborted. Returns the code. */
int ranks_end(rank_set *r, int code);

/* Whether this rank prints what is the same on all. */
int ranks_prints(const rank_set *r);

#endif
