/*
 * Samples in buffers of the host program: borrowing the buffers, and assembling a device's part of
 * a batch from them on the device. The kernels are clkernels/train/portable/gather.cl.
 */
#ifndef CLT_EXEC_BATCH_GATHER_H
#define CLT_EXEC_BATCH_GATHER_H

#include "exec/commands.h"

/* Retains a buffer of the host program after a check that kernels can read `bytes` from `offset`
 * on. Fails with INVALID_ARGUMENT, or OPENCL for what is no memory object; the message is to be
 * prefixed. */
clt_status clt_buffer_borrow(cl_mem buffer, int64_t offset, int64_t bytes);

/* Releases it. */
void clt_buffer_return(cl_mem buffer);

/* Whether the device can use the buffer: it is of the device's context. */
clt_status clt_buffer_usable(const clt_device *device, cl_mem buffer, bool *usable);

/* One field of the samples, and what becomes of it. */
typedef struct clt_gather_field {
    const char *name; /* for messages */
    clt_view from;    /* of sample 0; a multiple of the element's size */
    clt_dtype from_dtype, dtype;
    int64_t elements;   /* of one sample */
    int channels;       /* that share them equally; 1 if nothing is scaled */
    const float *table; /* u8 to f32: 256 numbers a channel */
    const float *scale; /* i32 and f32 to f32: a number a channel; NULL: the bits are copied */
    const float *shift; /* with scale */
} clt_gather_field;

/* Gathers batches of one device in turn into two sets of buffers, one for each step that may be
 * queued. */
typedef struct clt_device_gather clt_device_gather;

/* Builds the kernels and allocates all that gathering batches of up to `samples` needs. The fields'
 * buffers are borrowed; the rest of `fields` is copied. Errors: UNSUPPORTED (a conversion, a sample
 * of 2^31 elements), BUILD, OUT_OF_DEVICE_MEMORY. */
clt_status clt_device_gather_create(clt_device *device, const clt_gather_field *fields,
                                    int n_fields, int64_t samples, clt_device_gather **out);

/* Waits for the device. Takes NULL. */
void clt_device_gather_destroy(clt_device_gather *gather);

/* Enqueues the gathering of samples numbers[0] to numbers[count - 1], which are copied at the call,
 * into the buffers of `turn` (0 or 1). What was enqueued with the same turn must have ended. */
clt_status clt_device_gather_enqueue(clt_device_gather *gather, int turn, const int64_t *numbers,
                                     int64_t count);

/* The buffer of a field. */
cl_mem clt_device_gather_buffer(const clt_device_gather *gather, int turn, int field);

#endif
