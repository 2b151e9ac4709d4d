/*
 * Random collectives between MPI ranks, run by mpiexec: `collectives [DEVICES [LEVEL]]`. DEVICES is
 * the number of devices a rank (1). LEVEL is the level of MPI's thread support (single, as plain
 * MPI_Init). Exit code 1 if anything differs.
 */
#include "comm/random.h"

#include <errno.h>
#include <time.h>

#include <cltrain/mpi.h>

/* Runs the collectives of all devices. Returns the number of devices that failed. */
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
    /* Between nodes, only this thread may call MPI. */
    for (int d = 0; d < devices; d++)
        while (pthread_tryjoin_np(ids[d], NULL) == EBUSY) {
            const struct timespec pause = {0, 20000};
            clt_comm_progress(comm);
            nanosleep(&pause, NULL);
        }
    for (int d = 0; d < devices; d++) {
        if (*drivers[d].message || drivers[d].errors)
            fprintf(stderr, "rank %d, device %d: %d errors: %s\n", rank, d, drivers[d].errors,
                    drivers[d].message);
        failed += *drivers[d].message || drivers[d].errors;
        driver_close(&drivers[d]);
    }
    return failed;
}

static int level_of(const char *name)
{
    static const char *const names[] = {"single", "funneled", "serialized", "multiple"};
    static const int levels[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED,
                                 MPI_THREAD_MULTIPLE};
    for (int i = 0; i < 4; i++)
        if (!strcmp(name, names[i]))
            return levels[i];
    fprintf(stderr, "%s is no level of thread support\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    const int devices = argc > 1 ? atoi(argv[1]) : 1;
    const int level = level_of(argc > 2 ? argv[2] : "single");
    int rank, ranks, given;
    MPI_Init_thread(&argc, &argv, level, &given);
    if (given < level) {
        fprintf(stderr, "this MPI library has no such level of thread support\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
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
