/*
 * For host programs with OpenCL objects of their own. Apart from <cltrain/device.h>, so that
 * programs without OpenCL headers can use the rest.
 */
#ifndef CLTRAIN_OPENCL_H
#define CLTRAIN_OPENCL_H

#include <CL/cl.h>

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

CLT_END_DECLS

#endif
