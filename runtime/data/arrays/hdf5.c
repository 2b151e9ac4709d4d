/*
 * Reads HDF5 files: arrays of the root group, or of its groups "train" and "test". Arrays with
 * elements outside the file are refused. Unusual filters and numbers of unusual bits are refused
 * too: hardly any file has them, and libhdf5 would run rarely tested code for them.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "data/arrays/arrays.h"

#ifdef CLT_HAVE_HDF5

#include "data/arrays/hdf5_chunks.h"
#include "data/arrays/hdf5_file.h"

/* The handle of a clt_array_file: a group of the file. */
typedef struct hdf5_source {
    const clt_hdf5_file *file;
    hid_t group;
} hdf5_source;

/* Whether the type has the bits of one of C's numbers, in any byte order. */
static bool is_usual(hid_t type)
{
    const hid_t usual[] = {H5T_IEEE_F32LE, H5T_IEEE_F32BE, H5T_IEEE_F64LE, H5T_IEEE_F64BE,
                           H5T_STD_I32LE,  H5T_STD_I32BE,  H5T_STD_I64LE,  H5T_STD_I64BE,
                           H5T_STD_U8LE,   H5T_STD_U8BE};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (H5Tequal(type, usual[i]) > 0)
            return true;
    return false;
}

/* Finds numpy's letter for the type. `dtype` gets the type's name for messages. */
static void read_type(hid_t type, clt_stored_array *a, char dtype[24])
{
    static const char *const names[H5T_NCLASSES] = {
        [H5T_TIME] = "time",     [H5T_STRING] = "string",        [H5T_BITFIELD] = "bit field",
        [H5T_OPAQUE] = "opaque", [H5T_COMPOUND] = "compound",    [H5T_REFERENCE] = "reference",
        [H5T_ENUM] = "enum",     [H5T_VLEN] = "variable length", [H5T_ARRAY] = "array"};
    const H5T_class_t class = H5Tget_class(type);
    const size_t bytes = H5Tget_size(type);
    a->bytes = bytes <= 64 ? (int)bytes : 0;
    a->type = class == H5T_FLOAT                  ? 'f'
              : class != H5T_INTEGER              ? 'x'
              : H5Tget_sign(type) == H5T_SGN_NONE ? 'u'
                                                  : 'i';
    if (a->type == 'x')
        snprintf(dtype, 24, "%s",
                 class >= 0 && class < H5T_NCLASSES && names[class] ? names[class] : "unknown");
    else
        snprintf(dtype, 24, "%c%d%s", a->type, a->bytes, is_usual(type) ? "" : ", unusual bits");
    if (a->type != 'x' && !is_usual(type))
        a->type = 'x';
}

/* --- where the elements are ------------------------------------------------------------------- */

/* An array that is checked before libhdf5 reads its elements. */
typedef struct checked {
    const clt_array_file *file;
    const clt_stored_array *array;
    hid_t object, plist;
} checked;

static clt_status damaged(const checked *c, const char *why)
{
    return clt_fail(CLT_FORMAT, "%s: array '%s': damaged: %s", c->file->path, c->array->name, why);
}

/* Accepts shuffle, deflate and Fletcher's checksum, which all versions of libhdf5 have. Other
 * filters would be loaded from plug-ins, or are hardly used. */
static clt_status check_filters(const checked *c)
{
    enum { MOST_FILTERS = 3 };
    const int count = H5Pget_nfilters(c->plist);
    if (count < 0 || count > MOST_FILTERS)
        return damaged(c, "it passes through more than 3 filters");
    for (int i = 0, deflated = 0; i < count; i++) {
        unsigned flags, values[1];
        size_t n = 1;
        char name[32] = "";
        const H5Z_filter_t id =
            H5Pget_filter2(c->plist, (unsigned)i, &flags, &n, values, sizeof name, name, NULL);
        if (id == H5Z_FILTER_DEFLATE && deflated++)
            return damaged(c, "it is deflated twice");
        if (id != H5Z_FILTER_DEFLATE && id != H5Z_FILTER_SHUFFLE && id != H5Z_FILTER_FLETCHER32)
            return clt_fail(CLT_UNSUPPORTED,
                            "%s: array '%s': filter %d %s; there are gzip, shuffle and fletcher32: "
                            "h5repack -f GZIP=4 IN OUT makes a file that is read",
                            c->file->path, c->array->name, (int)id, name);
    }
    return CLT_OK;
}

