#include "device/program/tuning_file.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cltrain/unstable.h>
#include <jansson.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/vec.h"
#include "device/program/cache_file.h"
#include "device/program/kernel_source.h"
#include "device/program/program.h"

static const char folder_part[] = "tuning", shipped_part[] = "tuning/";

#ifdef CLT_TESTING
const char *clt_tuning_testing_shipped;
#else
static const char *const clt_tuning_testing_shipped;
#endif

enum { FORMAT_VERSION = 3, NAME_BYTES = 64, MOST_ENTRIES = 100000 };

clt_status clt_tuning_put(clt_tuning_record *record, const clt_tuning_entry *entry)
{
    for (int i = 0; i < record->count; i++) {
        clt_tuning_entry *old = &record->entries[i];
        if (!strcmp(old->op, entry->op) && !strcmp(old->shape_class, entry->shape_class)) {
            *old = *entry;
            return CLT_OK;
        }
    }
    return CLT_PUSH(record->entries, record->count, record->room, *entry);
}

void clt_tuning_free(clt_tuning_record *record)
{
    clt_free(record->entries);
    record->entries = NULL;
    record->count = record->room = 0;
}

static json_t *pack(const clt_tuning_record *record)
{
    json_t *list = json_array();
    for (int i = 0; i < record->count; i++) {
        const clt_tuning_entry *e = &record->entries[i];
        char source[20], variants[20];
        snprintf(source, sizeof source, "%016" PRIx64, e->source);
        snprintf(variants, sizeof variants, "%016" PRIx64, e->variants);
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:s, s:s, s:f, s:f, s:s, s:s, s:s, s:s, s:i}", "op", e->op,
                            "shape", e->shape_class, "variant", e->variant, "options", e->options,
                            "seconds", e->seconds, "plain_seconds", e->plain_seconds, "rejected",
                            e->rejected, "files", e->files, "source", source, "variants", variants,
                            "tried", e->tried));
    }
    const bool whole = json_array_size(list) == (size_t)record->count;
    json_t *root = whole ? json_pack("{s:i, s:s, s:s, s:o}", "version", FORMAT_VERSION, "device",
                                     record->device, "driver", record->driver, "entries", list)
                         : NULL;
    if (!root)
        json_decref(list);
    return root;
}

/* Converts JSON to text. Takes ownership of `root`. */
static clt_status dump(json_t *root, const char *device, char **text)
{
    char *dumped = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    json_decref(root);
    char *copy = dumped ? clt_strdup(dumped) : NULL;
    free(dumped);
    if (!copy)
        return clt_fail(CLT_OUT_OF_MEMORY,
                        "tuning record of %s: host memory does not suffice, or "
                        "a name is not UTF-8",
                        device);
    *text = copy;
    return CLT_OK;
}

clt_status clt_tuning_to_json(const clt_tuning_record *record, char **text)
{
    return dump(pack(record), record->device, text);
}

clt_status clt_tunings_to_json(const clt_tuning_record *records, int count, char **text)
{
    json_t *list = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(list, pack(&records[i]));
    if (json_array_size(list) != (size_t)count) {
        json_decref(list);
        list = NULL;
    }
    return dump(list ? json_pack("{s:o}", "kernels", list) : NULL, count ? records[0].device : "",
                text);
}

/* Reads a text; false if it is missing or too long for its field. */
static bool take_text(const json_t *object, const char *key, char *out, size_t room)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!text || strlen(text) >= room)
        return false;
    memcpy(out, text, strlen(text) + 1);
    return true;
}

static bool take_hash(const json_t *object, const char *key, uint64_t *out)
{
    char text[20], *end;
    if (!take_text(object, key, text, sizeof text))
        return false;
    *out = strtoull(text, &end, 16);
    return end != text && !*end;
}

static bool take_entry(const json_t *object, clt_tuning_entry *e)
{
    *e = (clt_tuning_entry){.seconds = json_number_value(json_object_get(object, "seconds")),
                            .plain_seconds =
                                json_number_value(json_object_get(object, "plain_seconds"))};
    const json_int_t tried = json_integer_value(json_object_get(object, "tried"));
    e->tried = tried > 0 && tried < INT_MAX ? (int)tried : 0;
    return take_hash(object, "source", &e->source) && take_hash(object, "variants", &e->variants) &&
           take_text(object, "files", e->files, sizeof e->files) && isfinite(e->plain_seconds) &&
           take_text(object, "op", e->op, sizeof e->op) &&
           take_text(object, "shape", e->shape_class, sizeof e->shape_class) &&
           take_text(object, "variant", e->variant, sizeof e->variant) &&
           take_text(object, "options", e->options, sizeof e->options) &&
           take_text(object, "rejected", e->rejected, sizeof e->rejected) && isfinite(e->seconds) &&
           e->seconds >= 0;
}

