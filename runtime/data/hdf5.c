/* HDF5 files: arrays of the root group, or of its groups "train" and "test". */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "data/arrays.h"

#ifdef CLT_HAVE_HDF5

#include <errno.h>
#include <hdf5.h>
#include <sys/stat.h>
#include <unistd.h>

/* numpy's letter; other classes are told by their name. */
static void read_type(hid_t type, clt_array *a, char dtype[24])
{
    static const char *const names[H5T_NCLASSES] = {
        [H5T_TIME] = "time",     [H5T_STRING] = "string",        [H5T_BITFIELD] = "bit field",
        [H5T_OPAQUE] = "opaque", [H5T_COMPOUND] = "compound",    [H5T_REFERENCE] = "reference",
        [H5T_ENUM] = "enum",     [H5T_VLEN] = "variable length", [H5T_ARRAY] = "array"};
    const H5T_class_t class = H5Tget_class(type);
    a->bytes = (int)H5Tget_size(type);
    a->type = class == H5T_FLOAT                  ? 'f'
              : class != H5T_INTEGER              ? 'x'
              : H5Tget_sign(type) == H5T_SGN_NONE ? 'u'
                                                  : 'i';
    if (a->type == 'x')
        snprintf(dtype, 24, "%s",
                 class >= 0 && class < H5T_NCLASSES && names[class] ? names[class] : "unknown");
    else
        snprintf(dtype, 24, "%c%d", a->type, a->bytes);
}

/* Chunks that were never written are not in the file: a small one may claim any size, for which
 * memory would be asked. The size of small arrays is believed, and deflate's best ratio. */
static clt_status check_stored(const clt_array_file *file, const clt_array *a, hid_t object)
{
    enum { SMALL = 1 << 30, RATIO = 1032 };
    const hid_t plist = H5Dget_create_plist(object);
    const bool elsewhere = H5Pget_layout(plist) == H5D_VIRTUAL || H5Pget_external_count(plist) > 0;
    const hsize_t stored = H5Dget_storage_size(object);
    const int64_t bytes = clt_array_bytes(a);
    H5Pclose(plist);
    if (elsewhere || bytes <= SMALL || stored >= (hsize_t)bytes / RATIO)
        return CLT_OK;
    return clt_fail(CLT_FORMAT,
                    "%s: array '%s': its shape and type need %lld bytes, of which the file stores "
                    "%llu: most of it was never written",
                    file->path, a->name, (long long)bytes, (unsigned long long)stored);
}

static clt_status add_array(clt_array_file *file, hid_t object, const char *name)
{
    clt_array a = {0};
    char dtype[24];
    hsize_t dims[H5S_MAX_RANK];
    if (strlen(name) >= sizeof a.name)
        return clt_fail(CLT_UNSUPPORTED, "%s: the name of an array has %zu bytes", file->path,
                        strlen(name));
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

/* Every array of a group; groups in it are passed over. */
static clt_status add_arrays(clt_array_file *file, hid_t group)
{
    H5G_info_t info;
    if (H5Gget_info(group, &info) < 0)
        return clt_fail(CLT_FORMAT, "%s: its group cannot be read", file->path);
    for (hsize_t i = 0; i < info.nlinks; i++) {
        char name[512];
        if (H5Lget_name_by_idx(group, ".", H5_INDEX_NAME, H5_ITER_INC, i, name, sizeof name,
                               H5P_DEFAULT) < 0)
            return clt_fail(CLT_FORMAT, "%s: a name cannot be read", file->path);
        const hid_t object = H5Oopen(group, name, H5P_DEFAULT);
        if (object < 0)
            return clt_fail(CLT_FORMAT, "%s: '%s' cannot be opened", file->path, name);
        const clt_status status =
            H5Iget_type(object) == H5I_DATASET ? add_array(file, object, name) : CLT_OK;
        H5Oclose(object);
        CLT_TRY(status);
    }
    return CLT_OK;
}

static clt_status read_array(const clt_array_file *file, const clt_array *a, void **raw)
{
    const hid_t group = *(const hid_t *)file->handle;
    const hid_t type = a->type == 'f'   ? (a->bytes == 8 ? H5T_NATIVE_DOUBLE : H5T_NATIVE_FLOAT)
                       : a->type == 'u' ? H5T_NATIVE_UINT8
                       : a->bytes == 8  ? H5T_NATIVE_INT64
                                        : H5T_NATIVE_INT32;
    void *all = clt_alloc((size_t)clt_array_bytes(a));
    if (!all)
        return clt_fail_prefix(CLT_OUT_OF_MEMORY, "%s: array '%s': ", file->path, a->name);
    const hid_t object = H5Dopen2(group, a->name, H5P_DEFAULT);
    const herr_t failed =
        object < 0 ? -1 : H5Dread(object, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, all);
    if (object >= 0)
        H5Dclose(object);
    if (failed < 0) {
        clt_free(all);
        return clt_fail(CLT_FORMAT, "%s: array '%s': its elements cannot be read", file->path,
                        a->name);
    }
    *raw = all;
    return CLT_OK;
}

static clt_status open_quietly(const clt_data_request *r, clt_dataset **out)
{
    const char *split = r->test ? "test" : "train";
    struct stat info;
    if (access(r->path, R_OK) || stat(r->path, &info))
        return clt_fail(errno == ENOENT || errno == ENOTDIR ? CLT_NOT_FOUND : CLT_IO,
                        "%s: cannot be opened: %s", r->path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return clt_fail(CLT_IO, "%s: is not a regular file", r->path);
    const hid_t h5 = H5Fopen(r->path, H5F_ACC_RDONLY, H5P_DEFAULT);
    if (h5 < 0)
        return clt_fail(CLT_FORMAT, "%s: is no HDF5 file, or damaged", r->path);
    const bool divided =
        H5Lexists(h5, "train", H5P_DEFAULT) > 0 && H5Lexists(h5, "test", H5P_DEFAULT) > 0;
    hid_t group = H5Gopen2(h5, divided ? split : "/", H5P_DEFAULT);
    clt_array_file file = {.path = r->path, .handle = &group, .read = read_array};
    clt_status status = group < 0 ? clt_fail(CLT_FORMAT, "%s: '%s' is no group", r->path, split)
                                  : add_arrays(&file, group);
    if (status == CLT_OK && divided && r->all)
        status = clt_fail(CLT_INVALID_ARGUMENT,
                          "%s: its arrays are in groups train and test: those of one are not all",
                          r->path);
    if (status == CLT_OK)
        status = clt_arrays_open(&file, r, divided, out);
    clt_free(file.arrays);
    if (group >= 0)
        H5Gclose(group);
    H5Fclose(h5);
    return status;
}

clt_status clt_open_hdf5(const clt_data_request *r, clt_dataset **out)
{
    /* HDF5 prints its failures unless it is asked not to. */
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
