/*
 * The command under mpiexec: MPI, and which of the node's devices and cores a rank has.
 *
 * The list of --devices names the node's devices; its ranks are dealt them in order. Where there
 * are fewer devices than ranks, one that is a whole CPU is first split evenly, by restricting each
 * of its ranks to its own cores. With --oversubscribe every rank uses the whole list.
 */
#ifndef CLTRAIN_COMMAND_RANKS_RANKS_H
#define CLTRAIN_COMMAND_RANKS_RANKS_H

#include <cltrain/world.h>

#include "options/options.h"

typedef struct rank_set {
    clt_world world;
    int began;        /* MPI was initialised here */
    int first, count; /* of the devices that the list opens, those of this rank; 0: all */
} rank_set;

/* Whether a process manager started the command, so that ranks_meet will find others. */
int ranks_expected(void);

/* The first thing that ranks do, whatever they were asked for: begins MPI where a process manager
 * started the command, or with --mpi, and compares the command and the options that decide which
 * collective calls follow. `code` is what came before, as a mistake in the options. `several`: the
 * command is made for several ranks. Usage errors are held from then on, see message.h. Collective;
 * returns an exit code, which all have alike. */
int ranks_meet(const char *command, const settings *s, int several, int code);

/* Whether ranks that have met are several, and this is not the first. */
int ranks_follow(void);

/* Deals the node's devices; before the first OpenCL call. *r is zero before, and then what the
 * ranks that have met are. Collective; returns an exit code. */
int ranks_begin(rank_set *r, const settings *s);

/* What ranks are at, for messages about those that do not come. */
void ranks_stage(const char *stage);

/* During set-up `asked` returns the exit code of a signal that asks for the end, or 0. A rank that
 * waits for others gives up then. NULL: set-up is over. */
void ranks_interrupt(int (*asked)(void));

/* The largest of all ranks' codes. A usage error that was held is printed by the first rank that
 * has it. */
int ranks_agree(const rank_set *r, int code);

/* Ends MPI. After a failure the other ranks have a few seconds to come to their end too; then all
 * are aborted. Returns the code, the largest of those that came. */
int ranks_end(rank_set *r, int code);

/* The same for ranks that have met and did not come to ranks_begin. */
int ranks_leave(int code);

/* Whether this rank prints what is the same on all. */
int ranks_prints(const rank_set *r);

#endif
