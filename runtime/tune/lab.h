/* A plan with all buffers that running it takes, for measurements. The buffers hold random numbers,
 * and labels of several classes, some of them ignored. */
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

/* Makes the parameters, gradients and inputs of the graph's plans, which clt_lab_plan then makes
 * with options of the same mode and mesh. The caller closes the lab after a failure too. */
clt_status clt_lab_open(clt_lab *lab, clt_device *device, const clt_graph *graph,
                        const clt_plan_options *options);

/* Makes a plan in place of the one before, and everything that running it takes. */
clt_status clt_lab_plan(clt_lab *lab, const clt_graph *graph, const clt_plan_options *options,
                        const clt_tuning_record *tuning);

/*
 * Enqueues the plan's nodes from number `first` to before `end`. Values share memory, so a node
 * finds its operands only after all nodes before it have run and before any later node runs. It may
 * then run repeatedly if the plan's options have `repeatable`.
 */
clt_status clt_lab_run(clt_lab *lab, int first, int end);

void clt_lab_close(clt_lab *lab);

#endif
