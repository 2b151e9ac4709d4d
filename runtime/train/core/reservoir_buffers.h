/* Devices through which reservoirs read buffers that are pushed. */
#ifndef CLT_TRAIN_CORE_RESERVOIR_BUFFERS_H
#define CLT_TRAIN_CORE_RESERVOIR_BUFFERS_H

#include "data/reservoir/reservoir.h"
#include "device/core/device.h"

/* What a reservoir needs for buffers. */
typedef struct clt_reservoir_side clt_reservoir_side;

/* Lends a device to a reservoir without clt_reservoir_options.device, in the place of one that was
 * lent before. The device must stay open until `lender` takes it back. Never returns NULL. */
clt_reservoir_side *clt_reservoir_lend(clt_dataset *reservoir, clt_device *device,
                                       const void *lender);

/* Takes back what `lender` has lent, unless somebody else has lent a device since. The reservoir
 * may be freed already. Takes NULL. */
void clt_reservoir_take_back(clt_reservoir_side *side, const void *lender);

#endif
