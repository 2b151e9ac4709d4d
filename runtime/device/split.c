#include "device/split.h"

#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/vec.h"

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
    if (!list)
        return CLT_OUT_OF_MEMORY;
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
    /* Equal parts come as many as fit: those that nobody asked for are released. */
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
        if (i < (cl_uint)count)
            parts[i] = made[i];
        else
            clReleaseDevice(made[i]);
    }
    clt_free(made);
    clt_free(list);
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
    clt_free(parts);
    clt_free(cores);
    return status;
}

static const char busy_text[] = "kernel void busy(global float *out, int steps)\n"
                                "{\n"
                                "    float x = 1.0f + 1e-3f * (float)get_group_id(0);\n"
                                "    for (int i = 0; i < steps; i++)\n"
                                "        x = fma(x, 0.999f, 1e-3f);\n"
                                "    out[get_global_id(0)] = x;\n"
                                "}\n";

enum { BUSY_GROUPS = 256, BUSY_TRIES = 3 };

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static clt_status run_busy(clt_device *device, cl_kernel kernel, int steps, double *cpu,
                           double *wall)
{
    const size_t global = BUSY_GROUPS, local = 1;
    double cpu0 = seconds(CLOCK_PROCESS_CPUTIME_ID), wall0 = seconds(CLOCK_MONOTONIC);
    CLT_CL(clSetKernelArg(kernel, 1, sizeof steps, &steps), "clSetKernelArg", device);
    CLT_CL(clEnqueueNDRangeKernel(device->queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL),
           "clEnqueueNDRangeKernel", device);
    CLT_CL(clFinish(device->queue), "clFinish", device);
    *cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu0;
    *wall = seconds(CLOCK_MONOTONIC) - wall0;
    return CLT_OK;
}

/* Cores that the part really uses: the least of several tries, since other threads of the process
 * may compute at the same time. */
static clt_status measure_cores(clt_device *part, double *cores)
{
    const double least_wall = 4e-3;
    cl_mem out = NULL;
    cl_kernel kernel = NULL;
    double cpu = 0, wall = 0, best = 1e9;
    clt_status status = clt_device_buffer_create(part, BUSY_GROUPS * (int64_t)sizeof(float),
                                                 CL_MEM_READ_WRITE, "split probe", &out);
    if (status == CLT_OK)
        status = clt_device_kernel_from_text(part, "split probe", busy_text, NULL, "busy", &kernel);
    if (status == CLT_OK && clSetKernelArg(kernel, 0, sizeof out, &out) != CL_SUCCESS)
        status = clt_fail(CLT_OPENCL, "split probe: clSetKernelArg failed on %s", part->label);
    if (status == CLT_OK) /* compiles here */
        status = run_busy(part, kernel, 1, &cpu, &wall);
    int steps = 4096;
    for (int tries = 0; tries < BUSY_TRIES && status == CLT_OK;) {
        status = run_busy(part, kernel, steps, &cpu, &wall);
        if (wall < least_wall && steps < 1 << 28) {
            steps *= wall < least_wall / 4 ? 4 : 2;
            continue;
        }
        if (cpu / wall < best)
            best = cpu / wall;
        if (best <= part->caps.compute_units + 0.5)
            break;
        tries++;
    }
    clt_release_kernel(kernel);
    clt_release_buffer(out);
    if (status == CLT_OK)
        *cores = best;
    return status;
}

typedef struct split_answer {
    cl_device_id root;
    double cores; /* that a part of `asked` cores used */
    int asked;
} split_answer;

static pthread_mutex_t answers_lock = PTHREAD_MUTEX_INITIALIZER;
static split_answer answers[32];
static int answer_count;

clt_status clt_split_check(clt_device *part)
{
    split_answer answer = {.root = NULL};
    pthread_mutex_lock(&answers_lock);
    for (int i = 0; i < answer_count; i++) {
        if (answers[i].root == part->root)
            answer = answers[i];
    }
    pthread_mutex_unlock(&answers_lock);
    if (!answer.root) {
        answer.root = part->root;
        answer.asked = part->caps.compute_units;
        CLT_TRY(measure_cores(part, &answer.cores));
        clt_log(CLT_LOG_DEBUG, "%s: a part of %d core(s) used %.2f", part->label, answer.asked,
                answer.cores);
        pthread_mutex_lock(&answers_lock);
        if (answer_count < (int)(sizeof answers / sizeof answers[0]))
            answers[answer_count++] = answer;
        pthread_mutex_unlock(&answers_lock);
    }
    if (answer.cores > answer.asked + 0.5)
        return clt_fail(
            CLT_UNSUPPORTED,
            "%s: its driver does not keep parts to their cores (a part of %d used %.1f); "
            "use the device whole, or restrict the process with taskset",
            part->label, answer.asked, answer.cores);
    return CLT_OK;
}
