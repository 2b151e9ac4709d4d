#include "device/program/tuning_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <cltrain/unstable.h>

#include "base/alloc.h"
#include "base/log.h"
#include "device/program/cache_file.h"
#include "device/program/kernel_source.h"
#include "device/program/source_tokens.h"

static const char folder_part[] = "tuning", shipped_part[] = "tuning/";

#ifdef CLT_TESTING
const char *clt_tuning_testing_shipped;
#else
static const char *const clt_tuning_testing_shipped;
#endif

enum { NAME_BYTES = 64 };

/* A part of a device has its own file, because the best choices depend on the number of cores. */
static void make_name(const clt_device *device, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%016" PRIx64 "-%d.json", device->identity,
             device->caps.compute_units);
}

/* Writes platform, name, driver and number of compute units of the device into its record; and
 * tells whether a record is of the device, because all of them are the same. */
static void tuning_name_device(clt_tuning_record *record, const clt_device *device)
{
    const clt_caps *caps = &device->caps;
    snprintf(record->platform, sizeof record->platform, "%s", caps->platform);
    snprintf(record->device, sizeof record->device, "%s", caps->name);
    snprintf(record->driver, sizeof record->driver, "%s", caps->driver);
    record->compute_units = caps->compute_units;
}

bool clt_tuning_of_kind(const clt_tuning_record *record, const clt_device *device)
{
    return !strcmp(record->platform, device->caps.platform) &&
           !strcmp(record->device, device->caps.name) &&
           !strcmp(record->driver, device->caps.driver);
}

bool clt_tuning_of_device(const clt_tuning_record *record, const clt_device *device)
{
    return clt_tuning_of_kind(record, device) &&
           record->compute_units == device->caps.compute_units;
}

static bool is_current(const clt_tuning_entry *e)
{
    for (int i = 0; i < CLT_TUNING_SOURCES && e->sources[i]; i++)
        if (!clt_source_known(e->sources[i]))
            return false;
    return true;
}

/* Adds the entries of `from` whose kernels are unchanged and that `to` lacks. */
static void merge(const clt_tuning_record *from, bool shipped, clt_tuning_record *to)
{
    for (int i = 0; i < from->count; i++) {
        clt_tuning_entry e = from->entries[i];
        e.shipped = shipped;
        /* Without memory for it, it is measured again. */
        if (is_current(&e) && !clt_tuning_find(to, e.op, e.key, "") &&
            clt_tuning_put(to, &e) != CLT_OK)
            return;
    }
}

static void add_shipped(const clt_device *device, const char *name, const char *text,
                        clt_tuning_record *to)
{
    clt_tuning_record record = {.count = 0};
    if (clt_tuning_from_json(text, &record) != CLT_OK)
        clt_log(CLT_LOG_WARN, "%s: %s", name, clt_error_message());
    else if (clt_tuning_of_device(&record, device))
        merge(&record, true, to);
    clt_tuning_free(&record);
}

static void load_own(const clt_device *device, clt_tuning_record *out)
{
    char name[NAME_BYTES], *text = NULL;
    size_t bytes = 0;
    clt_tuning_record read = {.count = 0};
    make_name(device, name);
    if (!device->cache_dir || !clt_cache_read(device->cache_dir, folder_part, name, &text, &bytes))
        return;
    if (clt_tuning_from_json(text, &read) != CLT_OK || !clt_tuning_of_device(&read, device))
        clt_log(CLT_LOG_INFO, "tuning record %s is damaged or stale: not used", name);
    else if (merge(&read, false, out), out->count < read.count)
        clt_log(CLT_LOG_INFO, "tuning record %s: %d of %d measurements are of other kernels", name,
                read.count - out->count, read.count);
    clt_tuning_free(&read);
    clt_free(text);
}

static void begin_record(const clt_device *device, clt_tuning_record *record)
{
    *record = (clt_tuning_record){.count = 0};
    tuning_name_device(record, device);
}

void clt_tuning_load(const clt_device *device, clt_tuning_record *out)
{
    begin_record(device, out);
    load_own(device, out);
    if (clt_tuning_testing_shipped) {
        add_shipped(device, "shipped", clt_tuning_testing_shipped, out);
        return;
    }
    for (const clt_kernel_source *s = clt_kernel_sources; s->name; s++)
        if (!strncmp(s->name, shipped_part, strlen(shipped_part)))
            add_shipped(device, s->name, s->text, out);
}

/* Adds the entries that were not shipped. `to` may have others. */
static clt_status add_own(const clt_tuning_record *record, clt_tuning_record *to)
{
    for (int i = 0; i < record->count; i++)
        if (!record->entries[i].shipped)
            CLT_TRY(clt_tuning_put(to, &record->entries[i]));
    return CLT_OK;
}

/* Makes the new content of the file: its current entries and the record's own. */
static clt_status join(const clt_device *device, const clt_tuning_record *record, char **text)
{
    clt_tuning_record all;
    begin_record(device, &all);
    load_own(device, &all);
    clt_status status = add_own(record, &all);
    CLT_NEXT(status, clt_tuning_to_json(&all, text));
    clt_tuning_free(&all);
    return status;
}

clt_status clt_tuning_save(const clt_device *device, const clt_tuning_record *record)
{
    char name[NAME_BYTES], *text = NULL;
    if (!device->cache_dir)
        return CLT_OK;
    const int lock = clt_cache_lock(device->cache_dir, folder_part);
    const clt_status status = join(device, record, &text);
    bool ok = false;
    int error = 0;
    make_name(device, name);
    if (status == CLT_OK) {
        ok = clt_cache_write(device->cache_dir, folder_part, name, text, strlen(text), "\n", 1);
        error = errno;
    }
    clt_cache_unlock(lock);
    clt_free(text);
    CLT_TRY(status);
    if (!ok)
        return clt_fail(CLT_IO, "the tuning record of %s cannot be written to %s/%s/%s: %s",
                        device->label, device->cache_dir, folder_part, name, strerror(error));
    return CLT_OK;
}

clt_status clt_device_tuning(const clt_device *device, int own, char **text)
{
    clt_tuning_record all, part;
    clt_tuning_load(device, &all);
    begin_record(device, &part);
    clt_status status = add_own(&all, &part);
    CLT_NEXT(status, clt_tuning_to_json(own ? &part : &all, text));
    if (status == CLT_OK)
        clt_alloc_give(*text);
    clt_tuning_free(&all);
    clt_tuning_free(&part);
    return status;
}
