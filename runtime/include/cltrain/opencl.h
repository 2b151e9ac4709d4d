/*
 * For host programs with OpenCL objects of their own: devices, and buffers as data sets. Apart from
 * <cltrain/device.h> and <cltrain/data.h>, so that programs without OpenCL headers can use the
 * rest.
 */
#ifndef CLTRAIN_OPENCL_H
#define CLTRAIN_OPENCL_H

#include <CL/cl.h>

#include <cltrain/data.h>
#include <cltrain/device.h>

CLT_BEGIN_DECLS

/*
 * Makes a clt_device of the host program's objects. The library retains them and releases them in
 * clt_device_close, so that their reference counts are then what they were.
 *
 * `context` and `device` are required; `device` belongs to `context` and may be a sub-device.
 * `queue` may be NULL: then the library makes an in-order queue. A given queue must be in-order
 * (otherwise UNSUPPORTED), of this context and device; all commands, transfers too, go to it, and
 * the host program must not enqueue on it from another thread during a library call. Profiling is
 * on if the queue has it. `options` may be NULL; share_context is ignored. Errors:
 * INVALID_ARGUMENT, UNSUPPORTED, OPENCL, OUT_OF_MEMORY. Thread-safe.
 */
CLT_API clt_status clt_device_adopt(clt_runtime *runtime, cl_context context, cl_device_id device,
                                    cl_command_queue queue, const clt_device_options *options,
                                    clt_device **out);

/* The OpenCL objects of a device. Borrowed: retain what outlives the device. */
CLT_API cl_context clt_device_cl_context(const clt_device *device);
CLT_API cl_device_id clt_device_cl_device(const clt_device *device);
CLT_API cl_command_queue clt_device_cl_queue(const clt_device *device);

/*
 * A data set of `count` (at least 1) samples whose fields are buffers of the host program; `name`
 * is for messages. Add its fields with clt_dataset_add_buffer. clt_fit and clt_evaluate assemble
 * its batches on the devices: the host never sees the samples. They give what they give for the
 * same samples as arrays, with two differences: labels are not checked, so that one out of range
 * makes the loss NaN, which the trainer's guard reports; and the weight of a loss that depends on
 * labels is found on the devices, for which a step on several devices, or in several micro-batches,
 * waits for its forward pass. Errors: INVALID_ARGUMENT, OUT_OF_MEMORY.
 */
CLT_API clt_status clt_dataset_create_buffers(const char *name, int64_t count, clt_dataset **out);

/*
 * Adds a field to such a data set and returns its number, 0 for the first. `shape` has `rank` (0 to
 * CLT_DATA_MAX_RANK) dimensions of one sample. `buffer` holds the samples from byte `offset` on,
 * row-major, one after the other without gaps; `offset` is a multiple of the element's size. `out`
 * may be NULL. Several fields may share a buffer.
 *
 * The buffer is retained, and released by clt_dataset_free. All devices of a trainer that reads it
 * must be of its context (clt_device_adopt, or clt_device_options.share_context): otherwise
 * clt_fit and clt_evaluate fail with INVALID_ARGUMENT, naming data set, field and device. What was
 * enqueued to write it must have completed before they are called, and nothing may write it until
 * they return.
 *
 * Errors: INVALID_ARGUMENT (a data set of another kind, a name that is taken, an offset that is not
 * aligned, no buffer, one that kernels cannot read or that is too small: the message says how many
 * bytes are needed), SHAPE, STATE once the data set was read, OPENCL (not a memory object),
 * OUT_OF_MEMORY.
 */
CLT_API clt_status clt_dataset_add_buffer(clt_dataset *dataset, const char *name, clt_dtype dtype,
                                          int rank, const int64_t *shape, cl_mem buffer,
                                          int64_t offset, int *out);

CLT_END_DECLS

#endif
