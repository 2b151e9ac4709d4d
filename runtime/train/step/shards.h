/*
 * Optimizer slots of trainers whose devices update a shard of each bucket. A device has the slots
 * of its shard only. Whole tensors are put together on the host, for checkpoints and for programs
 * that read or set them.
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
    bool collected; /* all are kept, and are those of the last step */
} clt_whole_slots;

/* Puts all tensors together from the shards of all ranks, and keeps them on rank `keeper` (-1: on
 * all). Does nothing if this rank can read all shards. Collective. */
clt_status clt_shards_collect(struct clt_trainer *trainer, int keeper);

/* Frees the tensors. */
void clt_shards_drop(struct clt_trainer *trainer);

/* Reads a tensor of a slot: from the devices of this rank, or a collected one. */
clt_status clt_shards_read(const struct clt_trainer *trainer, int slot, const clt_slot *tensor,
                           void *data);

/* Writes a tensor to the devices of this rank. Keeps a copy for clt_shards_tell, if other ranks
 * have shards of it. */
clt_status clt_shards_write(struct clt_trainer *trainer, int slot, const clt_slot *tensor,
                            const void *data);

/* Writes the tensors that rank `root` has kept to the devices of all ranks, and frees them.
 * Collective. */
clt_status clt_shards_tell(struct clt_trainer *trainer, int root);

#endif
