/* Failures, and calls of MPI that return, for all files of libcltrain-mpi. This is a separate
 * library, so it reports through public functions. */
#ifndef CLT_COMM_MPI_STATUS_H
#define CLT_COMM_MPI_STATUS_H

#include "base/error.h"
#include <cltrain/mpi.h>

clt_status clt_mpi_fail(clt_status status, const char *format, ...) CLT_PRINTF(2, 3);

/* Returns OK, or fails with MPI, the call's name and MPI's message. */
clt_status clt_mpi_check(int code, const char *call);

/* Fails with STATE, naming the function, unless MPI is between MPI_Init and MPI_Finalize. */
clt_status clt_mpi_running(const char *function);

/* Duplicates a communicator of the caller. Failed calls of the duplicate return instead of ending
 * the program. Fails with INVALID_ARGUMENT, naming the function, if the communicator was freed, is
 * none, or connects two groups. The error handlers of the caller are as before. */
clt_status clt_mpi_duplicate(MPI_Comm from, const char *function, MPI_Comm *to);

#endif
