/*
 * Whole tensors whose parts or shards are on several ranks. Files have whole tensors, and rank 0
 * reads and writes files: it leads, and the other ranks follow it. One tensor at a time is on the
 * host.
 */
#ifndef CLT_TRAIN_RANKS_WHOLE_H
#define CLT_TRAIN_RANKS_WHOLE_H

#include "train/ranks/world.h"

/* Returns the participants of the store's own world, which it was given with its mesh. */
clt_participants clt_whole_participants(const clt_store *store);

/* Whether a rank lacks parts of parameters, so that it cannot read them alone. */
bool clt_whole_spread(const clt_participants *all, const clt_store *store);

/* Whether a rank lacks some of what `kind` (CLT_VALUES or an optimizer's slot) has of the tensor.
 */
bool clt_whole_is_apart(const clt_participants *all, const clt_store *store, int kind,
                        const clt_slot *slot);

/* Returns this rank's first participant whose neighbours along tp are all of this rank: the rank
 * has all of a replica. -1: there is none. If no parameter is split, any participant has a replica.
 * If parameters are split over ranks, each rank has set its own parts. */
int clt_whole_source(const clt_participants *all, const clt_store *store);

/* Puts a tensor together from what all ranks have of it. `whole` has room for slot->bytes; ranks
 * that do not want it pass NULL. Collective; fails on all ranks if one fails. */
clt_status clt_whole_collect(const clt_participants *all, const clt_store *store, int kind,
                             const clt_slot *slot, void *whole);

/* On rank 0, between clt_whole_follow of the other ranks and clt_whole_end: collects a tensor if it
 * is apart, else reads it from this rank's devices. */
clt_status clt_whole_get(const clt_participants *all, const clt_store *store, int kind,
                         const clt_slot *slot, void *whole);

/* The same: writes a tensor to the devices of all ranks. */
clt_status clt_whole_set(const clt_participants *all, const clt_store *store, int kind,
                         const clt_slot *slot, const void *whole);

/* Tells the other ranks that this was all. Returns `status`, or the failure of another rank. */
clt_status clt_whole_end(const clt_participants *all, clt_status status);

/* On the other ranks: takes part in all that rank 0 does, until clt_whole_end. Fails if rank 0
 * passed a failure there. */
clt_status clt_whole_follow(const clt_participants *all, const clt_store *store);

#endif
