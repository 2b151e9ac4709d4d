/* Reads the data of safetensors files: all at once, or one tensor at a time. */
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/user_file.h"
#include "checkpoint/safetensors_file.h"
#include "checkpoint/tensor.h"

/* Data that stay in the file are hashed in pieces of this size. */
enum { PIECE_BYTES = 1 << 20 };

static bool aligned(const clt_tensor *tensor)
{
    return (uintptr_t)tensor->data % (uintptr_t)clt_file_dtype_size(tensor->dtype) == 0;
}

/* Copies unaligned tensors, which other writers may produce. Reading floats there would be
 * undefined behaviour. */
static clt_status copy_unaligned(clt_tensors *t)
{
    size_t total = 0;
    for (int i = 0; i < t->count; i++)
        if (!aligned(&t->items[i]))
            total += ((size_t)clt_tensor_bytes(&t->items[i]) + 7) / 8 * 8;
    if (!total)
        return CLT_OK;
    t->copies = clt_alloc(total);
    CLT_TRY_MEMORY(t->copies);
    size_t used = 0;
    for (int i = 0; i < t->count; i++) {
        if (aligned(&t->items[i]))
            continue;
        size_t bytes = (size_t)clt_tensor_bytes(&t->items[i]);
        t->items[i].data = memcpy(t->copies + used, t->items[i].data, bytes);
        used += (bytes + 7) / 8 * 8;
    }
    return CLT_OK;
}

/* The file may be changed or shortened while the tensors are in use, so its data are copied. The
 * header is copied too: only that copy was checked. */
clt_status clt_tensors_read_data(clt_tensors *t)
{
    if (t->apart)
        return CLT_OK;
    t->bytes = clt_alloc_pages((size_t)t->size);
    if (!t->bytes)
        return clt_fail_prefix(CLT_OUT_OF_MEMORY, "%s: its %lld bytes: ", t->path,
                               (long long)t->size);
    memcpy(t->bytes, t->head, (size_t)t->head_bytes);
    CLT_TRY(clt_file_read_at(t->fd, t->path, t->head_bytes, t->bytes + t->head_bytes,
                             t->size - t->head_bytes));
    for (int i = 0; i < t->count; i++)
        t->items[i].data = t->bytes + t->offsets[i];
    return copy_unaligned(t);
}

void clt_tensors_end_reading(clt_tensors *t)
{
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
    clt_free(t->head);
    t->head = NULL;
}

/* Hashes a tensor's data, alone and as a part of the file. */
static clt_status hash_tensor(const clt_tensors *t, int item, XXH3_state_t *file, XXH3_state_t *one,
                              char *piece)
{
    const int64_t bytes = clt_tensor_bytes(&t->items[item]);
    XXH3_64bits_reset(one);
    for (int64_t at = 0; at < bytes; at += PIECE_BYTES) {
        const int64_t count = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        CLT_TRY(clt_file_read_at(t->fd, t->path, t->offsets[item] + at, piece, count));
        XXH3_64bits_update(file, piece, (size_t)count);
        XXH3_64bits_update(one, piece, (size_t)count);
    }
    t->hashes[item] = XXH3_64bits_digest(one);
    return CLT_OK;
}

/* The items cover the data in their order. */
static clt_status hash_file(clt_tensors *t, uint64_t *hash)
{
    XXH3_state_t *file = XXH3_createState(), *one = XXH3_createState();
    char *piece = clt_alloc(PIECE_BYTES);
    t->hashes = clt_calloc((size_t)t->count + 1, sizeof *t->hashes);
    clt_status status = file && one && piece && t->hashes ? CLT_OK : CLT_OUT_OF_MEMORY;
    if (status == CLT_OK) {
        XXH3_64bits_reset(file);
        XXH3_64bits_update(file, t->head, (size_t)t->head_bytes);
    }
    for (int i = 0; status == CLT_OK && i < t->count; i++)
        status = hash_tensor(t, i, file, one, piece);
    if (status == CLT_OK)
        *hash = XXH3_64bits_digest(file);
    XXH3_freeState(file);
    XXH3_freeState(one);
    clt_free(piece);
    return status;
}

clt_status clt_tensors_hash(clt_tensors *t, int64_t *bytes, uint64_t *hash)
{
    *bytes = t->size;
    if (t->apart)
        return hash_file(t, hash);
    *hash = clt_hash(t->bytes, (size_t)t->size, 0);
    return CLT_OK;
}

static clt_status read_tensor(const clt_tensors *t, const clt_tensor *tensor, void *data)
{
    const int64_t item = tensor - t->items, bytes = clt_tensor_bytes(tensor);
    clt_short_text label;
    CLT_TRY(clt_file_read_at(t->fd, t->path, t->offsets[item], data, bytes));
    if (t->hashes && clt_hash(data, (size_t)bytes, 0) != t->hashes[item])
        return clt_fail(CLT_IO, "%s: tensor %s was changed while the file was read", t->path,
                        clt_label_of(&label, tensor->name));
    return CLT_OK;
}

clt_status clt_tensors_load(const clt_tensors *t, const clt_tensor *tensor, const void **data,
                            void **owned)
{
    *owned = NULL;
    *data = tensor->data;
    if (!t->apart)
        return CLT_OK;
    void *read = clt_alloc((size_t)clt_tensor_bytes(tensor) + 1);
    CLT_TRY_MEMORY(read);
    const clt_status status = read_tensor(t, tensor, read);
    if (status != CLT_OK) {
        clt_free(read);
        return status;
    }
    *data = *owned = read;
    return CLT_OK;
}
