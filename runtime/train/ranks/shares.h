/* How many samples of a batch each device of all ranks has. */
#ifndef CLT_TRAIN_RANKS_SHARES_H
#define CLT_TRAIN_RANKS_SHARES_H

#include "train/core/trainer.h"

/* Finds how many samples of the batch each device of all ranks has, once a batch. On the caller's
 * thread. */
clt_status clt_reduce_shares(clt_trainer *trainer);

/* Where this rank's samples lie in the global batch, and how many it has, in `current`: from the
 * caller, else the ranks tell each other. On the caller's thread. */
clt_status clt_reduce_counts(clt_trainer *trainer);

#endif
