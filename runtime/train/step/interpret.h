/* Executes programs on the device threads. */
#ifndef CLT_TRAIN_STEP_INTERPRET_H
#define CLT_TRAIN_STEP_INTERPRET_H

#include "train/program/program.h"
#include "train/core/trainer.h"

/* Executes a program for the batch of t->current on one device, on that device's thread. */
clt_status clt_step_program_run(clt_trainer *trainer, int device, const clt_step_program *program);

/* exchange.c: starts or completes the collective of an instruction. `run`: of its micro-batch. */
clt_status clt_exchange_start(clt_trainer *trainer, int device, const clt_instruction *instruction,
                              const clt_run *run);
clt_status clt_exchange_complete(clt_trainer *trainer, int device,
                                 const clt_instruction *instruction);

/* Makes room for the requests of all collectives that can be under way on a device; `nodes`: the
 * most collectives of a plan. */
clt_status clt_exchange_create(clt_trainer *trainer, int device, int nodes);

#endif
