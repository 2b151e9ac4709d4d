/* Reads the headers of safetensors files. Every number of a header is checked before it is used. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/user_file.h"
#include "checkpoint/folder.h"
#include "checkpoint/safetensors_file.h"
#include "checkpoint/tensor.h"

/* A tensor and its place, while the header is read. */
typedef struct placed {
    clt_tensor tensor;
    int64_t begin, end;
} placed;

static clt_status open_file(clt_tensors *t)
{
    CLT_TRY(clt_file_open(t->path, &t->fd, &t->size));
    if (t->size < 8)
        return clt_fail(CLT_FORMAT,
                        "%s: it has %lld bytes and a safetensors file at least 8: it is truncated "
                        "or something else",
                        t->path, (long long)t->size);
    return CLT_OK;
}

/* Whether the file was written by PyTorch's torch.save: a zip archive whose first file is
 * FOLDER/data.pkl, or pickles before version 1.6. Such files are refused, because reading a pickle
 * executes it. */
static bool is_pytorch(const unsigned char *m, size_t bytes)
{
    enum { NAME_LENGTH = 26, NAME = 30 };
    static const char first[] = "data.pkl";
    if (bytes > NAME && !memcmp(m, "PK\3\4", 4)) {
        const size_t length = (size_t)m[NAME_LENGTH] | (size_t)m[NAME_LENGTH + 1] << 8;
        return length >= sizeof first - 1 && length <= bytes - NAME &&
               !memcmp(m + NAME + length - (sizeof first - 1), first, sizeof first - 1);
    }
    return m[0] == 0x80 && m[1] >= 2 && m[1] <= 5;
}

static clt_status refuse_pytorch(const clt_tensors *t)
{
    /* The message shows the path in a shell's quotes. Other paths are replaced by FILE.pth. */
    bool plain = true;
    for (const char *c = t->path; *c; c++)
        plain = plain && (unsigned char)*c >= ' ' && *c != '\'' && *c != 127;
    const char *path = plain ? t->path : "FILE.pth", *dot = strrchr(path, '.');
    const int stem = dot && !strchr(dot, '/') ? (int)(dot - path) : (int)strlen(path);
    return clt_fail(
        CLT_FORMAT,
        "%s: it is a file of PyTorch (torch.save), and safetensors files are read; this "
        "converts it: python3 -c \"import sys, torch, safetensors.torch as s; "
        "d = torch.load(sys.argv[1], map_location='cpu', weights_only=True); "
        "d = d.get('state_dict', d); s.save_file({k: v.clone().contiguous() for k, v "
        "in d.items() if torch.is_tensor(v)}, sys.argv[2])\" '%s' '%.*s.safetensors'",
        t->path, path, stem, path);
}

static clt_status check_header_length(const clt_tensors *t, uint64_t length)
{
    if (length > CLT_SAFETENSORS_MAX_HEADER)
        return clt_fail(
            CLT_FORMAT,
            "%s: its header would have %llu bytes and %d are the most: it is damaged or "
            "not a safetensors file",
            t->path, (unsigned long long)length, CLT_SAFETENSORS_MAX_HEADER);
    if ((int64_t)length > t->size - 8)
        return clt_fail(CLT_FORMAT,
                        "%s: its header would have %llu bytes but the file ends after %lld: it is "
                        "truncated or not a safetensors file",
                        t->path, (unsigned long long)length, (long long)t->size);
    return CLT_OK;
}

static clt_status parse_header(clt_tensors *t)
{
    unsigned char first[512]; /* long enough for the first name in a zip archive */
    const size_t n = t->size < (int64_t)sizeof first ? (size_t)t->size : sizeof first;
    uint64_t length = 0;
    CLT_TRY(clt_file_read_at(t->fd, t->path, 0, first, (int64_t)n));
    if (is_pytorch(first, n))
        return refuse_pytorch(t);
    for (int i = 7; i >= 0; i--)
        length = length << 8 | first[i];
    CLT_TRY(check_header_length(t, length));
    t->head_bytes = 8 + (int64_t)length;
    t->head = clt_alloc((size_t)t->head_bytes);
    if (!t->head)
        return clt_fail_prefix(CLT_OUT_OF_MEMORY, "%s: ", t->path);
    memcpy(t->head, first, 8);
    CLT_TRY(clt_file_read_at(t->fd, t->path, 8, t->head + 8, (int64_t)length));
    const char *text = (const char *)t->head + 8;
    if (length == 0 || text[0] != '{')
        return clt_fail(
            CLT_FORMAT,
            "%s: its header does not begin with '{': it is damaged or not a safetensors "
            "file",
            t->path);
    json_error_t error;
    t->header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (!t->header) {
        clt_short_text label;
        return clt_fail(CLT_FORMAT, "%s: its header is not valid JSON: %s (byte %d)", t->path,
                        clt_label_of(&label, error.text), error.position);
    }
    return CLT_OK;
}

