/*
 * Handles of communicators that cannot be used, run by mpiexec: freed through another copy, never
 * made, MPI_COMM_NULL, and communicators between two groups. The library refuses each with a
 * message. MPI's default handler would end the program, and handlers of the caller's own are
 * neither called nor lost. Afterwards the ranks work together.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/fixture.h"
#include <cltrain/mpi.h>

static int failures, called;

static void expect(int holds, const char *what)
{
    if (holds)
        return;
    failures++;
    fprintf(stderr, "%s; the last message: %s\n", what, clt_error_message());
}

/* Calls both functions that take a communicator. */
static void refused(MPI_Comm ranks, const clt_comm_device *device, const char *part)
{
    clt_world world;
    clt_comm *comm = NULL;
    clt_comm_options options;
    clt_comm_options_init(&options);
    clt_world_init(&world);
    expect(clt_world_open_mpi(ranks, &world) == CLT_INVALID_ARGUMENT, "clt_world_open_mpi took it");
    expect(strstr(clt_error_message(), "clt_world_open_mpi: ") != NULL, "no function is named");
    expect(strstr(clt_error_message(), part) != NULL, part);
    expect(strchr(clt_error_message(), '\n') == NULL, "a message has several lines");
    expect(clt_comm_create_mpi(ranks, device, 1, &options, &comm) == CLT_INVALID_ARGUMENT && !comm,
           "clt_comm_create_mpi took it");
    expect(strstr(clt_error_message(), part) != NULL, part);
}

static void all_refused(const clt_comm_device *device)
{
    MPI_Comm team, copy, half, pair;
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &team);
    copy = team;
    MPI_Comm_free(&team);
    refused(copy, device, "it was freed through another copy");
    refused(MPI_COMM_NULL, device, "MPI_COMM_NULL");
#ifdef MPICH_VERSION
    /* Handles of MPICH are numbers, so an uninitialised one is known to be none. */
    refused((MPI_Comm)12345, device, "or never made");
#endif
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank == 0 ? 1 : 0, 7, &pair);
    refused(pair, device, "MPI_Intercomm_merge");
    MPI_Comm_free(&pair);
    MPI_Comm_free(&half);
}

static void count_call(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    (void)code;
    called++;
}

static int has(MPI_Comm comm, MPI_Errhandler handler)
{
    MPI_Errhandler now;
    MPI_Comm_get_errhandler(comm, &now);
    const int same = now == handler;
    if (now != MPI_ERRORS_ARE_FATAL && now != MPI_ERRORS_RETURN)
        MPI_Errhandler_free(&now);
    return same;
}

/* Ranks of a communicator whose handler is the caller's own exchange their numbers. */
static void works(MPI_Errhandler handler)
{
    MPI_Comm team;
    clt_world world;
    int rank, all[8] = {0};
    MPI_Comm_dup(MPI_COMM_WORLD, &team);
    MPI_Comm_set_errhandler(team, handler);
    clt_world_init(&world);
    expect(clt_world_open_mpi(team, &world) == CLT_OK, "a good communicator is refused");
    expect(has(team, handler), "the handler of the communicator is lost");
    MPI_Comm_rank(team, &rank);
    expect(world.gather(world.user, &rank, sizeof rank, all) == CLT_OK, "gather failed");
    for (int k = 0; k < world.ranks; k++)
        expect(all[k] == k, "a rank's number is wrong");
    clt_world_close(&world);
    MPI_Comm_free(&team);
}

int main(int argc, char **argv)
{
    fixture f;
    clt_comm_device device;
    MPI_Errhandler own, other;
    MPI_Init(&argc, &argv);
    fixture_open(&f, 1, false, false);
    fixture_device(&f, 0, &device);
    all_refused(&device);
    expect(has(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL), "the handler of MPI_COMM_WORLD is lost");
    expect(has(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL), "the handler of MPI_COMM_SELF is lost");
    works(MPI_ERRORS_ARE_FATAL);
    MPI_Comm_create_errhandler(count_call, &own);
    MPI_Comm_create_errhandler(count_call, &other);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, own);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, other);
    all_refused(&device);
    works(own);
    expect(called == 0, "the caller's handler was called");
    expect(has(MPI_COMM_WORLD, own), "the caller's handler of MPI_COMM_WORLD is lost");
    expect(has(MPI_COMM_SELF, other), "the caller's handler of MPI_COMM_SELF is lost");
    MPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_OTHER);
    MPI_Comm_call_errhandler(MPI_COMM_SELF, MPI_ERR_OTHER);
    expect(called == 2, "the caller's handlers cannot be called any more");
    MPI_Errhandler_free(&own);
    MPI_Errhandler_free(&other);
    fixture_close(&f);
    MPI_Finalize();
    return failures != 0;
}
