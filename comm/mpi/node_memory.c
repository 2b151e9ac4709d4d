#include "comm/mpi/node_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { NAME = 64 };

/* Makes an object with a new name. */
static int make(char *name)
{
    int file;
    do {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        snprintf(name, NAME, "/cltrain-%ld-%ld-%ld", (long)getpid(), (long)now.tv_sec, now.tv_nsec);
        file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    } while (file < 0 && errno == EEXIST);
    return file;
}

/* Reserves this rank's share of the pages, which are then placed near its processor. Memory that
 * the system lacks would otherwise end the program at the first write. */
static int reserve(int file, size_t bytes, int rank, int ranks)
{
    const size_t first = bytes / (size_t)ranks * (size_t)rank;
    const size_t end = rank == ranks - 1 ? bytes : bytes / (size_t)ranks * (size_t)(rank + 1);
    int error;
    do
        error = posix_fallocate(file, (off_t)first, (off_t)(end - first));
    while (error == EINTR);
    return error;
}

/* Reserves and maps the memory. Returns 0, or the system's error. */
static int map(int file, size_t bytes, int rank, int ranks, void **memory)
{
    const int error = reserve(file, bytes, rank, ranks);
    if (error)
        return error;
    *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (*memory != MAP_FAILED)
        return 0;
    *memory = NULL;
    return errno;
}

clt_status clt_mpi_memory_open(MPI_Comm node, size_t bytes, void **out)
{
    char name[NAME] = "";
    int rank, ranks, file = -1, error = 0, worst = 0;
    void *memory = NULL;
    CLT_TRY(clt_mpi_check(MPI_Comm_rank(node, &rank), "MPI_Comm_rank"));
    CLT_TRY(clt_mpi_check(MPI_Comm_size(node, &ranks), "MPI_Comm_size"));
    if (rank == 0) {
        file = make(name);
        if (file < 0 || ftruncate(file, (off_t)bytes))
            error = errno;
    }
    clt_status status = clt_mpi_check(MPI_Bcast(name, NAME, MPI_CHAR, 0, node), "MPI_Bcast");
    if (rank && status == CLT_OK) {
        file = shm_open(name, O_RDWR, 0);
        error = file < 0 ? errno : 0;
    }
    if (!error && status == CLT_OK)
        error = map(file, bytes, rank, ranks, &memory);
    if (file >= 0)
        close(file);
    /* The name is not needed any more. The memory is freed with the last rank that maps it. */
    CLT_NEXT(status, clt_mpi_check(MPI_Allreduce(&error, &worst, 1, MPI_INT, MPI_MAX, node),
                                   "MPI_Allreduce"));
    if (rank == 0)
        shm_unlink(name);
    if (status == CLT_OK && worst)
        status = clt_mpi_fail(CLT_OUT_OF_MEMORY,
                              "comm: the ranks of a node cannot share %zu bytes of memory: %s; is "
                              "/dev/shm as large?",
                              bytes, strerror(worst));
    if (status != CLT_OK)
        clt_mpi_memory_close(memory, bytes);
    else
        *out = memory;
    return status;
}

void clt_mpi_memory_close(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}