static clt_status check_metadata(clt_tensors *t, json_t *metadata)
{
    clt_short_text label;
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return clt_fail(CLT_FORMAT, "its __metadata__ is not an object");
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return clt_fail(CLT_FORMAT, "its __metadata__ has a value that is not a string: %s",
                            clt_label_of(&label, key));
    }
    t->metadata = metadata;
    return CLT_OK;
}

static bool is_count(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 0;
}

/* Parses a tensor's entry. Sets everything but `data`. */
static clt_status parse_tensor(const char *name, json_t *entry, int64_t data_bytes, placed *out)
{
    clt_short_text label;
    const char *shown = clt_label_of(&label, name);
    const json_t *shape = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!dtype || !json_is_array(shape) || !json_is_array(offsets))
        return clt_fail(CLT_FORMAT, "tensor %s: dtype, shape or data_offsets is missing", shown);
    clt_tensor made = {.name = name};
    if (!clt_file_dtype_parse(dtype, &made.dtype)) {
        clt_short_text unknown;
        return clt_fail(CLT_FORMAT, "tensor %s: unknown dtype %s", shown,
                        clt_label_of(&unknown, dtype));
    }
    if (json_array_size(shape) > CLT_MAX_RANK)
        return clt_fail(CLT_FORMAT, "tensor %s: %zu dimensions; %d are the most", shown,
                        json_array_size(shape), CLT_MAX_RANK);
    made.rank = (int)json_array_size(shape);
    for (int i = 0; i < made.rank; i++) {
        const json_t *dim = json_array_get(shape, (size_t)i);
        if (!is_count(dim))
            return clt_fail(CLT_FORMAT, "tensor %s: dimension %d is not a whole number from 0",
                            shown, i);
        made.dims[i] = json_integer_value(dim);
    }
    int64_t bytes = clt_tensor_bytes(&made);
    clt_short_text type;
    clt_label_shape(&type, &made);
    if (bytes < 0)
        return clt_fail(CLT_FORMAT, "tensor %s: %s is too large", shown, type.text);
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !is_count(begin) || !is_count(end))
        return clt_fail(CLT_FORMAT, "tensor %s: data_offsets are not two whole numbers from 0",
                        shown);
    placed found = {made, json_integer_value(begin), json_integer_value(end)};
    if (found.begin > found.end || found.end > data_bytes)
        return clt_fail(CLT_FORMAT,
                        "tensor %s: bytes %lld to %lld of a data part of %lld: the file is "
                        "truncated or damaged",
                        shown, (long long)found.begin, (long long)found.end, (long long)data_bytes);
    if (found.end - found.begin != bytes)
        return clt_fail(CLT_FORMAT, "tensor %s: %s has %lld bytes but its place %lld", shown,
                        type.text, (long long)bytes, (long long)(found.end - found.begin));
    *out = found;
    return CLT_OK;
}

static int compare_places(const void *a, const void *b)
{
    const placed *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return strcmp(x->tensor.name, y->tensor.name);
}

/* Checks that tensors cover the data exactly, as the format demands. */
static clt_status check_coverage(const placed *places, int count, int64_t data_bytes)
{
    int64_t covered = 0;
    for (int i = 0; i < count; i++) {
        clt_short_text name, before;
        clt_label_of(&name, places[i].tensor.name);
        if (places[i].begin < covered)
            return clt_fail(CLT_FORMAT, "tensors %s and %s overlap",
                            clt_label_of(&before, places[i - 1].tensor.name), name.text);
        if (places[i].begin > covered)
            return clt_fail(CLT_FORMAT, "%lld bytes before tensor %s belong to no tensor",
                            (long long)(places[i].begin - covered), name.text);
        covered = places[i].end;
    }
    if (covered != data_bytes)
        return clt_fail(CLT_FORMAT, "%lld bytes at its end belong to no tensor",
                        (long long)(data_bytes - covered));
    return CLT_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const clt_tensor *const *)a)->name, (*(const clt_tensor *const *)b)->name);
}

static clt_status read_entries(clt_tensors *t, placed *places, int64_t data_bytes, int *count)
{
    const char *name;
    json_t *entry;
    *count = 0;
    json_object_foreach(t->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            CLT_TRY(check_metadata(t, entry));
            continue;
        }
        CLT_TRY(parse_tensor(name, entry, data_bytes, &places[*count]));
        (*count)++;
    }
    if (*count)
        qsort(places, (size_t)*count, sizeof *places, compare_places);
    return check_coverage(places, *count, data_bytes);
}