/* Limits the size of a chunk, because chunks are read whole. */
static clt_status check_chunks(const checked *c)
{
    enum { SMALL = 1 << 26 };
    hsize_t dims[H5S_MAX_RANK];
    const int rank = H5Pget_chunk(c->plist, H5S_MAX_RANK, dims);
    int64_t bytes = c->array->bytes;
    if (rank != c->array->rank)
        return damaged(c, "its chunks have other axes than the array");
    for (int i = 0; i < rank; i++)
        if (!dims[i] || dims[i] > UINT32_MAX ||
            __builtin_mul_overflow(bytes, (int64_t)dims[i], &bytes))
            return damaged(c, "its chunks have no possible size");
    if (bytes > SMALL && bytes > clt_array_bytes(c->array))
        return damaged(c, "a chunk is larger than the array");
    return check_filters(c);
}

/* Limits the memory that a small file can ask for: chunks that were never written are not in the
 * file, so its arrays may claim any size. Small arrays are accepted, and so are sizes within
 * deflate's best ratio. */
static clt_status check_size(const checked *c)
{
    enum { SMALL = 1 << 30, RATIO = 1032 };
    const hsize_t stored = H5Dget_storage_size(c->object);
    const int64_t bytes = clt_array_bytes(c->array);
    if (bytes <= SMALL || stored >= (hsize_t)bytes / RATIO)
        return CLT_OK;
    return clt_fail(CLT_FORMAT,
                    "%s: array '%s': its shape and type need %lld bytes, of which the file stores "
                    "%llu: most of it was never written",
                    c->file->path, c->array->name, (long long)bytes, (unsigned long long)stored);
}

/* Checks an array that is stored in one piece, or was never written. */
static clt_status check_piece(const checked *c)
{
    const hdf5_source *source = c->file->handle;
    const haddr_t at = H5Dget_offset(c->object);
    const hsize_t stored = H5Dget_storage_size(c->object);
    const hsize_t all = (hsize_t)source->file->bytes, bytes = (hsize_t)clt_array_bytes(c->array);
    if (at == HADDR_UNDEF)
        return check_size(c);
    if (stored < bytes || at > all || stored > all - at)
        return damaged(c, "its elements lie outside the file");
    return CLT_OK;
}

static clt_status check_elsewhere(const checked *c, const char *what)
{
    return clt_fail(CLT_UNSUPPORTED,
                    "%s: array '%s': its elements are %s: h5repack -l CONTI IN OUT makes a file "
                    "that holds them",
                    c->file->path, c->array->name, what);
}

static clt_status check_layout(const checked *c)
{
    switch (H5Pget_layout(c->plist)) {
    case H5D_COMPACT:
        return H5Dget_storage_size(c->object) == (hsize_t)clt_array_bytes(c->array)
                   ? CLT_OK
                   : damaged(c, "its size is not that of its elements");
    case H5D_CONTIGUOUS:
        if (H5Pget_external_count(c->plist) != 0)
            return check_elsewhere(c, "in other files");
        return check_piece(c);
    case H5D_CHUNKED:
        CLT_TRY(check_chunks(c));
        return check_size(c);
    case H5D_VIRTUAL:
        return check_elsewhere(c, "those of other arrays (a virtual dataset)");
    default:
        return damaged(c, "no layout of its elements");
    }
}

static clt_status check_stored(const clt_array_file *file, const clt_stored_array *a, hid_t object)
{
    checked c = {.file = file, .array = a, .object = object, .plist = H5Dget_create_plist(object)};
    const clt_status status =
        c.plist < 0 ? damaged(&c, "no layout of its elements") : check_layout(&c);
    if (c.plist >= 0)
        H5Pclose(c.plist);
    return status;
}

/* --- arrays ----------------------------------------------------------------------------------- */

