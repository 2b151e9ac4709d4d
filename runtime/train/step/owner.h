/* Devices of different kinds round differently. If each updated its own replica, the replicas would
 * drift apart. Instead each bucket has one owner. The owner gets the sum of the bucket's gradients,
 * updates its parameters and sends their bytes to all others (reduce, update, broadcast: the volume
 * of an all-reduce). */
#ifndef CLT_TRAIN_STEP_OWNER_H
#define CLT_TRAIN_STEP_OWNER_H

#include "plan/plan.h"

/* Returns the participant that owns a bucket. */
int clt_owner_of(int bucket, int participants);

/* Sets *owners to the owners by bucket. Free *owners with clt_free. */
clt_status clt_owners_create(const clt_buckets *layout, int participants, int **owners);

#endif
