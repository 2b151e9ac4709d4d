/* Initial values of parameters and states. */
#ifndef CLT_TRAIN_STORE_INIT_H
#define CLT_TRAIN_STORE_INIT_H

#include "plan/buckets.h"

/* Writes the slot's initial elements to `data`, which has room for slot->bytes. The elements are a
 * pure function of (seed, slot). */
void clt_init_fill(const clt_slot *slot, uint64_t seed, void *data);

#endif
