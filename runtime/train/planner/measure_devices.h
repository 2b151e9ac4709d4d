/*
 * Measures training on devices before it begins: the real plan, on parameters and data of its own,
 * which are gone afterwards. Ranks measure at the same time, as they will train, and tell each
 * other what they found.
 */
#ifndef CLT_TRAIN_PLANNER_MEASURE_DEVICES_H
#define CLT_TRAIN_PLANNER_MEASURE_DEVICES_H

#include "train/planner/bucket.h"
#include <cltrain/train.h>

enum { CLT_PROBE_ROUNDS = 7 };

typedef struct clt_probe_options {
    int64_t samples; /* of a device's step: the plan's largest batch */
    double seconds;  /* that measuring may take, roughly; each device runs a few steps anyway */
    const clt_trainer_options *trainer; /* with its world */
    int (*stop)(void *user);            /* may be NULL; not 0 ends measuring: STOPPED */
    void *user;
} clt_probe_options;

enum { CLT_PROBE_LABEL = 128 };

/* What tells a device from others. */
typedef struct clt_probe_device {
    uint64_t kind; /* those of one kind are equally fast, but for noise and neighbours */
    int32_t rank, lanes;
    int32_t on_host; /* it computes with the host's cores: */
    clt_host_cores host;
    char label[CLT_PROBE_LABEL];
} clt_probe_device;

/* What was measured on the devices of all ranks, those of rank 0 first: rounds of whole steps (with
 * the update) on all of them at once. The same numbers on all ranks. */
typedef struct clt_probe_result {
    int count; /* devices */
    int rounds;
    double samples[CLT_SPEED_POINTS];  /* of a step: the second is options->samples, the first less;
                                          equal where that has too few */
    double *seconds[CLT_SPEED_POINTS]; /* [device * CLT_PROBE_ROUNDS + round] */
    double *alone;                     /* by device: a step of samples[1] while the others of its
                                          node rest */
    double *update, *status_time;      /* by device: the optimizer; what a step alone finds out
                                   about its gradients, and reductions tell several devices */
    clt_probe_device *devices;
    clt_gradients_cost gradients; /* rank 0's */
    clt_reduction_cost reduction;
    double load; /* see clt_cost; rank 0's */
    /* Short steps: by trainers of one device each, all at once, the longest; and as one training on
     * all devices. 0 with one device. */
    double few_apart, few_together;
} clt_probe_result;

/* Collective: all ranks measure the same model, or all fail. */
clt_status clt_probe_run(const clt_graph *graph, clt_device *const *devices, int n_devices,
                         const clt_probe_options *options, clt_probe_result *result);

/* share.c: of `count` devices, all zero. */
clt_status clt_probe_allocate(clt_probe_result *result, int count);

/* share.c: from what each rank measured on its own devices to what all did. Collective. */
clt_status clt_probe_share(const clt_world *world, clt_probe_result *result);

/* speeds.c: of each device, alike for those of a kind that do not differ. */
clt_status clt_probe_speeds(const clt_probe_result *result, clt_speed *speeds);

void clt_probe_free(clt_probe_result *result);

#endif
