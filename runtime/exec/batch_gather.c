#include "exec/batch_gather.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "device/core/staging.h"

/* --- buffers of the host program ---------------------------------------------------------------
 */

clt_status clt_buffer_borrow(cl_mem buffer, int64_t offset, int64_t bytes, int element,
                             const char *what)
{
    CLT_TRY(clt_buffer_check(NULL, buffer, true, offset, bytes, element, what));
    CLT_CL(clRetainMemObject(buffer), "clRetainMemObject", NULL);
    return CLT_OK;
}

void clt_buffer_return(cl_mem buffer)
{
    /* The library did not create the object, so clt_release_buffer must not count it. */
    clReleaseMemObject(buffer);
}

clt_status clt_buffer_usable(const clt_device *device, cl_mem buffer, bool *usable)
{
    cl_context context;
    CLT_CL(clGetMemObjectInfo(buffer, CL_MEM_CONTEXT, sizeof context, &context, NULL),
           "clGetMemObjectInfo", device);
    *usable = context == device->context;
    return CLT_OK;
}

/* --- gathering ---------------------------------------------------------------------------------
 */

enum { TURNS = 2, ITEMS = 256, MOST_ACROSS = 64 };

typedef struct gather_field {
    cl_kernel kernel;
    const char *kernel_name;
    cl_mem table; /* NULL: there is no table */
    cl_mem out[TURNS];
    int per_channel, channels, width; /* width: elements per work-item */
    size_t across, down;              /* work-items and samples of a work-group */
} gather_field;

struct clt_device_gather {
    clt_device *device;
    int64_t samples;
    clt_staging staging; /* [turn][samples] sample numbers */
    cl_mem numbers;      /* a copy of the numbers on the device */
    int n_fields;
    gather_field *fields;
};

static const char *unit(clt_dtype dtype)
{
    switch (clt_dtype_size(dtype)) {
    case 1:
        return "-DT=uchar";
    case 2:
        return "-DT=ushort";
    case 8:
        return "-DT=ulong";
    default:
        return "-DT=uint";
    }
}

static clt_status make_kernel(clt_device_gather *g, gather_field *f, const clt_gather_field *from)
{
    const bool cpu = clt_caps_is_cpu(&g->device->caps);
    const char *type = unit(from->from_dtype);
    char options[32];
    if (from->from_dtype == CLT_U8 && from->dtype == CLT_F32) {
        f->kernel_name = "gather_look_up";
    } else if (from->from_dtype == CLT_U8 && from->dtype == CLT_I32) {
        f->kernel_name = "gather_widen";
    } else if (from->dtype == CLT_F32 && from->scale) {
        f->kernel_name = "gather_scale";
        type = from->from_dtype == CLT_I32 ? "-DT=int" : "-DT=float";
    } else if (from->dtype == from->from_dtype) {
        f->kernel_name = "gather_copy";
    } else {
        return clt_fail(CLT_UNSUPPORTED, "field '%s': %s is not converted to %s", from->name,
                        clt_dtype_name(from->from_dtype), clt_dtype_name(from->dtype));
    }
    snprintf(options, sizeof options, "%s -DV=%d", type, f->width);
    return clt_device_kernel(g->device, cpu ? "train/portable/gather.cl" : "train/gpu/gather.cl",
                             cpu ? type : options, f->kernel_name, &f->kernel);
}

/* Uploads the numbers that the kernel scales by: its table, or pairs of scale and shift. */
static clt_status make_table(clt_device_gather *g, gather_field *f, const clt_gather_field *from)
{
    const int64_t each = from->table ? 256 : 2;
    const int64_t bytes = each * from->channels * (int64_t)sizeof(float);
    if (!from->table && !from->scale)
        return CLT_OK;
    float *table = clt_calloc((size_t)(each * from->channels), sizeof *table);
    CLT_TRY_MEMORY(table);
    if (from->table)
        memcpy(table, from->table, (size_t)bytes);
    for (int c = 0; !from->table && c < from->channels; c++) {
        table[2 * c] = from->scale[c];
        table[2 * c + 1] = from->shift[c];
    }
    clt_status status = clt_device_buffer_create(g->device, bytes, CL_MEM_READ_ONLY,
                                                 "the normalisation", &f->table);
    CLT_NEXT(status, clt_enqueue_upload(g->device, (clt_view){f->table, 0}, table, bytes));
    /* `table` is freed below. This wait happens only once, when a data set is opened. */
    CLT_NEXT(status, clt_device_finish(g->device));
    clt_free(table);
    return status;
}

