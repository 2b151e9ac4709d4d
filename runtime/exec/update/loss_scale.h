/*
 * Dynamic loss scaling for gradients in f16, of which small ones would vanish. Losses are
 * multiplied by a scale, and the update divides by it. If a gradient is not finite, the step is
 * skipped and the scale halved. After many good steps the scale is doubled (Micikevicius et al.,
 * "Mixed precision training", ICLR 2018).
 */
#ifndef CLT_EXEC_UPDATE_LOSS_SCALE_H
#define CLT_EXEC_UPDATE_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct clt_scaling {
    float scale;
    int32_t good;    /* steps since the scale changed */
    int32_t skipped; /* skipped steps of the whole run */
} clt_scaling;

/* Returns the state at the beginning of a run. */
clt_scaling clt_scaling_begin(void);

/* Counts a step whose gradient was finite or not. Returns false if the gradient was not finite at
 * the least scale, so that no smaller scale can help. */
bool clt_scaling_step(clt_scaling *scaling, bool finite);

/* Whether a state read from a file is possible. */
bool clt_scaling_valid(const clt_scaling *scaling);

#endif
