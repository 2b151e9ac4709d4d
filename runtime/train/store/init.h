/* Initial values of parameters and states. */
#ifndef CLT_TRAIN_STORE_INIT_H
#define CLT_TRAIN_STORE_INIT_H

#include "plan/buckets.h"

/* Writes the initial elements of a place's part to `data`. Elements of the whole tensor are a pure
 * function of (seed, slot), so a part has the elements that one device would have there. */
void clt_init_fill(const clt_slot *slot, clt_coordinate at, uint64_t seed, void *data);

#endif
