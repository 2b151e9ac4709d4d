/* Helpers for tests of the trainer: a graph with its devices, store and trainer. */
#ifndef TESTS_TRAIN_LAB_H
#define TESTS_TRAIN_LAB_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/devices.h"
#include <cltrain/cltrain.h>

static clt_runtime *runtime;

static inline int open_runtime(void **state)
{
    (void)state;
    return clt_runtime_create(NULL, &runtime) != CLT_OK;
}

/* Devices that stay open between labs (lab_on_kept). */
enum { LAB_KEPT = 16 };
static struct lab_kept {
    char list[64];
    clt_device **devices;
    int n;
    bool in_use;
} lab_kept[LAB_KEPT];

static inline int close_runtime(void **state)
{
    (void)state;
    for (int i = 0; i < LAB_KEPT; i++)
        if (lab_kept[i].devices)
            clt_devices_close(lab_kept[i].devices, lab_kept[i].n);
    clt_runtime_destroy(runtime);
    return 0;
}

static inline void ok(clt_status status)
{
    if (status != CLT_OK)
        fail_msg("%s: %s", clt_status_name(status), clt_error_message());
}

/* Members that are not made yet are NULL. */
typedef struct lab {
    clt_device **devices;
    int n;
    clt_graph *graph;
    clt_store *store;
    clt_trainer *trainer;
} lab;

/* Opens devices only. `options` may be NULL. */
static inline lab lab_on(const char *list, const clt_device_options *options)
{
    lab l = {0};
    ok(clt_devices_open(runtime, list, options, &l.devices, &l.n));
    return l;
}

/* Opens devices only, and keeps them open for the next lab of the same list: their programs are
 * built once. For tests that leave devices as they were. Oclgrind's check for uninitialised values
 * takes a context's later buffers for its earlier ones, so it always gets new devices. */
static inline lab lab_on_kept(const char *list)
{
    int i = 0;
    if (clt_test_oclgrind())
        return lab_on(list, NULL);
    while (i < LAB_KEPT && (lab_kept[i].in_use || strcmp(lab_kept[i].list, list)) &&
           lab_kept[i].devices)
        i++;
    assert_true(i < LAB_KEPT && strlen(list) < sizeof lab_kept[i].list);
    struct lab_kept *kept = &lab_kept[i];
    if (!kept->devices) {
        const lab l = lab_on(list, NULL);
        kept->devices = l.devices;
        kept->n = l.n;
        strcpy(kept->list, list);
    }
    kept->in_use = true;
    return (lab){.devices = kept->devices, .n = kept->n};
}

/* Takes ownership of the graph, and makes a store of its parameters. */
static inline void lab_store(lab *l, clt_graph *graph, uint64_t seed)
{
    l->graph = graph;
    ok(clt_store_create(graph, l->devices, l->n, seed, &l->store));
}

static inline void lab_trainer(lab *l, const clt_trainer_options *options)
{
    ok(clt_trainer_create(l->graph, l->store, options, &l->trainer));
}

/* Makes a data set of `count` borrowed samples: x, of `width` floats each, and labels. With
 * `classes`, the labels are of so many classes. */
static inline clt_status lab_samples(int64_t count, int64_t width, const float *xs,
                                     const int32_t *labels, int classes, clt_dataset **set)
{
    int label = 0;
    clt_status status = clt_dataset_create_arrays("made up", count, set);
    if (status == CLT_OK)
        status = clt_dataset_add_field(*set, "x", CLT_F32, 1, &width, xs, CLT_DATA_BORROW, NULL);
    if (status == CLT_OK)
        status =
            clt_dataset_add_field(*set, "label", CLT_I32, 0, NULL, labels, CLT_DATA_BORROW, &label);
    return status == CLT_OK && classes ? clt_dataset_set_classes(*set, label, classes) : status;
}

/* A batch of `count` samples from an input and its labels. */
static inline clt_step_batch lab_batch(const clt_feed feeds[2], int64_t count)
{
    clt_step_batch batch;
    clt_step_batch_init(&batch);
    batch.count = count;
    batch.feeds = feeds;
    batch.n_feeds = 2;
    return batch;
}

/* Makes a store of the graph on one device, computes its outputs once, and waits. */
static inline void lab_compute(lab *l, clt_graph *graph, const clt_step_batch *batch, int portable)
{
    clt_predictor *predictor;
    clt_predictor_options options;
    *l = lab_on_kept("0");
    lab_store(l, graph, 1);
    clt_predictor_options_init(&options);
    options.batch = batch->count;
    options.portable = portable;
    ok(clt_predictor_create(l->graph, l->store, &options, &predictor));
    ok(clt_predictor_run(predictor, batch, NULL));
    ok(clt_predictor_wait(predictor));
    clt_predictor_destroy(predictor);
}

static inline void lab_close(lab *l)
{
    clt_trainer_destroy(l->trainer);
    clt_store_destroy(l->store);
    clt_graph_destroy(l->graph);
    for (int i = 0; i < LAB_KEPT; i++)
        if (lab_kept[i].devices == l->devices) {
            lab_kept[i].in_use = false;
            return;
        }
    clt_devices_close(l->devices, l->n);
}

/* Adds a linear layer with PyTorch's initialisation. */
static inline clt_value *layer(clt_graph *graph, clt_value *x, const char *weight, const char *bias,
                               int64_t in, int64_t out)
{
    const int64_t dims[] = {out, in};
    const clt_init init = {CLT_INIT_UNIFORM, 1 / sqrt((double)in), 0};
    return clt_linear(x, clt_parameter(graph, weight, 2, dims, init),
                      clt_parameter(graph, bias, 1, dims, init));
}

/* Builds a classifier with one hidden layer: inputs "x" and "label", loss and accuracy. Ranks that
 * are threads call this too, so it asserts nothing. Returns NULL or a graph that has failed if
 * memory does not suffice. */
static inline clt_graph *classifier(int64_t in, int64_t hidden, int64_t classes)
{
    const int64_t dims[] = {CLT_BATCH, in}, one[] = {CLT_BATCH};
    clt_value *sum = NULL, *weight = NULL;
    clt_graph *graph;
    if (clt_graph_create(&graph) != CLT_OK)
        return NULL;
    clt_value *x = clt_input(graph, "x", CLT_F32, 2, dims);
    clt_value *label = clt_input(graph, "label", CLT_I32, 1, one);
    clt_value *h = clt_relu(layer(graph, x, "a.weight", "a.bias", in, hidden));
    clt_value *logits = layer(graph, h, "b.weight", "b.bias", hidden, classes);
    clt_cross_entropy(logits, label, NULL, &sum, &weight);
    clt_loss(graph, "loss", sum, weight, 1);
    clt_correct(logits, label, 1, -100, &sum, &weight);
    clt_metric(graph, "accuracy", sum, weight);
    return graph;
}

/* Makes samples of `in` numbers each, and their classes. */
static inline void make_samples(float *xs, int32_t *labels, int count, int in, int classes)
{
    for (int i = 0; i < count * in; i++)
        xs[i] = (float)((i * 37) % 101 - 50) / 40;
    for (int i = 0; i < count; i++)
        labels[i] = (i * 5 + i / 3) % classes;
}

#endif
