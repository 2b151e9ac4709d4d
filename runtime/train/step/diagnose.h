/* The instructions that find what was not finite in a step. */
#ifndef CLT_TRAIN_STEP_DIAGNOSE_H
#define CLT_TRAIN_STEP_DIAGNOSE_H

#include "train/program/program.h"
#include "train/core/session.h"

/* What was found, and what the search needs. */
typedef struct clt_diagnosis {
    const clt_replica *replica;
    float *host; /* room for the largest value */
    int64_t room;
    char where[256];
    int64_t bad, samples; /* of the value looked at: those that are not finite, and all; 0: it has
                             none */
    int64_t first;        /* of the bad ones, in the micro-batch */
    int64_t bad_sample;   /* of the batch, and to blame; -1: none */
    char sample[96];      /* names it; else empty */
    char index[320];      /* of what was found: which of its indices is out of range; else empty */
} clt_diagnosis;

/* STAND_IN: copies the device's part of the plan's collective `item` into the sum's place. */
clt_status clt_diagnosis_stand_in(const clt_session_device *device, const clt_run *run, int item);

/* INSPECT: *found becomes true if an operand or a result of the instruction's nodes is not finite.
 * Waits for the device. */
clt_status clt_diagnosis_inspect(clt_diagnosis *diagnosis, const clt_session_device *device,
                                 const clt_run *run, const clt_instruction *instruction,
                                 bool *found);

/* Fails with NONFINITE, naming the step and what was found in it; `precision` is the training's. */
clt_status clt_diagnosis_fail(const clt_diagnosis *diagnosis, int64_t step, clt_dtype precision);

#endif
