/*
 * Training inside an MPI program that has its own ranks and data. The program calls MPI_Init itself
 * and keeps its last rank (of three or more) for other work. It gives the library a communicator of
 * the other ranks, in its own order. The ranks have different numbers of samples. The gradient of a
 * step is that of the samples of all ranks, and all replicas stay equal to the bit.
 *
 *     mpiexec -n 3 embed_mpi [DEVICES]      each rank opens the list for itself
 */
#define CL_TARGET_OPENCL_VERSION 120

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <cltrain/cltrain.h>
#include <cltrain/mpi.h>

enum { SHARE = 32, EPOCHS = 60, HIDDEN = 32 };

/* Ends the whole program after a failure, since the other ranks would wait for this one. */
static void must(clt_status status)
{
    if (status == CLT_OK)
        return;
    fprintf(stderr, "embed_mpi: %s: %s\n", clt_status_name(status), clt_error_message());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static clt_value *layer(clt_graph *graph, clt_value *x, const char *weight, const char *bias,
                        int64_t in, int64_t out)
{
    const int64_t dims[] = {out, in};
    const clt_init init = {CLT_INIT_UNIFORM, 1 / sqrt((double)in), 0};
    return clt_linear(x, clt_parameter(graph, weight, 2, dims, init),
                      clt_parameter(graph, bias, 1, dims, init));
}

static clt_graph *build(void)
{
    const int64_t two[] = {CLT_BATCH, 2}, one[] = {CLT_BATCH, 1};
    clt_value *sum = NULL, *weight = NULL;
    clt_graph *graph;
    must(clt_graph_create(&graph));
    clt_value *x = clt_input(graph, "x", CLT_F32, 2, two);
    clt_value *target = clt_input(graph, "target", CLT_F32, 2, one);
    clt_value *hidden = clt_relu(layer(graph, x, "hidden.weight", "hidden.bias", 2, HIDDEN));
    clt_mse(layer(graph, hidden, "out.weight", "out.bias", HIDDEN, 1), target, &sum, &weight);
    clt_loss(graph, "error", sum, weight, 1);
    must(clt_graph_status(graph));
    return graph;
}

/* The samples of one rank: a part of the plane. */
typedef struct arrays {
    int64_t count;
    float *x, *target;
} arrays;

static arrays make_arrays(int rank, int ranks)
{
    arrays a = {.count = 300 + 230 * rank};
    unsigned random = 12345u + (unsigned)rank;
    a.x = malloc((size_t)a.count * 2 * sizeof *a.x);
    a.target = malloc((size_t)a.count * sizeof *a.target);
    if (!a.x || !a.target) {
        fprintf(stderr, "embed_mpi: memory does not suffice\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int64_t i = 0; i < a.count; i++) {
        float *x = a.x + 2 * i;
        for (int k = 0; k < 2; k++) {
            random = random * 1664525u + 1013904223u;
            x[k] = (float)(random >> 8) / 16777216.0f;
        }
        x[0] = 2 * (x[0] + (float)rank) / (float)ranks - 1;
        x[1] = 2 * x[1] - 1;
        a.target[i] = sinf(3 * x[0]) * x[1];
    }
    return a;
}

/* Runs one pass over the samples of all ranks. A rank without samples left still takes part in each
 * step. Returns the mean loss. */
static double run_epoch(clt_trainer *trainer, const arrays *a, MPI_Comm team)
{
    long long own = (long long)(a->count + SHARE - 1) / SHARE, steps = 0;
    double loss = 0, samples = 0;
    MPI_Allreduce(&own, &steps, 1, MPI_LONG_LONG, MPI_MAX, team);
    for (long long s = 0; s < steps; s++) {
        const int64_t begin = s < own ? s * SHARE : a->count;
        const int64_t left = a->count - begin;
        const clt_feed feeds[] = {{"x", -1, CLT_HOST(a->x + 2 * begin)},
                                  {"target", -1, CLT_HOST(a->target + begin)}};
        clt_step_batch batch;
        clt_step_batch_init(&batch); /* `total` stays 0: the ranks tell each other their counts */
        batch.count = left < SHARE ? left : SHARE;
        batch.feeds = feeds;
        batch.n_feeds = 2;
        must(clt_trainer_step(trainer, &batch, NULL));

        clt_step_result result;
        clt_step_result_init(&result);
        must(clt_trainer_result(trainer, clt_trainer_steps(trainer) - 1, &result));
        long long mine = (long long)batch.count, all = 0;
        /* The program may still use MPI itself. */
        MPI_Allreduce(&mine, &all, 1, MPI_LONG_LONG, MPI_SUM, team);
        if (all != (long long)result.samples) {
            fprintf(stderr, "embed_mpi: a step of %lld samples counts %lld\n", all,
                    (long long)result.samples);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        loss += result.loss * (double)result.samples;
        samples += (double)result.samples;
    }
    return loss / samples;
}

/* Returns whether all ranks of the team have the same bits. */
static int identical(clt_store *store, MPI_Comm team)
{
    unsigned bits[2 * HIDDEN], least[2 * HIDDEN], most[2 * HIDDEN];
    must(clt_store_get(store, "hidden.weight", bits, sizeof bits));
    MPI_Allreduce(bits, least, 2 * HIDDEN, MPI_UNSIGNED, MPI_MIN, team);
    MPI_Allreduce(bits, most, 2 * HIDDEN, MPI_UNSIGNED, MPI_MAX, team);
    int same = 1;
    for (int i = 0; i < 2 * HIDDEN; i++)
        same = same && least[i] == most[i];
    return same;
}

/* Trains on the ranks of the team. Returns the mean loss of the last epoch. */
static double train(MPI_Comm team, const char *list)
{
    clt_world world;
    must(clt_world_open_mpi(team, &world));
    clt_runtime *runtime;
    clt_device **devices;
    int count;
    must(clt_runtime_create(NULL, &runtime));
    must(clt_devices_open(runtime, list, NULL, &devices, &count));

    clt_graph *graph = build();
    clt_store *store;
    clt_trainer *trainer;
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.optimizer = CLT_ADAM;
    options.lr = 0.01;
    options.batch = (int64_t)SHARE * world.ranks; /* the largest batch, of all ranks together */
    options.world = &world;
    options.comm_timeout = 60;
    must(clt_store_create(graph, devices, count, 7, &store));
    must(clt_trainer_create(graph, store, &options, &trainer));

    const arrays a = make_arrays(world.rank, world.ranks);
    double loss = 0;
    for (int epoch = 1; epoch <= EPOCHS; epoch++) {
        loss = run_epoch(trainer, &a, team);
        if (world.rank == 0 && epoch % 20 == 0)
            printf("epoch %d: mean loss %.5f\n", epoch, loss);
    }
    if (!identical(store, team)) {
        fprintf(stderr, "embed_mpi: the ranks' parameters differ\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (world.rank == 0)
        printf("%d ranks hold the same parameters\n", world.ranks);

    /* All ranks must call this. Then the library can free its MPI objects. */
    must(clt_trainer_finish(trainer));
    clt_trainer_destroy(trainer);
    clt_store_destroy(store);
    clt_graph_destroy(graph);
    clt_devices_close(devices, count);
    clt_runtime_destroy(runtime);
    clt_world_close(&world);
    free(a.x);
    free(a.target);
    return loss;
}

int main(int argc, char **argv)
{
    int rank, ranks;
    double loss = 0;
    MPI_Comm team;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int trains = ranks < 3 || rank < ranks - 1;
    MPI_Comm_split(MPI_COMM_WORLD, trains ? 0 : MPI_UNDEFINED, -rank, &team);
    if (trains) {
        loss = train(team, argc > 1 ? argv[1] : NULL);
        MPI_Comm_free(&team);
    }
    /* The program tells its last rank the loss with a message of its own. */
    double worst = 0;
    MPI_Allreduce(&loss, &worst, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (rank == ranks - 1)
        printf("rank %d of %d knows the loss too: %.5f\n", rank, ranks, worst);
    MPI_Finalize();
    /* A model that predicts 0 has an error of 0.17. */
    return worst < 0.01 ? 0 : 1;
}
