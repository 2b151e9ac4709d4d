/* Creates communicators between MPI processes. */
#ifndef CLT_COMM_MPI_CONNECT_H
#define CLT_COMM_MPI_CONNECT_H

#include <cltrain/mpi.h>

/* Does the same as clt_comm_create_mpi. Messages name this rank by `number`; -1: by its rank. */
clt_status clt_mpi_connect(MPI_Comm ranks, int number, const clt_comm_device *devices, int count,
                           const clt_comm_options *options, clt_comm **comm);

#endif
