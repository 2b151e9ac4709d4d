/*
 * Intercepts MPI's functions (PMPI) and adds up the bytes that they send to other processes,
 * without the library. Calls of functions that move data and are not added up are counted too.
 * Include this in one file of a program.
 */
#ifndef TESTS_MPI_WIRED_H
#define TESTS_MPI_WIRED_H

#include <stdatomic.h>

#include <mpi.h>

/* Replaces MPI's function for the libraries. */
#define COUNTED __attribute__((visibility("default")))

static atomic_llong wired;   /* bytes sent to other processes */
static atomic_int uncounted; /* calls of functions that move data and are not counted */
static atomic_int watching;  /* 0 for this program's own calls */

static long long bytes_of(int count, MPI_Datatype type)
{
    int size;
    PMPI_Type_size(type, &size);
    return (long long)count * size;
}

COUNTED int MPI_Isend(const void *from, int count, MPI_Datatype type, int to, int tag,
                      MPI_Comm comm, MPI_Request *request)
{
    int own;
    PMPI_Comm_rank(comm, &own);
    if (watching && to != own)
        wired += bytes_of(count, type);
    return PMPI_Isend(from, count, type, to, tag, comm, request);
}

/* The root sends the bytes to each other process. */
COUNTED int MPI_Ibcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm,
                       MPI_Request *request)
{
    int own, size;
    PMPI_Comm_rank(comm, &own);
    PMPI_Comm_size(comm, &size);
    if (watching && root == own)
        wired += bytes_of(count, type) * (size - 1);
    return PMPI_Ibcast(data, count, type, root, comm, request);
}

#define UNCOUNTED(name, parameters, arguments)                                                     \
    COUNTED int MPI_##name parameters                                                              \
    {                                                                                              \
        uncounted += watching;                                                                     \
        return PMPI_##name arguments;                                                              \
    }

UNCOUNTED(Send, (const void *x, int n, MPI_Datatype t, int to, int tag, MPI_Comm c),
          (x, n, t, to, tag, c))
UNCOUNTED(Bcast, (void *x, int n, MPI_Datatype t, int root, MPI_Comm c), (x, n, t, root, c))
UNCOUNTED(Allreduce, (const void *x, void *y, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c),
          (x, y, n, t, o, c))
UNCOUNTED(Iallreduce,
          (const void *x, void *y, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c, MPI_Request *r),
          (x, y, n, t, o, c, r))
UNCOUNTED(Reduce, (const void *x, void *y, int n, MPI_Datatype t, MPI_Op o, int root, MPI_Comm c),
          (x, y, n, t, o, root, c))
UNCOUNTED(Reduce_scatter,
          (const void *x, void *y, const int n[], MPI_Datatype t, MPI_Op o, MPI_Comm c),
          (x, y, n, t, o, c))
UNCOUNTED(Allgather,
          (const void *x, int n, MPI_Datatype t, void *y, int m, MPI_Datatype u, MPI_Comm c),
          (x, n, t, y, m, u, c))
UNCOUNTED(Alltoall,
          (const void *x, int n, MPI_Datatype t, void *y, int m, MPI_Datatype u, MPI_Comm c),
          (x, n, t, y, m, u, c))
UNCOUNTED(Put,
          (const void *x, int n, MPI_Datatype t, int to, MPI_Aint at, int m, MPI_Datatype u,
           MPI_Win w),
          (x, n, t, to, at, m, u, w))

#endif
