/*
 * Devices of different kinds round differently: if each updated its own replica, they would drift
 * apart. Then each bucket has one owner, which gets the sum of its gradients, updates it and ships
 * the parameters' bytes to all others (reduce, update, broadcast: the volume of an all-reduce).
 */
#ifndef CLT_TRAIN_STEP_OWNER_H
#define CLT_TRAIN_STEP_OWNER_H

#include "plan/plan.h"

/* The participant that owns a bucket, if buckets have owners. */
int clt_owner_of(int bucket, int participants);

/* The owners of all buckets, by bucket; free with clt_free. */
clt_status clt_owners_create(const clt_buckets *layout, int participants, int **owners);

#endif