static clt_status index_tensors(clt_tensors *t)
{
    const int64_t data_bytes = t->size - t->head_bytes;
    size_t entries = json_object_size(t->header);
    if (entries == 0 && data_bytes == 0)
        return clt_tensors_read_data(t);
    if (entries == 0 || entries > INT_MAX)
        return clt_fail(CLT_FORMAT, "%s: its header names %zu tensors for %lld bytes", t->path,
                        entries, (long long)data_bytes);
    placed *places = clt_calloc(entries, sizeof *places);
    CLT_TRY_MEMORY(places);
    int count;
    clt_status status = read_entries(t, places, data_bytes, &count);
    if (status == CLT_OK && count) {
        t->items = clt_calloc((size_t)count, sizeof *t->items);
        t->by_name = clt_calloc((size_t)count, sizeof *t->by_name);
        t->offsets = clt_calloc((size_t)count, sizeof *t->offsets);
        if (!t->items || !t->by_name || !t->offsets)
            status = CLT_OUT_OF_MEMORY;
    }
    if (status != CLT_OK)
        status = clt_fail_prefix(status, "%s: ", t->path);
    for (int i = 0; status == CLT_OK && i < count; i++) {
        t->items[i] = places[i].tensor;
        t->offsets[i] = t->head_bytes + places[i].begin;
        t->by_name[i] = &t->items[i];
    }
    clt_free(places);
    CLT_TRY(status);
    t->count = count;
    if (count)
        qsort(t->by_name, (size_t)count, sizeof *t->by_name, compare_names);
    return clt_tensors_read_data(t);
}

static clt_status open_tensors(const char *path, bool apart, clt_tensors **out)
{
    CLT_TRY(clt_path_given(path, "a safetensors file"));
    clt_tensors *t = CLT_NEW(clt_tensors);
    CLT_TRY_MEMORY(t);
    t->fd = -1;
    t->apart = apart;
    t->path = clt_strdup(path);
    clt_status status = t->path ? open_file(t) : CLT_OUT_OF_MEMORY;
    CLT_NEXT(status, parse_header(t));
    CLT_NEXT(status, index_tensors(t));
    if (status != CLT_OK) {
        clt_tensors_close(t);
        return status;
    }
    if (!apart)
        clt_tensors_end_reading(t);
    *out = t;
    return CLT_OK;
}

clt_status clt_tensors_open(const char *path, clt_tensors **out)
{
    return open_tensors(path, false, out);
}

clt_status clt_tensors_open_apart(const char *path, clt_tensors **out)
{
    return open_tensors(path, true, out);
}

void clt_tensors_close(clt_tensors *t)
{
    if (!t)
        return;
    clt_tensors_end_reading(t);
    json_decref(t->header);
    CLT_FREE(t->items, t->by_name, t->offsets, t->hashes, t->copies, t->bytes, t->path, t);
}

int clt_tensors_count(const clt_tensors *t)
{
    return t->count;
}

const clt_tensor *clt_tensors_at(const clt_tensors *t, int index)
{
    return index >= 0 && index < t->count ? &t->items[index] : NULL;
}

const clt_tensor *clt_tensors_lookup(const clt_tensors *t, const char *name)
{
    clt_tensor wanted = {.name = name};
    const clt_tensor *key = &wanted;
    if (!t->count)
        return NULL;
    const clt_tensor **found =
        bsearch(&key, t->by_name, (size_t)t->count, sizeof *t->by_name, compare_names);
    return found ? *found : NULL;
}

const char *clt_tensors_path(const clt_tensors *t)
{
    return t->path;
}

clt_status clt_tensors_find(const clt_tensors *t, const char *name, const clt_tensor **out)
{
    const clt_tensor *found = clt_tensors_lookup(t, name);
    clt_short_text label;
    if (!found) {
        const char *nearest = NULL;
        const char **names = clt_calloc((size_t)t->count, sizeof *names);
        if (names) {
            for (int i = 0; i < t->count; i++)
                names[i] = t->items[i].name;
            nearest = clt_nearest(name, names, t->count);
            clt_free(names);
        }
        clt_short_text hint;
        return clt_fail(CLT_NOT_FOUND, "%s: no tensor %s%s%s", t->path, clt_label_of(&label, name),
                        nearest ? "; the nearest is " : "",
                        nearest ? clt_label_of(&hint, nearest) : "");
    }
    if (clt_file_dtype_opaque(found->dtype))
        return clt_fail(CLT_UNSUPPORTED,
                        "%s: tensor %s is of type %s, which is not supported: store it as F64, "
                        "F32, F16, BF16, I64, I32 or U8",
                        t->path, clt_label_of(&label, name), clt_file_dtype_name(found->dtype));
    *out = found;
    return CLT_OK;
}

const char *clt_tensors_metadata(const clt_tensors *t, const char *key)
{
    return json_string_value(json_object_get(t->metadata, key));
}
