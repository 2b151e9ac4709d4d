#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/str.h"
#include "checkpoint/folder.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor.h"

/* The data begin at a cache line, so that vector loads work on a mapped file. */
enum { DATA_ALIGN = 64 };

void clt_tensors_desc_init(clt_tensors_desc *desc)
{
    *desc = (clt_tensors_desc){.struct_size = (int64_t)sizeof *desc};
}

static clt_status add_metadata(json_t *header, const clt_tensors_desc *desc)
{
    if (!desc->metadata_pairs)
        return CLT_OK;
    json_t *metadata = json_object();
    if (!metadata || json_object_set_new(header, "__metadata__", metadata) != 0)
        return clt_fail(CLT_OUT_OF_MEMORY, "out of host memory for the metadata");
    for (int64_t i = 0; i < desc->metadata_pairs; i++) {
        const char *key = desc->metadata[2 * i], *value = desc->metadata[2 * i + 1];
        clt_short_text label;
        if (!key || !value || json_object_set_new(metadata, key, json_string(value)) != 0)
            return clt_fail(CLT_INVALID_ARGUMENT, "metadata %s: key or value is not UTF-8",
                            key ? clt_label_of(&label, key) : "NULL");
    }
    return CLT_OK;
}

static clt_status add_tensor(json_t *header, const clt_tensor *tensor, int64_t *offset)
{
    clt_short_text label, type;
    if (!tensor->name || strcmp(tensor->name, "__metadata__") == 0)
        return clt_fail(CLT_INVALID_ARGUMENT, "a tensor is called %s",
                        tensor->name ? tensor->name : "NULL");
    clt_label_of(&label, tensor->name);
    int64_t bytes = clt_tensor_bytes(tensor), end;
    if (bytes < 0 || __builtin_add_overflow(*offset, bytes, &end))
        return clt_fail(CLT_INVALID_ARGUMENT, "tensor %s: %s is not a type and shape of a tensor",
                        label.text, clt_label_shape(&type, tensor));
    if (json_object_get(header, tensor->name))
        return clt_fail(CLT_INVALID_ARGUMENT, "two tensors are called %s", label.text);
    json_t *shape = json_array();
    for (int i = 0; i < tensor->rank; i++)
        json_array_append_new(shape, json_integer(tensor->dims[i]));
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", clt_file_dtype_name(tensor->dtype),
                              "shape", shape, "data_offsets", (json_int_t)*offset, (json_int_t)end);
    /* Apart from memory, only the name's encoding can fail here. */
    if (!entry || json_object_set_new(header, tensor->name, entry) != 0)
        return clt_fail(CLT_INVALID_ARGUMENT, "tensor %s: the name is not UTF-8", label.text);
    *offset = end;
    return CLT_OK;
}

/* Sorts tensors by element size, larger ones first, otherwise in the order of the list. So every
 * tensor is aligned without gaps, which the format forbids. */
static const clt_tensor **file_order(const clt_tensors_desc *desc)
{
    const clt_tensor **order = clt_calloc((size_t)desc->count, sizeof *order);
    int64_t used = 0;
    for (int size = 8; order && size >= 0; size = size > 1 ? size / 2 : size - 1)
        for (int64_t i = 0; i < desc->count; i++)
            if (clt_file_dtype_size(desc->tensors[i].dtype) == size)
                order[used++] = &desc->tensors[i];
    return order;
}

static clt_status make_header(const clt_tensors_desc *desc, const clt_tensor **order, char **out)
{
    json_t *header = json_object();
    int64_t offset = 0;
    clt_status status = header ? add_metadata(header, desc)
                               : clt_fail(CLT_OUT_OF_MEMORY, "out of host memory for the header");
    for (int64_t i = 0; status == CLT_OK && i < desc->count; i++)
        status = add_tensor(header, order[i], &offset);
    char *text = status == CLT_OK ? json_dumps(header, JSON_COMPACT) : NULL;
    json_decref(header);
    CLT_TRY(status);
    if (!text)
        return clt_fail(CLT_OUT_OF_MEMORY, "out of host memory for the header");
    *out = text;
    return CLT_OK;
}

