#include "checkpoint/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "checkpoint/tensor.h"

#define FORMAT_NAME "cltrain checkpoint"

/* Raise it when an older reader could misunderstand the file. New sections need no new version. */
enum { VERSION = 1 };

const char *const clt_part_files[CLT_PARTS] = {"model.safetensors", "optimizer.safetensors",
                                               "average.safetensors"};

static const struct {
    const char *key;
    size_t offset;
} numbers[] = {
    {"step", offsetof(clt_run_state, step)},   {"epoch", offsetof(clt_run_state, epoch)},
    {"batch", offsetof(clt_run_state, batch)}, {"sample", offsetof(clt_run_state, sample)},
    {"seed", offsetof(clt_run_state, seed)},
};

enum { NUMBERS = (int)(sizeof numbers / sizeof *numbers), HASH_TEXT = 17 };

static void hash_text(uint64_t hash, char *text)
{
    snprintf(text, HASH_TEXT, "%016llx", (unsigned long long)hash);
}

/* Hashes the values. Spacing and the order of keys do not matter. */
static clt_status hash_values(const json_t *root, char *text)
{
    char *dump = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    if (!dump)
        return clt_fail(CLT_OUT_OF_MEMORY, "out of host memory for %s", CLT_STATE_FILE);
    hash_text(clt_hash_text(dump, 0), text);
    free(dump);
    return CLT_OK;
}

static clt_status encode_section(json_t *sections, const clt_section *section)
{
    clt_short_text label;
    if (!section->name || !section->text)
        return clt_fail(CLT_INVALID_ARGUMENT, "a section has no name or no text");
    clt_label_of(&label, section->name);
    if (json_object_get(sections, section->name))
        return clt_fail(CLT_INVALID_ARGUMENT, "two sections are called %s", label.text);
    json_t *value;
    if (section->is_json) {
        json_error_t error;
        value = json_loads(section->text, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
        if (!value) {
            clt_short_text reason;
            return clt_fail(CLT_INVALID_ARGUMENT, "section %s is not JSON: %s", label.text,
                            clt_label_of(&reason, error.text));
        }
    } else {
        value = json_string(section->text);
    }
    if (!value || json_object_set_new(sections, section->name, value) != 0)
        return clt_fail(CLT_INVALID_ARGUMENT, "section %s: name or text is not UTF-8", label.text);
    return CLT_OK;
}

static clt_status encode_into(json_t *root, const clt_checkpoint_desc *desc, const clt_part *parts)
{
    char hash[HASH_TEXT];
    json_t *files = json_object(), *sections = json_object();
    int failed = json_object_set_new(root, "format", json_string(FORMAT_NAME)) |
                 json_object_set_new(root, "version", json_integer(VERSION));
    for (int i = 0; i < NUMBERS; i++) {
        int64_t value;
        memcpy(&value, (const char *)&desc->run + numbers[i].offset, sizeof value);
        failed |= json_object_set_new(root, numbers[i].key, json_integer(value));
    }
    failed |= json_object_set_new(root, "files", files);
    failed |= json_object_set_new(root, "sections", sections);
    for (int i = 0; !failed && i < CLT_PARTS; i++) {
        if (!parts[i].there)
            continue;
        hash_text(parts[i].hash, hash);
        failed |= json_object_set_new(
            files, clt_part_files[i],
            json_pack("{s:I, s:s}", "bytes", (json_int_t)parts[i].bytes, "xxh3_64", hash));
    }
    if (failed)
        return clt_fail(CLT_OUT_OF_MEMORY, "out of host memory for %s", CLT_STATE_FILE);
    for (int64_t i = 0; i < desc->section_count; i++)
        CLT_TRY(encode_section(sections, &desc->sections[i]));
    CLT_TRY(hash_values(root, hash));
    if (json_object_set_new(root, "xxh3_64", json_string(hash)) != 0)
        return clt_fail(CLT_OUT_OF_MEMORY, "out of host memory for %s", CLT_STATE_FILE);
    return CLT_OK;
}

clt_status clt_state_encode(const clt_checkpoint_desc *desc, const clt_part *parts, char **text)
{
    json_t *root = json_object();
    if (!root)
        return clt_fail(CLT_OUT_OF_MEMORY, "out of host memory for %s", CLT_STATE_FILE);
    clt_status status = encode_into(root, desc, parts);
    char *made = status == CLT_OK ? json_dumps(root, JSON_INDENT(2)) : NULL;
    json_decref(root);
    CLT_TRY(status);
    if (!made)
        return clt_fail(CLT_OUT_OF_MEMORY, "out of host memory for %s", CLT_STATE_FILE);
    *text = made;
    return CLT_OK;
}

/* Checks format, version and the hash of all values. Removes the hash from the object. */
static clt_status check_identity(json_t *root)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    const json_t *version = json_object_get(root, "version");
    if (!format || strcmp(format, FORMAT_NAME) != 0 || !json_is_integer(version))
        return clt_fail(CLT_FORMAT, "it is not the state of a checkpoint");
    if (json_integer_value(version) != VERSION)
        return clt_fail(CLT_UNSUPPORTED,
                        "it has version %lld and this program reads %d: use the version of cltrain "
                        "that wrote it",
                        (long long)json_integer_value(version), VERSION);
    const char *hash = json_string_value(json_object_get(root, "xxh3_64"));
    char wanted[HASH_TEXT], found[HASH_TEXT];
    if (!hash)
        return clt_fail(CLT_FORMAT, "it has no hash");
    snprintf(wanted, sizeof wanted, "%s", hash);
    json_object_del(root, "xxh3_64");
    CLT_TRY(hash_values(root, found));
    if (strcmp(wanted, found) != 0)
        return clt_fail(CLT_FORMAT, "its values do not match its hash: it was changed");
    return CLT_OK;
}

