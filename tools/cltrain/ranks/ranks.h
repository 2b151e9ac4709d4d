/*
 * The command under mpiexec: initialises MPI, and assigns the node's devices and cores to its
 * ranks.
 *
 * --devices lists the devices of the node, and its ranks get them in order. With fewer devices than
 * ranks, a whole CPU device is split evenly: each of its ranks is restricted to its own cores. With
 * --oversubscribe every rank uses the whole list.
 */
#ifndef CLTRAIN_COMMAND_RANKS_RANKS_H
#define CLTRAIN_COMMAND_RANKS_RANKS_H

#include <cltrain/world.h>

#include "options/options.h"

typedef struct rank_set {
    clt_world world;
    int began;        /* this process initialised MPI */
    int first, count; /* this rank's part of the devices of --devices; count 0: all */
} rank_set;

/* Returns whether a process manager started the command, so that ranks_meet will find other
 * ranks. */
int ranks_expected(void);

/* The first call of every rank, for every command. Initialises MPI if a process manager started the
 * command, or with --mpi. Compares the command and the options that decide which collective calls
 * follow.
 * - `several`: the command supports several ranks.
 * - `code`: the result of earlier steps, for example of reading the options.
 * Usage errors are held from then on, see message.h. Collective. Returns an exit code that is the
 * same on all ranks. */
int ranks_meet(const char *command, const settings *s, int several, int code);

/* Returns whether this is a rank other than 0. Call ranks_meet first. */
int ranks_follow(void);

/* Assigns the node's devices to its ranks. Call this before the first OpenCL call. *r must be zero
 * before. Collective. Returns an exit code. */
int ranks_begin(rank_set *r, const settings *s);

/* Names what the ranks do now, for messages about ranks that do not come. */
void ranks_stage(const char *stage);

/* Sets a function for the time of set-up. It returns the exit code of a signal that asks for the
 * end, or 0. A rank that waits for other ranks gives up on such a signal. NULL ends this. */
void ranks_interrupt(int (*asked)(void));

/* Returns the largest code of all ranks. The first rank with a held usage error prints it.
 * Collective. */
int ranks_agree(const rank_set *r, int code);

/* Ends MPI. After a failure the other ranks have a few seconds to end too, then all ranks are
 * aborted. Returns the largest code of all ranks that came. */
int ranks_end(rank_set *r, int code);

/* As ranks_end, for ranks that met but did not call ranks_begin. */
int ranks_leave(int code);

/* Returns whether this rank prints messages that are the same on all ranks. */
int ranks_prints(const rank_set *r);

#endif
