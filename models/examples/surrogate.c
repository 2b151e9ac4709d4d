/* The smallest surrogate: a network learns sin(x0) * x1 from arrays of doubles while they are made.
 */
#include <cltrain/cltrain.h>
#include <cltrain/models.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define TRY(call)                                                                                  \
    if ((call) != CLT_OK)                                                                          \
    return fprintf(stderr, "%s\n", clt_error_message()), 1

enum { N = 256 }; /* the default batch */

int main(void)
{
    static double x[N][2], y[N], guess[N];
    clt_runtime *runtime;
    clt_device **devices;
    clt_graph *graph;
    clt_store *store;
    clt_trainer *trainer;
    clt_trainer_options options;
    double loss = 0, worst = 0;
    int count;
    TRY(clt_runtime_create(NULL, &runtime));
    TRY(clt_devices_open(runtime, "cpu", NULL, &devices, &count));
    TRY(clt_mlp_regressor(2, (const int64_t[]){32, 32}, 2, 1, "tanh", &graph));
    TRY(clt_store_create(graph, devices, count, 1, &store));
    clt_trainer_options_init(&options);
    options.optimizer = CLT_ADAM;
    options.lr = 0.01;
    TRY(clt_trainer_create(graph, store, &options, &trainer));
    const clt_feed feeds[] = {{"x", -1, CLT_MATRIX(x, CLT_F64, N, 2)},
                              {"y", -1, CLT_MATRIX(y, CLT_F64, N, 1)}};
    const clt_fetch fetch = {"prediction", -1, CLT_MATRIX(guess, CLT_F64, N, 1)};
    for (int step = 0; step < 600; step++) {
        for (int i = 0; i < N; i++) {
            x[i][0] = 3.0 * rand() / RAND_MAX, x[i][1] = 2.0 * rand() / RAND_MAX - 1;
            y[i] = sin(x[i][0]) * x[i][1];
        }
        TRY(clt_step_arrays(trainer, feeds, 2, step % 100 == 99 ? &loss : NULL));
        if (step % 100 == 99)
            printf("step %d: loss %.6f\n", step + 1, loss);
    }
    TRY(clt_predict_arrays(trainer, feeds, 1, &fetch, 1));
    for (int i = 0; i < N; i++)
        worst = fmax(worst, fabs(guess[i] - y[i]));
    printf("largest error %.3f\n", worst);
    return worst < 0.2 ? 0 : 1;
}
