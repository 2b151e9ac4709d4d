/*
 * Devices of MPI ranks have the bytes of memory that a plan names: `memory`, on 2 ranks. Compiled
 * with all of the library, whose plans are internal.
 */
#include <mpi.h>

#include "train/planned_memory.h"

#include <cltrain/mpi.h>

static const char one[] = "pocl@1", two[] = "pocl@1,pocl@1";

static const setting settings[] = {
    {MLP, one, NULL, 6, 0, 1, CLT_MOMENTUM, CLT_F32, 0},
    {GPT, one, NULL, 0, 1, 1, CLT_ADAMW, CLT_F32, 1},
    {GPT, one, NULL, 0, 3, 1, CLT_ADAMW, CLT_F32, 0},
    {MLP, two, NULL, 6, 4, 1, CLT_ADAM, CLT_F32, 0},
    {GPT, one, "tp=2", 0, 0, 1, CLT_ADAMW, CLT_F32, 0},
    {GPT, two, "tp=2,dp=2", 0, 1, 2, CLT_ADAM, CLT_F32, 0},
    {GPT, one, "pp=2", 0, 0, 4, CLT_ADAMW, CLT_F32, 0},
    {GPT, two, "pp=2,dp=2", 0, 0, 4, CLT_ADAMW, CLT_BF16, 0},
    {"resnet18:width=4,sync", one, "space=2", 32, 0, 1, CLT_MOMENTUM, CLT_F32, 0},
    {GPT, one, "time=2", 0, 0, 2, CLT_ADAMW, CLT_F32, 0}};

static void buffers_of_ranks_have_the_planned_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        check_memory(&settings[i]);
}

int main(int argc, char **argv)
{
    clt_world world;
    MPI_Init(&argc, &argv);
    if (clt_world_open_mpi(MPI_COMM_WORLD, &world) != CLT_OK || world.ranks != 2) {
        fprintf(stderr, "%s\n", clt_error_message());
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    memory_world = &world;
    const struct CMUnitTest tests[] = {cmocka_unit_test(buffers_of_ranks_have_the_planned_bytes)};
    if (cmocka_run_group_tests(tests, open_runtime, close_runtime)) /* the other may wait for it */
        MPI_Abort(MPI_COMM_WORLD, 1);
    clt_world_close(&world);
    MPI_Finalize();
    return 0;
}