static clt_status write_header(clt_outfile *file, const char *text)
{
    static const char spaces[DATA_ALIGN + 1] =
        "                                                                ";
    size_t length = strlen(text);
    size_t padding = (DATA_ALIGN - (8 + length) % DATA_ALIGN) % DATA_ALIGN;
    if (length + padding > CLT_SAFETENSORS_MAX_HEADER)
        return clt_fail(CLT_INVALID_ARGUMENT, "a header of %zu bytes; readers accept %d", length,
                        CLT_SAFETENSORS_MAX_HEADER);
    unsigned char prefix[8];
    for (int i = 0; i < 8; i++)
        prefix[i] = (unsigned char)((uint64_t)(length + padding) >> (8 * i));
    CLT_TRY(clt_outfile_write(file, prefix, 8));
    CLT_TRY(clt_outfile_write(file, text, (int64_t)length));
    return clt_outfile_write(file, spaces, (int64_t)padding);
}

static clt_status write_data(clt_outfile *file, const clt_tensors_desc *desc,
                             const clt_tensor *tensor)
{
    int64_t bytes = clt_tensor_bytes(tensor);
    const void *data = tensor->data;
    clt_short_text label;
    if (!bytes)
        return CLT_OK;
    if (!data && desc->fetch) {
        clt_status status = desc->fetch(desc->fetch_user, tensor, &data);
        if (status != CLT_OK)
            return clt_fail_prefix(status, "tensor %s: ", clt_label_of(&label, tensor->name));
    }
    if (!data)
        return clt_fail(CLT_INVALID_ARGUMENT, "tensor %s has no data",
                        clt_label_of(&label, tensor->name));
    return clt_outfile_write(file, data, bytes);
}

clt_status clt_tensors_write(clt_outfile *file, const clt_tensors_desc *desc)
{
    CLT_TRY(CLT_CHECK_STRUCT(desc, clt_tensors_desc));
    if (desc->count < 0 || desc->count > INT_MAX || desc->metadata_pairs < 0)
        return clt_fail(CLT_INVALID_ARGUMENT, "%lld tensors, %lld metadata pairs",
                        (long long)desc->count, (long long)desc->metadata_pairs);
    const clt_tensor **order = file_order(desc);
    if (!order && desc->count)
        return CLT_OUT_OF_MEMORY;
    char *header = NULL;
    clt_status status = make_header(desc, order, &header);
    CLT_NEXT(status, write_header(file, header));
    for (int64_t i = 0; status == CLT_OK && i < desc->count; i++)
        status = write_data(file, desc, order[i]);
    free(header); /* allocated by jansson */
    clt_free(order);
    return status;
}

static clt_status write_beside(const char *path, const char *beside, const clt_tensors_desc *desc)
{
    clt_outfile *file;
    CLT_TRY(clt_outfile_create(AT_FDCWD, beside, &file));
    clt_status status = clt_tensors_write(file, desc);
    if (status == CLT_OK)
        status = clt_outfile_finish(file, NULL, NULL);
    else
        clt_outfile_abandon(file);
    if (status == CLT_OK && rename(beside, path) != 0)
        status = clt_fail(CLT_IO, "cannot rename %s: %s", beside, strerror(errno));
    if (status != CLT_OK)
        unlink(beside);
    return status;
}

clt_status clt_tensors_save(const char *path, const clt_tensors_desc *desc)
{
    CLT_TRY(clt_path_given(path, "a safetensors file"));
    const char *slash = strrchr(path, '/');
    clt_str folder = {0}, beside = {0};
    if (slash)
        clt_str_add(&folder, "%.*s", (int)(slash - path + 1), path);
    clt_str_add(&beside, "%s.%s.tmp", clt_str_text(&folder), slash ? slash + 1 : path);
    clt_status status = folder.failed || beside.failed
                            ? CLT_OUT_OF_MEMORY
                            : write_beside(path, clt_str_text(&beside), desc);
    CLT_NEXT(status, clt_sync_folder(slash ? clt_str_text(&folder) : "."));
    clt_str_free(&folder);
    clt_str_free(&beside);
    return status == CLT_OK ? CLT_OK : clt_fail_prefix(status, "%s: ", path);
}
