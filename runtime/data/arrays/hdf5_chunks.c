/*
 * Decodes the chunks of HDF5 arrays. libhdf5 1.10 copies a whole chunk from its filters' result,
 * even if a damaged file made the result shorter, and so reads beyond its memory. Therefore libhdf5
 * gives only a chunk's stored bytes here, and a chunk of another size is refused.
 */
#ifdef CLT_HAVE_HDF5

#include "data/arrays/hdf5_chunks.h"

#include <string.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "data/arrays/hdf5_file.h"

#if !H5_VERSION_GE(1, 10, 5)
#error "HDF5 1.10.5 or newer is needed (H5Dget_num_chunks); -DCLT_HDF5=OFF builds without"
#endif

enum { MOST_FILTERS = 3, CHECKSUM_BYTES = 4, FILL_BYTES = 16 };

typedef struct reading {
    const clt_array_file *file;
    const clt_stored_array *array;
    hid_t object;
    bool swapped;
    int n_filters;
    H5Z_filter_t filters[MOST_FILTERS];
    unsigned unit[MOST_FILTERS]; /* shuffle filter: bytes of an element */
    hsize_t chunk[CLT_MAX_RANK];
    int64_t bytes;         /* of a chunk */
    unsigned char *stored; /* as in the file */
    int64_t stored_room;
    unsigned char *a, *b; /* results of filters; each has room for a chunk and its checksum */
} reading;

static clt_status damaged(const reading *r, const char *why)
{
    return clt_fail(CLT_FORMAT, "%s: array '%s': damaged: %s", r->file->path, r->array->name, why);
}

/* --- filters ---------------------------------------------------------------------------------- */

/* Fletcher's checksum as HDF5 computes it, over big-endian words of 16 bits. */
static uint32_t fletcher32(const unsigned char *p, int64_t bytes)
{
    enum { WORDS = 360 }; /* the most that the sums hold without overflow */
    uint32_t one = 0, two = 0;
    for (int64_t left = bytes / 2; left > 0;) {
        const int64_t part = left < WORDS ? left : WORDS;
        for (int64_t i = 0; i < part; i++, p += 2) {
            one += (uint32_t)(p[0] << 8 | p[1]);
            two += one;
        }
        left -= part;
        one = (one & 0xffff) + (one >> 16);
        two = (two & 0xffff) + (two >> 16);
    }
    if (bytes % 2) {
        one += (uint32_t)(*p << 8);
        two += one;
        one = (one & 0xffff) + (one >> 16);
        two = (two & 0xffff) + (two >> 16);
    }
    one = (one & 0xffff) + (one >> 16);
    two = (two & 0xffff) + (two >> 16);
    return two << 16 | one;
}

