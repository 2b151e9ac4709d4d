/* Data sets whose samples are in OpenCL buffers of the host program. */
#ifndef CLT_TRAIN_CORE_BUFFERS_H
#define CLT_TRAIN_CORE_BUFFERS_H

#include "data/loader/batch.h"
#include "exec/batch_gather.h"

/* Creates the gatherer that assembles batches of up to `samples` samples on one device. The data
 * set of `gather` must be one of buffers. INVALID_ARGUMENT names data set, field and device if a
 * buffer belongs to another context. */
clt_status clt_buffers_gather(const clt_gather *gather, clt_device *device, int64_t samples,
                              clt_device_gather **out);

#endif
