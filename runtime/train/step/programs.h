/* The programs of a trainer: made with it, selected by its calls. */
#ifndef CLT_TRAIN_STEP_PROGRAMS_H
#define CLT_TRAIN_STEP_PROGRAMS_H

#include "train/step/interpret.h"

/* Writes the programs of this process' devices for training and evaluation, and checks them with
 * those of all ranks. Collective over ranks. */
clt_status clt_programs_create(clt_trainer *trainer);

/* The same for prediction, whose plans are made when they are first used. */
clt_status clt_programs_predict(clt_trainer *trainer);

void clt_programs_destroy(clt_trainer *trainer);

/* Runs a program on all devices. `what` (may be NULL) begins the message of a failure: "step 3".
 * `awaited`: a device that fails releases the devices of all ranks that wait for it. */
clt_status clt_programs_run(clt_trainer *trainer, clt_step_program_kind kind, const char *what,
                            bool awaited);

/* Makes the replica of `root` (-1: parameters and states stay), but the optimizer's slots of bucket
 * b of slot_roots[b] where that is not NULL, that of all devices. Collective. */
clt_status clt_programs_copy(clt_trainer *trainer, int root, const int *slot_roots);

#endif
