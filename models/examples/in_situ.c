/* A simulation that trains a surrogate while it runs. Heat flows along a ring whose conductivity
 * depends on the temperature. The network learns the next temperature of a cell from three cells.
 */
#include <cltrain/cltrain.h>
#include <cltrain/models.h>
#include <math.h>
#include <stdio.h>

#define TRY(call)                                                                                  \
    if ((call) != CLT_OK)                                                                          \
    return fprintf(stderr, "%s\n", clt_error_message()), 1

enum { CELLS = 256, STEPS = 600 };

/* The simulation: cells 1 to CELLS, and a copy of the neighbour at each end. */
static void simulate(const double *now, double *next)
{
    for (int i = 1; i <= CELLS; i++)
        next[i] = now[i] + 0.2 * (1 + now[i] * now[i]) * (now[i - 1] - 2 * now[i] + now[i + 1]);
    next[0] = next[CELLS], next[CELLS + 1] = next[1];
}

int main(void)
{
    static double u[2][CELLS + 2], guess[CELLS];
    const int64_t hidden[] = {32, 32}, three[] = {3}, one[] = {1};
    clt_runtime *runtime;
    clt_device **devices;
    clt_graph *graph;
    clt_store *store;
    clt_trainer *trainer;
    clt_dataset *cells;
    clt_trainer_options options;
    double loss, worst = 0, change = 0;
    int count;
    TRY(clt_runtime_create(NULL, &runtime));
    TRY(clt_devices_open(runtime, "cpu", NULL, &devices, &count));
    TRY(clt_mlp_regressor(3, hidden, 2, 1, "tanh", &graph));
    TRY(clt_store_create(graph, devices, count, 1, &store));
    clt_trainer_options_init(&options);
    options.optimizer = CLT_ADAM;
    options.lr = 0.003;
    options.batch = 256;
    TRY(clt_trainer_create(graph, store, &options, &trainer));
    TRY(clt_dataset_create_reservoir("cells", 20000, NULL, &cells));
    TRY(clt_dataset_add_field(cells, "x", CLT_F32, 1, three, NULL, CLT_DATA_BORROW, NULL));
    TRY(clt_dataset_add_field(cells, "y", CLT_F32, 1, one, NULL, CLT_DATA_BORROW, NULL));
    TRY(clt_trainer_set_reservoir(trainer, cells, NULL));
    for (int step = 0; step < STEPS; step++) {
        double *now = u[step % 2], *next = u[(step + 1) % 2];
        for (int i = 0; step % 60 == 0 && i < CELLS + 2; i++) /* heat is added anew */
            now[i] = sin((10 + step / 60) * 6.283185307179586 * i / CELLS);
        simulate(now, next);
        const clt_array samples[] = {
            {.host = now, .dtype = CLT_F64, .rank = 2, .shape = {CELLS, 3}, .strides = {8, 8}},
            {.host = next + 1,
             .dtype = CLT_F64,
             .rank = 2,
             .shape = {CELLS, 1},
             .strides = {8, 8}}};
        TRY(clt_dataset_push(cells, samples, 2, NULL));
        TRY(clt_step_reservoir(trainer, 2, step % 100 == 99 ? &loss : NULL));
        if (step % 100 == 99)
            printf("time step %d: %lld samples, loss %.6f\n", step + 1,
                   (long long)clt_dataset_count(cells), loss);
    }
    /* A state that the network has not seen. */
    for (int i = 0; i < CELLS + 2; i++)
        u[0][i] = 0.7 * sin(13 * 6.283185307179586 * i / CELLS + 0.3);
    simulate(u[0], u[1]);
    clt_feed x = {
        "x",
        -1,
        {.host = u[0], .dtype = CLT_F64, .rank = 2, .shape = {CELLS, 3}, .strides = {8, 8}}};
    clt_fetch y = {.name = "prediction", .device = -1};
    TRY(clt_array_of(&y.array, guess, CLT_F64, 2, (int64_t[]){CELLS, 1}));
    TRY(clt_predict_arrays(trainer, &x, 1, &y, 1));
    for (int i = 0; i < CELLS; i++) {
        worst = fmax(worst, fabs(guess[i] - u[1][i + 1]));
        change = fmax(change, fabs(u[1][i + 1] - u[0][i + 1]));
    }
    printf("largest error of a time step %.4f, largest change %.4f\n", worst, change);
    clt_trainer_destroy(trainer);
    clt_store_destroy(store);
    clt_dataset_free(cells);
    clt_graph_destroy(graph);
    clt_devices_close(devices, count);
    clt_runtime_destroy(runtime);
    return worst < change / 2 ? 0 : 1;
}
