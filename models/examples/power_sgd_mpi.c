/*
 * A scheme of one's own: PowerSGD (Vogels, Karimireddy and Jaggi, NeurIPS 2019). Ranks exchange two
 * thin matrices P and Q instead of each gradient M. A rank keeps its error, which its part of P Q^T
 * misses, and adds it to its next gradient. LeNet trains so, and then plainly.
 *     mpiexec -n 2 power_sgd_mpi [DEVICES]      each rank trains on the first device of its list
 */
#define CL_TARGET_OPENCL_VERSION 120
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cltrain/cltrain.h>
#include <cltrain/models.h>
#include <cltrain/mpi.h>

enum { THIN = 4, BATCH = 32, STEPS = 400, PIXELS = 28 * 28, TENSORS = 8, MOST = 48000 };

#define MUST(call)                                                                                 \
    if ((call) != CLT_OK)                                                                          \
    fprintf(stderr, "power_sgd: %s\n", clt_error_message()), MPI_Abort(MPI_COMM_WORLD, 1)

typedef struct tensor {
    const char *name;
    int64_t rows, cols, count;                           /* a convolution's kernels are rows */
    float gradient[MOST], error[MOST], p[MOST], q[MOST]; /* row-major; P and Q have THIN columns */
} tensor;
static double sent; /* bytes of the sums */

static void all_reduce(float *x, int64_t count)
{
    MPI_Allreduce(MPI_IN_PLACE, x, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    sent += (double)count * sizeof *x;
}

/* Gram-Schmidt: the columns of p become orthogonal, and of length 1. */
static void orthogonalise(float *p, int64_t rows)
{
    for (int k = 0; k < THIN; k++)
        for (int j = 0; j <= k; j++) {
            float dot = 1e-20f; /* with an earlier column, and at last with itself */
            for (int64_t i = 0; i < rows; i++)
                dot += p[i * THIN + k] * p[i * THIN + j];
            for (int64_t i = 0; i < rows; i++)
                p[i * THIN + k] =
                    j < k ? p[i * THIN + k] - dot * p[i * THIN + j] : p[i * THIN + k] / sqrtf(dot);
        }
}

/* Computes P = M Q, Q = M^T P or gradient = P Q^T, whichever is `to`, with M = error. */
static void multiply(tensor *t, float *to, int64_t count)
{
    memset(to, 0, (size_t)count * sizeof *to);
    for (int64_t i = 0; i < t->count; i++)
        for (int k = 0; k < THIN; k++) {
            const int64_t p = i / t->cols * THIN + k, q = i % t->cols * THIN + k;
            to[to == t->p   ? p
               : to == t->q ? q
                            : i] += (to == t->p ? 1 : t->p[p]) * (to == t->q ? 1 : t->q[q]) *
                                    (to == t->gradient ? 1 : t->error[i]);
        }
}

/* The gradient becomes the P Q^T that stands for the sum over all ranks. */
static void compress(tensor *t)
{
    for (int64_t i = 0; i < t->count; i++)
        t->error[i] += t->gradient[i];
    multiply(t, t->p, t->rows * THIN); /* with the Q of the step before */
    all_reduce(t->p, t->rows * THIN);
    orthogonalise(t->p, t->rows);
    multiply(t, t->q, t->cols * THIN);
    multiply(t, t->gradient, t->count);
    for (int64_t i = 0; i < t->count; i++)
        t->error[i] -= t->gradient[i];
    all_reduce(t->q, t->cols * THIN);
    multiply(t, t->gradient, t->count);
}

int main(int argc, char **argv)
{
    static tensor tensors[TENSORS];
    static float x[BATCH * PIXELS];
    static int32_t labels[BATCH];
    const clt_feed feeds[] = {{"image", -1, CLT_HOST(x)}, {"label", -1, CLT_HOST(labels)}};
    const clt_step_batch b = {
        .struct_size = sizeof b, .count = BATCH, .feeds = feeds, .n_feeds = 2};
    clt_step_result result = {.struct_size = sizeof result};
    clt_model_field fields[2];
    const clt_model_input input = {.fields = fields, .n_fields = 2};
    clt_world world;
    clt_runtime *runtime = NULL;
    clt_device **devices;
    clt_graph *graph = NULL;
    clt_trainer_options options;
    double loss[2] = {0, 0};
    int count;
    MPI_Init(&argc, &argv);
    MUST(clt_world_open_mpi(MPI_COMM_WORLD, &world) || clt_runtime_create(NULL, &runtime));
    MUST(clt_devices_open(runtime, argc > 1 ? argv[1] : NULL, NULL, &devices, &count));
    clt_model_images(1, 28, 28, 10, fields);
    MUST(clt_graph_create(&graph) || clt_model_build("lenet", &input, graph));
    clt_trainer_options_init(&options);
    options.batch = (int64_t)BATCH * world.ranks;
    options.world = &world;
    for (int plain = 0; plain < 2; plain++) {
        clt_store *store;
        clt_trainer *trainer;
        MUST(clt_store_create(graph, devices, 1, 1, &store));
        MUST(clt_trainer_create(graph, store, &options, &trainer));
        srand((unsigned)world.rank + 1);
        for (tensor *t = tensors; t < tensors + TENSORS; t++) {
            int64_t dims[CLT_MAX_RANK];
            int rank;
            MUST(clt_store_describe(store, (int)(t - tensors), &t->name, NULL, &rank, dims, NULL));
            t->rows = t->count = dims[0];
            for (int k = 1; k < rank; k++)
                t->count *= dims[k];
            t->cols = t->count / t->rows;
            for (int64_t i = 0; i < t->cols * THIN; i++) /* any Q, but the same on all ranks */
                t->q[i] = (float)(i * i % 7) - 3;
        }
        for (int step = 0; step < STEPS; step++) {
            for (int i = 0; i < BATCH * PIXELS; i++) { /* a class has its stripes below noise */
                labels[i / PIXELS] = i % PIXELS ? labels[i / PIXELS] : rand() % 10;
                x[i] = (float)rand() / (float)RAND_MAX + (i % 28 % 10 == labels[i / PIXELS]);
            }
            MUST(clt_trainer_forward(trainer, &b) || clt_trainer_backward(trainer));
            for (tensor *t = tensors; t < tensors + TENSORS; t++) {
                const size_t bytes = (size_t)t->count * sizeof *t->gradient;
                MUST(clt_trainer_gradient(trainer, 0, t->name, t->gradient, bytes));
                if (plain || THIN * (t->rows + t->cols) >= t->count) /* biases, small matrices */
                    all_reduce(t->gradient, t->count);
                else
                    compress(t);
                MUST(clt_trainer_set_gradient(trainer, 0, t->name, t->gradient, bytes));
            }
            MUST(clt_trainer_reduced(trainer) || clt_trainer_apply(trainer, NULL));
            MUST(clt_trainer_result(trainer, step, &result));
            loss[plain] += step < STEPS - 20 ? 0 : result.loss / 20;
        }
        MUST(clt_trainer_finish(trainer));
        if (world.rank == 0)
            printf("%s: loss %g, %g MB\n", plain ? "plain" : "PowerSGD", loss[plain], sent / 1e6);
        sent = 0;
    }
    MPI_Finalize();
    return loss[0] < loss[1] + 0.1 ? 0 : 1;
}
