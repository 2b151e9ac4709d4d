/*
 * A custom training loop on replicas of a model, as with TensorFlow's MirroredStrategy. Each
 * step runs forward and backward on every replica, reduces the gradients, and applies them, with a
 * call for each. Between these calls the program looks at gradients and sets the learning rate.
 *
 *     custom_loop [DEVICES]
 *
 * Without DEVICES it takes two halves of the CPU, or else the default device.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <cltrain/cltrain.h>

enum { BATCH = 96, STEPS = 300, HIDDEN = 32 };

static void must(clt_status status)
{
    if (status == CLT_OK)
        return;
    fprintf(stderr, "custom_loop: %s: %s\n", clt_status_name(status), clt_error_message());
    exit(1);
}

static clt_value *layer(clt_graph *graph, clt_value *x, const char *weight, const char *bias,
                        int64_t in, int64_t out)
{
    const int64_t dims[] = {out, in};
    const clt_init init = {CLT_INIT_UNIFORM, 1 / sqrt((double)in), 0};
    return clt_linear(x, clt_parameter(graph, weight, 2, dims, init),
                      clt_parameter(graph, bias, 1, dims, init));
}

/* Builds a network with a hidden layer that learns a function of two numbers. */
static clt_graph *build(void)
{
    const int64_t two[] = {CLT_BATCH, 2}, one[] = {CLT_BATCH, 1};
    clt_graph *graph;
    must(clt_graph_create(&graph));
    clt_value *x = clt_input(graph, "x", CLT_F32, 2, two);
    clt_value *target = clt_input(graph, "target", CLT_F32, 2, one);
    clt_value *hidden = clt_relu(layer(graph, x, "hidden.weight", "hidden.bias", 2, HIDDEN));
    clt_value *y = layer(graph, hidden, "out.weight", "out.bias", HIDDEN, 1);
    clt_value *sum = NULL, *weight = NULL;
    clt_output(y, "y");
    clt_mse(y, target, &sum, &weight);
    clt_loss(graph, "error", sum, weight, 1);
    /* The graph keeps the first failure, so one check is enough. */
    must(clt_graph_status(graph));
    return graph;
}

static void make_batch(int step, float *x, float *target)
{
    unsigned random = 12345u + (unsigned)step;
    for (int i = 0; i < 2 * BATCH; i++) {
        random = random * 1664525u + 1013904223u;
        x[i] = (float)(random >> 8) / 8388608.0f - 1;
    }
    for (int i = 0; i < BATCH; i++)
        target[i] = sinf(3 * x[2 * i]) * x[2 * i + 1];
}

/* Reduces the gradients. Returns the largest difference between a reduced gradient and the sum over
 * the replicas. */
static double reduce_and_compare(clt_trainer *trainer, int replicas, const char *name, int elements,
                                 double *largest)
{
    float sum[2 * HIDDEN] = {0}, one[2 * HIDDEN];
    double worst = 0;
    for (int r = 0; r < replicas; r++) {
        must(clt_trainer_gradient(trainer, r, name, one, (size_t)elements * sizeof *one));
        for (int i = 0; i < elements; i++)
            sum[i] += one[i];
    }
    must(clt_trainer_reduce(trainer));
    *largest = 0;
    for (int r = 0; r < replicas; r++) {
        must(clt_trainer_gradient(trainer, r, name, one, (size_t)elements * sizeof *one));
        for (int i = 0; i < elements; i++) {
            worst = fmax(worst, fabs((double)one[i] - (double)sum[i]));
            *largest = fmax(*largest, fabs((double)one[i]));
        }
    }
    return worst;
}

int main(int argc, char **argv)
{
    clt_runtime *runtime;
    clt_device **devices;
    int replicas;
    must(clt_runtime_create(NULL, &runtime));
    if (argc > 1)
        must(clt_devices_open(runtime, argv[1], NULL, &devices, &replicas));
    else if (clt_devices_open(runtime, "cpu/2", NULL, &devices, &replicas) != CLT_OK)
        must(clt_devices_open(runtime, NULL, NULL, &devices, &replicas));

    clt_graph *graph = build();
    clt_store *store;
    clt_trainer *trainer;
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.optimizer = CLT_MOMENTUM;
    options.batch = BATCH;
    must(clt_store_create(graph, devices, replicas, 7, &store));
    must(clt_trainer_create(graph, store, &options, &trainer));

    static float x[2 * BATCH], target[BATCH];
    const clt_feed feeds[] = {{"x", -1, CLT_HOST(x)}, {"target", -1, CLT_HOST(target)}};
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = BATCH;
    batch.feeds = feeds;
    batch.n_feeds = 2;

    /* Halve the learning rate whenever the mean loss over 50 steps has not fallen by a tenth. */
    double lr = 0.2, mean = 0, before = INFINITY;
    for (int step = 0; step < STEPS; step++) {
        double largest, difference;
        clt_step_result result;
        clt_step_result_init(&result);
        must(clt_trainer_wait(trainer)); /* now x and target may be written again */
        make_batch(step, x, target);

        must(clt_trainer_set_lr(trainer, lr));
        must(clt_trainer_forward(trainer, &batch));
        must(clt_trainer_backward(trainer));
        difference = reduce_and_compare(trainer, replicas, "out.weight", HIDDEN, &largest);
        must(clt_trainer_apply(trainer, NULL));

        must(clt_trainer_result(trainer, step, &result));
        if (difference > 1e-6 * (1 + largest)) {
            fprintf(stderr, "custom_loop: step %d: the reduced gradient is off by %g\n", step,
                    difference);
            return 1;
        }
        mean += result.loss / 50;
        if (step % 50 == 49) {
            printf("step %d: mean loss %.5f, lr %g, gradient's norm %.4f, largest of out.weight "
                   "%.4f\n",
                   step + 1, mean, lr, result.norm, largest);
            if (mean > 0.9 * before)
                lr /= 2;
            before = mean;
            mean = 0;
        }
    }
    /* Check that all replicas have the same bits. */
    must(clt_store_check(store));
    printf("%d replicas are identical\n", replicas);

    clt_trainer_destroy(trainer);
    clt_store_destroy(store);
    clt_graph_destroy(graph);
    clt_devices_close(devices, replicas);
    clt_runtime_destroy(runtime);
    /* A model that predicts 0 has an error of 0.17. */
    return before < 0.05 ? 0 : 1;
}
