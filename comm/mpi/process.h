/* Identity and state of the processes of a world's ranks. */
#ifndef CLT_COMM_MPI_PROCESS_H
#define CLT_COMM_MPI_PROCESS_H

#include <stdint.h>

typedef struct clt_mpi_process {
    int64_t pid, start; /* start: start time as Linux counts it; 0: unknown */
    char host[96];
    double idle_since; /* for the watching rank; 0: the process is neither stopped nor gone */
} clt_mpi_process;

void clt_mpi_process_self(clt_mpi_process *process);

/* Returns the state's letter of /proc/PID/stat, 'X' if the process has ended, '?' if this cannot be
 * found out: the process is on another machine, or has other numbers there. */
char clt_mpi_process_state(const clt_mpi_process *process);

#endif
