/*
 * LeNet's parity with PyTorch over MPI ranks, run by mpiexec: `parity DEVICES [STEPS [WEIGHTS]]`.
 * Each rank opens the list DEVICES for itself. A run has at most STEPS steps (0: all). WEIGHTS
 * divide batches among the devices of all ranks (equally by default). After each run, replicas have
 * the same bits on all ranks. A repeated run ends with the same bits.
 */
#include <mpi.h>

#include "train/parity.h"

#include <cltrain/mpi.h>

static const char *devices;
static uint64_t ended; /* hash of the parameters after the last run */

static uint64_t add(uint64_t hash, const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ bytes[i]) * 1099511628211u; /* FNV-1a */
    return hash;
}

/* Checks that all ranks have the same bits. */
static void compare_ranks(lab *l)
{
    static float values[200000];
    uint64_t hash = 14695981039346656037u, all[64];
    for (int p = 0; p < clt_store_count(l->store); p++) {
        const char *name;
        int rank;
        int64_t dims[CLT_MAX_RANK];
        ok(clt_store_describe(l->store, p, &name, NULL, &rank, dims, NULL));
        size_t bytes = sizeof(float);
        for (int i = 0; i < rank; i++)
            bytes *= (size_t)dims[i];
        assert_true(bytes <= sizeof values);
        ok(clt_store_get(l->store, name, values, bytes));
        hash = add(hash, (const unsigned char *)values, bytes);
    }
    MPI_Allgather(&hash, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, MPI_COMM_WORLD);
    for (int r = 1; r < parity_world->ranks; r++)
        assert_true(all[r] == all[0]);
    ended = hash;
}

static void gradients_agree_at_snapshots(void **state)
{
    double worst = 0;
    (void)state;
    check_snapshot(devices, "lenet_snapshot_020.safetensors", "b256", 1, 0, &worst);
    check_snapshot(devices, "lenet_snapshot_060.safetensors", "b257i", 1, 0, &worst);
    check_snapshot(devices, "lenet_snapshot_150.safetensors", "b257i", 4, 0, &worst);
    if (parity_world->rank == 0)
        printf("    worst gradient error %.2f of the limit\n", worst);
}

static void trajectories_stay_in_the_envelope(void **state)
{
    double worst = 0;
    (void)state;
    load_training_set();
    follow(devices, "sgd", "b257", 1, compare_ranks, &worst);
    const uint64_t first = ended;
    follow(devices, "sgd", "b257", 1, compare_ranks, &worst);
    assert_true(ended == first);
    follow(devices, "adamw", "b257i", 2, compare_ranks, &worst);
    follow(devices, "momentum", "b257", 1, compare_ranks, &worst);
    follow_run(devices, "lenet_optimizers.safetensors", "muon.b256", 1, compare_ranks, &worst);
    if (parity_world->rank == 0)
        printf("    worst deviation of a loss: %.2f of the limit\n", worst);
}

static void read_weights(const char *text)
{
    static double weights[64];
    char *end = (char *)text;
    for (int i = 0; *end && i < 64; i++)
        weights[i] = strtod(end + (i > 0), &end);
    parity_weights = weights;
}

int main(int argc, char **argv)
{
    clt_world world;
    MPI_Init(&argc, &argv);
    devices = argc > 1 ? argv[1] : "cpu";
    parity_steps = argc > 2 && !getenv("CLT_TEST_ALL") ? atoi(argv[2]) : 0;
    if (argc > 3)
        read_weights(argv[3]);
    if (clt_world_open_mpi(MPI_COMM_WORLD, &world) != CLT_OK) {
        fprintf(stderr, "%s\n", clt_error_message());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    parity_world = &world;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree_at_snapshots),
        cmocka_unit_test(trajectories_stay_in_the_envelope),
    };
    const int failed = cmocka_run_group_tests(tests, open_runtime, close_runtime);
    if (failed) /* the others may wait for this rank */
        MPI_Abort(MPI_COMM_WORLD, 1);
    free(train_images);
    free(train_labels);
    clt_world_close(&world);
    MPI_Finalize();
    return 0;
}
