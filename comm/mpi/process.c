/* Finds out whether another rank's process lives. Linux tells so without help of that process, at
 * any level of MPI's thread support, and also while it compiles for minutes. */
#include "comm/mpi/process.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Returns the letter of a process' state and its start time; 0 if there is no such process. */
static char read_stat(int64_t pid, int64_t *start)
{
    char path[48], text[1024], state = 0;
    long long began = 0;
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    const size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    /* The name, in parentheses, may have any characters. */
    const char *at = strrchr(text, ')');
    if (!at || sscanf(at + 1,
                      " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                      "%*s %lld",
                      &state, &began) != 2)
        return 0;
    *start = began;
    return state;
}

void clt_mpi_process_self(clt_mpi_process *p)
{
    *p = (clt_mpi_process){.pid = getpid()};
    gethostname(p->host, sizeof p->host - 1);
    read_stat(p->pid, &p->start);
}

char clt_mpi_process_state(const clt_mpi_process *p)
{
    clt_mpi_process own;
    clt_mpi_process_self(&own);
    if (!p->start || !own.start || strcmp(own.host, p->host))
        return '?';
    int64_t start = 0;
    const char state = read_stat(p->pid, &start);
    return !state || start != p->start || state == 'Z' ? 'X' : state;
}
