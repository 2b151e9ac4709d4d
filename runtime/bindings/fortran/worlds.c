/* Communicators of Fortran as worlds. Only programs that use module cltrain_mpi compile this file.
 */
#define CL_TARGET_OPENCL_VERSION 120

#include <mpi.h>
#include <stddef.h>

#include <cltrain/mpi.h>

#include "handles.h"

clt_status clt_f_world_open_mpi(int ranks, clt_world **world);
clt_status clt_f_world_deadlines(clt_world *world, double late, double stopped);

clt_status clt_f_world_open_mpi(int ranks, clt_world **world)
{
    *world = NULL;
    int initialised = 0, finalised = 0;
    MPI_Initialized(&initialised);
    MPI_Finalized(&finalised);
    if (!initialised || finalised)
        return clt_error_set(CLT_STATE, finalised ? "clt_world_open_mpi: MPI is finalised"
                                                  : "clt_world_open_mpi: call MPI_Init first");
    const MPI_Comm comm = MPI_Comm_f2c((MPI_Fint)ranks);
    if (comm == MPI_COMM_NULL)
        return clt_error_set(
            CLT_INVALID_ARGUMENT,
            "clt_world_open_mpi: the communicator is MPI_COMM_NULL; it was freed, or "
            "this rank is in no part of a split");
    clt_world *made = clt_f_world_new();
    if (!made)
        return CLT_OUT_OF_MEMORY;
    const clt_status status = clt_world_open_mpi(comm, made);
    if (status == CLT_OK)
        *world = made;
    else
        clt_f_world_free(made);
    return status;
}

clt_status clt_f_world_deadlines(clt_world *world, double late, double stopped)
{
    clt_world_deadlines deadlines;
    clt_world_deadlines_init(&deadlines);
    deadlines.late = late;
    deadlines.stopped = stopped;
    return clt_world_set_deadlines_mpi(world, &deadlines);
}
