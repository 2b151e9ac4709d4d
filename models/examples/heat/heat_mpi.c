/* Rods warm up from their ends, and each rank has rods of its own. heat_mpi.c is
 * heat_mpi_untouched.c with a network that learns from the rods of all ranks. Of three or more
 * ranks, the last one has other work. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <mpi.h>
#include <cltrain/cltrain.h>
#include <cltrain/models.h>
#include <cltrain/mpi.h>
#include <cltrain/opencl.h>
#include <stdio.h>

#define TRY(call)                                                                                  \
    if ((call) != 0)                                                                               \
    return fprintf(stderr, "%s fails: %s\n", #call, clt_error_message()),                          \
           MPI_Abort(MPI_COMM_WORLD, 1)

enum { RODS = 64, CELLS = 32, STEPS = 200 };

/* Ten explicit steps of the heat equation. A rod conducts better where it is warm. */
static const char *const source =
    "#pragma OPENCL FP_CONTRACT OFF\n"
    "kernel void advance(global const float *now, global float *next)\n"
    "{\n"
    "    const int rod = get_global_id(0) * CELLS;\n"
    "    float u[CELLS], old[CELLS];\n"
    "    for (int i = 0; i < CELLS; i++)\n"
    "        u[i] = now[rod + i];\n"
    "    for (int n = 0; n < 10; n++) {\n"
    "        for (int i = 0; i < CELLS; i++)\n"
    "            old[i] = u[i];\n"
    "        for (int i = 1; i < CELLS - 1; i++)\n"
    "            u[i] = old[i] + 0.2f * (1 + old[i] * old[i]) *\n"
    "                            (old[i - 1] - 2 * old[i] + old[i + 1]);\n"
    "    }\n"
    "    for (int i = 0; i < CELLS; i++)\n"
    "        next[rod + i] = u[i];\n"
    "}\n";

static int simulate(MPI_Comm team)
{
    static float u[RODS][CELLS];
    const size_t rods = RODS;
    cl_platform_id platform;
    cl_device_id device;
    cl_mem fields[2]; /* now and next, in turn */
    char flags[64];
    const int64_t hidden[] = {64}, shape[] = {RODS, CELLS};
    clt_world world;
    clt_device *adopted;
    clt_graph *graph;
    clt_store *store;
    clt_trainer *trainer;
    clt_trainer_options options;
    clt_dataset *samples;
    clt_array pair[2];
    double loss;
    int rank, ranks;
    MPI_Comm_rank(team, &rank);
    MPI_Comm_size(team, &ranks);
    TRY(clGetPlatformIDs(1, &platform, NULL));
    TRY(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, NULL);
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, NULL);
    cl_program program = clCreateProgramWithSource(context, 1, (const char **)&source, NULL, NULL);
    snprintf(flags, sizeof flags, "-DCELLS=%d", CELLS);
    TRY(clBuildProgram(program, 1, &device, flags, NULL, NULL));
    cl_kernel advance = clCreateKernel(program, "advance", NULL);
    for (int r = 0; r < RODS; r++) {
        u[r][0] = (float)(r % 8) / 8;
        u[r][CELLS - 1] = (float)(r / 8 + RODS / 8 * rank) / 16;
    }
    for (int i = 0; i < 2; i++)
        fields[i] = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof u, u, NULL);
    TRY(clt_world_open_mpi(team, &world));
    TRY(clt_device_adopt(NULL, context, device, queue, NULL, &adopted));
    TRY(clt_mlp_regressor(CELLS, hidden, 1, CELLS, "tanh", &graph));
    TRY(clt_store_create(graph, &adopted, 1, 0, &store));
    clt_trainer_options_init(&options);
    TRY(clt_optimizer_defaults(CLT_ADAM, &options));
    options.batch = RODS * ranks;
    options.world = &world;
    TRY(clt_trainer_create(graph, store, &options, &trainer));
    TRY(clt_dataset_create_reservoir("rods", 1024, NULL, &samples));
    TRY(clt_trainer_set_reservoir(trainer, samples, NULL));
    for (int step = 0; step < STEPS; step++) {
        cl_mem now = fields[step % 2], next = fields[1 - step % 2];
        double sum = 0, all;
        TRY(clSetKernelArg(advance, 0, sizeof now, &now));
        TRY(clSetKernelArg(advance, 1, sizeof next, &next));
        TRY(clEnqueueNDRangeKernel(queue, advance, 1, NULL, &rods, NULL, 0, NULL, NULL));
        TRY(clEnqueueReadBuffer(queue, next, CL_TRUE, 0, sizeof u, u, 0, NULL, NULL));
        TRY(clt_array_of_buffer(&pair[0], now, 0, CLT_F32, 2, shape));
        TRY(clt_array_of_buffer(&pair[1], next, 0, CLT_F32, 2, shape));
        TRY(clt_dataset_push(samples, pair, 2, NULL));
        TRY(clt_step_reservoir(trainer, 1, &loss));
        for (int i = 0; i < RODS * CELLS; i++)
            sum += u[i / CELLS][i % CELLS];
        MPI_Reduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, 0, team);
        if (rank > 0)
            continue;
        printf("step %d: mean temperature %.6f\n", step + 1, all / (RODS * CELLS * ranks));
        printf("loss %.9g\n", loss);
    }
    TRY(clt_trainer_finish(trainer));
    clt_trainer_destroy(trainer);
    clt_dataset_free(samples);
    clt_store_destroy(store);
    clt_graph_destroy(graph);
    clt_device_close(adopted);
    clt_world_close(&world);
    clReleaseMemObject(fields[0]);
    clReleaseMemObject(fields[1]);
    clReleaseKernel(advance);
    clReleaseProgram(program);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    return 0;
}

int main(int argc, char **argv)
{
    int rank, ranks, failed = 0;
    MPI_Comm team;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int simulates = ranks < 3 || rank < ranks - 1;
    MPI_Comm_split(MPI_COMM_WORLD, simulates ? 0 : MPI_UNDEFINED, rank, &team);
    if (simulates) {
        failed = simulate(team);
        MPI_Comm_free(&team);
    }
    MPI_Finalize();
    return failed;
}
