/*
 * A three-dimensional field that is divided in space over several devices, as in a flow or climate
 * code. A convolution learns one step of the heat equation from fields before and after it. Each
 * device has a slab of the field's layers. Before the convolution neighbours exchange one layer at
 * their border, and so they do with gradients.
 *
 *     field [DEVICES]
 *
 * Without DEVICES the program takes two halves of the CPU, or else the default device.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <cltrain/cltrain.h>

enum { N = 24, CELLS = N * N * N, STEPS = 150 };

/* The new temperature is the old one plus RATE times the sum of differences to six neighbours. */
#define RATE 0.1f

static void must(clt_status status)
{
    if (status == CLT_OK)
        return;
    fprintf(stderr, "field: %s: %s\n", clt_status_name(status), clt_error_message());
    exit(1);
}

static clt_graph *build(void)
{
    const int64_t field[] = {CLT_BATCH, 1, N, N, N}, kernel[] = {1, 1, 3, 3, 3};
    clt_graph *graph;
    must(clt_graph_create(&graph));
    clt_value *before = clt_input(graph, "before", CLT_F32, 5, field);
    clt_value *after = clt_input(graph, "after", CLT_F32, 5, field);
    /* Dimension 2, the depth, is divided. Everything behind it follows. */
    must(clt_shard_value(before, CLT_AXIS_SPACE, 2));
    must(clt_shard_value(after, CLT_AXIS_SPACE, 2));
    clt_conv3d_options options;
    clt_conv3d_options_init(&options);
    for (int d = 0; d < 3; d++)
        options.padding[d] = 1; /* temperature 0 around the field */
    const clt_init zero = {CLT_INIT_CONSTANT, 0, 0};
    clt_value *weight = clt_parameter(graph, "stencil", 5, kernel, zero);
    clt_value *sum = NULL, *cells = NULL;
    clt_mse(clt_conv3d(before, weight, NULL, &options), after, &sum, &cells);
    clt_loss(graph, "error", sum, cells, 1);
    must(clt_graph_status(graph));
    return graph;
}

static float at(const float *field, int z, int y, int x)
{
    const int inside = z >= 0 && z < N && y >= 0 && y < N && x >= 0 && x < N;
    return inside ? field[(z * N + y) * N + x] : 0;
}

/* Makes a random field, and the field a step of time later. */
static void make_fields(int step, float *before, float *after)
{
    unsigned random = 12345u + 977u * (unsigned)step;
    for (int i = 0; i < CELLS; i++) {
        random = random * 1664525u + 1013904223u;
        before[i] = (float)(random >> 8) / 8388608.0f - 1;
    }
    for (int z = 0; z < N; z++)
        for (int y = 0; y < N; y++)
            for (int x = 0; x < N; x++) {
                const float around = at(before, z - 1, y, x) + at(before, z + 1, y, x) +
                                     at(before, z, y - 1, x) + at(before, z, y + 1, x) +
                                     at(before, z, y, x - 1) + at(before, z, y, x + 1);
                const float own = at(before, z, y, x);
                after[(z * N + y) * N + x] = own + RATE * (around - 6 * own);
            }
}

/* Returns the largest difference between the learned stencil and the one of the equation. */
static double worst_weight(clt_store *store)
{
    float stencil[27];
    double worst = 0;
    must(clt_store_get(store, "stencil", stencil, sizeof stencil));
    for (int i = 0; i < 27; i++) {
        const int distance = abs(i / 9 - 1) + abs(i / 3 % 3 - 1) + abs(i % 3 - 1);
        const float exact = distance == 0 ? 1 - 6 * RATE : distance == 1 ? RATE : 0;
        worst = fmax(worst, fabs((double)(stencil[i] - exact)));
    }
    printf("stencil: centre %.5f (exact %.5f), neighbour %.5f (exact %.5f)\n", (double)stencil[13],
           (double)(1 - 6 * RATE), (double)stencil[12], (double)RATE);
    return worst;
}

int main(int argc, char **argv)
{
    clt_runtime *runtime;
    clt_device **devices;
    int count;
    must(clt_runtime_create(NULL, &runtime));
    if (argc > 1)
        must(clt_devices_open(runtime, argv[1], NULL, &devices, &count));
    else if (clt_devices_open(runtime, "cpu/2", NULL, &devices, &count) != CLT_OK)
        must(clt_devices_open(runtime, NULL, NULL, &devices, &count));

    char mesh[32];
    snprintf(mesh, sizeof mesh, "space=%d", count);
    printf("%s: %d layers of %d x %d cells\n", mesh, N, N, N);
    clt_graph *graph = build();
    clt_store *store;
    clt_store_options store_options;
    clt_store_options_init(&store_options);
    store_options.parallel = mesh;
    must(clt_store_create_with(graph, devices, count, &store_options, &store));

    clt_trainer *trainer;
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.optimizer = CLT_MOMENTUM;
    options.lr = 0.2;
    options.batch = 1; /* all devices work on one field */
    must(clt_trainer_create(graph, store, &options, &trainer));

    static float before[CELLS], after[CELLS];
    /* Every device gets the whole field and takes its slab. */
    const clt_feed feeds[] = {{"before", -1, CLT_HOST(before)}, {"after", -1, CLT_HOST(after)}};
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = 1;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    for (int step = 0; step < STEPS; step++) {
        clt_step_result result;
        clt_step_result_init(&result);
        make_fields(step, before, after);
        must(clt_trainer_step(trainer, &batch, NULL));
        must(clt_trainer_result(trainer, step, &result));
        if (step % 50 == 49)
            printf("step %d: error %.3g\n", step + 1, result.loss);
    }
    const double worst = worst_weight(store);
    clt_trainer_destroy(trainer);
    clt_store_destroy(store);
    clt_graph_destroy(graph);
    clt_devices_close(devices, count);
    clt_runtime_destroy(runtime);
    return worst < 1e-3 ? 0 : 1;
}
