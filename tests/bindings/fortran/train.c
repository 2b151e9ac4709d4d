/* Trains as train.f90 does, from arrays of C, and prints the same bits. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cltrain/cltrain.h>
#include <cltrain/models.h>

enum { N = 64 };

#define TRY(call)                                                                                  \
    if ((call) != CLT_OK)                                                                          \
    return fprintf(stderr, "%s\n", clt_error_message()), 1

static uint64_t bits(double value)
{
    uint64_t b;
    memcpy(&b, &value, sizeof b);
    return b;
}

int main(void)
{
    static double x[N][2], y[N];
    double loss, w[16][2];
    int64_t seed = 1;
    const int64_t hidden[] = {16, 16}, in[] = {N, 2}, out[] = {N, 1}, shape[] = {16, 2};
    const char *list = getenv("CLT_TEST_DEVICES");
    clt_runtime *runtime;
    clt_device **devices;
    int count;
    clt_graph *graph;
    clt_store *store;
    clt_trainer *trainer;
    clt_trainer_options options;
    TRY(clt_runtime_create(NULL, &runtime));
    TRY(clt_devices_open(runtime, list ? list : "cpu", NULL, &devices, &count));
    TRY(clt_mlp_regressor(2, hidden, 2, 1, "tanh", &graph));
    TRY(clt_store_create(graph, devices, count, 11, &store));
    clt_trainer_options_init(&options);
    options.optimizer = CLT_ADAM;
    options.lr = 0.01;
    options.batch = N;
    TRY(clt_trainer_create(graph, store, &options, &trainer));
    clt_feed feeds[] = {{.name = "x", .device = -1}, {.name = "y", .device = -1}};
    TRY(clt_array_of(&feeds[0].array, x, CLT_F64, 2, in));
    TRY(clt_array_of(&feeds[1].array, y, CLT_F64, 2, out));
    for (int step = 0; step < 200; step++) {
        for (int i = 0; i < N; i++) {
            for (int j = 0; j < 2; j++) {
                seed = (seed * 1103515245 + 12345) % 2147483648;
                x[i][j] = (double)seed / 2147483648.0;
            }
            y[i] = 3 * x[i][0] - x[i][1] / 7;
        }
        TRY(clt_step_arrays(trainer, feeds, 2, &loss));
        printf("%016" PRIX64 "\n", bits(loss));
    }
    clt_array weights;
    TRY(clt_array_of(&weights, w, CLT_F64, 2, shape));
    TRY(clt_store_get_array(store, "fc1.weight", &weights));
    for (int i = 0; i < 16; i++)
        printf("%016" PRIX64 " %016" PRIX64 "\n", bits(w[i][0]), bits(w[i][1]));
    clt_trainer_destroy(trainer);
    clt_store_destroy(store);
    clt_graph_destroy(graph);
    clt_devices_close(devices, count);
    clt_runtime_destroy(runtime);
    return 0;
}