static clt_status decode_part(const json_t *files, const char *name, clt_part *out)
{
    const json_t *entry = json_object_get(files, name);
    out->there = true;
    const json_t *bytes = json_object_get(entry, "bytes");
    const char *hash = json_string_value(json_object_get(entry, "xxh3_64"));
    if (!json_is_integer(bytes) || !hash || strlen(hash) != 16 ||
        strspn(hash, "0123456789abcdef") != 16)
        return clt_fail(CLT_FORMAT, "it does not say what %s must be", name);
    out->bytes = json_integer_value(bytes);
    out->hash = strtoull(hash, NULL, 16);
    return CLT_OK;
}

static clt_status decode_sections(clt_state *state, json_t *sections)
{
    const char *name;
    json_t *value;
    size_t count = json_object_size(sections);
    if (!json_is_object(sections))
        return clt_fail(CLT_FORMAT, "it has no sections");
    if (!count)
        return CLT_OK;
    state->sections = clt_calloc(count, sizeof *state->sections);
    CLT_TRY_MEMORY(state->sections);
    json_object_foreach(sections, name, value)
    {
        clt_section made = {.name = name, .text = json_string_value(value)};
        if (!made.text) {
            made.is_json = 1;
            made.text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
            if (!made.text)
                return clt_fail(CLT_OUT_OF_MEMORY, "out of host memory for a section");
        }
        state->sections[state->section_count++] = made;
    }
    return CLT_OK;
}

static clt_status decode_root(clt_state *state)
{
    CLT_TRY(check_identity(state->root));
    for (int i = 0; i < NUMBERS; i++) {
        const json_t *value = json_object_get(state->root, numbers[i].key);
        int64_t number = json_integer_value(value);
        if (!json_is_integer(value) || (number < 0 && strcmp(numbers[i].key, "seed") != 0))
            return clt_fail(CLT_FORMAT, "its %s is missing or out of range", numbers[i].key);
        memcpy((char *)&state->run + numbers[i].offset, &number, sizeof number);
    }
    const json_t *files = json_object_get(state->root, "files");
    for (int i = 0; i < CLT_PARTS; i++)
        if (i < CLT_PART_AVERAGE || json_object_get(files, clt_part_files[i]))
            CLT_TRY(decode_part(files, clt_part_files[i], &state->parts[i]));
    return decode_sections(state, json_object_get(state->root, "sections"));
}

clt_status clt_state_decode(const char *text, size_t bytes, clt_state *out)
{
    clt_state state = {0};
    json_error_t error;
    clt_status status;
    state.root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!state.root) {
        clt_short_text label;
        status = clt_fail(CLT_FORMAT, "it is not valid JSON: %s (line %d)",
                          clt_label_of(&label, error.text), error.line);
    } else {
        status = decode_root(&state);
    }
    if (status != CLT_OK)
        clt_state_free(&state);
    *out = state;
    return status;
}

void clt_state_free(clt_state *state)
{
    for (int i = 0; i < state->section_count; i++)
        if (state->sections[i].is_json)
            free((char *)(uintptr_t)state->sections[i].text); /* allocated by jansson */
    clt_free(state->sections);
    json_decref(state->root);
    *state = (clt_state){0};
}
