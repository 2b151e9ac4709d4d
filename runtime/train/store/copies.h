/* Copies between a tensor on a device and memory of the caller (clt_tensor_copy). */
#ifndef CLT_TRAIN_STORE_COPIES_H
#define CLT_TRAIN_STORE_COPIES_H

#include "exec/update/convert.h"
#include "train/store/store.h"

/* The place of a whole tensor on a device. */
typedef struct clt_copy_place {
    clt_view at;
    clt_dtype dtype; /* F16 and BF16 are converted to the caller's f32 */
    cl_mem status;   /* F16: has the loss scale at float number `scale` */
    int scale;
} clt_copy_place;

/* Checks a copy of `of` and finds the tensor. With `in` the device may be -1, which stands for all,
 * unless there is an event. */
clt_status clt_copy_check(const clt_store *store, const clt_tensor_copy *copy, bool in, bool event,
                          const clt_slot **slot);

/* Runs the copy on a device of the store. */
clt_status clt_copy_run(const clt_store *store, const clt_tensor_copy *copy, int device,
                        const clt_slot *slot, const clt_copy_place *place, bool in,
                        cl_event *event);

/* Fails with UNSUPPORTED: the device has a part or shard of the tensor. `instead` says what to do.
 */
clt_status clt_copy_of_part(const clt_store *store, int device, const clt_slot *slot,
                            const char *instead);

#endif
