/* The instructions that find what was not finite in a step. */
#ifndef CLT_TRAIN_STEP_DIAGNOSE_H
#define CLT_TRAIN_STEP_DIAGNOSE_H

#include "train/program/program.h"
#include "train/core/session.h"

struct clt_diagnosis;

/* STAND_IN: copies the device's part of the plan's collective `item` into the sum's place. */
clt_status clt_diagnosis_stand_in(const clt_session_device *device, const clt_run *run, int item);

/* INSPECT: *found becomes true if an operand or a result of the instruction's nodes is not finite.
 * Waits for the device. */
clt_status clt_diagnosis_inspect(struct clt_diagnosis *diagnosis, const clt_session_device *device,
                                 const clt_run *run, const clt_instruction *instruction,
                                 bool *found);

#endif
