/*
 * For host programs with OpenCL objects of their own: contexts and queues as devices, and buffers
 * as data sets. Programs without OpenCL headers use <cltrain/device.h> and <cltrain/data.h> alone.
 */
#ifndef CLTRAIN_OPENCL_H
#define CLTRAIN_OPENCL_H

#include <CL/cl.h>

#include <cltrain/data.h>
#include <cltrain/device.h>

CLT_BEGIN_DECLS

/*
 * Makes a clt_device of the host program's objects. The library retains the objects, and
 * clt_device_close releases them.
 *
 * - `runtime` NULL: a new runtime with the default options serves for the call.
 * - `context` and `device` are required. `device` belongs to `context` and may be a sub-device.
 * - `queue` NULL: the library makes an in-order queue. A given queue must be in-order, and of this
 *   context and device. All commands, transfers too, go to it. During a call of the library no
 *   other thread may enqueue on it. Profiling is on if the queue has it.
 * - `options` may be NULL; share_context is ignored.
 *
 * Errors: INVALID_ARGUMENT, UNSUPPORTED (a queue that is out of order), OPENCL, OUT_OF_MEMORY.
 * Thread-safe.
 */
CLT_API clt_status clt_device_adopt(clt_runtime *runtime, cl_context context, cl_device_id device,
                                    cl_command_queue queue, const clt_device_options *options,
                                    clt_device **out);

/* Return the OpenCL objects of a device. They stay the device's: retain what outlives it. */
CLT_API cl_context clt_device_cl_context(const clt_device *device);
CLT_API cl_device_id clt_device_cl_device(const clt_device *device);
CLT_API cl_command_queue clt_device_cl_queue(const clt_device *device);

/*
 * Creates a data set of `count` (at least 1) samples whose fields are buffers of the host program.
 * Add the fields with clt_dataset_add_buffer. `name` appears in messages. clt_fit and clt_evaluate
 * assemble the batches on the devices: the host never sees the samples. Results are those of the
 * same samples in arrays, with two differences:
 *
 * - Labels are not checked. A label out of range makes the loss NaN, which the trainer's guard
 *   reports.
 * - The devices find the weight of a loss that depends on labels. A step on several devices, or in
 *   several micro-batches, therefore waits for its forward pass.
 *
 * Errors: INVALID_ARGUMENT, OUT_OF_MEMORY.
 */
CLT_API clt_status clt_dataset_create_buffers(const char *name, int64_t count, clt_dataset **out);

/*
 * Adds a field to such a data set. `shape` has the `rank` (0 to CLT_DATA_MAX_RANK) dimensions of
 * one sample. `buffer` holds the samples from byte `offset` on, row-major, one after the other
 * without gaps. `offset` is a multiple of the element's size. Several fields may share a buffer.
 * *out is the number of the field, 0 for the first; `out` may be NULL.
 *
 * The buffer is retained, and clt_dataset_free releases it. All devices of a trainer that reads it
 * must belong to its context (clt_device_adopt, or clt_device_options.share_context). Otherwise
 * clt_fit and clt_evaluate fail with INVALID_ARGUMENT and name data set, field and device. Commands
 * that write the buffer must have completed before these calls, and none may write it until they
 * return.
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
