/* The instructions that find a non-finite value of a step. */
#ifndef CLT_TRAIN_STEP_DIAGNOSE_H
#define CLT_TRAIN_STEP_DIAGNOSE_H

#include "train/program/program.h"
#include "train/core/session.h"

/* The finding, and the memory of the search. */
typedef struct clt_diagnosis {
    const clt_replica *replica;
    float *host; /* a copy of the value; grows to the largest */
    int64_t room;
    char where[256];
    /* Samples of the inspected value: non-finite ones, and all; `samples` is 0 if the value has no
     * batch dimension. */
    int64_t bad, samples;
    int64_t first;      /* the first non-finite sample of the micro-batch */
    int64_t bad_sample; /* the sample of the batch that is the cause; -1: none */
    char sample[96];    /* text that names the sample; else empty */
    char index[320];    /* text about an index that is out of range; else empty */
} clt_diagnosis;

/* STAND_IN: copies the device's part of the plan's collective `item` into the place of the sum. */
clt_status clt_diagnosis_stand_in(const clt_session_device *device, const clt_run *run, int item);

/* INSPECT: *found becomes true if an operand or a result of the instruction's nodes is not finite.
 * Waits for the device. */
clt_status clt_diagnosis_inspect(clt_diagnosis *diagnosis, const clt_session_device *device,
                                 const clt_run *run, const clt_instruction *instruction,
                                 bool *found);

/* Fails with NONFINITE, naming the step and the finding. `precision` is the training's. */
clt_status clt_diagnosis_fail(const clt_diagnosis *diagnosis, int64_t step, clt_dtype precision);

#endif