/* Sets arguments that are the same for all batches. */
static clt_status set_fixed(const clt_device_gather *g, gather_field *f, const clt_gather_field *of)
{
    const cl_long offset = of->from.offset / clt_dtype_size(of->from_dtype);
    const cl_int per_channel = f->per_channel;
    cl_int code = clSetKernelArg(f->kernel, 0, sizeof g->numbers, &g->numbers);
    if (code == CL_SUCCESS)
        code = clSetKernelArg(f->kernel, 3, sizeof of->from.buffer, &of->from.buffer);
    if (code == CL_SUCCESS)
        code = clSetKernelArg(f->kernel, 4, sizeof offset, &offset);
    if (code == CL_SUCCESS)
        code = clSetKernelArg(f->kernel, 5, sizeof per_channel, &per_channel);
    if (code == CL_SUCCESS && f->table)
        code = clSetKernelArg(f->kernel, 7, sizeof f->table, &f->table);
    return code == CL_SUCCESS ? CLT_OK : clt_cl_fail(code, "clSetKernelArg", g->device);
}

/* Returns the number of elements per work-item. On GPUs these are vectors of 16 bytes at most, or
 * of bytes that become such vectors, if channels and samples are multiples of them. */
static int width_of(const clt_device *device, const gather_field *f, const clt_gather_field *from)
{
    /* Labels: a sample has one or a few. */
    if (from->dtype == CLT_I32 && from->from_dtype == CLT_U8)
        return 1;
    const int bytes = clt_dtype_size(from->from_dtype), width = bytes == 8 ? 2 : 4;
    const bool fits = f->per_channel % width == 0 && from->from.offset % (width * bytes) == 0;
    return fits && !clt_caps_is_cpu(&device->caps) ? width : 1;
}

/* Shapes work-groups: across the elements of a channel, and down the samples if the elements are
 * few. */
static void shape_groups(const clt_device *device, gather_field *f)
{
    size_t items = 1;
    while (items < ITEMS && 2 * items <= (size_t)device->caps.max_work_group)
        items *= 2;
    f->across = 1;
    while (2 * f->across <= MOST_ACROSS && 2 * f->across <= items &&
           2 * f->across <= (size_t)(f->per_channel / f->width))
        f->across *= 2;
    f->down = items / f->across;
}

static clt_status make_field(clt_device_gather *g, gather_field *f, const clt_gather_field *from)
{
    int64_t bytes;
    if (from->elements > INT32_MAX)
        return clt_fail(CLT_UNSUPPORTED, "field '%s': a sample of %lld elements is too large",
                        from->name, (long long)from->elements);
    if (__builtin_mul_overflow(from->elements * clt_dtype_size(from->dtype), g->samples, &bytes))
        return clt_fail(CLT_OUT_OF_DEVICE_MEMORY,
                        "field '%s': a batch of %lld samples is too large", from->name,
                        (long long)g->samples);
    f->channels = from->channels;
    f->per_channel = (int)(from->elements / from->channels);
    f->width = width_of(g->device, f, from);
    shape_groups(g->device, f);
    CLT_TRY(make_kernel(g, f, from));
    CLT_TRY(make_table(g, f, from));
    char what[128];
    snprintf(what, sizeof what, "batches of field %s", from->name);
    for (int turn = 0; turn < TURNS; turn++)
        CLT_TRY(clt_device_buffer_create(g->device, bytes, CL_MEM_READ_WRITE, what, &f->out[turn]));
    return set_fixed(g, f, from);
}

