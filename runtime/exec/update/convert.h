/* Copies gradients in 16 bits from and to floats on a device. The kernels are in
 * clkernels/train/portable/convert.cl. */
#ifndef CLT_EXEC_UPDATE_CONVERT_H
#define CLT_EXEC_UPDATE_CONVERT_H

#include "exec/commands.h"
#include <cltrain/types.h>

/* The copies of one call. One call makes any number of them. */
typedef struct clt_convert {
    clt_device *device;
    cl_kernel kernel;
    bool rounds;
    cl_mem status; /* has the loss scale at float number `scale`, of f16 */
    int scale;
} clt_convert;

/* Makes the kernel. `dtype` is F16 or BF16. With `rounds` floats become gradients, else gradients
 * become floats. `status` and `scale` are for F16. Destroy it after any failure too. */
clt_status clt_convert_create(clt_device *device, clt_dtype dtype, bool rounds, cl_mem status,
                              int scale, clt_convert *convert);

void clt_convert_destroy(clt_convert *convert);

/* Enqueues a copy of `count` (below 2^31) elements. */
clt_status clt_convert_enqueue(const clt_convert *convert, clt_view from, clt_view to,
                               int64_t count);

#endif
