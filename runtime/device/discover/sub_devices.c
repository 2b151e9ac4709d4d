#include "device/discover/sub_devices.h"

#include "base/alloc.h"
#include "base/error.h"

static bool offers(cl_device_id id, cl_device_partition_property kind)
{
    cl_device_partition_property kinds[16] = {0};
    size_t bytes = 0;
    if (clGetDeviceInfo(id, CL_DEVICE_PARTITION_PROPERTIES, sizeof kinds, kinds, &bytes) !=
        CL_SUCCESS)
        return false;
    for (size_t i = 0; i < bytes / sizeof kinds[0]; i++) {
        if (kinds[i] == kind)
            return true;
    }
    return false;
}

static clt_status create_parts(const clt_device_row *row, const int *cores, int count,
                               cl_device_id *parts)
{
    bool equal = true;
    for (int i = 1; i < count; i++)
        equal &= cores[i] == cores[0];
    cl_device_partition_property *list = clt_calloc((size_t)count + 3, sizeof *list);
    CLT_TRY_MEMORY(list);
    const bool by_counts = offers(row->id, CL_DEVICE_PARTITION_BY_COUNTS);
    if (by_counts) {
        list[0] = CL_DEVICE_PARTITION_BY_COUNTS;
        for (int i = 0; i < count; i++)
            list[i + 1] = cores[i];
        list[count + 1] = CL_DEVICE_PARTITION_BY_COUNTS_LIST_END;
    } else {
        list[0] = CL_DEVICE_PARTITION_EQUALLY;
        list[1] = cores[0];
    }
    /* CL_DEVICE_PARTITION_EQUALLY makes as many parts as fit. Release those that are not needed. */
    const cl_uint room = by_counts ? (cl_uint)count : (cl_uint)(row->info.compute_units / cores[0]);
    cl_device_id *made = clt_calloc(room, sizeof *made);
    cl_uint number = 0;
    clt_status status = made ? CLT_OK : CLT_OUT_OF_MEMORY;
    if (status == CLT_OK && !by_counts && !equal)
        status =
            clt_fail(CLT_UNSUPPORTED, "device %d (%s) can only be split in parts of equal size",
                     row->info.index, row->info.name);
    if (status == CLT_OK) {
        cl_int code = clCreateSubDevices(row->id, list, room, made, &number);
        if (code != CL_SUCCESS)
            status = clt_fail_prefix(clt_cl_fail(code, "clCreateSubDevices", NULL),
                                     "device %d (%s): ", row->info.index, row->info.name);
    }
    for (cl_uint i = 0; status == CLT_OK && i < number && i < room; i++) {
        /* PoCL 3.1's thread still reads the part after a command ended and everything released the
         * part. Keep a reference for ever. */
        if (row->quirks & CLT_QUIRK_KEEP_PARTS)
            clRetainDevice(made[i]);
        if (i < (cl_uint)count)
            parts[i] = made[i];
        else
            clReleaseDevice(made[i]);
    }
    CLT_FREE(made, list);
    return status;
}

clt_status clt_split_group(const clt_device_row *row, const clt_selection *selection, int row_index,
                           int group, cl_device_id *ids)
{
    int *cores = clt_calloc((size_t)selection->count, sizeof *cores);
    cl_device_id *parts = clt_calloc((size_t)selection->count, sizeof *parts);
    int count = 0;
    clt_status status = cores && parts ? CLT_OK : CLT_OUT_OF_MEMORY;
    for (int i = 0; i < selection->count && status == CLT_OK; i++) {
        const clt_unit *unit = &selection->units[i];
        if (unit->row == row_index && unit->cores && unit->group == group)
            cores[count++] = unit->cores;
    }
    if (status == CLT_OK) {
        pthread_mutex_lock(&clt_discovery_lock);
        status = create_parts(row, cores, count, parts);
        pthread_mutex_unlock(&clt_discovery_lock);
    }
    for (int i = 0; i < selection->count && status == CLT_OK; i++) {
        const clt_unit *unit = &selection->units[i];
        if (unit->row == row_index && unit->cores && unit->group == group)
            ids[i] = parts[unit->place];
    }
    CLT_FREE(parts, cores);
    return status;
}

bool clt_split_shares_cores(clt_device *const *devices, int count)
{
    for (int d = 0; d < count; d++) {
        int parts = 0;
        cl_uint cores = 0;
        for (int e = 0; e < count; e++)
            if (devices[e]->root == devices[d]->root)
                parts += devices[e]->info.compute_units;
        if (clGetDeviceInfo(devices[d]->root, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof cores, &cores,
                            NULL) != CL_SUCCESS ||
            parts > (int)cores)
            return true;
    }
    return false;
}
