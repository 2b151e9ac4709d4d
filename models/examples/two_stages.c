/*
 * A model whose layers are divided over two devices, which may be of different vendors. The first
 * device computes the first two layers and sends their result to the second one, which computes the
 * others and sends gradients back. Batches are divided into micro-batches, so that both devices
 * work at the same time.
 *
 *     two_stages [DEVICES]
 *
 * DEVICES names two devices, as `pocl,intel`. Without it the program takes devices of two
 * platforms, or else two halves of the CPU.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cltrain/cltrain.h>

enum { BATCH = 64, MICRO_BATCHES = 8, STEPS = 400, HIDDEN = 64 };

static void must(clt_status status)
{
    if (status == CLT_OK)
        return;
    fprintf(stderr, "two_stages: %s: %s\n", clt_status_name(status), clt_error_message());
    exit(1);
}

static clt_value *layer(clt_graph *graph, clt_value *x, const char *name, int64_t in, int64_t out)
{
    char weight[40], bias[40];
    const int64_t dims[] = {out, in};
    const clt_init init = {CLT_INIT_UNIFORM, 1 / sqrt((double)in), 0};
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    return clt_linear(x, clt_parameter(graph, weight, 2, dims, init),
                      clt_parameter(graph, bias, 1, dims, init));
}

static clt_graph *build(void)
{
    const int64_t two[] = {CLT_BATCH, 2}, one[] = {CLT_BATCH, 1};
    clt_graph *graph;
    must(clt_graph_create(&graph));
    clt_value *x = clt_input(graph, "x", CLT_F32, 2, two);
    clt_value *target = clt_input(graph, "target", CLT_F32, 2, one);
    x = clt_relu(layer(graph, x, "first", 2, HIDDEN));
    x = clt_relu(layer(graph, x, "second", HIDDEN, HIDDEN));
    /* The first stage ends here. This line alone makes a pipeline of the model. */
    x = clt_cut(x);
    x = clt_relu(layer(graph, x, "third", HIDDEN, HIDDEN));
    x = layer(graph, x, "last", HIDDEN, 1);
    clt_value *sum = NULL, *weight = NULL;
    clt_mse(x, target, &sum, &weight);
    clt_loss(graph, "error", sum, weight, 1);
    must(clt_graph_status(graph));
    return graph;
}

/* Writes the rows of two usable devices of different platforms to `list`, as "0,3". Returns 0 if
 * there is one platform only. */
static int two_vendors(const clt_runtime *runtime, char list[24])
{
    clt_device_info first, next;
    int found = 0;
    for (int i = 0; i < clt_runtime_device_count(runtime); i++) {
        clt_device_info_init(&next);
        must(clt_runtime_device_info(runtime, i, &next));
        if (!next.usable)
            continue;
        if (!found) {
            first = next;
            found = 1;
        } else if (strcmp(first.platform, next.platform) != 0) {
            snprintf(list, 24, "%d,%d", first.index, next.index);
            return 1;
        }
    }
    return 0;
}

static void make_batch(int step, float *x, float *target)
{
    unsigned random = 12345u + 977u * (unsigned)step;
    for (int i = 0; i < 2 * BATCH; i++) {
        random = random * 1664525u + 1013904223u;
        x[i] = (float)(random >> 8) / 8388608.0f - 1;
    }
    for (int i = 0; i < BATCH; i++)
        target[i] = sinf(3 * x[2 * i]) * x[2 * i + 1];
}

int main(int argc, char **argv)
{
    clt_runtime *runtime;
    clt_device **devices;
    int count;
    char list[24], mesh[24];
    must(clt_runtime_create(NULL, &runtime));
    if (argc > 1)
        must(clt_devices_open(runtime, argv[1], NULL, &devices, &count));
    else if (two_vendors(runtime, list))
        must(clt_devices_open(runtime, list, NULL, &devices, &count));
    else if (clt_devices_open(runtime, "cpu/2", NULL, &devices, &count) != CLT_OK)
        must(clt_devices_open(runtime, NULL, NULL, &devices, &count));
    for (int i = 0; i < count; i++)
        printf("stage %d: %s\n", i, clt_device_label(devices[i]));

    clt_graph *graph = build();
    clt_store *store; /* each device has the parameters of its stage only */
    clt_store_options store_options;
    clt_store_options_init(&store_options);
    store_options.seed = 7;
    snprintf(mesh, sizeof mesh, "pp=%d", count);
    store_options.parallel = mesh;
    must(clt_store_create_with(graph, devices, count, &store_options, &store));

    clt_trainer *trainer;
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.optimizer = CLT_ADAM;
    options.lr = 0.003;
    options.batch = BATCH;
    options.accumulate = MICRO_BATCHES;
    must(clt_trainer_create(graph, store, &options, &trainer));

    static float x[2 * BATCH], target[BATCH];
    const clt_feed feeds[] = {{"x", -1, CLT_HOST(x)}, {"target", -1, CLT_HOST(target)}};
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = BATCH;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    double mean = 0;
    for (int step = 0; step < STEPS; step++) {
        clt_step_result result;
        clt_step_result_init(&result);
        make_batch(step, x, target);
        must(clt_trainer_step(trainer, &batch, NULL));
        must(clt_trainer_result(trainer, step, &result));
        mean += result.loss / 100;
        if (step % 100 == 99) {
            printf("step %d: mean loss %.5f\n", step + 1, mean);
            if (step + 1 < STEPS)
                mean = 0;
        }
    }
    clt_trainer_destroy(trainer);
    clt_store_destroy(store);
    clt_graph_destroy(graph);
    clt_devices_close(devices, count);
    clt_runtime_destroy(runtime);
    /* A model that predicts 0 has an error of 0.17. */
    return mean < 0.02 ? 0 : 1;
}