static clt_status add_array(clt_array_file *file, hid_t object, const char *name)
{
    clt_stored_array a = {0};
    char dtype[24];
    hsize_t dims[H5S_MAX_RANK];
    if (strlen(name) >= sizeof a.name)
        return clt_fail(CLT_UNSUPPORTED,
                        "%s: the name of an array has %zu bytes: at most %zu are read", file->path,
                        strlen(name), sizeof a.name - 1);
    strcpy(a.name, name);
    const hid_t type = H5Dget_type(object), space = H5Dget_space(object);
    const int rank = H5Sget_simple_extent_ndims(space);
    clt_status status = CLT_OK;
    if (rank < 0 || rank > CLT_MAX_RANK || H5Sget_simple_extent_dims(space, dims, NULL) < 0)
        status = clt_fail(CLT_FORMAT, "%s: array '%s': %d axes, but there are %d at most",
                          file->path, name, rank, CLT_MAX_RANK);
    a.rank = rank;
    for (int i = 0; status == CLT_OK && i < rank; i++)
        a.shape[i] = (int64_t)dims[i];
    read_type(type, &a, dtype);
    H5Sclose(space);
    H5Tclose(type);
    CLT_TRY(status);
    CLT_TRY(clt_arrays_add(file, &a, dtype));
    return check_stored(file, &a, object);
}

/* Opens the object `name` of a group. The object must be in this file. */
static clt_status open_object(const clt_array_file *file, const char *name, hid_t *object)
{
    const hdf5_source *source = file->handle;
    H5L_info_t info;
    if (H5Lget_info(source->group, name, &info, source->file->access) < 0)
        return clt_fail(CLT_FORMAT, "%s: '%s' cannot be opened", file->path, name);
    if (info.type != H5L_TYPE_HARD && info.type != H5L_TYPE_SOFT)
        return clt_fail(CLT_UNSUPPORTED,
                        "%s: '%s' is a link into another file, which is not followed: h5copy puts "
                        "the array itself into a file",
                        file->path, name);
    *object = H5Oopen(source->group, name, source->file->access);
    return *object >= 0 ? CLT_OK
                        : clt_fail(CLT_FORMAT, "%s: '%s' cannot be opened", file->path, name);
}

/* Adds every array of a group. Groups within the group are skipped. */
static clt_status add_arrays(clt_array_file *file)
{
    const hdf5_source *source = file->handle;
    H5G_info_t info;
    if (H5Gget_info(source->group, &info) < 0)
        return clt_fail(CLT_FORMAT, "%s: its group cannot be read", file->path);
    for (hsize_t i = 0; i < info.nlinks; i++) {
        char name[512];
        hid_t object;
        if (H5Lget_name_by_idx(source->group, ".", H5_INDEX_NAME, H5_ITER_INC, i, name, sizeof name,
                               source->file->access) < 0)
            return clt_fail(CLT_FORMAT, "%s: a name cannot be read", file->path);
        CLT_TRY(open_object(file, name, &object));
        const clt_status status =
            H5Iget_type(object) == H5I_DATASET ? add_array(file, object, name) : CLT_OK;
        H5Oclose(object);
        CLT_TRY(status);
    }
    return CLT_OK;
}

/* Reads as H5Dread does, but decodes chunks here. `memory` is the machine's type. */
static clt_status read_into(const clt_array_file *file, const clt_stored_array *a, hid_t object,
                            hid_t memory, void *all)
{
    const hid_t plist = H5Dget_create_plist(object), type = H5Dget_type(object);
    clt_status status = CLT_OK;
    if (H5Pget_layout(plist) == H5D_CHUNKED)
        status = clt_hdf5_read_chunks(file, a, object, plist, memory,
                                      H5Tget_order(type) != H5Tget_order(memory), all);
    else if (H5Dread(object, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, all) < 0)
        status = clt_fail(CLT_FORMAT, "%s: array '%s': its elements cannot be read", file->path,
                          a->name);
    H5Tclose(type);
    H5Pclose(plist);
    return status;
}

/* Whether the array still has the shape and type with which it was added. */
static bool is_same(const clt_stored_array *a, hid_t object)
{
    clt_stored_array now = {0};
    char dtype[24];
    hsize_t dims[H5S_MAX_RANK] = {0};
    const hid_t type = H5Dget_type(object), space = H5Dget_space(object);
    bool same = H5Sget_simple_extent_ndims(space) == a->rank &&
                H5Sget_simple_extent_dims(space, dims, NULL) == a->rank;
    read_type(type, &now, dtype);
    for (int i = 0; same && i < a->rank; i++)
        same = dims[i] == (hsize_t)a->shape[i];
    H5Sclose(space);
    H5Tclose(type);
    return same && now.type == a->type && now.bytes == a->bytes;
}