static clt_status unpack(const json_t *root, clt_tuning_record *out)
{
    const json_t *list = json_object_get(root, "entries");
    clt_tuning_record record = {.count = 0};
    bool ok = json_is_array(list) && json_array_size(list) <= MOST_ENTRIES &&
              json_integer_value(json_object_get(root, "version")) == FORMAT_VERSION &&
              take_text(root, "device", record.device, sizeof record.device) &&
              take_text(root, "driver", record.driver, sizeof record.driver);
    clt_status status = CLT_OK;
    for (size_t i = 0; ok && status == CLT_OK && i < json_array_size(list); i++) {
        clt_tuning_entry entry;
        ok = take_entry(json_array_get(list, i), &entry);
        if (ok)
            status = clt_tuning_put(&record, &entry);
    }
    if (status == CLT_OK && !ok)
        status = clt_fail(CLT_FORMAT, "not a tuning record of version %d", FORMAT_VERSION);
    if (status != CLT_OK) {
        clt_tuning_free(&record);
        return status;
    }
    *out = record;
    return CLT_OK;
}

clt_status clt_tuning_from_json(const char *text, clt_tuning_record *out)
{
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const clt_status status = unpack(root, out);
    json_decref(root);
    return status;
}

clt_status clt_tunings_find(const char *text, const clt_device *device, clt_tuning_record *out)
{
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const json_t *list = json_object_get(root, "kernels");
    clt_status status =
        json_is_array(list)
            ? clt_fail(CLT_NOT_FOUND, "no choices of kernels for %s", device->caps.name)
            : clt_fail(CLT_FORMAT, "not a list of tuning records");
    for (size_t i = 0; status == CLT_NOT_FOUND && i < json_array_size(list); i++) {
        clt_tuning_record record;
        status = unpack(json_array_get(list, i), &record);
        if (status != CLT_OK)
            break;
        if (!strcmp(record.device, device->caps.name) &&
            !strcmp(record.driver, device->caps.driver)) {
            *out = record;
            break;
        }
        clt_tuning_free(&record);
        status = CLT_NOT_FOUND;
    }
    json_decref(root);
    return status;
}

/* A part of a device has its own file, because the best choices depend on the number of cores. */
static void make_name(const clt_device *device, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "%016" PRIx64 "-%d.json", device->identity,
             device->caps.compute_units);
}

uint64_t clt_tuning_source(const char *files)
{
    uint64_t hash = 0;
    while (*files) {
        char name[192];
        const size_t length = strcspn(files, ",");
        clt_str text = {0};
        snprintf(name, sizeof name, "%.*s", (int)length, files);
        /* A file was removed from the library. */
        if (!clt_source_find(name) || clt_source_resolve(name, NULL, &text) != CLT_OK) {
            clt_str_free(&text);
            return 0;
        }
        hash = clt_hash_text(clt_str_text(&text), hash);
        clt_str_free(&text);
        files += length + (files[length] == ',');
    }
    return hash;
}

static bool of_device(const clt_tuning_record *record, const clt_device *device)
{
    return !strcmp(record->device, device->caps.name) &&
           !strcmp(record->driver, device->caps.driver);
}

/* Adds the entries of `from` whose kernels are unchanged and that `to` lacks. */
static void merge(const clt_tuning_record *from, bool shipped, clt_tuning_record *to)
{
    for (int i = 0; i < from->count; i++) {
        clt_tuning_entry e = from->entries[i];
        e.shipped = shipped;
        /* Without memory the remaining entries are lost and measured again. */
        if (e.source == clt_tuning_source(e.files) && !clt_tuning_find(to, e.op, e.shape_class) &&
            clt_tuning_put(to, &e) != CLT_OK)
            return;
    }
}

/* Adds a shipped record if it is for this device and its number of compute units. */
static void add_shipped(const clt_device *device, const char *name, const char *text,
                        clt_tuning_record *to)
{
    clt_tuning_record record = {.count = 0};
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const json_t *units = json_object_get(root, "compute_units");
    if (unpack(root, &record) != CLT_OK || !json_is_integer(units))
        clt_log(CLT_LOG_WARN, "%s: not a tuning record of version %d", name, FORMAT_VERSION);
    else if (of_device(&record, device) && json_integer_value(units) == device->caps.compute_units)
        merge(&record, true, to);
    json_decref(root);
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
    if (clt_tuning_from_json(text, &read) != CLT_OK || !of_device(&read, device))
        clt_log(CLT_LOG_INFO, "tuning record %s is damaged or stale: not used", name);
    else
        merge(&read, false, out);
    if (out->count < read.count)
        clt_log(CLT_LOG_INFO, "tuning record %s: %d of %d measurements are of other kernels", name,
                read.count - out->count, read.count);
    clt_tuning_free(&read);
    clt_free(text);
}

static void begin_record(const clt_device *device, clt_tuning_record *record)
{
    *record = (clt_tuning_record){.count = 0};
    snprintf(record->device, sizeof record->device, "%s", device->caps.name);
    snprintf(record->driver, sizeof record->driver, "%s", device->caps.driver);
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
    if (status == CLT_OK)
        status = clt_tuning_to_json(&all, text);
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
    json_t *root = status == CLT_OK ? pack(own ? &part : &all) : NULL;
    clt_tuning_free(&all);
    clt_tuning_free(&part);
    CLT_TRY(status);
    if (root)
        json_object_set_new(root, "compute_units", json_integer(device->caps.compute_units));
    return dump(root, device->label, text);
}
