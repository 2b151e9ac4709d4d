/* Cases of harness.h that run as a training step, in which random numbers are drawn. */
#ifndef TESTS_OPS_TRAINS_H
#define TESTS_OPS_TRAINS_H

#include "base/vec.h"
#include "exec/exec.h"
#include "ops/harness/retile.h"

/* Random numbers depend on these: the trainer's seed, the step, and the number of images of the
 * global batch before the case's. */
enum { OP_SEED = 0x1234567, OP_STEP = 3, OP_SAMPLE = 1001 };

static inline clt_plan_mode op_plan_mode(bool trains)
{
    return trains ? CLT_PLAN_TRAIN : CLT_PLAN_EVALUATE;
}

/* A plan for training refuses a graph without a loss or a seed. No parameter would get a gradient
 * here, so the seed is added by hand. */
static inline void op_give_seed(clt_graph *graph, clt_value *output, clt_value *gradient,
                                bool trains)
{
    const clt_seed seed = {output, gradient};
    if (trains)
        OP_OK(CLT_PUSH(graph->seeds, graph->n_seeds, graph->room_seeds, seed));
}

static inline clt_run op_run_of(int64_t n, const clt_view *inputs, bool trains)
{
    const clt_run of_images = {.count = n, .inputs = inputs};
    const clt_run of_step = {
        .count = n, .seed = OP_SEED, .step = OP_STEP, .sample = OP_SAMPLE, .inputs = inputs};
    return trains ? of_step : of_images;
}

#endif
