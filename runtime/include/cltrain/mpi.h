/*
 * Communicators between MPI processes, for programs that link libcltrain-mpi. The program calls
 * MPI_Init and MPI_Finalize. Any level of thread support will do.
 */
#ifndef CLTRAIN_MPI_H
#define CLTRAIN_MPI_H

#include <mpi.h>

#include <cltrain/comm.h>
#include <cltrain/world.h>

CLT_BEGIN_DECLS

/*
 * Creates a communicator between the devices of all ranks of `ranks`, as clt_comm_create_between.
 * Collective: all ranks call it, each with its own `count` devices, from a thread that may call
 * MPI. The MPI communicator stays the caller's.
 *
 * - clt_comm_destroy is not collective: no rank waits for another. Call it before MPI_Finalize, on
 *   the thread that created the communicator, or on any thread with MPI_THREAD_MULTIPLE.
 * - Ranks of a node exchange data through memory that they share, without MPI.
 * - Between nodes the first ranks call MPI. With MPI_THREAD_MULTIPLE they do so on a thread of the
 *   library. At lower levels they do so only on the thread that created the communicator, while it
 *   is in clt_comm_complete or clt_comm_progress.
 * - The first ranks have an MPI communicator of their own. It is freed if all ranks passed
 *   clt_comm_finalize; otherwise MPI keeps it until MPI_Finalize.
 *
 * Errors: those of clt_comm_create_between; INVALID_ARGUMENT (`ranks` is MPI_COMM_NULL, was freed,
 * or is an intercommunicator); STATE (MPI is not initialised, or finalised); MPI (a call failed;
 * the message has MPI's). If a rank fails before it takes part, all ranks get its error. Only a
 * rank with an invalid `ranks` notices that itself: the others wait for it in MPI_Comm_dup.
 *
 * MPI's error handlers are not called for `ranks`: during this call MPI_COMM_WORLD, MPI_COMM_SELF
 * and `ranks` have MPI_ERRORS_RETURN. Then they have the caller's handlers again.
 */
CLT_API clt_status clt_comm_create_mpi(MPI_Comm ranks, const clt_comm_device *devices, int count,
                                       const clt_comm_options *options, clt_comm **comm);

/*
 * Opens the world of the ranks of an MPI communicator, for clt_trainer_options.world. This call and
 * clt_world_close are collective. The MPI communicator is duplicated and stays the caller's. The
 * thread that calls the library calls MPI, and only in functions that <cltrain/world.h> lists as
 * collective. Close the world before MPI_Finalize. Invalid communicators and error handlers: as
 * clt_comm_create_mpi. Errors: INVALID_ARGUMENT (`ranks`), STATE, OUT_OF_MEMORY, MPI; ABORTED if
 * another rank failed: then all fail, and the duplicate is freed.
 */
CLT_API clt_status clt_world_open_mpi(MPI_Comm ranks, clt_world *world);

/* How long a rank waits for others outside reductions: before training, and between steps to
 * evaluate, save and recover. Reductions have clt_trainer_options.comm_timeout. */
typedef struct clt_world_deadlines {
    size_t struct_size; /* set by clt_world_deadlines_init, which makes the rest 0 */
    /* Seconds that another rank may be late; 0: without limit. Compiling and measuring kernels may
     * take minutes. */
    double late;
    /* Seconds that a process on this machine may be stopped (SIGSTOP, a debugger) while others wait
     * for it; 0: not checked. A process that has ended is noticed too. */
    double stopped;
    /* Called ten times a second while waiting; a result other than 0 ends the wait with STOPPED.
     * May be NULL. */
    int (*cancelled)(void *user);
    /* Returns what the ranks are doing, or NULL, for messages such as "waited for rank 1, for ...".
     * May be NULL. */
    const char *(*what)(void *user);
    void *user;
} clt_world_deadlines;

/* Sets struct_size; all other members become 0. */
CLT_API void clt_world_deadlines_init(clt_world_deadlines *deadlines);

/*
 * Sets the deadlines of a world of clt_world_open_mpi, which has none at first. Collective; the
 * call itself is under these deadlines already. When a deadline has passed, the call of the library
 * fails with TIMEOUT and names the ranks that are missing. All later collective calls in this world
 * fail: call MPI_Abort then. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY, TIMEOUT, STOPPED, MPI.
 */
CLT_API clt_status clt_world_set_deadlines_mpi(clt_world *world,
                                               const clt_world_deadlines *deadlines);

CLT_END_DECLS

#endif
