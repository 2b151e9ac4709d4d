/* Helpers for trainers that measure kernels into a temporary folder. */
#ifndef CLT_TESTS_TRAIN_TUNING_LAB_H
#define CLT_TESTS_TRAIN_TUNING_LAB_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/program/tuning_file.h"
#include "support/devices.h"
#include "train/core/trainer.h"
#include "train/setup/choices.h"
#include "tune/tune.h"
#include <cltrain/cltrain.h>
#include <cltrain/unstable.h>

enum { BATCH = 24, SIZE = 12, CHANNELS = 9, CLASSES = 7 };

/* Records shipped for this machine would replace the measurements. */
#define NOTHING_SHIPPED "{\"version\": 0}"

static char folder[] = "/tmp/cltrain-choices-XXXXXX";
static clt_runtime *runtime;
static clt_device **devices;
static int n_devices;

static inline void ok(clt_status status)
{
    if (status != CLT_OK)
        fail_msg("%s: %s", clt_status_name(status), clt_error_message());
}

static inline clt_value *parameter(clt_graph *g, const char *name, int rank, const int64_t *dims)
{
    return clt_parameter(g, name, rank, dims, (clt_init){CLT_INIT_UNIFORM, 0.3, 0});
}

/* Builds the graph of the next lab. */
static clt_graph *(*build_graph)(void);

typedef struct lab {
    clt_graph *graph;
    clt_store *store;
    clt_trainer *trainer;
} lab;

static inline lab lab_open(const clt_trainer_options *options)
{
    lab l = {.graph = build_graph()};
    ok(clt_store_create(l.graph, devices, n_devices, 3, &l.store));
    ok(clt_trainer_create(l.graph, l.store, options, &l.trainer));
    return l;
}

static inline void lab_close(lab *l)
{
    clt_trainer_destroy(l->trainer);
    clt_store_destroy(l->store);
    clt_graph_destroy(l->graph);
}

static inline clt_trainer_options options_of(double seconds)
{
    clt_trainer_options options;
    clt_trainer_options_init(&options);
    options.batch = BATCH;
    options.tune_seconds = seconds;
    return options;
}

static inline const clt_plan_node *node_of(const lab *l, const char *op)
{
    const clt_plan *plan = l->trainer->training->devices[0].plan;
    for (int i = 0; i < plan->n_nodes; i++)
        if (!strcmp(plan->nodes[i].node->op->name, op))
            return &plan->nodes[i];
    fail_msg("the plan has no %s", op);
    return NULL;
}

static inline void remove_record(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s/tuning", folder);
    assert_int_equal(system(command), 0);
}

static inline int set_up(void **state)
{
    (void)state;
    clt_runtime_options options;
    clt_runtime_options_init(&options);
    options.cache_dir = mkdtemp(folder);
#ifdef CLT_TESTING
    clt_tuning_testing_shipped = NOTHING_SHIPPED;
#endif
    if (clt_runtime_create(&options, &runtime) != CLT_OK)
        return -1;
    const clt_status status =
        clt_devices_open(runtime, clt_test_devices("pocl"), NULL, &devices, &n_devices);
    return status == CLT_OK && clt_caps_is_cpu(&devices[0]->caps) ? 0 : -1;
}

static inline int tear_down(void **state)
{
    (void)state;
    char command[128];
    clt_devices_close(devices, n_devices);
    clt_runtime_destroy(runtime);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

#endif
