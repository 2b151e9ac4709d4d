/* What a step's devices and ranks add up beside what the graph does (segments.h): gradients,
 * results, numbers of samples. These begin in the same order on all devices: results behind
 * forward, then buckets in their own order. */
#ifndef CLT_TRAIN_REDUCE_H
#define CLT_TRAIN_REDUCE_H

#include "train/trainer.h"

/* Starts a collective, for the table's complete. */
clt_status clt_reduce_begin(clt_trainer *trainer, int device, const clt_collective *what,
                            void **request);

/* A collective of which the device's thread awaits the end. */
clt_status clt_reduce_one(clt_trainer *trainer, int device, const clt_collective *what);

/* Starts to reduce a bucket of gradients; awaits all of them: whether all are finite, and the sum
 * of their squares. */
clt_status clt_reduce_start(clt_trainer *trainer, int device, int bucket);
clt_status clt_reduce_complete(clt_trainer *trainer, int device, bool *finite, double *squares);

/* Adds the ring entry's results up over the ranks, from what was enqueued until now; in two parts,
 * so that other work can be enqueued between them. Nothing with one rank. */
clt_status clt_reduce_results(clt_trainer *trainer, int device, int micros);
clt_status clt_reduce_results_end(clt_trainer *trainer, int device);

/* verify.c: compares the devices' checksums where the step is one of options.check_every; MISMATCH
 * names the tensor and device. clt_verify_create makes what a device needs for it. */
clt_status clt_verify_create(clt_trainer *trainer, int device);
clt_status clt_verify(clt_trainer *trainer, int device);

/* The same before the first step of a trainer, unless clt_trainer_broadcast has made all equal.
 * Collective over ranks. */
clt_status clt_verify_start(clt_trainer *trainer);

/* Finds how many samples of the batch each device of all ranks has, once a batch. On the caller's
 * thread. */
clt_status clt_reduce_shares(clt_trainer *trainer);

/* Where this rank's samples lie in the global batch, and how many it has, in `current`: from the
 * caller, else the ranks tell each other. On the caller's thread. */
clt_status clt_reduce_counts(clt_trainer *trainer);

#endif
