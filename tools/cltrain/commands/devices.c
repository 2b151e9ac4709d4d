/* `cltrain devices`: lists the devices of this machine. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <cltrain/device.h>
#include <jansson.h>

#include "options/commands.h"
#include "devices/make_runtime.h"
#include "text/message.h"

static const char *const kinds[] = {"CPU", "GPU", "accelerator"};

static const char *kind_of(const clt_device_info *d)
{
    return d->kind >= 0 && d->kind < 3 ? kinds[d->kind] : "?";
}

static json_t *device_json(const clt_device_info *d)
{
    return json_pack("{s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s,"
                     " s:I, s:I, s:I, s:i, s:i, s:b, s:b, s:b, s:b, s:b, s:b, s:o, s:o, s:o, s:o}",
                     "index", d->index, "platform_index", d->platform_index, "suffix",
                     json_text(d->suffix), "platform", json_text(d->platform), "platform_vendor",
                     json_text(d->platform_vendor), "name", json_text(d->name), "vendor",
                     json_text(d->vendor), "driver", json_text(d->driver), "version",
                     json_text(d->version), "kind", kind_of(d), "memory_bytes",
                     (json_int_t)d->memory_bytes, "max_alloc_bytes", (json_int_t)d->max_alloc_bytes,
                     "local_bytes", (json_int_t)d->local_bytes, "compute_units", d->compute_units,
                     "vector_width", d->vector_width, "fp16", d->fp16, "fp64", d->fp64, "subgroups",
                     d->subgroups, "host_memory", d->host_memory, "splittable", d->splittable,
                     "usable", d->usable, "skip", json_text(d->skip), "duplicate_of",
                     d->duplicate_of < 0 ? json_null() : json_integer(d->duplicate_of), "quirks",
                     json_text(d->quirks), "identity", json_text(d->identity));
}

static int print_json(const clt_runtime *runtime, const clt_device_info *infos, int count)
{
    json_t *list = json_array();
    for (int i = 0; i < count; i++) {
        json_t *one = device_json(&infos[i]);
        json_object_set_new(one, "matrix_unit", json_text(infos[i].matrix_unit));
        json_array_append_new(list, one);
    }
    json_t *all =
        json_pack("{s:o, s:o}", "devices", list, "remark", json_text(clt_runtime_remark(runtime)));
    return print_object(all, JSON_INDENT(2));
}

static void print_device(const clt_device_info *d)
{
    printf("%2d  %-10s %-4s %5d %5d %8.1f  %s\n", d->index, *d->suffix ? d->suffix : "-",
           kind_of(d), d->compute_units, d->vector_width, (double)d->memory_bytes / 1073741824.0,
           d->name);
    printf("      %s (%s), driver %s, %s\n", d->platform, d->platform_vendor, d->driver,
           d->version);
    printf("      largest buffer %.1f GiB, local memory %" PRId64 " KiB%s%s%s%s%s\n",
           (double)d->max_alloc_bytes / 1073741824.0, d->local_bytes / 1024, d->fp16 ? ", f16" : "",
           d->fp64 ? ", f64" : "", d->subgroups ? ", sub-groups" : "",
           d->host_memory ? ", shares host memory" : "", d->splittable ? ", can be split" : "");
    if (*d->matrix_unit)
        printf("      matrix unit %s\n", d->matrix_unit);
    if (*d->identity)
        printf("      identity %s", d->identity);
    if (*d->identity && d->duplicate_of >= 0)
        printf("; the same physical device as row %d", d->duplicate_of);
    if (*d->identity)
        printf("\n");
    if (*d->quirks)
        printf("      remark: %s\n", d->quirks);
    if (!d->usable)
        printf("      skipped: %s\n", d->skip);
}

static void print_table(const clt_runtime *runtime, const clt_device_info *infos, int count)
{
    if (count)
        printf("%2s  %-10s %-4s %5s %5s %8s  %s\n", "#", "platform", "kind", "units", "lanes",
               "GiB", "device");
    for (int i = 0; i < count; i++)
        print_device(&infos[i]);
    if (*clt_runtime_remark(runtime))
        printf("%s%s\n", count ? "\n" : "", clt_runtime_remark(runtime));
}

/* Opens a GPU, because only a probe can tell whether the device has a matrix unit. A device that
 * cannot be opened is shown as it was found. */
static void find_matrix_unit(clt_runtime *runtime, clt_device_info *info)
{
    clt_device **devices;
    int count;
    char row[16];
    if (info->kind != 1 || !info->usable)
        return;
    snprintf(row, sizeof row, "%d", info->index);
    if (clt_devices_open(runtime, row, NULL, &devices, &count) != CLT_OK)
        return;
    clt_device_get_info(devices[0], info);
    clt_devices_close(devices, count);
}

int run_devices(const settings *s)
{
    clt_runtime *runtime;
    clt_status status = make_runtime(s->cache_dir, &runtime);
    if (status != CLT_OK)
        return library_failure(status);
    const int count = clt_runtime_device_count(runtime);
    clt_device_info *infos = calloc((size_t)count + 1, sizeof *infos);
    int code = infos ? EXIT_DONE : failure("memory does not suffice");
    for (int i = 0; !code && i < count; i++) {
        clt_device_info_init(&infos[i]);
        status = clt_runtime_device_info(runtime, i, &infos[i]);
        if (status != CLT_OK)
            code = library_failure(status);
        else
            find_matrix_unit(runtime, &infos[i]);
    }
    if (!code && s->json)
        code = print_json(runtime, infos, count);
    else if (!code)
        print_table(runtime, infos, count);
    free(infos);
    clt_runtime_destroy(runtime);
    return code;
}
