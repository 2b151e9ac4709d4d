/*
 * Meshes over MPI ranks, run by mpiexec: `parallel LEVEL`, on 2 or 4 ranks with a device each.
 * Numbers are small integers, so that steps are exact: parameters have the bits of one device.
 */
#include <mpi.h>

#include "train/split_steps.h"

#include "train/hybrid_networks.h"

#include <cltrain/mpi.h>

static void check_all(const setting *settings, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        setting s = settings[i];
        s.devices = s.devices ? s.devices : "pocl@1";
        s.optimizer = CLT_MOMENTUM;
        s = longer(s);
        check(&s);
    }
}

#define CHECK(...)                                                                                 \
    do {                                                                                           \
        static const setting settings[] = {__VA_ARGS__};                                           \
        check_all(settings, sizeof settings / sizeof *settings);                                   \
    } while (0)

static void data_and_shares(void **state)
{
    (void)state;
    CHECK({.build = two_blocks}, {.build = images}, {.build = words, .zero = 1},
          {.build = two_blocks, .zero = 1, .clip = 1 << 20}, {.build = two_blocks, .zero = 3},
          {.build = words, .zero = 3});
}

static void axes_of_two(void **state)
{
    (void)state;
    CHECK({.build = two_blocks, .parallel = "tp=2"}, {.build = words, .parallel = "tp=2"},
          {.build = two_blocks, .parallel = "pp=2", .accumulate = 2},
          {.build = images, .parallel = "pp=2", .accumulate = 4},
          {.build = images, .parallel = "space=2"}, {.build = classes, .parallel = "space=2"},
          {.build = saturated, .parallel = "time=2"});
}

/* A rank has a device in each of several groups. They share a core, so they cannot wait there for
 * the other rank. */
static void groups_that_share_a_core(void **state)
{
    (void)state;
    CHECK({.build = two_blocks, .parallel = "tp=2,dp=4", .devices = four},
          {.build = words, .parallel = "tp=2,dp=4", .devices = four, .zero = 1});
}

/* Either axis is within nodes, the other one between them. */
static void axes_of_four(void **state)
{
    (void)state;
    CHECK({.build = two_blocks, .parallel = "dp=2,tp=2"}, {.build = words, .parallel = "tp=2,dp=2"},
          {.build = two_blocks, .parallel = "tp=4"},
          {.build = two_blocks, .parallel = "dp=2,pp=2", .accumulate = 2},
          {.build = images, .parallel = "pp=2,dp=2", .accumulate = 2},
          {.build = images, .parallel = "dp=2,space=2"},
          {.build = images, .parallel = "space=2,dp=2"},
          {.build = saturated, .parallel = "dp=2,time=2"},
          {.build = saturated, .parallel = "time=2,dp=2"},
          {.build = saturated, .parallel = "time=4"});
    CHECK({.build = two_blocks, .parallel = "pp=2,tp=2", .accumulate = 2},
          {.build = two_blocks, .parallel = "tp=2,pp=2", .accumulate = 2},
          {.build = images, .parallel = "pp=2,space=2", .accumulate = 2},
          {.build = images, .parallel = "space=2,pp=2", .accumulate = 2},
          {.build = saturated, .parallel = "pp=2,time=2", .accumulate = 2},
          {.build = saturated, .parallel = "tp=2,time=2"},
          {.build = two_blocks, .parallel = "tp=2,dp=2", .zero = 1},
          {.build = two_blocks, .parallel = "dp=2,pp=2", .zero = 1, .accumulate = 2});
}

int main(int argc, char **argv)
{
    clt_world world;
    int given;
    if (argc != 2)
        return 2;
    const int level = strcmp(argv[1], "multiple") ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE;
    MPI_Init_thread(&argc, &argv, level, &given);
    if (given < level || clt_world_open_mpi(MPI_COMM_WORLD, &world) != CLT_OK ||
        (world.ranks != 2 && world.ranks != 4)) {
        fprintf(stderr, "%s\n", clt_error_message());
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    mesh_world = &world;
    const struct CMUnitTest of_two[] = {cmocka_unit_test(data_and_shares),
                                        cmocka_unit_test(axes_of_two),
                                        cmocka_unit_test(groups_that_share_a_core)},
                            of_four[] = {cmocka_unit_test(data_and_shares),
                                         cmocka_unit_test(axes_of_four)};
    const int failed = world.ranks == 2
                           ? cmocka_run_group_tests(of_two, open_runtime, close_runtime)
                           : cmocka_run_group_tests(of_four, open_runtime, close_runtime);
    if (failed) /* the others may wait for this rank */
        MPI_Abort(MPI_COMM_WORLD, 1);
    clt_world_close(&world);
    MPI_Finalize();
    return 0;
}
