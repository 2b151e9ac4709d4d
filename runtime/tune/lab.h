/* A plan with everything that running it takes, filled with random numbers, and labels of several
 * classes, some of them to be ignored: for measurements. */
#ifndef CLT_TUNE_LAB_H
#define CLT_TUNE_LAB_H

#include "exec/exec.h"

typedef struct clt_lab {
    clt_device *device;
    clt_buckets buckets;
    clt_replica replica;
    clt_arena arena;
    clt_plan *plan;
    clt_exec *exec;
    clt_view *inputs;
    int n_inputs;
    cl_mem results;
    clt_run run;
} clt_lab;

/* Parameters, gradients and inputs of the graph's plans; clt_lab_plan makes one. The lab is to be
 * closed after a failure too. */
clt_status clt_lab_open(clt_lab *lab, clt_device *device, const clt_graph *graph, bool training);

/* Makes a plan (the one before is destroyed) and all that running it takes. */
clt_status clt_lab_plan(clt_lab *lab, const clt_graph *graph, const clt_plan_options *options,
                        const clt_tuning_record *tuning);

/*
 * Enqueues the plan's nodes from number `first` to before `end`. Values share memory: what a node
 * reads is there when all nodes before it have run and none behind it has. It may then run again
 * and again, if the plan's options have `repeatable`.
 */
clt_status clt_lab_run(clt_lab *lab, int first, int end);

void clt_lab_close(clt_lab *lab);

#endif
