/* Comparing the replicas of all devices by checksums. */
#ifndef CLT_TRAIN_STEP_VERIFY_H
#define CLT_TRAIN_STEP_VERIFY_H

#include "train/core/trainer.h"

/* Makes what a device needs for it. */
clt_status clt_verify_create(clt_trainer *trainer, int device);

/* Compares after the step under way if it is one of options.check_every. MISMATCH names the tensor
 * and the device. `what` begins the message. Collective over ranks. */
clt_status clt_verify_step(clt_trainer *trainer, const char *what);

/* The same before the first step of a trainer, unless clt_trainer_broadcast has made all equal.
 * Collective over ranks. */
clt_status clt_verify_start(clt_trainer *trainer);

/* --- for the interpreter, on a device's thread --------------------------------------------- */

/* Computes the checksums of the device's replica; waits for the device. */
clt_status clt_verify_sum(clt_trainer *trainer, int device);

/* What gives every device those of all. */
clt_collective clt_verify_gather(const clt_trainer *trainer, int device);

/* Compares them. */
clt_status clt_verify_compare(const clt_trainer *trainer, int device);

#endif
