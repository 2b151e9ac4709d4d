/*
 * Communicators between MPI processes, for programs that link libcltrain-mpi. MPI is the program's:
 * it calls MPI_Init and MPI_Finalize, and any level of thread support will do.
 */
#ifndef CLTRAIN_MPI_H
#define CLTRAIN_MPI_H

#include <mpi.h>

#include <cltrain/comm.h>
#include <cltrain/world.h>

CLT_BEGIN_DECLS

/*
 * A communicator over the devices of all ranks of `ranks`, each giving its own `count` devices; as
 * clt_comm_create_between. Collective: all ranks call it, from a thread that may call MPI. The MPI
 * communicator stays the caller's. clt_comm_destroy is not collective: no rank waits for another.
 * Destroy it before MPI_Finalize, on the thread that created it unless MPI was initialised with
 * MPI_THREAD_MULTIPLE.
 *
 * Between ranks of a node data go through memory that they share, without MPI. Between nodes their
 * first ranks call MPI: on a thread of the library's with MPI_THREAD_MULTIPLE; at any lower level
 * only on the thread that created the communicator, while it is in clt_comm_complete or
 * clt_comm_progress. They have a communicator of MPI's for it, which is given back where all ranks
 * passed clt_comm_finalize; else MPI keeps it until MPI_Finalize.
 *
 * Errors, the same on all ranks where one of them fails before it could take part: those of
 * clt_comm_create_between; STATE (MPI is not initialised, or finalised); MPI (a call failed; the
 * message has MPI's).
 */
CLT_API clt_status clt_comm_create_mpi(MPI_Comm ranks, const clt_comm_device *devices, int count,
                                       const clt_comm_options *options, clt_comm **comm);

/*
 * The world of the ranks of an MPI communicator, for clt_trainer_options.world. Collective, as is
 * clt_world_close; the MPI communicator is duplicated and stays the caller's. MPI is called by the
 * thread that calls the library, and only where <cltrain/world.h> says that all ranks call it;
 * close the world before MPI_Finalize. Errors: STATE, OUT_OF_MEMORY, MPI; ABORTED where another
 * rank failed: then all fail, and the duplicate is freed.
 */
CLT_API clt_status clt_world_open_mpi(MPI_Comm ranks, clt_world *world);

/* How long a rank waits where ranks tell each other something, which they do before training, and
 * between steps to evaluate, save and mend. Not for reductions: those have
 * clt_trainer_options.comm_timeout. */
typedef struct clt_world_deadlines {
    size_t struct_size; /* set by clt_world_deadlines_init, which makes the rest 0 */
    /* Seconds that another may be late, since it may be at work: compiling and measuring kernels
     * takes minutes. 0: without end. */
    double late;
    /* Seconds that a process on this machine may be stopped (SIGSTOP, a debugger) while it is
     * waited for; one that has ended is noticed after some. 0: nobody looks. */
    double stopped;
    /* Asked ten times a second while waiting; not 0: give up, with STOPPED. May be NULL. */
    int (*cancelled)(void *user);
    /* What the ranks are at, for messages that say "waited for rank 1, for ..."; a text or NULL.
     * May be NULL. */
    const char *(*what)(void *user);
    void *user;
} clt_world_deadlines;

CLT_API void clt_world_deadlines_init(clt_world_deadlines *deadlines);

/*
 * Sets them for a world of clt_world_open_mpi, which has none. Collective, and already under these
 * deadlines. Where one has passed, what the library was asked to do fails with TIMEOUT and names
 * the ranks that are missing, and from then on everything that is collective in this world fails:
 * call MPI_Abort. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY, TIMEOUT, STOPPED, MPI.
 */
CLT_API clt_status clt_world_set_deadlines_mpi(clt_world *world,
                                               const clt_world_deadlines *deadlines);

CLT_END_DECLS

#endif
