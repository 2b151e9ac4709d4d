/* The programs of a trainer. They are made with the trainer and selected by its calls. */
#ifndef CLT_TRAIN_STEP_PROGRAMS_H
#define CLT_TRAIN_STEP_PROGRAMS_H

#include "train/step/interpret.h"

/* Writes the programs of this process' devices for training and evaluation, and checks them with
 * those of all ranks. Collective over ranks. */
clt_status clt_programs_create(clt_trainer *trainer);

/* The same for prediction, whose plans are made at their first use. */
clt_status clt_programs_predict(clt_trainer *trainer);

/* Makes the groups of stages that send values to each other. Collective. */
clt_status clt_programs_join_stages(clt_trainer *trainer);

void clt_programs_destroy(clt_trainer *trainer);

/* Runs a program on all devices. `what` begins the message of a failure, such as "step 3"; it may
 * be NULL. With `awaited`, a device that fails releases the devices of all ranks that wait for it.
 */
clt_status clt_programs_run(clt_trainer *trainer, clt_step_program_kind kind, const char *what,
                            bool awaited);

/* Copies the replica of `root` to all devices. With shards, optimizer slots stay. Collective. */
clt_status clt_programs_copy(clt_trainer *trainer, int root);

#endif
