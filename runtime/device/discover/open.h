/* Makes a clt_device from OpenCL objects. */
#ifndef CLT_DEVICE_DISCOVER_OPEN_H
#define CLT_DEVICE_DISCOVER_OPEN_H

#include "device/discover/discover.h"

typedef struct clt_open_parts {
    const clt_device_row *row; /* description of the root device */
    const char *cache_dir;     /* copied; NULL: no cache */
    const char *label;         /* copied */
    cl_device_id id;           /* retained */
    cl_context context;        /* retained; NULL: a context is made for this device only */
    cl_command_queue queue;    /* retained; NULL: a queue is made */
    bool adopted;
} clt_open_parts;

/* Opens a device. `options` may be NULL. */
clt_status clt_device_make(const clt_open_parts *parts, const clt_device_options *options,
                           clt_device **out);

/* Opens a row of the runtime as one whole device. */
clt_status clt_device_open_row(clt_runtime *runtime, int row, const clt_device_options *options,
                               clt_device **out);

#endif
