/* Trains an MLP on Fashion-MNIST for one epoch, on all devices, and saves it for PyTorch. */
#include <stdio.h>

#include <cltrain/cltrain.h>
#include <cltrain/models.h>

#define TRY(call)                                                                                  \
    if ((call) != CLT_OK)                                                                          \
    return fprintf(stderr, "%s\n", clt_error_message()), 1

static void on_epoch(void *user, const clt_progress *p)
{
    (void)user;
    printf("loss %.4f, test accuracy %.4f\n", p->loss, p->test_metric);
}

int main(void)
{
    clt_dataset *train, *test;
    clt_dataset_options part;
    clt_dataset_options_init(&part);
    part.split = "test";
    TRY(clt_dataset_open("fashion-mnist", NULL, &train));
    TRY(clt_dataset_open("fashion-mnist", &part, &test));

    clt_runtime *runtime;
    clt_device **devices;
    int count;
    TRY(clt_runtime_create(NULL, &runtime));
    TRY(clt_devices_open(runtime, "all", NULL, &devices, &count));

    clt_model_field fields[2];
    clt_model_images(1, 28, 28, 10, fields);
    const clt_model_input input = {.fields = fields, .n_fields = 2};
    clt_graph *graph;
    TRY(clt_graph_create(&graph));
    TRY(clt_model_build("mlp", &input, graph));

    clt_store *store; /* the parameters, a replica on each device */
    clt_trainer *trainer;
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.optimizer = CLT_ADAM;
    options.lr = 0.001;
    options.batch = 256;
    TRY(clt_store_create(graph, devices, count, 1, &store));
    TRY(clt_trainer_create(graph, store, &options, &trainer));

    clt_fit_options fit; /* one epoch */
    clt_fit_options_init(&fit);
    fit.on_epoch = on_epoch;
    TRY(clt_fit(trainer, train, test, &fit));
    TRY(clt_store_save(store, "model.safetensors"));
    return 0;
}
