/*
 * Differences of parameters in 16 bits between replicas, with error feedback. A replica rounds what
 * it sends and keeps its residual. The communicator keeps those of the sums that ranks, nodes and
 * owners round (clt_comm_residual in <cltrain/comm.h>). States travel in f32.
 *
 * Differences are multiplied by a power of two before they are rounded. It is 1 for bf16. f16 has
 * no numbers between 0 and 2^-24, and differences are often smaller; it reaches 65504, and no
 * difference of sound training comes near it.
 */
#ifndef CLT_TRAIN_LOCAL_OUTER_WIRE_H
#define CLT_TRAIN_LOCAL_OUTER_WIRE_H

#include "train/local/local.h"

/* Allocates this rank's memory. */
clt_status clt_outer_wire_allocate(clt_local *local);

/* Makes the communicator's residuals, once the collectives are open. Collective. */
clt_status clt_outer_wire_open(clt_local *local);

/* Frees all. The collectives must still be open. */
void clt_outer_wire_close(clt_local *local);

/* Whether parameters travel in 16 bits. One replica sends nothing, but keeps residuals that a
 * checkpoint has. */
bool clt_outer_wire_sends(const clt_local *local);

/* Rounds the scaled differences of replica i of this rank. Its own thread may call it. */
void clt_outer_wire_round(const clt_local *local, int i);

/* Makes the sums in 16 bits those in f32 of the first replica, and keeps the new residuals of sums.
 * Fails with NONFINITE, on all ranks, unless the sums are finite. */
clt_status clt_outer_wire_take(const clt_local *local, bool finite);

/* Sets the residuals of this rank to zero. */
clt_status clt_outer_wire_forget(clt_local *local);

/* Copies of a parameter what this rank has rounded away of sums. set: if `rank` is this rank, or
 * has the same residual. */
clt_status clt_outer_wire_get(const clt_local *local, int rounding, const clt_slot *slot,
                              void *data);
clt_status clt_outer_wire_set(const clt_local *local, int rank, int rounding, const clt_slot *slot,
                              const void *data);

#endif