clt_status clt_device_gather_create(clt_device *device, const clt_gather_field *fields,
                                    int n_fields, int64_t samples, clt_device_gather **out)
{
    clt_device_gather *g = CLT_NEW(clt_device_gather);
    CLT_TRY_MEMORY(g);
    const int64_t bytes = TURNS * samples * (int64_t)sizeof(int64_t);
    g->device = device;
    g->samples = samples;
    g->fields = clt_calloc((size_t)n_fields + 1, sizeof *g->fields);
    clt_status status = g->fields ? CLT_OK : CLT_OUT_OF_MEMORY;
    CLT_NEXT(status, clt_staging_create(device, bytes, "sample numbers", &g->staging));
    CLT_NEXT(status, clt_device_buffer_create(device, bytes, CL_MEM_READ_ONLY, "sample numbers",
                                              &g->numbers));
    for (int i = 0; status == CLT_OK && i < n_fields; i++) {
        g->n_fields = i + 1;
        status = make_field(g, &g->fields[i], &fields[i]);
    }
    if (status != CLT_OK) {
        clt_device_gather_destroy(g);
        return status;
    }
    *out = g;
    return CLT_OK;
}

void clt_device_gather_destroy(clt_device_gather *g)
{
    if (!g)
        return;
    clt_device_finish(g->device);
    for (int i = 0; i < g->n_fields; i++) {
        clt_release_kernel(g->fields[i].kernel);
        clt_release_buffer(g->fields[i].table);
        for (int turn = 0; turn < TURNS; turn++)
            clt_release_buffer(g->fields[i].out[turn]);
    }
    clt_release_buffer(g->numbers);
    clt_staging_destroy(&g->staging);
    CLT_FREE(g->fields, g);
}

static size_t round_up(int64_t count, size_t step)
{
    return ((size_t)count + step - 1) / step * step;
}

static clt_status run_field(const clt_device_gather *g, const gather_field *f, int turn,
                            int64_t count)
{
    const cl_long numbers_offset = turn * g->samples;
    const cl_int samples = (cl_int)count;
    const size_t local[] = {f->across, f->down, 1};
    const size_t global[] = {round_up(f->per_channel / f->width, f->across),
                             round_up(count, f->down), (size_t)f->channels};
    cl_event event = NULL;
    cl_int code = clSetKernelArg(f->kernel, 1, sizeof numbers_offset, &numbers_offset);
    if (code == CL_SUCCESS)
        code = clSetKernelArg(f->kernel, 2, sizeof samples, &samples);
    if (code == CL_SUCCESS)
        code = clSetKernelArg(f->kernel, 6, sizeof f->out[turn], &f->out[turn]);
    if (code == CL_SUCCESS)
        code = clEnqueueNDRangeKernel(g->device->queue, f->kernel, 3, NULL, global, local, 0, NULL,
                                      clt_watch_event(g->device, &event));
    if (code != CL_SUCCESS)
        return clt_fail_prefix(clt_cl_fail(code, "clEnqueueNDRangeKernel", g->device),
                               "kernel %s: ", f->kernel_name);
    const clt_command command = {f->kernel_name, NULL, 0, 0};
    clt_watch(g->device, &command, event);
    return CLT_OK;
}

clt_status clt_device_gather_enqueue(clt_device_gather *g, int turn, const int64_t *numbers,
                                     int64_t count)
{
    const int64_t at = turn * g->samples, bytes = count * (int64_t)sizeof *numbers;
    int64_t *staged = (int64_t *)g->staging.data + at;
    memcpy(staged, numbers, (size_t)bytes);
    CLT_TRY(clt_enqueue_upload(g->device, (clt_view){g->numbers, at * (int64_t)sizeof *numbers},
                               staged, bytes));
    for (int i = 0; count && i < g->n_fields; i++)
        CLT_TRY(run_field(g, &g->fields[i], turn, count));
    return CLT_OK;
}

cl_mem clt_device_gather_buffer(const clt_device_gather *g, int turn, int field)
{
    return g->fields[field].out[turn];
}
