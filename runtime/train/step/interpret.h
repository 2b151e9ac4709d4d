/* Executes programs on the device threads. */
#ifndef CLT_TRAIN_STEP_INTERPRET_H
#define CLT_TRAIN_STEP_INTERPRET_H

#include "train/program/program.h"
#include "train/step/bound.h"

/* Executes a program on one device, on that device's thread. */
clt_status clt_step_program_run(const clt_bound *bound, const clt_step_program *program);

/* step_exchange.c: starts or completes the collective of an instruction. `run`: of its
 * micro-batch. */
clt_status clt_exchange_start(const clt_bound *bound, const clt_instruction *instruction,
                              const clt_run *run);
clt_status clt_exchange_complete(const clt_bound *bound, const clt_instruction *instruction,
                                 const clt_run *run);

#endif
