/*
 * What it costs a program to push samples at each of its steps.
 *
 *     push_cost [SECONDS [MILLISECONDS [DEVICES]]]
 *
 * A host step computes for MILLISECONDS (10), and then pushes 1 MB: 32 samples of 32 KB, of
 * doubles. Steps run for SECONDS (1) in blocks by turns: alone, with a trainer and a reservoir that
 * exist, and with a push a step besides. Then they run while a thread trains on DEVICES (cpu).
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cltrain/cltrain.h>
#include <cltrain/models.h>

enum { WIDE = 4095, SAMPLES = 32, BLOCK = 20 };

static void must(clt_status status)
{
    if (status == CLT_OK)
        return;
    fprintf(stderr, "push_cost: %s: %s\n", clt_status_name(status), clt_error_message());
    exit(1);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double x[SAMPLES][WIDE + 1], y[SAMPLES];

/* What the host computes in a step. It also writes a few numbers of the samples. */
static void compute(long rounds)
{
    static double state = 0.5;
    for (long i = 0; i < rounds; i++)
        state = 3.9 * state * (1 - state);
    for (int s = 0; s < SAMPLES; s++)
        x[s][0] = y[s] = state;
}

/* Finds how many rounds take `milliseconds`. */
static long calibrate(double milliseconds)
{
    long rounds = 1000;
    for (;;) {
        const double began = seconds();
        compute(rounds);
        const double took = seconds() - began;
        if (took > 0.2)
            return (long)((double)rounds * milliseconds / 1000 / took);
        rounds *= 2;
    }
}

static void push(clt_dataset *reservoir)
{
    const clt_array fields[] = {{.host = x,
                                 .dtype = CLT_F64,
                                 .rank = 2,
                                 .shape = {SAMPLES, WIDE},
                                 .strides = {sizeof x[0], sizeof x[0][0]}},
                                {.host = y,
                                 .dtype = CLT_F64,
                                 .rank = 2,
                                 .shape = {SAMPLES, 1},
                                 .strides = {sizeof y[0], sizeof y[0]}}};
    must(clt_dataset_push(reservoir, fields, 2, NULL));
}

/* Returns the seconds of a step, over a block of steps. */
static double run(int steps, long rounds, clt_dataset *reservoir)
{
    const double began = seconds();
    for (int i = 0; i < steps; i++) {
        compute(rounds);
        if (reservoir)
            push(reservoir);
    }
    return (seconds() - began) / steps;
}

static int compare(const void *a, const void *b)
{
    const double p = *(const double *)a, q = *(const double *)b;
    return (p > q) - (p < q);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
}

/* --- training --------------------------------------------------------------------------------- */

typedef struct training {
    clt_trainer *trainer;
    clt_dataset *reservoir;
    atomic_int stop;
} training;

static int should_stop(void *user)
{
    return ((training *)user)->stop;
}

static void *train(void *user)
{
    training *t = user;
    clt_fit_options fit;
    clt_fit_options_init(&fit);
    fit.steps = INT64_MAX;
    fit.should_stop = should_stop;
    fit.user = t;
    const clt_status status = clt_fit(t->trainer, t->reservoir, NULL, &fit);
    must(status == CLT_STOPPED ? CLT_OK : status);
    return NULL;
}

static void print_stats(clt_dataset *reservoir, const char *what)
{
    clt_reservoir_stats s;
    clt_reservoir_stats_init(&s);
    must(clt_dataset_reservoir_stats(reservoir, &s));
    printf("%s: %lld samples pushed, %lld kept in %.0f MB, %lld replaced, %lld declined, %lld "
           "dropped\n",
           what, (long long)s.seen, (long long)s.kept, (double)s.bytes / 1e6, (long long)s.replaced,
           (long long)s.declined, (long long)s.dropped);
}

int main(int argc, char **argv)
{
    enum { MOST = 10000 };
    static double alone[MOST], idle[MOST], pushed[MOST], trained[MOST];
    const double length = argc > 1 ? atof(argv[1]) : 1;
    const double milliseconds = argc > 2 ? atof(argv[2]) : 10;
    const int64_t hidden[] = {64}, wide[] = {WIDE}, one[] = {1};
    int count, n = (int)(length * 1000 / milliseconds / BLOCK);
    n = n < 1 ? 1 : n > MOST ? MOST : n;
    const long rounds = calibrate(milliseconds);
    clt_runtime *runtime;
    clt_device **devices;
    clt_graph *graph;
    clt_store *store;
    clt_trainer_options options;
    clt_reservoir_options keep;
    training t = {.stop = 0};
    must(clt_runtime_create(NULL, &runtime));
    must(clt_devices_open(runtime, argc > 3 ? argv[3] : "cpu", NULL, &devices, &count));
    must(clt_mlp_regressor(WIDE, hidden, 1, 1, "relu", &graph));
    must(clt_store_create(graph, devices, count, 1, &store));
    clt_trainer_options_init(&options);
    options.lr = 1e-6;
    options.batch = 64;
    for (int i = 0; i < n; i++)
        alone[i] = run(BLOCK, rounds, NULL);
    must(clt_trainer_create(graph, store, &options, &t.trainer));
    clt_reservoir_options_init(&keep);
    keep.policy = CLT_RESERVOIR_NEWEST; /* copies every sample */
    must(clt_dataset_create_reservoir("steps", 4096, &keep, &t.reservoir));
    must(clt_dataset_add_field(t.reservoir, "x", CLT_F32, 1, wide, NULL, CLT_DATA_BORROW, NULL));
    must(clt_dataset_add_field(t.reservoir, "y", CLT_F32, 1, one, NULL, CLT_DATA_BORROW, NULL));
    must(clt_trainer_set_reservoir(t.trainer, t.reservoir, NULL));
    for (int i = 0; i < n; i++) { /* by turns, so that other load on the machine meets both */
        idle[i] = run(BLOCK, rounds, NULL);
        pushed[i] = run(BLOCK, rounds, t.reservoir);
    }
    const double before = median(alone, n), without = median(idle, n), with = median(pushed, n);
    printf("host step: %.3f ms before a trainer exists, %.3f ms (%+.2f %%) with a trainer, %.3f ms "
           "(%+.2f %%) with a push of 1 MB\n",
           1e3 * before, 1e3 * without, 100 * (without / before - 1), 1e3 * with,
           100 * (with / without - 1));
    print_stats(t.reservoir, "without training");

    pthread_t thread;
    const double began = seconds();
    const int64_t first = clt_trainer_steps(t.trainer);
    if (pthread_create(&thread, NULL, train, &t))
        return 1;
    for (int i = 0; i < n; i++)
        trained[i] = run(BLOCK, rounds, t.reservoir);
    t.stop = 1;
    pthread_join(thread, NULL);
    const double during = median(trained, n), took = seconds() - began;
    printf("while a thread trains (%.0f steps/s): %.3f ms (%+.2f %%)\n",
           (double)(clt_trainer_steps(t.trainer) - first) / took, 1e3 * during,
           100 * (during / without - 1));
    print_stats(t.reservoir, "with training");
    clt_trainer_destroy(t.trainer);
    clt_store_destroy(store);
    clt_dataset_free(t.reservoir);
    clt_graph_destroy(graph);
    clt_devices_close(devices, count);
    clt_runtime_destroy(runtime);
    return 0;
}
