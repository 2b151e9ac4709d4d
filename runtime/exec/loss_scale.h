/*
 * Dynamic loss scaling, for gradients in f16, of which small ones would vanish: losses are
 * multiplied by a scale, the update divides by it. Where a gradient is not finite the step is
 * skipped and the scale halved; after many good steps it is doubled (Micikevicius et al., "Mixed
 * precision training", ICLR 2018).
 */
#ifndef CLT_EXEC_LOSS_SCALE_H
#define CLT_EXEC_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct clt_scaling {
    float scale;
    int32_t good;    /* steps since it changed */
    int32_t skipped; /* steps, in all */
} clt_scaling;

/* At the beginning of a run. */
clt_scaling clt_scaling_begin(void);

/* After a step whose gradient was finite or not. False if the scale was at its least already, so
 * that no smaller one can help. */
bool clt_scaling_step(clt_scaling *scaling, bool finite);

/* Whether it can be where loss scaling stands: of a file. */
bool clt_scaling_valid(const clt_scaling *scaling);

#endif
