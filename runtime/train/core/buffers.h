/* Data sets whose samples are in OpenCL buffers of the host program. */
#ifndef CLT_TRAIN_CORE_BUFFERS_H
#define CLT_TRAIN_CORE_BUFFERS_H

#include "data/loader/batch.h"
#include "exec/batch_gather.h"

/* Makes what assembles one device's batches of up to `samples`, an output of `gather` each; its
 * data set is one of buffers. INVALID_ARGUMENT names data set, field and device if a buffer is of
 * another context. */
clt_status clt_buffers_gather(const clt_gather *gather, clt_device *device, int64_t samples,
                              clt_device_gather **out);

#endif
