/* The parts of split tensors that a store's devices have. */
#ifndef CLT_TRAIN_STORE_PARTS_H
#define CLT_TRAIN_STORE_PARTS_H

#include "train/store/store.h"

/* Copies the bytes [from, from + bytes) of the part of a place, which lie at `part`, to their
 * places in the whole tensor, or from there. */
void clt_part_put(const clt_slot *slot, clt_coordinate at, int64_t from, int64_t bytes,
                  const void *part, void *whole);
void clt_part_take(const clt_slot *slot, clt_coordinate at, int64_t from, int64_t bytes,
                   const void *whole, void *part);

/* Returns the slot of a device's layout for a slot of the whole layout. */
const clt_slot *clt_store_part(const clt_store *store, int device, const clt_slot *slot);

/* Whether two devices of this rank have the same part of a tensor. */
bool clt_store_same_part(const clt_store *store, const clt_slot *slot, int a, int b);

/* Whether a device of this rank before this one has the same shard of the same part. */
bool clt_store_repeats(const clt_store *store, const clt_slot *slot, int device);

/* Reads the tensor from the devices of this rank. Fails with STATE if they do not have all parts.
 */
clt_status clt_store_read(const clt_store *store, const clt_slot *slot, void *whole);

/* Writes to each device of this rank its part of the tensor. */
clt_status clt_store_write(const clt_store *store, const clt_slot *slot, const void *whole);

#endif
