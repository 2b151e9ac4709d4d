/*
 * Optimizer slots of trainers whose devices update a shard of each bucket. A device has the slots
 * of its shard only. One rank may set whole tensors, which are kept until they are sent to all.
 */
#ifndef CLT_TRAIN_STEP_SHARDS_H
#define CLT_TRAIN_STEP_SHARDS_H

#include <stdbool.h>

#include "plan/buckets.h"

struct clt_trainer;

/* Whole tensors, by number of the optimizer's slot and tensor of the layout; NULL: not kept. */
typedef struct clt_whole_slots {
    void **tensors;
    int count;
} clt_whole_slots;

/* Whether all ranks save and restore together, because a rank alone lacks shards of the optimizer's
 * tensors, parts of parameters, or residuals of other ranks. */
bool clt_shards_together(const struct clt_trainer *trainer);

/* Frees the tensors. */
void clt_shards_drop(struct clt_trainer *trainer);

/* Writes a tensor to the devices of this rank. Keeps a copy for clt_shards_tell if other ranks have
 * shards of it, unless parameters are split over ranks: then every rank sets the tensor. */
clt_status clt_shards_write(struct clt_trainer *trainer, int slot, const clt_slot *tensor,
                            const void *data);

/* Writes the tensors that rank `root` has kept to the devices of all ranks, and frees them.
 * Collective. */
clt_status clt_shards_tell(struct clt_trainer *trainer, int root);

#endif
