/* What a store's devices have of a tensor: on a mesh parts of split tensors, and of the optimizer's
 * tensors shards of these parts. */
#ifndef CLT_TRAIN_STORE_PARTS_H
#define CLT_TRAIN_STORE_PARTS_H

#include "train/store/store.h"

/* In place of the number of an optimizer's slot: the parameters and states themselves, and their
 * averages. Devices have no shards of these. */
enum { CLT_VALUES = -1, CLT_AVERAGES = -2 };

static inline bool clt_kind_has_shards(int kind)
{
    return kind >= 0;
}

/* Copies the bytes [from, from + bytes) of the part of a place, which lie at `part`, to their
 * places in the whole tensor, or from there. */
void clt_part_put(const clt_slot *slot, clt_coordinate at, int64_t from, int64_t bytes,
                  const void *part, void *whole);
void clt_part_take(const clt_slot *slot, clt_coordinate at, int64_t from, int64_t bytes,
                   const void *whole, void *part);

/* The bytes [from, from + bytes) of the part of a place. They lie at `offset` of the buffer of the
 * bucket, or of its shard. */
typedef struct clt_held {
    clt_coordinate at;
    int64_t from, bytes, offset;
} clt_held;

/* Returns what the device of a stage has that holds shard `shard` of `shards` of each bucket of a
 * place's parts. `slot` is of the whole layout. */
clt_held clt_store_held(const clt_store *store, const clt_slot *slot, clt_coordinate at, int stage,
                        int shard, int shards);

/* Returns the slot of a device's layout for a slot of the whole layout. */
const clt_slot *clt_store_part(const clt_store *store, int device, const clt_slot *slot);

/* Returns this rank's first device that has the same bytes of a tensor as a device: `kind` is
 * CLT_VALUES, or an optimizer's slot, of which devices may have shards. */
int clt_store_first_with(const clt_store *store, int kind, const clt_slot *slot, int device);

/* Returns a device's buffer of a kind in which the tensor's bucket lies. */
cl_mem clt_store_buffer(const clt_store *store, int device, int kind, const clt_slot *slot);

/* Reads the tensor from the devices of this rank. Fails with STATE if they do not have all of it.
 */
clt_status clt_store_read(const clt_store *store, int kind, const clt_slot *slot, void *whole);

/* Writes to each device of this rank what it has of the tensor. */
clt_status clt_store_write(const clt_store *store, int kind, const clt_slot *slot,
                           const void *whole);

#endif
