/*
 * Random collectives between MPI ranks, run by mpiexec: `collectives [DEVICES]` with that many
 * devices a rank (1). Plain MPI_Init: what most programs have. Exit code 1 if anything differs.
 */
#include "comm/random.h"

#include <cltrain/mpi.h>

/* Collectives of all devices; the number that went wrong. */
static int exchange_all(clt_comm *comm, const fixture *f, int rank, int ranks, int devices)
{
    static driver drivers[FIXTURE_MAX];
    pthread_t ids[FIXTURE_MAX];
    int failed = clt_comm_size(comm) != ranks * devices;
    for (int d = 0; d < devices; d++) {
        driver_open(&drivers[d], f, rank * devices + d, rank * devices, ranks * devices, 11);
        drivers[d].comm = comm;
        drivers[d].first = rank * devices;
        failed += clt_comm_participant(comm, d) != rank * devices + d;
    }
    for (int d = 0; d < devices; d++)
        pthread_create(&ids[d], NULL, drive, &drivers[d]);
    for (int d = 0; d < devices; d++)
        pthread_join(ids[d], NULL);
    for (int d = 0; d < devices; d++) {
        if (*drivers[d].message || drivers[d].errors)
            fprintf(stderr, "rank %d, device %d: %d errors: %s\n", rank, d, drivers[d].errors,
                    drivers[d].message);
        failed += *drivers[d].message || drivers[d].errors;
        driver_close(&drivers[d]);
    }
    return failed;
}

int main(int argc, char **argv)
{
    const int devices = argc > 1 ? atoi(argv[1]) : 1;
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    fixture f;
    clt_comm *comm;
    clt_comm_device of[FIXTURE_MAX];
    clt_comm_options options;
    clt_comm_options_init(&options);
    options.max_in_flight = SLOTS;
    options.timeout_ms = 60000;
    fixture_open(&f, devices, false, false);
    for (int d = 0; d < devices; d++)
        fixture_device(&f, d, &of[d]);
    if (clt_comm_create_mpi(MPI_COMM_WORLD, of, devices, &options, &comm) != CLT_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, clt_error_message());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    int failed = exchange_all(comm, &f, rank, ranks, devices);
    if (!failed && clt_comm_finalize(comm) != CLT_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, clt_error_message());
        failed = 1;
    }
    clt_comm_destroy(comm);
    fixture_close(&f);
    MPI_Finalize();
    return failed != 0;
}
