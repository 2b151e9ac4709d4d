/* Comparing the replicas of all devices by checksums. */
#ifndef CLT_TRAIN_STEP_VERIFY_H
#define CLT_TRAIN_STEP_VERIFY_H

#include "exec/checksum.h"
#include "exec/collective.h"
#include "train/ranks/world.h"

/* Of several participants. */
typedef struct clt_verification {
    const clt_store *store;
    const clt_participants *all;
    clt_checksum **checksums; /* by device of this process */
    uint64_t *sums;           /* by device of this process, participant and slot of the layout */
    bool verified;            /* the replicas were equal at the start */
} clt_verification;

/* Makes what the devices need for it; NULL for one participant alone. Borrows both. */
clt_status clt_verification_create(const clt_store *store, const clt_participants *all,
                                   clt_verification **verification);
void clt_verification_destroy(clt_verification *verification);

/* The replicas were made equal. */
void clt_verification_skip(clt_verification *verification);

/* Compares after the step under way if it is one of options.check_every. MISMATCH names the tensor
 * and the device. `what` begins the message. Collective over ranks. */
clt_status clt_verify_step(clt_trainer *trainer, const char *what);

/* The same before the first step of a trainer, unless clt_trainer_broadcast has made all equal.
 * Collective over ranks. */
clt_status clt_verify_start(clt_trainer *trainer);

/* --- for the interpreter, on a device's thread --------------------------------------------- */

/* Computes the checksums of the device's replica; waits for the device. */
clt_status clt_verify_sum(const clt_verification *verification, int device);

/* What gives every device those of all. */
clt_collective clt_verify_gather(const clt_verification *verification, int device);

/* Compares them. */
clt_status clt_verify_compare(const clt_verification *verification, int device);

#endif
