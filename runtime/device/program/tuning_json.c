/* Tuning records as JSON. Older files have other names, and version 3 has texts as keys. */
#include "device/program/tuning_file.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/vec.h"

enum { FORMAT_VERSION = 5, OLD_NAMES = 4, OLD_KEYS = 3, MOST_ENTRIES = 100000 };

/* A name in files before version 5, and its present name. */
typedef struct new_name {
    const char *old, *now;
} new_name;
static const new_name operators[] = {{"map", "fused_elementwise"}, {NULL, NULL}};
static const new_name variants[] = {
    {"lanes", "batch_blocked"}, {"lanes_winograd", "batch_blocked_winograd"}, {NULL, NULL}};

clt_status clt_tuning_put(clt_tuning_record *record, const clt_tuning_entry *entry)
{
    for (int i = 0; i < record->count; i++) {
        clt_tuning_entry *old = &record->entries[i];
        if (!strcmp(old->op, entry->op) && old->key == entry->key &&
            (entry->key || !strcmp(old->shape_class, entry->shape_class))) {
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

static json_t *pack_sources(const clt_tuning_entry *e)
{
    json_t *list = json_array();
    for (int i = 0; i < CLT_TUNING_SOURCES && e->sources[i]; i++)
        json_array_append_new(list, json_sprintf("%016" PRIx64, e->sources[i]));
    return list;
}

static json_t *pack(const clt_tuning_record *record)
{
    json_t *list = json_array();
    for (int i = 0; i < record->count; i++) {
        const clt_tuning_entry *e = &record->entries[i];
        json_array_append_new(
            list,
            json_pack("{s:s, s:o, s:s, s:s, s:s, s:f, s:f, s:s, s:o, s:o, s:i}", "op", e->op, "key",
                      json_sprintf("%016" PRIx64, e->key), "shape", e->shape_class, "variant",
                      e->variant, "options", e->options, "seconds", e->seconds, "plain_seconds",
                      e->plain_seconds, "rejected", e->rejected, "sources", pack_sources(e),
                      "variants", json_sprintf("%016" PRIx64, e->variants), "tried", e->tried));
    }
    const bool whole = json_array_size(list) == (size_t)record->count;
    json_t *root =
        whole ? json_pack("{s:i, s:s, s:s, s:s, s:i, s:o}", "version", FORMAT_VERSION, "platform",
                          record->platform, "device", record->device, "driver", record->driver,
                          "compute_units", record->compute_units, "entries", list)
              : NULL;
    if (!root)
        json_decref(list);
    return root;
}

/* Takes `root`. */
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

/* Copies a text; returns false if it is missing or does not fit. */
static bool take_text(const json_t *object, const char *key, char *out, size_t room)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!text || strlen(text) >= room)
        return false;
    memcpy(out, text, strlen(text) + 1);
    return true;
}

static bool parse_hash(const json_t *value, uint64_t *out)
{
    const char *text = json_string_value(value);
    char *end;
    if (!text || strlen(text) > 16)
        return false;
    *out = strtoull(text, &end, 16);
    return end != text && !*end;
}

/* Replaces a former name. Returns whether it was one. */
static bool renew(const new_name *names, char *name, size_t room)
{
    while (names->old && strcmp(names->old, name) != 0)
        names++;
    if (names->old)
        snprintf(name, room, "%s", names->now);
    return names->old != NULL;
}

/* Gives an entry of an older file the present names. The operator's name is part of the key. If the
 * operator has a new name, only the text of the shape finds the entry. */
static void renew_names(clt_tuning_entry *e)
{
    renew(variants, e->variant, sizeof e->variant);
    if (renew(operators, e->op, sizeof e->op))
        e->key = 0;
}

/* Reads the fields that a plan needs. Of version 3 nothing else is read. */
static bool take_choice(const json_t *object, clt_tuning_entry *e)
{
    return take_text(object, "op", e->op, sizeof e->op) &&
           take_text(object, "shape", e->shape_class, sizeof e->shape_class) &&
           take_text(object, "variant", e->variant, sizeof e->variant) &&
           take_text(object, "options", e->options, sizeof e->options);
}

static bool take_entry(const json_t *object, clt_tuning_entry *e)
{
    const json_int_t tried = json_integer_value(json_object_get(object, "tried"));
    const json_t *sources = json_object_get(object, "sources");
    bool ok = json_is_array(sources) && json_array_size(sources) <= CLT_TUNING_SOURCES;
    e->seconds = json_number_value(json_object_get(object, "seconds"));
    e->plain_seconds = json_number_value(json_object_get(object, "plain_seconds"));
    e->tried = tried > 0 && tried < INT_MAX ? (int)tried : 0;
    for (size_t i = 0; ok && i < json_array_size(sources); i++)
        ok = parse_hash(json_array_get(sources, i), &e->sources[i]);
    return ok && take_choice(object, e) &&
           take_text(object, "rejected", e->rejected, sizeof e->rejected) &&
           parse_hash(json_object_get(object, "key"), &e->key) && e->key &&
           parse_hash(json_object_get(object, "variants"), &e->variants) &&
           isfinite(e->plain_seconds) && isfinite(e->seconds) && e->seconds >= 0;
}

/* Reads one record. If it is `frozen` in a checkpoint, version 3 is accepted too; it names neither
 * platform nor compute units. */
static clt_status unpack(const json_t *root, bool frozen, clt_tuning_record *out)
{
    const json_t *list = json_object_get(root, "entries");
    const json_t *units = json_object_get(root, "compute_units");
    const json_int_t version = json_integer_value(json_object_get(root, "version"));
    const bool old_keys = frozen && version == OLD_KEYS;
    clt_tuning_record record = {.count = 0};
    bool ok = json_is_array(list) && json_array_size(list) <= MOST_ENTRIES &&
              take_text(root, "device", record.device, sizeof record.device) &&
              take_text(root, "driver", record.driver, sizeof record.driver);
    if (!old_keys) {
        ok = ok && (version == FORMAT_VERSION || version == OLD_NAMES) && json_is_integer(units) &&
             take_text(root, "platform", record.platform, sizeof record.platform);
        record.compute_units = (int)json_integer_value(units);
    }
    clt_status status = CLT_OK;
    for (size_t i = 0; ok && status == CLT_OK && i < json_array_size(list); i++) {
        const json_t *object = json_array_get(list, i);
        clt_tuning_entry entry = {.key = 0};
        ok = old_keys ? take_choice(object, &entry) : take_entry(object, &entry);
        if (ok && version < FORMAT_VERSION)
            renew_names(&entry);
        record.texts |= !entry.key;
        /* In records of measurements, an entry without a key is left out and measured again. */
        if (ok && (entry.key || frozen))
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
    const clt_status status = unpack(root, false, out);
    json_decref(root);
    return status;
}

/* Finds a record of the device, or with `kind` of a device of its kind. */
static clt_status find(const char *text, const clt_device *device, bool kind,
                       clt_tuning_record *out)
{
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const json_t *list = json_object_get(root, "kernels");
    clt_status status =
        json_is_array(list)
            ? clt_fail(CLT_NOT_FOUND, "no choices of kernels for %s", device->caps.name)
            : clt_fail(CLT_FORMAT, "not a list of tuning records");
    for (size_t i = 0; status == CLT_NOT_FOUND && i < json_array_size(list); i++) {
        clt_tuning_record record;
        status = unpack(json_array_get(list, i), true, &record);
        if (status != CLT_OK)
            break;
        /* Version 3 names neither platform nor compute units: take those of the device. */
        if (!record.compute_units && !*record.platform) {
            memcpy(record.platform, device->caps.platform, sizeof record.platform);
            record.compute_units = device->caps.compute_units;
        }
        if (kind ? clt_tuning_of_kind(&record, device) : clt_tuning_of_device(&record, device)) {
            *out = record;
            break;
        }
        clt_tuning_free(&record);
        status = CLT_NOT_FOUND;
    }
    json_decref(root);
    return status;
}

clt_status clt_tunings_find(const char *text, const clt_device *device, clt_tuning_record *out)
{
    CLT_TRY(find(text, device, false, out));
    /* Frozen choices hold even if the operator has other variants now. */
    for (int k = 0; k < out->count; k++)
        out->entries[k].variants = 0;
    return CLT_OK;
}

clt_status clt_tunings_have_kind(const char *text, const clt_device *device, bool *have)
{
    clt_tuning_record record;
    const clt_status status = find(text, device, true, &record);
    *have = status == CLT_OK;
    if (*have)
        clt_tuning_free(&record);
    return status == CLT_NOT_FOUND ? CLT_OK : status;
}
