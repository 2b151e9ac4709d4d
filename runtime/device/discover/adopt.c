#include "device/discover/open.h"

#include <stdio.h>

#include "base/alloc.h"

/* Returns the whole device that a part belongs to. */
static cl_device_id root_of(cl_device_id device)
{
    cl_device_id root = device, parent = NULL;
    while (clGetDeviceInfo(root, CL_DEVICE_PARENT_DEVICE, sizeof parent, &parent, NULL) ==
               CL_SUCCESS &&
           parent)
        root = parent;
    return root;
}

/* PoCL's contexts list the whole device in place of its parts. */
static clt_status check_member(cl_context context, cl_device_id device)
{
    size_t bytes = 0;
    CLT_CL(clGetContextInfo(context, CL_CONTEXT_DEVICES, 0, NULL, &bytes),
           "clt_device_adopt: clGetContextInfo", NULL);
    cl_device_id *ids = clt_calloc(bytes / sizeof *ids + 1, sizeof *ids);
    CLT_TRY_MEMORY(ids);
    cl_int code = clGetContextInfo(context, CL_CONTEXT_DEVICES, bytes, ids, NULL);
    bool found = false;
    for (size_t i = 0; i < bytes / sizeof *ids && code == CL_SUCCESS; i++)
        found |= ids[i] == device || ids[i] == root_of(device);
    clt_free(ids);
    CLT_CL(code, "clt_device_adopt: clGetContextInfo", NULL);
    if (!found)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "clt_device_adopt: the device does not belong to the context");
    return CLT_OK;
}

static clt_status check_queue(cl_command_queue queue, cl_context context, cl_device_id device,
                              cl_command_queue_properties *flags)
{
    cl_context its_context = NULL;
    cl_device_id its_device = NULL;
    CLT_CL(clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof its_context, &its_context, NULL),
           "clt_device_adopt: clGetCommandQueueInfo", NULL);
    CLT_CL(clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof its_device, &its_device, NULL),
           "clt_device_adopt: clGetCommandQueueInfo", NULL);
    CLT_CL(clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof *flags, flags, NULL),
           "clt_device_adopt: clGetCommandQueueInfo", NULL);
    if (its_context != context || its_device != device)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "clt_device_adopt: the queue belongs to another context or device");
    if (*flags & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)
        return clt_fail(CLT_UNSUPPORTED, "clt_device_adopt: the queue is out-of-order; give an "
                                         "in-order queue, or NULL to let the library make one");
    return CLT_OK;
}

/* Finds the row of the device, or of the device that it is a part of. Makes a description if
 * discovery did not list the device. */
static clt_status find_row(const clt_runtime *runtime, cl_device_id device, clt_device_row *row)
{
    const cl_device_id root = root_of(device);
    for (int i = 0; i < runtime->count; i++) {
        if (runtime->rows[i].id == root) {
            *row = runtime->rows[i];
            return CLT_OK;
        }
    }
    cl_platform_id platform = NULL;
    CLT_CL(clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL),
           "clt_device_adopt: clGetDeviceInfo", NULL);
    clt_describe_device(platform, root, row);
    return CLT_OK;
}

clt_status clt_device_adopt(clt_runtime *runtime, cl_context context, cl_device_id device,
                            cl_command_queue queue, const clt_device_options *options,
                            clt_device **out)
{
    if (!context || !device)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "clt_device_adopt: context and device must not be NULL");
    if (!runtime) {
        CLT_TRY(clt_runtime_create(NULL, &runtime));
        const clt_status status = clt_device_adopt(runtime, context, device, queue, options, out);
        clt_runtime_destroy(runtime);
        return status;
    }
    cl_command_queue_properties flags = 0;
    clt_device_row row;
    CLT_TRY(check_member(context, device));
    if (queue)
        CLT_TRY(check_queue(queue, context, device, &flags));
    CLT_TRY(find_row(runtime, device, &row));
    if (!row.info.usable)
        return clt_fail(CLT_UNSUPPORTED, "clt_device_adopt: %s cannot be used: %s", row.info.name,
                        row.info.skip);
    char label[192];
    snprintf(label, sizeof label, "the host program's device (%s)", row.info.name);
    const clt_open_parts parts = {.row = &row,
                                  .cache_dir = runtime->cache_dir,
                                  .label = label,
                                  .id = device,
                                  .context = context,
                                  .queue = queue,
                                  .adopted = true};
    clt_device *made = NULL;
    CLT_TRY(clt_device_make(&parts, options, &made));
    if (queue)
        made->profiling = (flags & CL_QUEUE_PROFILING_ENABLE) != 0;
    *out = made;
    return CLT_OK;
}

cl_context clt_device_cl_context(const clt_device *device)
{
    return device->context;
}

cl_device_id clt_device_cl_device(const clt_device *device)
{
    return device->id;
}

cl_command_queue clt_device_cl_queue(const clt_device *device)
{
    return device->queue;
}
