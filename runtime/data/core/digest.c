#include "base/error.h"
#include "base/hash.h"
#include "data/core/digest.h"

/* Large files are sampled: hashing is fast, but reading all of a file could take minutes. */
enum { BLOCK = 1 << 16, BLOCKS = 1024 };

static uint64_t hash_bytes(const char *data, int64_t bytes, uint64_t hash)
{
    if (bytes <= (int64_t)BLOCK * BLOCKS)
        return clt_hash(data, (size_t)bytes, hash);
    for (int64_t i = 0; i < BLOCKS; i++) {
        /* The last block ends with the data. `bytes * i` could overflow, so step and rest are
         * multiplied apart. */
        const int64_t last = bytes - BLOCK, step = last / (BLOCKS - 1), rest = last % (BLOCKS - 1);
        hash = clt_hash(data + i * step + i * rest / (BLOCKS - 1), BLOCK, hash);
    }
    return hash;
}

clt_status clt_dataset_digest(clt_dataset *dataset, uint64_t *digest)
{
    uint64_t hash = 0;
    if (dataset->drawn)
        hash = hash_bytes((const char *)dataset->drawn,
                          dataset->count * (int64_t)sizeof *dataset->drawn, hash);
    *digest = 0;
    if (dataset->whole) {
        uint64_t whole;
        CLT_TRY(clt_dataset_digest(dataset->whole, &whole));
        *digest =
            clt_hash(dataset->map, (size_t)dataset->count * sizeof *dataset->map, whole ^ hash);
        return CLT_OK;
    }
    *digest = dataset->fetch ? dataset->content ^ hash : hash;
    if (dataset->kind != CLT_DATA_HOST)
        return CLT_OK;
    CLT_TRY(clt_dataset_wait(dataset));
    for (int f = 0; f < dataset->field_count; f++) {
        const clt_data_field *field = &dataset->fields[f];
        const int64_t sizes[] = {(int64_t)field->dtype, field->bytes, field->classes,
                                 dataset->count};
        hash = clt_hash(sizes, sizeof sizes, clt_hash_text(field->name, hash));
        hash = hash_bytes(field->data, field->bytes * dataset->count, hash);
    }
    *digest = hash;
    return CLT_OK;
}