/* Checks the array again before reading, because the file may have changed. */
static clt_status read_elements(const clt_array_file *file, const clt_stored_array *a, hid_t memory,
                                void *all)
{
    hid_t object;
    CLT_TRY(open_object(file, a->name, &object));
    clt_status status =
        H5Iget_type(object) == H5I_DATASET && is_same(a, object)
            ? check_stored(file, a, object)
            : clt_fail(CLT_FORMAT, "%s: array '%s' changed while it was read", file->path, a->name);
    CLT_NEXT(status, read_into(file, a, object, memory, all));
    H5Oclose(object);
    return status;
}

static clt_status read_array(const clt_array_file *file, const clt_stored_array *a, void **raw)
{
    const hid_t type = a->type == 'f'   ? (a->bytes == 8 ? H5T_NATIVE_DOUBLE : H5T_NATIVE_FLOAT)
                       : a->type == 'u' ? H5T_NATIVE_UINT8
                       : a->bytes == 8  ? H5T_NATIVE_INT64
                                        : H5T_NATIVE_INT32;
    void *all = clt_alloc((size_t)clt_array_bytes(a));
    if (!all)
        return clt_fail_prefix(CLT_OUT_OF_MEMORY, "%s: array '%s': ", file->path, a->name);
    const clt_status status = read_elements(file, a, type, all);
    if (status != CLT_OK) {
        clt_free(all);
        return status;
    }
    *raw = all;
    return CLT_OK;
}

static clt_status open_group(const clt_data_request *r, const clt_hdf5_file *h5, clt_dataset **out)
{
    const char *split = r->test ? "test" : "train";
    const bool divided =
        H5Lexists(h5->file, "train", h5->access) > 0 && H5Lexists(h5->file, "test", h5->access) > 0;
    hdf5_source source = {.file = h5};
    clt_array_file file = {.path = r->path, .handle = &source, .read = read_array};
    clt_status status = CLT_OK;
    source.group = H5Gopen2(h5->file, "/", H5P_DEFAULT);
    if (source.group < 0)
        return clt_fail(CLT_FORMAT, "%s: its group cannot be read", r->path);
    if (divided) {
        hid_t inner = -1;
        status = open_object(&file, split, &inner);
        H5Gclose(source.group);
        source.group = inner;
        if (status == CLT_OK && H5Iget_type(inner) != H5I_GROUP)
            status = clt_fail(CLT_FORMAT, "%s: '%s' is no group", r->path, split);
    }
    CLT_NEXT(status, add_arrays(&file));
    if (status == CLT_OK && divided && r->all)
        status = clt_fail(CLT_INVALID_ARGUMENT,
                          "%s: the split 'all' needs arrays outside groups, and the file has the "
                          "groups train and test: read one of these splits",
                          r->path);
    CLT_NEXT(status, clt_arrays_open(&file, r, divided, out));
    clt_free(file.arrays);
    if (source.group >= 0)
        H5Oclose(source.group);
    return status;
}

static clt_status open_quietly(const clt_data_request *r, clt_dataset **out)
{
    clt_hdf5_file file;
    CLT_TRY(clt_hdf5_open(r->path, &file));
    const clt_status status = open_group(r, &file, out);
    clt_hdf5_close(&file);
    return status;
}

clt_status clt_open_hdf5(const clt_data_request *r, clt_dataset **out)
{
    /* libhdf5 prints its errors by default: silence it. */
    H5E_auto2_t print;
    void *data;
    H5Eget_auto2(H5E_DEFAULT, &print, &data);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    const clt_status status = open_quietly(r, out);
    H5Eset_auto2(H5E_DEFAULT, print, data);
    return status;
}

#else

clt_status clt_open_hdf5(const clt_data_request *r, clt_dataset **out)
{
    (void)out;
    return clt_fail(CLT_UNSUPPORTED, "data '%s': this build has no HDF5 (Debian: libhdf5-dev)",
                    r->spec);
}

#endif
