/* Compares the replicas of all devices by checksums. */
#ifndef CLT_TRAIN_STEP_VERIFY_H
#define CLT_TRAIN_STEP_VERIFY_H

#include "exec/checksum.h"
#include "exec/collective.h"
#include "train/ranks/world.h"

/* Checksums of several participants. */
typedef struct clt_verification {
    const clt_store *store;
    const clt_buckets *layout; /* of the devices */
    const clt_participants *all;
    clt_checksum **checksums; /* by device of this process */
    uint64_t *sums;           /* [device of this process][participant][slot of the layout] */
    bool verified;            /* the replicas were equal at the start */
    bool evaluated;           /* the same for evaluation before the first step */
} clt_verification;

/* Allocates the checksums; *verification is NULL for a single participant. Borrows both arguments.
 */
clt_status clt_verification_create(const clt_store *store, const clt_participants *all,
                                   clt_verification **verification);
void clt_verification_destroy(clt_verification *verification);

/* Notes that the replicas were made equal, so that clt_verify_start need not compare. */
void clt_verification_skip(clt_verification *verification);

/* Compares the replicas after the current step, every options.check_every steps. MISMATCH names the
 * tensor and the device. `what` begins the message. Collective over ranks. */
clt_status clt_verify_step(clt_trainer *trainer, const char *what);

/* The same before the first step of a trainer, unless clt_trainer_broadcast has made all replicas
 * equal. Collective over ranks. */
clt_status clt_verify_start(clt_trainer *trainer);

/* The same before the first evaluation if no step was made, since evaluation adds up what all
 * replicas give. Parameters may still be loaded between the evaluation and the first step. */
clt_status clt_verify_evaluation(clt_trainer *trainer);

/* --- for the interpreter, on a device's thread --------------------------------------------- */

/* Computes the checksums of the device's replica. Waits for the device. */
clt_status clt_verify_sum(const clt_verification *verification, int device);

/* Computes a checksum of all gradients of the device. Waits for the device. */
clt_status clt_verify_sum_gradients(const clt_verification *verification, int device,
                                    clt_dtype precision, uint64_t *sum);

/* Returns the all-gather of the checksums of all devices. */
clt_collective clt_verify_gather(const clt_verification *verification, int device);

/* Compares the checksums of the devices that must have the same bits. */
clt_status clt_verify_compare(const clt_verification *verification, int device);

#endif
