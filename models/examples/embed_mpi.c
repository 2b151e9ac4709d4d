/*
 * Training within an MPI program that has its own ranks, data and ways. The program calls plain
 * MPI_Init, keeps its last rank (of three or more) for itself, and lends the library a communicator
 * of the others, in an order of its own. Each of those learns from arrays of its own, of which the
 * ranks have unlike numbers of samples: the gradient is that of all samples of a step, however many
 * each rank brings, and replicas stay the same to the bit.
 *
 *     mpiexec -n 3 embed_mpi [DEVICES]      a list that each rank opens for itself
 */
#define CL_TARGET_OPENCL_VERSION 120

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <cltrain/cltrain.h>
#include <cltrain/mpi.h>

enum { SHARE = 32, EPOCHS = 60, HIDDEN = 32 };

/* One rank's failure ends the program: the others would wait for it. */
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

/* The samples of one rank: a part of the plane of its own. */
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

/* One pass over everybody's samples. A rank that has none left still takes part, with none.
 * Returns the mean loss. */
static double run_epoch(clt_trainer *trainer, const arrays *a, MPI_Comm team)
{
    long long own = (long long)(a->count + SHARE - 1) / SHARE, steps = 0;
    double loss = 0, samples = 0;
    MPI_Allreduce(&own, &steps, 1, MPI_LONG_LONG, MPI_MAX, team);
    for (long long s = 0; s < steps; s++) {
        const int64_t begin = s < own ? s * SHARE : a->count;
        const int64_t left = a->count - begin;
        const clt_feed feeds[] = {{"x", -1, a->x + 2 * begin, NULL, 0, 0},
                                  {"target", -1, a->target + begin, NULL, 0, 0}};
        clt_step_batch batch;
        clt_step_batch_init(&batch); /* `total` stays 0: the ranks tell each other */
        batch.count = left < SHARE ? left : SHARE;
        batch.feeds = feeds;
        batch.n_feeds = 2;
        must(clt_trainer_step(trainer, &batch, NULL));

        clt_step_result result;
        clt_step_result_init(&result);
        must(clt_trainer_result(trainer, clt_trainer_steps(trainer) - 1, &result));
        long long mine = (long long)batch.count, all = 0;
        MPI_Allreduce(&mine, &all, 1, MPI_LONG_LONG, MPI_SUM, team); /* MPI stays the program's */
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

/* Whether all ranks of the team hold the same bits. */
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

/* What the ranks of the team do; the mean loss of the last epoch. */
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
    options.batch = (int64_t)SHARE * world.ranks; /* at most, of all ranks together */
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

    must(clt_trainer_finish(trainer)); /* all are here: nothing of MPI's is kept */
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
    /* The rank that does other things learns of it by the program's own messages. */
    double worst = 0;
    MPI_Allreduce(&loss, &worst, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (rank == ranks - 1)
        printf("rank %d of %d knows the loss too: %.5f\n", rank, ranks, worst);
    MPI_Finalize();
    /* The target's own mean square is 0.17. */
    return worst < 0.01 ? 0 : 1;
}
