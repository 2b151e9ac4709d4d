/*
 * The high-level API: a data set, a model, clt_fit, an evaluation, and a file that PyTorch loads.
 *
 *     high_level [DATA [DEVICES [FILE]]]
 *
 * DATA is the name of a data set (fashion-mnist) or a SPEC (idx:DIR). Without DATA, or with
 * "arrays", the program makes the samples in memory: noise with a bright square, whose place is the
 * class.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cltrain/cltrain.h>
#include <cltrain/models.h>

enum { SIDE = 28, IMAGE = SIDE * SIDE, CLASSES = 10, TRAIN = 2048, TEST = 500 };

static void must(clt_status status)
{
    if (status == CLT_OK)
        return;
    fprintf(stderr, "high_level: %s: %s\n", clt_status_name(status), clt_error_message());
    exit(1);
}

/* Makes a data set of arrays. The data set copies them, so they are freed here. */
static clt_dataset *make_squares(const char *name, int count, unsigned random)
{
    const int64_t shape[] = {1, SIDE, SIDE};
    unsigned char *images = malloc((size_t)count * IMAGE), *labels = malloc((size_t)count);
    clt_dataset *dataset;
    int field;
    if (!images || !labels) {
        fprintf(stderr, "high_level: no memory for %d images\n", count);
        exit(1);
    }
    for (int i = 0; i < count; i++) {
        for (int p = 0; p < IMAGE; p++) {
            random = random * 1664525u + 1013904223u;
            images[i * IMAGE + p] = (unsigned char)(random >> 26);
        }
        labels[i] = (unsigned char)(i % CLASSES);
        const int top = labels[i] / 5 * 14 + 4, left = labels[i] % 5 * 5 + 1;
        for (int p = 0; p < 16; p++)
            images[i * IMAGE + (top + p / 4) * SIDE + left + p % 4] = 255;
    }
    must(clt_dataset_create_arrays(name, count, &dataset));
    must(clt_dataset_add_field(dataset, "image", CLT_U8, 3, shape, images, CLT_DATA_COPY, NULL));
    must(clt_dataset_set_image(dataset, 0));
    must(clt_dataset_add_field(dataset, "label", CLT_U8, 0, NULL, labels, CLT_DATA_COPY, &field));
    must(clt_dataset_set_classes(dataset, field, CLASSES));
    free(images);
    free(labels);
    return dataset;
}

static void on_epoch(void *user, const clt_progress *p)
{
    (void)user;
    printf("epoch %lld: loss %.4f, test loss %.4f, test accuracy %.4f\n", (long long)p->epoch,
           p->loss, p->test_loss, p->test_metric);
}

/* Returns the accuracy of the saved parameters, which a new store loads as another program
 * would. */
static double accuracy_of_file(const clt_graph *graph, clt_device **devices, int count,
                               const clt_trainer_options *options, const char *file,
                               clt_dataset *test)
{
    clt_store *store;
    clt_trainer *trainer;
    clt_fit_options fit;
    /* The model has one loss and one metric, in this order. */
    double sums[2] = {0, 0}, weights[2] = {0, 0};
    clt_fit_options_init(&fit);
    must(clt_store_create(graph, devices, count, 0, &store));
    must(clt_store_load(store, file));
    must(clt_trainer_create(graph, store, options, &trainer));
    must(clt_evaluate(trainer, test, &fit, sums, weights));
    clt_trainer_destroy(trainer);
    clt_store_destroy(store);
    return sums[1] / weights[1];
}

int main(int argc, char **argv)
{
    const char *data = argc > 1 && strcmp(argv[1], "arrays") ? argv[1] : NULL;
    const char *list = argc > 2 ? argv[2] : NULL, *file = argc > 3 ? argv[3] : "model.safetensors";

    clt_dataset *train, *test;
    if (data) {
        clt_dataset_options options;
        clt_dataset_options_init(&options);
        must(clt_dataset_open(data, &options, &train));
        options.split = "test";
        must(clt_dataset_open(data, &options, &test));
    } else {
        train = make_squares("squares", TRAIN, 1);
        test = make_squares("squares for the test", TEST, 2);
    }

    clt_runtime *runtime;
    clt_device **devices;
    int count;
    must(clt_runtime_create(NULL, &runtime));
    must(clt_devices_open(runtime, list, NULL, &devices, &count));
    for (int i = 0; i < count; i++)
        printf("device %s\n", clt_device_label(devices[i]));

    clt_model_field fields[2];
    clt_model_images(1, SIDE, SIDE, CLASSES, fields);
    const clt_model_input input = {.fields = fields, .n_fields = 2, .ignore_index = -100};
    clt_graph *graph;
    must(clt_graph_create(&graph));
    must(clt_model_build("lenet", &input, graph));

    clt_store *store;
    clt_trainer *trainer;
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.optimizer = CLT_MOMENTUM;
    options.lr = 0.05;
    options.batch = data ? 256 : 64;
    must(clt_store_create(graph, devices, count, 1, &store));
    must(clt_trainer_create(graph, store, &options, &trainer));

    clt_fit_options fit;
    clt_fit_options_init(&fit);
    fit.epochs = 3;
    fit.on_epoch = on_epoch;
    must(clt_fit(trainer, train, test, &fit));
    must(clt_store_save(store, file));
    clt_trainer_destroy(trainer);
    clt_store_destroy(store);

    const double accuracy = accuracy_of_file(graph, devices, count, &options, file, test);
    printf("%s: test accuracy %.4f\n", file, accuracy);

    clt_graph_destroy(graph);
    clt_devices_close(devices, count);
    clt_runtime_destroy(runtime);
    clt_dataset_free(train);
    clt_dataset_free(test);
    /* The squares are easy to learn. */
    return data || accuracy > 0.95 ? 0 : 1;
}
