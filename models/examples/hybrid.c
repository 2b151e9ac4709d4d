/*
 * A solver with a network inside: u_t = u_xx + f(u) on a ring of cells, in explicit steps. The
 * network f is learned from the state at the end, which another solver with f(u) = 2 u (1 - u)
 * made.
 *
 * The solver has the adjoint of its own part. For the network it asks for vector-Jacobian products:
 *
 *     u[n + 1] = u[n] + dt (u_xx[n] + f(u[n]))            adjoint[n] = dLoss / du[n]
 *     adjoint[n] = adjoint[n + 1] + dt (adjoint_xx[n + 1] + f'(u[n])^T adjoint[n + 1])
 */
#include <cltrain/cltrain.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define TRY(call)                                                                                  \
    if ((call) != CLT_OK)                                                                          \
    fprintf(stderr, "%s\n", clt_error_message()), exit(1)

enum { CELLS = 64, STEPS = 25, HIDDEN = 16, ROUNDS = 400 };

static const double dt = 0.04;
static double u[STEPS + 1][CELLS], adjoint[STEPS + 1][CELLS];
static double given[STEPS][CELLS]; /* dt adjoint[n + 1], the gradient of f(u[n]) */
static double wanted[CELLS], start[CELLS];
static clt_trainer *trainer;

static clt_value *linear(clt_graph *g, clt_value *x, const char *weight, const char *bias, int in,
                         int out)
{
    const int64_t dims[] = {out, in};
    const clt_init init = {CLT_INIT_UNIFORM, 1 / sqrt(in), 0};
    return clt_linear(x, clt_parameter(g, weight, 2, dims, init),
                      clt_parameter(g, bias, 1, dims, init));
}

/* f, a number for each cell. The caller gives the gradient "df" of "f" and reads that of "u". */
static void make_network(void)
{
    const int64_t cell[] = {CLT_BATCH, 1};
    clt_runtime *runtime;
    clt_device **devices;
    clt_graph *g;
    clt_store *store;
    clt_trainer_options options;
    int count;
    TRY(clt_runtime_create(NULL, &runtime));
    TRY(clt_devices_open(runtime, "cpu", NULL, &devices, &count));
    TRY(clt_graph_create(&g));
    clt_value *h =
        clt_tanh(linear(g, clt_input(g, "u", CLT_F32, 2, cell), "a.weight", "a.bias", 1, HIDDEN));
    clt_output_gradient(clt_output(linear(g, h, "b.weight", "b.bias", HIDDEN, 1), "f"), "df");
    TRY(clt_graph_status(g));
    TRY(clt_input_gradient(g, "u"));
    TRY(clt_store_create(g, devices, count, 1, &store));
    clt_trainer_options_init(&options);
    options.optimizer = CLT_ADAM;
    options.lr = 0.1;
    options.batch = STEPS * CELLS;
    TRY(clt_trainer_create(g, store, &options, &trainer));
}

static clt_array cells(double *values, int64_t count)
{
    clt_array array;
    TRY(clt_array_of(&array, values, CLT_F64, 2, (const int64_t[]){count, 1}));
    return array;
}

static double laplacian(const double *v, int i)
{
    return v[(i + 1) % CELLS] - 2 * v[i] + v[(i + CELLS - 1) % CELLS];
}

/* Solves from the start, with the network or with the f that it shall learn. Returns the loss. */
static double solve(int with_network)
{
    double f[CELLS], loss = 0;
    for (int i = 0; i < CELLS; i++)
        u[0][i] = start[i];
    for (int n = 0; n < STEPS; n++) {
        const clt_feed feed = {"u", -1, cells(u[n], CELLS)};
        const clt_fetch fetch = {"f", -1, cells(f, CELLS)};
        if (with_network)
            TRY(clt_predict_arrays(trainer, &feed, 1, &fetch, 1));
        for (int i = 0; i < CELLS; i++)
            u[n + 1][i] = u[n][i] + dt * (laplacian(u[n], i) +
                                          (with_network ? f[i] : 2 * u[n][i] * (1 - u[n][i])));
    }
    for (int i = 0; i < CELLS; i++)
        loss += pow(u[STEPS][i] - wanted[i], 2) / 2;
    return loss;
}

/* From the end to the start: nothing is updated. */
static void solve_adjoint(void)
{
    double product[CELLS]; /* of f'(u[n])^T and given[n] */
    const clt_array to = cells(product, CELLS);
    for (int i = 0; i < CELLS; i++)
        adjoint[STEPS][i] = u[STEPS][i] - wanted[i];
    for (int n = STEPS - 1; n >= 0; n--) {
        const clt_feed feed = {"u", -1, cells(u[n], CELLS)};
        const clt_feed gradient = {"df", -1, cells(given[n], CELLS)};
        clt_step_batch batch;
        clt_step_batch_init(&batch);
        batch.count = CELLS;
        batch.feeds = &feed;
        batch.n_feeds = 1;
        for (int i = 0; i < CELLS; i++)
            given[n][i] = dt * adjoint[n + 1][i];
        TRY(clt_trainer_forward(trainer, &batch));
        TRY(clt_trainer_backward_from(trainer, &gradient, 1));
        TRY(clt_trainer_input_gradient(trainer, -1, "u", &to));
        for (int i = 0; i < CELLS; i++)
            adjoint[n][i] = adjoint[n + 1][i] + dt * laplacian(adjoint[n + 1], i) + product[i];
    }
}

/* The gradient of the loss at the start, compared with differences of the whole solver. */
static double error_at_start(void)
{
    const double h = 0.02, before = start[3];
    start[3] = before + h;
    const double above = solve(1);
    start[3] = before - h;
    const double below = solve(1), difference = (above - below) / (2 * h);
    start[3] = before;
    solve(1);
    solve_adjoint();
    return fabs(adjoint[0][3] - difference) / fabs(difference);
}

int main(void)
{
    double first = 0, last = 0;
    make_network();
    for (int i = 0; i < CELLS; i++)
        start[i] = 0.5 + 0.4 * sin(6.2831853 * i / CELLS);
    solve(0);
    for (int i = 0; i < CELLS; i++)
        wanted[i] = u[STEPS][i];
    const double error = error_at_start();
    printf("gradient at the start: %.1e from differences\n", error);
    for (int round = 0; round < ROUNDS; round++) {
        last = solve(1);
        first = round ? first : last;
        if (round % 100 == 0)
            printf("round %d: loss %.6f\n", round, last);
        solve_adjoint();
        /* All cells of all times are samples: the gradient of the parameters is the sum. */
        const clt_feed feeds[] = {{"u", -1, cells(u[0], STEPS * CELLS)},
                                  {"df", -1, cells(given[0], STEPS * CELLS)}};
        TRY(clt_step_arrays(trainer, feeds, 2, NULL));
    }
    printf("loss %.6f at first, %.6f at last\n", first, last);
    return error < 0.01 && last < first / 100 ? 0 : 1;
}
