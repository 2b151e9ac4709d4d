/*
 * Samples in buffers of the host program: borrows the buffers, and assembles a device's part of a
 * batch from them on the device. The kernels are in clkernels/train/portable/gather.cl.
 */
#ifndef CLT_EXEC_BATCH_GATHER_H
#define CLT_EXEC_BATCH_GATHER_H

#include "exec/commands.h"

/* Retains a buffer of the host program after a check that kernels can read `bytes` from `offset`
 * on, which must be a multiple of `element`. `what` begins messages. Errors: INVALID_ARGUMENT. */
clt_status clt_buffer_borrow(cl_mem buffer, int64_t offset, int64_t bytes, int element,
                             const char *what);

/* Releases a borrowed buffer. */
void clt_buffer_return(cl_mem buffer);

/* Sets *usable to whether the device can use the buffer, which must belong to the device's
 * context. */
clt_status clt_buffer_usable(const clt_device *device, cl_mem buffer, bool *usable);

/* One field of the samples, and its conversion. */
typedef struct clt_gather_field {
    const char *name; /* for messages */
    clt_view from;    /* place of sample 0; a multiple of the element's size */
    clt_dtype from_dtype, dtype;
    int64_t elements;   /* of a sample */
    int channels;       /* have equal numbers of a sample's elements; 1 if nothing is scaled */
    const float *table; /* u8 to f32: 256 numbers per channel */
    const float *scale; /* i32 and f32 to f32: a number per channel; NULL: the bits are copied */
    const float *shift; /* added after scaling; a number per channel */
} clt_gather_field;

/* Gathers a device's batches by turns into two sets of buffers, one for each step that may be
 * queued. */
typedef struct clt_device_gather clt_device_gather;

/* Builds the kernels and allocates everything for batches of up to `samples`. Borrows the fields'
 * buffers and copies the rest of `fields`. Errors: UNSUPPORTED (a conversion, a sample of 2^31
 * elements), BUILD, OUT_OF_DEVICE_MEMORY. */
clt_status clt_device_gather_create(clt_device *device, const clt_gather_field *fields,
                                    int n_fields, int64_t samples, clt_device_gather **out);

/* Waits for the device and frees everything. Takes NULL. */
void clt_device_gather_destroy(clt_device_gather *gather);

/* Gathers samples numbers[0] to numbers[count - 1] into the buffers of `turn` (0 or 1). The numbers
 * are copied at the call; the kernels are only enqueued. Earlier commands of the same turn must
 * have ended. */
clt_status clt_device_gather_enqueue(clt_device_gather *gather, int turn, const int64_t *numbers,
                                     int64_t count);

/* Returns the buffer of a field. */
cl_mem clt_device_gather_buffer(const clt_device_gather *gather, int turn, int field);

#endif
