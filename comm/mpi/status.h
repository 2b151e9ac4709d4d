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

/* Duplicates a communicator. Failed calls of the duplicate return instead of ending the program. */
clt_status clt_mpi_duplicate(MPI_Comm from, MPI_Comm *to);

#endif
