/* Devices that own the optimizer's state of whole buckets and have no samples
 * (clt_store_options.offload). */
#ifndef CLT_TRAIN_STORE_OFFLOAD_H
#define CLT_TRAIN_STORE_OFFLOAD_H

#include "train/store/store.h"

/* Fails with INVALID_ARGUMENT if other options do not go with offload. */
clt_status clt_offload_check(const clt_store_options *options);

/* Makes the last `owners` of this rank's `count` devices owners. The mesh must be there.
 * INVALID_ARGUMENT if they are no CPUs or no device is left for samples, UNSUPPORTED if the mesh
 * has other axes than dp. Fails on all ranks, or on none. */
clt_status clt_offload_devices(clt_store *store, clt_device *const *devices, int count, int owners);

/* Gives each bucket of parameters an owner, the one that has the fewest bytes so far. The layout
 * must be there, and is the same on all ranks. */
clt_status clt_offload_share(clt_store *store);

#endif
