/* What is known of the processes of a world's ranks. */
#ifndef CLT_COMM_MPI_PROCESS_H
#define CLT_COMM_MPI_PROCESS_H

#include <stdint.h>

typedef struct clt_mpi_process {
    int64_t pid, start; /* start: when it began, as Linux counts; 0: not known */
    char host[96];
    double idle_since; /* for the one who watches; 0: it is neither stopped nor gone */
} clt_mpi_process;

void clt_mpi_process_self(clt_mpi_process *process);

/* The letter of /proc/PID/stat, 'X' if the process has ended, '?' if that cannot be seen from
 * here: it is on another machine, or has other numbers there. */
char clt_mpi_process_state(const clt_mpi_process *process);

#endif
