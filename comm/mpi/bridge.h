/* Connects the first ranks of several nodes through MPI. */
#ifndef CLT_COMM_MPI_BRIDGE_H
#define CLT_COMM_MPI_BRIDGE_H

#include "comm/mpi/status.h"

typedef struct clt_mpi_bridge clt_mpi_bridge;

/* Collective over `ranks`. `node` has the ranks of this node. Messages name this rank by `number`.
 * *bridge is NULL if there is one node. Only first ranks may use its functions. */
clt_status clt_mpi_bridge_open(MPI_Comm ranks, MPI_Comm node, int number, clt_mpi_bridge **bridge,
                               clt_comm_bridge *functions);

/* Frees the bridge. MPI's objects are given back unless `aborted`: then other ranks may not come,
 * or still send. Takes NULL. */
void clt_mpi_bridge_close(clt_mpi_bridge *bridge, int aborted);

/* Makes a communicator of the ranks that share this rank's memory. */
clt_status clt_mpi_split_node(MPI_Comm ranks, MPI_Comm *node);

#endif
