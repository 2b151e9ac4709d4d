/* Measures training on devices before it begins. The probe runs the real plan on parameters and
 * data of its own, and frees them afterwards. All ranks measure at the same time, as they will
 * train, and exchange their results. */
#ifndef CLT_TRAIN_PLANNER_MEASURE_DEVICES_H
#define CLT_TRAIN_PLANNER_MEASURE_DEVICES_H

#include "train/planner/bucket.h"
#include <cltrain/train.h>

enum { CLT_PROBE_ROUNDS = 7 };

typedef struct clt_probe_options {
    int64_t samples; /* samples of a device's step: the plan's largest batch */
    double seconds;  /* rough limit of the time of measuring; each device runs a few steps anyway */
    const clt_trainer_options *trainer; /* with its world */
    int (*stop)(void *user);            /* may be NULL; nonzero stops measuring with STOPPED */
    void *user;
} clt_probe_options;

enum { CLT_PROBE_LABEL = 128 };

/* Properties of a device that the planner distinguishes. */
typedef struct clt_probe_device {
    uint64_t kind; /* devices of one kind are equally fast, except for noise and neighbours */
    int32_t rank, lanes;
    int32_t on_host; /* the device uses the cores of `host` */
    clt_host_cores host;
    char label[CLT_PROBE_LABEL];
} clt_probe_device;

/* Measurements of the devices of all ranks, in rank order. Each round runs whole steps, with the
 * update, on all devices at once. All ranks have the same numbers. */
typedef struct clt_probe_result {
    int count; /* devices */
    int rounds;
    /* Samples of a step: the second is options->samples; the first is less, or equal if there are
     * too few. */
    double samples[CLT_SPEED_POINTS];
    double *seconds[CLT_SPEED_POINTS]; /* [device * CLT_PROBE_ROUNDS + round] */
    /* By device: a step of samples[1] while the other devices of its node are idle. */
    double *solo_seconds;
    /* By device: the optimizer; norm and finiteness of the gradients, which a single device
     * computes itself and several devices get from reductions. */
    double *update, *status_time;
    clt_probe_device *devices;
    clt_gradients_cost gradients; /* rank 0's */
    clt_reduction_cost reduction;
    double load; /* see clt_cost; rank 0's */
    /* Seconds of short steps. Apart: trainers of one device each, all at once; the longest counts.
     * Together: one training on all devices. 0 with one device. */
    double few_apart, few_together;
} clt_probe_result;

/* Measures. Collective: all ranks measure the same model, or all fail. Free the result with
 * clt_probe_free. */
clt_status clt_probe_run(const clt_graph *graph, clt_device *const *devices, int n_devices,
                         const clt_probe_options *options, clt_probe_result *result);

/* share.c: allocates a result of `count` devices, set to zero. */
clt_status clt_probe_allocate(clt_probe_result *result, int count);

/* share.c: gathers the measurements of all ranks. Collective. */
clt_status clt_probe_share(const clt_world *world, clt_probe_result *result);

/* speeds.c: computes the speed of each device. Devices of one kind get the same speed unless they
 * differ. */
clt_status clt_probe_speeds(const clt_probe_result *result, clt_speed *speeds);

void clt_probe_free(clt_probe_result *result);

#endif
