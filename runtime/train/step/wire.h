/*
 * Gradients in 16 bits between devices, with error feedback (clt_trainer_options.wire). A device
 * that has gradients in f32 rounds them, and keeps a residual in its replica. The communicator
 * keeps those of the sums that ranks, nodes and owners round. A step that is not committed changes
 * no residual.
 */
#ifndef CLT_TRAIN_STEP_WIRE_H
#define CLT_TRAIN_STEP_WIRE_H

#include "train/step/bound.h"

struct clt_trainer;

/* Decides what travels in which type. Fails with UNSUPPORTED if the mesh or the store cannot. */
clt_status clt_wire_choose(struct clt_trainer *trainer);

/*
 * trainer->parked is an array of f32 for each bucket: residuals of a rank whose devices or ranks
 * changed, or that has the only device and sends nothing. It is NULL if there are none.
 *
 * connect makes the communicator's residuals, and unparks. The collectives must be open; collective
 * over the ranks. unpark
 * gives what is parked to what this rank sends next, unless it sends nothing. disconnect closes the
 * residuals; `collectives` is the closed table. With `park` what they hold is parked. park_device
 * does so with the residuals of a device that has no other any more. free drops what is parked.
 */
clt_status clt_wire_connect(struct clt_trainer *trainer);
clt_status clt_wire_unpark(struct clt_trainer *trainer);
void clt_wire_disconnect(struct clt_trainer *trainer, const clt_collectives *collectives,
                         bool park);
clt_status clt_wire_park_device(struct clt_trainer *trainer);
void clt_wire_free(struct clt_trainer *trainer);

/* Makes arrays of zeros by bucket, as long as the communicator's sums. Free with
 * clt_wire_free_arrays, which takes NULL. */
clt_status clt_wire_arrays(const struct clt_trainer *trainer, float ***arrays);
void clt_wire_free_arrays(const struct clt_trainer *trainer, float **arrays);

/* Returns the elements of a bucket's sum: with shards, of all of them. */
int64_t clt_wire_count(const struct clt_trainer *trainer, int bucket);

/* --- within a step --- */

/* Whether the device rounds each bucket before its reduction. */
bool clt_wire_rounds_buckets(const clt_bound *bound);

/* Rounds the sums of micro-batches. */
clt_status clt_wire_round_sum(const clt_bound *bound);

/* Before an update: keeps the device's residuals of a bucket, or of all (-1). */
clt_status clt_wire_keep(const clt_bound *bound, int bucket);

/* When the step is committed, the communicator's new residuals count. */
void clt_wire_accept(const clt_bound *bound);

#endif