/* Old versions of HDF5 stored the checksum with the bytes of each half exchanged. */
static clt_status check_sum(const reading *r, const unsigned char *data, int64_t *bytes)
{
    if (*bytes < CHECKSUM_BYTES)
        return damaged(r, "a chunk is shorter than its checksum");
    *bytes -= CHECKSUM_BYTES;
    const unsigned char *p = data + *bytes;
    const uint32_t stored =
        (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    const uint32_t sum = fletcher32(data, *bytes);
    const uint32_t old = (sum & 0x00ff00ff) << 8 | (sum & 0xff00ff00) >> 8;
    return stored == sum || stored == old ? CLT_OK : damaged(r, "the checksum of a chunk is wrong");
}

static void unshuffle(const unsigned char *from, int64_t bytes, int64_t unit, unsigned char *to)
{
    const int64_t count = bytes / unit;
    for (int64_t k = 0; k < unit; k++)
        for (int64_t i = 0; i < count; i++)
            to[i * unit + k] = from[k * count + i];
    memcpy(to + count * unit, from + count * unit, (size_t)(bytes - count * unit));
}

/* Undoes the filters of a chunk's stored bytes. *out points to its elements. A bit of `mask` says
 * that a filter was not used for this chunk. */
static clt_status decode(const reading *r, int64_t bytes, uint32_t mask, unsigned char **out)
{
    unsigned char *data = r->stored;
    for (int i = r->n_filters; i-- > 0;) {
        unsigned char *to = data == r->a ? r->b : r->a;
        if (mask >> i & 1)
            continue;
        if (r->filters[i] == H5Z_FILTER_FLETCHER32) {
            CLT_TRY(check_sum(r, data, &bytes));
        } else if (r->filters[i] == H5Z_FILTER_DEFLATE) {
            uLongf got = (uLongf)(r->bytes + CHECKSUM_BYTES);
            if (uncompress(to, &got, data, (uLong)bytes) != Z_OK)
                return damaged(r, "the deflated data of a chunk are corrupt");
            data = to;
            bytes = (int64_t)got;
        } else {
            if (bytes > r->bytes + CHECKSUM_BYTES)
                return damaged(r, "a chunk holds more than its elements");
            unshuffle(data, bytes, r->unit[i], to);
            data = to;
        }
    }
    if (bytes != r->bytes)
        return damaged(r, "a chunk has another size than its elements need");
    *out = data;
    return CLT_OK;
}

static clt_status find_filters(reading *r, hid_t plist)
{
    r->n_filters = H5Pget_nfilters(plist);
    if (r->n_filters < 0 || r->n_filters > MOST_FILTERS)
        return damaged(r, "it passes through more than 3 filters");
    for (int i = 0; i < r->n_filters; i++) {
        unsigned flags, values[4] = {0};
        size_t n = 4;
        r->filters[i] = H5Pget_filter2(plist, (unsigned)i, &flags, &n, values, 0, NULL, NULL);
        r->unit[i] = n && values[0] ? values[0] : 1;
        if (r->filters[i] == H5Z_FILTER_SHUFFLE && r->unit[i] != (unsigned)r->array->bytes)
            return damaged(r, "it is shuffled by another size than that of its elements");
    }
    return CLT_OK;
}

/* --- chunks ----------------------------------------------------------------------------------- */

static void swap_elements(unsigned char *data, int64_t bytes, int unit)
{
    for (int64_t at = 0; at < bytes; at += unit)
        for (int i = 0; i < unit / 2; i++) {
            const unsigned char kept = data[at + i];
            data[at + i] = data[at + unit - 1 - i];
            data[at + unit - 1 - i] = kept;
        }
}

/* Copies the part of a chunk that lies in the array. */
static void place(const reading *r, const hsize_t *offset, const unsigned char *from, char *all)
{
    const clt_stored_array *a = r->array;
    const int last = a->rank - 1;
    const int64_t left = a->shape[last] - (int64_t)offset[last], width = (int64_t)r->chunk[last];
    const size_t row = (size_t)((left < width ? left : width) * a->bytes);
    const int64_t rows = r->bytes / (width * a->bytes);
    for (int64_t k = 0; k < rows; k++) {
        int64_t at = 0, rest = k, stride = a->shape[last];
        bool inside = true;
        for (int i = last - 1; i >= 0; i--) {
            const int64_t index = (int64_t)offset[i] + rest % (int64_t)r->chunk[i];
            rest /= (int64_t)r->chunk[i];
            inside = inside && index < a->shape[i];
            at += index * stride;
            stride *= a->shape[i];
        }
        if (inside)
            memcpy(all + (at + (int64_t)offset[last]) * a->bytes, from + k * width * a->bytes, row);
    }
}

/* Reads the chunk at `offset`, if it was written, and counts it in *found. */
static clt_status read_chunk(reading *r, const hsize_t *offset, char *all, hsize_t *found)
{
    uint32_t mask = 0;
    hsize_t size = 0;
    /* Not H5Dget_chunk_info_by_coord, which searches through all chunks. */
    if (H5Dget_chunk_storage_size(r->object, offset, &size) < 0 || !size)
        return CLT_OK; /* never written, or damaged: then *found will be too small */
    /* Deflate and the checksum may make a chunk a little larger. */
    if (size > (hsize_t)(r->bytes + r->bytes / 8 + 1024))
        return damaged(r, "a chunk has an impossible size");
    if ((int64_t)size > r->stored_room) {
        clt_free(r->stored);
        r->stored_room = 0;
        r->stored = clt_alloc((size_t)size);
        CLT_TRY_MEMORY(r->stored);
        r->stored_room = (int64_t)size;
    }
    unsigned char *data = NULL;
    clt_hdf5_expect_bytes((int64_t)size);
    const herr_t code = H5Dread_chunk(r->object, H5P_DEFAULT, offset, &mask, r->stored);
    clt_hdf5_expect_bytes(0);
    if (code < 0)
        return damaged(r, "a chunk cannot be read");
    CLT_TRY(decode(r, (int64_t)size, mask, &data));
    if (r->swapped)
        swap_elements(data, r->bytes, r->array->bytes);
    place(r, offset, data, all);
    ++*found;
    return CLT_OK;
}

/* Counts the chunks that the file stores. Refuses an array of many chunks of which hardly any are
 * stored, because looking for all of them would take hours. */
static clt_status count_stored(const reading *r, hsize_t *stored)
{
    enum { SMALL = 1 << 20, MOST_MISSING = 64 };
    hsize_t chunks = 1;
    const hid_t space = H5Dget_space(r->object);
    const herr_t code = H5Dget_num_chunks(r->object, space, stored);
    H5Sclose(space);
    if (code < 0)
        return damaged(r, "its chunks cannot be counted");
    for (int i = 0; i < r->array->rank; i++)
        chunks *= ((hsize_t)r->array->shape[i] + r->chunk[i] - 1) / r->chunk[i];
    if (!*stored || chunks <= SMALL || chunks / MOST_MISSING <= *stored)
        return CLT_OK;
    return clt_fail(CLT_FORMAT,
                    "%s: array '%s': the file stores %llu of its %llu chunks: most of it was never "
                    "written",
                    r->file->path, r->array->name, (unsigned long long)*stored,
                    (unsigned long long)chunks);
}

/* Sets all elements to the fill value, which chunks hold that were never written. */
static clt_status fill(const reading *r, hid_t plist, hid_t type, char *all)
{
    char value[FILL_BYTES] = {0};
    H5D_fill_value_t defined;
    const int64_t bytes = clt_array_bytes(r->array);
    if (H5Pfill_value_defined(plist, &defined) < 0 ||
        (defined != H5D_FILL_VALUE_UNDEFINED && H5Pget_fill_value(plist, type, value) < 0))
        return damaged(r, "its fill value cannot be read");
    for (int64_t at = 0; at < bytes; at += r->array->bytes)
        memcpy(all + at, value, (size_t)r->array->bytes);
    return CLT_OK;
}

static clt_status read_all(reading *r, hid_t plist, hid_t type, char *all)
{
    const clt_stored_array *array = r->array;
    hsize_t offset[CLT_MAX_RANK] = {0}, stored = 0, found = 0;
    CLT_TRY(find_filters(r, plist));
    r->bytes = array->bytes;
    if (H5Pget_chunk(plist, CLT_MAX_RANK, r->chunk) != array->rank)
        return damaged(r, "its chunks have other axes than the array");
    for (int i = 0; i < array->rank; i++)
        r->bytes *= (int64_t)r->chunk[i];
    r->a = clt_alloc((size_t)r->bytes + CHECKSUM_BYTES);
    r->b = clt_alloc((size_t)r->bytes + CHECKSUM_BYTES);
    CLT_TRY_MEMORY(r->a && r->b);
    CLT_TRY(count_stored(r, &stored));
    CLT_TRY(fill(r, plist, type, all));
    for (int axis = 0; axis >= 0 && found < stored;) {
        CLT_TRY(read_chunk(r, offset, all, &found));
        for (axis = array->rank - 1; axis >= 0; axis--) {
            offset[axis] += r->chunk[axis];
            if (offset[axis] < (hsize_t)array->shape[axis])
                break;
            offset[axis] = 0;
        }
    }
    return found == stored ? CLT_OK : damaged(r, "a chunk cannot be found");
}

clt_status clt_hdf5_read_chunks(const clt_array_file *file, const clt_stored_array *array,
                                hid_t object, hid_t plist, hid_t type, bool swapped, void *all)
{
    reading r = {.file = file, .array = array, .object = object, .swapped = swapped};
    const clt_status status = read_all(&r, plist, type, all);
    CLT_FREE(r.stored, r.a, r.b);
    return status;
}

#endif
