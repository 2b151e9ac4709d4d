/* Opens the devices that a list names. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/log.h"
#include "device/discover/sub_devices.h"

typedef struct opening {
    clt_runtime *runtime;
    const clt_device_options *options;
    clt_selection selection;
    cl_device_id *ids; /* one for each unit; parts keep a reference until their devices have one */
    cl_context *contexts; /* one for each unit if shared, otherwise NULL; a reference each */
    clt_device **devices;
} opening;

static clt_status parse(opening *o, const char *list)
{
    const clt_runtime *runtime = o->runtime;
    clt_device_info *rows = clt_calloc((size_t)runtime->count + 1, sizeof *rows);
    CLT_TRY_MEMORY(rows);
    for (int i = 0; i < runtime->count; i++)
        rows[i] = runtime->rows[i].info;
    clt_status status =
        clt_selection_parse(rows, runtime->count, runtime->remark, list, &o->selection);
    clt_free(rows);
    return status;
}

static clt_status find_ids(opening *o)
{
    const clt_selection *s = &o->selection;
    bool shared = false;
    for (int i = 0; i < s->count; i++) {
        const clt_unit *unit = &s->units[i];
        if (!unit->cores)
            o->ids[i] = o->runtime->rows[unit->row].id;
        else if (!o->ids[i])
            CLT_TRY(
                clt_split_group(&o->runtime->rows[unit->row], s, unit->row, unit->group, o->ids));
        shared |= unit->group > 0;
    }
    if (shared)
        clt_log(CLT_LOG_WARN, "--devices asks for more cores than there are: parts share cores");
    return CLT_OK;
}

/* Makes one context for each platform, with all its selected devices. */
static clt_status share_contexts(opening *o)
{
    const clt_selection *s = &o->selection;
    cl_device_id *ids = clt_calloc((size_t)s->count, sizeof *ids);
    CLT_TRY_MEMORY(ids);
    clt_status status = CLT_OK;
    for (int i = 0; i < s->count && status == CLT_OK; i++) {
        const cl_platform_id platform = o->runtime->rows[s->units[i].row].platform;
        cl_uint count = 0;
        if (o->contexts[i])
            continue;
        for (int j = i; j < s->count; j++) {
            bool seen = o->runtime->rows[s->units[j].row].platform != platform;
            for (cl_uint k = 0; k < count && !seen; k++)
                seen = ids[k] == o->ids[j];
            if (!seen)
                ids[count++] = o->ids[j];
        }
        const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                                    (cl_context_properties)platform, 0};
        cl_int code = CL_SUCCESS;
        cl_context context = clCreateContext(properties, count, ids, NULL, NULL, &code);
        if (code != CL_SUCCESS) {
            status = clt_cl_fail(code, "clCreateContext for several devices", NULL);
            break;
        }
        clt_object_created(CLT_OBJECT_CONTEXT);
        o->contexts[i] = context;
        for (int j = i + 1; j < s->count; j++) {
            if (o->runtime->rows[s->units[j].row].platform == platform &&
                clRetainContext(context) == CL_SUCCESS)
                o->contexts[j] = context;
        }
    }
    clt_free(ids);
    return status;
}

static void make_label(const clt_runtime *runtime, const clt_unit *unit, char *label, size_t bytes)
{
    const clt_device_info *info = &runtime->rows[unit->row].info;
    char name[64], part[32] = "";
    if (info->suffix[0])
        snprintf(name, sizeof name, "%s:%d", info->suffix, info->platform_index);
    else
        snprintf(name, sizeof name, "device %d", info->index);
    if (unit->cores)
        snprintf(part, sizeof part, "@%d#%d", unit->cores, unit->part);
    snprintf(label, bytes, "%s%s (%.90s)", name, part, info->name);
}

static clt_status open_unit(opening *o, int i)
{
    const clt_unit *unit = &o->selection.units[i];
    char label[192];
    make_label(o->runtime, unit, label, sizeof label);
    const clt_open_parts parts = {.row = &o->runtime->rows[unit->row],
                                  .cache_dir = o->runtime->cache_dir,
                                  .label = label,
                                  .id = o->ids[i],
                                  .context = o->contexts[i]};
    CLT_TRY(clt_device_make(&parts, o->options, &o->devices[i]));
    return unit->cores ? clt_split_check(o->devices[i]) : CLT_OK;
}

/* Releases references that only opening needed. A shared context counts as released here, because
 * its devices did not make it. */
static void drop_references(opening *o)
{
    for (int i = 0; i < o->selection.count; i++) {
        if (o->ids && o->ids[i] && o->selection.units[i].cores)
            clReleaseDevice(o->ids[i]);
        if (o->contexts && o->contexts[i]) {
            bool first = true;
            for (int j = 0; j < i; j++)
                first &= o->contexts[j] != o->contexts[i];
            if (first)
                clt_object_released(CLT_OBJECT_CONTEXT);
        }
    }
    for (int i = 0; i < o->selection.count; i++) {
        if (o->contexts && o->contexts[i])
            clReleaseContext(o->contexts[i]);
    }
    CLT_FREE(o->ids, o->contexts, o->selection.units);
}

clt_status clt_devices_open(clt_runtime *runtime, const char *list,
                            const clt_device_options *options, clt_device ***devices, int *count)
{
    opening o = {.runtime = runtime, .options = options};
    if (options)
        CLT_TRY(CLT_CHECK_STRUCT(options, clt_device_options));
    CLT_TRY(parse(&o, list));
    const size_t units = (size_t)o.selection.count;
    o.ids = clt_calloc(units, sizeof *o.ids);
    o.contexts = clt_calloc(units, sizeof *o.contexts);
    o.devices = clt_calloc(units, sizeof *o.devices);
    clt_status status = o.ids && o.contexts && o.devices ? find_ids(&o) : CLT_OUT_OF_MEMORY;
    if (status == CLT_OK && options && options->share_context)
        status = share_contexts(&o);
    for (size_t i = 0; i < units && status == CLT_OK; i++)
        status = open_unit(&o, (int)i);
    drop_references(&o);
    if (status != CLT_OK) {
        clt_devices_close(o.devices, (int)units);
        return status;
    }
    *devices = o.devices;
    *count = (int)units;
    return CLT_OK;
}

void clt_devices_close(clt_device **devices, int count)
{
    for (int i = 0; devices && i < count; i++)
        clt_device_close(devices[i]);
    clt_free(devices);
}
