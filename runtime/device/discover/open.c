#include "device/discover/open.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "device/discover/probe.h"
#include "device/discover/probe_matrix.h"
#include "device/program/first_launch.h"
#include "device/program/program.h"

static clt_status make_queue(clt_device *device, cl_command_queue *out)
{
    cl_int code = CL_SUCCESS;
    cl_command_queue_properties flags = device->profiling ? CL_QUEUE_PROFILING_ENABLE : 0;
    cl_command_queue queue = clCreateCommandQueue(device->context, device->id, flags, &code);
    if (code != CL_SUCCESS)
        return clt_cl_fail(code, "clCreateCommandQueue", device);
    clt_object_created(CLT_OBJECT_QUEUE);
    *out = queue;
    return CLT_OK;
}

static void drop_queue(cl_command_queue queue, bool made)
{
    if (!queue)
        return;
    clReleaseCommandQueue(queue);
    if (made)
        clt_object_released(CLT_OBJECT_QUEUE);
}

void clt_device_close(clt_device *device)
{
    if (!device)
        return;
    if (device->queue)
        clt_device_finish(device);
    if (device->programs)
        clt_program_table_store(
            device, clt_program_store_seconds(clt_program_table_seconds(device->programs)));
    clt_first_launches_forget(device);
    clt_program_table_destroy(device->programs);
    if (device->transfer != device->queue)
        drop_queue(device->transfer, device->made_queues);
    drop_queue(device->queue, device->made_queues);
    if (device->context) {
        clReleaseContext(device->context);
        if (device->made_context)
            clt_object_released(CLT_OBJECT_CONTEXT);
    }
    if (device->id)
        clReleaseDevice(device->id);
    CLT_FREE(device->cache_dir, device);
}

static clt_status take_context(clt_device *device, cl_context given)
{
    cl_int code = CL_SUCCESS;
    if (given) {
        CLT_CL(clRetainContext(given), "clRetainContext", device);
        device->context = given;
        return CLT_OK;
    }
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                                (cl_context_properties)device->platform, 0};
    cl_context context = clCreateContext(properties, 1, &device->id, NULL, NULL, &code);
    if (code != CL_SUCCESS)
        return clt_cl_fail(code, "clCreateContext", device);
    clt_object_created(CLT_OBJECT_CONTEXT);
    device->made_context = true;
    device->context = context;
    return CLT_OK;
}

static clt_status take_queues(clt_device *device, cl_command_queue given)
{
    if (given) {
        CLT_CL(clRetainCommandQueue(given), "clRetainCommandQueue", device);
        device->queue = device->transfer = given;
        return CLT_OK;
    }
    device->made_queues = true;
    CLT_TRY(make_queue(device, &device->queue));
    device->transfer = device->queue;
    if (device->caps.kind != CLT_KIND_CPU)
        CLT_TRY(make_queue(device, &device->transfer));
    return CLT_OK;
}

/* Sets a part's own number of cores. Everything else is as in the whole device. */
static void describe_part(clt_device *device)
{
    cl_uint units = 0;
    cl_device_id parent = NULL;
    if (clGetDeviceInfo(device->id, CL_DEVICE_PARENT_DEVICE, sizeof parent, &parent, NULL) !=
            CL_SUCCESS ||
        !parent)
        return;
    if (clGetDeviceInfo(device->id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL) ==
        CL_SUCCESS)
        device->caps.compute_units = device->info.compute_units = (int)units;
}

/* Hashes the processor's instruction sets, which compiled programs use. Machines that share a home
 * folder may have processors of the same name with other instructions. */
static uint64_t hash_instructions(uint64_t hash)
{
    char line[8192];
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && fgets(line, sizeof line, f)) {
        if (!strncmp(line, "flags", 5) || !strncmp(line, "Features", 8)) {
            hash = clt_hash_text(line, hash);
            break;
        }
    }
    if (f)
        fclose(f);
    return hash;
}

static uint64_t find_identity(const clt_caps *caps)
{
    uint64_t hash = clt_hash_text(caps->platform, 0);
    hash = clt_hash_text(caps->name, hash);
    hash = clt_hash_text(caps->driver, hash);
    return clt_caps_is_cpu(caps) ? hash_instructions(hash) : hash;
}

clt_status clt_device_make(const clt_open_parts *parts, const clt_device_options *options,
                           clt_device **out)
{
    if (options)
        CLT_TRY(CLT_CHECK_STRUCT(options, clt_device_options));
    clt_device *device = CLT_NEW(clt_device);
    CLT_TRY_MEMORY(device);
    const clt_device_row *row = parts->row;
    snprintf(device->label, sizeof device->label, "%s", parts->label);
    device->row = row->info.index;
    device->platform = row->platform;
    device->root = row->id;
    device->caps = row->caps;
    device->info = row->info;
    device->quirks = row->quirks;
    device->adopted = parts->adopted;
    device->profiling = options && options->profiling;
    device->sleep_poll = options && options->sleep_poll;
    device->identity = find_identity(&row->caps);
    clt_status status = CLT_OK;
    cl_int code = clRetainDevice(parts->id);
    if (code == CL_SUCCESS)
        device->id = parts->id;
    else
        status = clt_cl_fail(code, "clRetainDevice", device);
    if (status == CLT_OK) {
        describe_part(device);
        status = take_context(device, parts->context);
    }
    CLT_NEXT(status, take_queues(device, parts->queue));
    if (status == CLT_OK && parts->cache_dir && !(device->cache_dir = clt_strdup(parts->cache_dir)))
        status = CLT_OUT_OF_MEMORY;
    CLT_NEXT(status, clt_program_table_create(&device->programs));
    if (status != CLT_OK) {
        clt_device_close(device);
        return status;
    }
    clt_probe_width(device);
    clt_probe_half(device);
    clt_probe_matrix(device);
    *out = device;
    return CLT_OK;
}

clt_status clt_device_open_row(clt_runtime *runtime, int index, const clt_device_options *options,
                               clt_device **out)
{
    if (index < 0 || index >= runtime->count)
        return clt_fail(CLT_INVALID_ARGUMENT, "device row %d does not exist; there are %d", index,
                        runtime->count);
    const clt_device_row *row = &runtime->rows[index];
    if (!row->info.usable)
        return clt_fail(CLT_NO_DEVICE, "device %d (%s) cannot be used: %s", index, row->info.name,
                        row->info.skip);
    char label[192];
    snprintf(label, sizeof label, "device %d (%s)", index, row->info.name);
    const clt_open_parts parts = {
        .row = row, .cache_dir = runtime->cache_dir, .label = label, .id = row->id};
    return clt_device_make(&parts, options, out);
}

const char *clt_device_label(const clt_device *device)
{
    return device->label;
}

clt_status clt_device_get_info(const clt_device *device, clt_device_info *info)
{
    CLT_TRY(CLT_CHECK_STRUCT(info, clt_device_info));
    *info = device->info;
    return CLT_OK;
}
