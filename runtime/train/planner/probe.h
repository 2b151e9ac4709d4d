/*
 * Measures training on devices before it begins: the real plan, on parameters and data of its own,
 * which are gone afterwards.
 */
#ifndef CLT_TRAIN_PLANNER_PROBE_H
#define CLT_TRAIN_PLANNER_PROBE_H

#include "train/planner/cost.h"
#include <cltrain/train.h>

enum { CLT_PROBE_ROUNDS = 7 };

typedef struct clt_probe_options {
    int64_t samples; /* of a device's step: the plan's largest batch */
    double seconds;  /* that measuring may take, roughly; each device runs a few steps anyway */
    const clt_trainer_options *trainer;
    int (*stop)(void *user); /* may be NULL; not 0 ends measuring: STOPPED */
    void *user;
} clt_probe_options;

/* What was measured: rounds of whole steps (with the update) on all devices at once. */
typedef struct clt_probe_result {
    int rounds;
    double samples[CLT_SPEED_POINTS];  /* of a step: the second is options->samples, the first less;
                                          equal where that has too few */
    double *seconds[CLT_SPEED_POINTS]; /* [round * devices + device] */
    double *alone;                     /* by device: a step of samples[1] while the others rest */
    double *update, *word;             /* by device: the optimizer; what a step alone finds out
                                          about its gradients, and reductions tell several devices */
    clt_bucket_cost *buckets;
    int n_buckets;
    clt_reduction_cost reduction;
    /* Short steps: by trainers of one device each, all at once, the longest; and as one training on
     * all devices. 0 with one device. */
    double few_apart, few_together;
} clt_probe_result;

clt_status clt_probe_run(const clt_graph *graph, clt_device *const *devices, int n_devices,
                         const clt_probe_options *options, clt_probe_result *result);

void clt_probe_free(clt_probe_result *result);

#endif
