/* Memory that the ranks of a node share. Each rank unmaps it independently of the others. */
#ifndef CLT_COMM_MPI_NODE_MEMORY_H
#define CLT_COMM_MPI_NODE_MEMORY_H

#include <stddef.h>

#include "comm/mpi/status.h"

/* Makes `bytes` bytes of zeros for all ranks of `node`, at the beginning of a page. Collective.
 * Errors, on all ranks: OUT_OF_MEMORY; MPI (a call failed). */
clt_status clt_mpi_memory_open(MPI_Comm node, size_t bytes, void **memory);

/* Unmaps the memory. Takes NULL. */
void clt_mpi_memory_close(void *memory, size_t bytes);

#endif
