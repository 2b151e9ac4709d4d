/* Memory that the ranks of a node share: freed by each for itself, whatever the others do. */
#ifndef CLT_COMM_MPI_MEMORY_H
#define CLT_COMM_MPI_MEMORY_H

#include <stddef.h>

#include "comm/mpi/status.h"

/* Collective over `node`, whose every rank gets `bytes` bytes of zeros, at the beginning of a page.
 * Errors, on all of them: OUT_OF_MEMORY; MPI (a call failed). */
clt_status clt_mpi_memory_open(MPI_Comm node, size_t bytes, void **memory);

/* Takes NULL. */
void clt_mpi_memory_close(void *memory, size_t bytes);

#endif
