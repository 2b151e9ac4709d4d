/* The first ranks of several nodes, over MPI. */
#ifndef CLT_COMM_MPI_BRIDGE_H
#define CLT_COMM_MPI_BRIDGE_H

#include "comm/mpi/status.h"

typedef struct clt_mpi_bridge clt_mpi_bridge;

/* Collective over `ranks`; `node` holds those of this node. *bridge is NULL where there is one
 * node, and has functions on the first ranks only. */
clt_status clt_mpi_bridge_open(MPI_Comm ranks, MPI_Comm node, clt_mpi_bridge **bridge,
                               clt_comm_bridge *functions);

/* Gives back what MPI holds unless `aborted`: where others may not come, or still send. Takes NULL.
 */
void clt_mpi_bridge_close(clt_mpi_bridge *bridge, int aborted);

/* The ranks that share this one's memory. */
clt_status clt_mpi_split_node(MPI_Comm ranks, MPI_Comm *node);

#endif
