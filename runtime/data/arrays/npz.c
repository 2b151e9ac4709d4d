/* Reads NPZ files with libzip: zip archives of arrays in numpy's NPY format, stored or deflated. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "data/arrays/arrays.h"

#ifdef CLT_HAVE_LIBZIP
#include <zip.h>

#include "base/alloc.h"
#include "base/user_file.h"
#include "base/str.h"
#include "data/files/listing.h"

/* Deflate's best compression ratio is 1032: a match of 258 bytes in 2 bits. */
enum { HEAD_ROOM = 4096, DEFLATE_MOST = 1032 };

static int64_t number(const unsigned char *p, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;)
        value = value << 8 | p[i];
    return (int64_t)value;
}

static clt_status status_of(const zip_error_t *error)
{
    switch (zip_error_code_zip(error)) {
    case ZIP_ER_MEMORY:
        return CLT_OUT_OF_MEMORY;
    case ZIP_ER_READ:
    case ZIP_ER_SEEK:
        return CLT_IO;
    case ZIP_ER_COMPNOTSUPP:
    case ZIP_ER_ENCRNOTSUPP:
    case ZIP_ER_NOPASSWD:
        return CLT_UNSUPPORTED;
    default:
        return CLT_FORMAT;
    }
}

static clt_status bad_member(const char *path, const char *name, zip_error_t *error)
{
    return clt_fail(status_of(error), "%s: array '%s': cannot be unpacked: %s", path, name,
                    zip_error_strerror(error));
}

/* Reads `wanted` bytes of a member. With `whole` it reads on to the member's end, where libzip
 * compares the checksum. */
static bool read_bytes(zip_file_t *from, unsigned char *to, int64_t wanted, bool whole)
{
    unsigned char after;
    while (wanted > 0) {
        const int64_t got = zip_fread(from, to, (uint64_t)wanted);
        if (got <= 0) {
            if (!got)
                zip_error_set(zip_file_get_error(from), ZIP_ER_EOF, 0);
            return false;
        }
        to += got;
        wanted -= got;
    }
    return !whole || zip_fread(from, &after, 1) == 0;
}

/* Reads the first `room` bytes of member `index`, or all *size bytes if `room` is larger. */
static clt_status unpack(const clt_array_file *file, const char *name, int64_t index,
                         unsigned char *to, int64_t room, int64_t *size)
{
    zip_stat_t m;
    zip_t *zip = file->handle;
    if (zip_stat_index(zip, (uint64_t)index, 0, &m))
        return bad_member(file->path, name, zip_get_error(zip));
    if (m.comp_method != ZIP_CM_STORE && m.comp_method != ZIP_CM_DEFLATE)
        return clt_fail(CLT_UNSUPPORTED,
                        "%s: array '%s': compressed by zip's method %d: numpy.savez and "
                        "numpy.savez_compressed write methods that are read",
                        file->path, name, m.comp_method);
    if (m.size > (m.comp_method == ZIP_CM_STORE ? m.comp_size : DEFLATE_MOST * (m.comp_size + 1)))
        return clt_fail(CLT_FORMAT, "%s: array '%s': %llu bytes of the archive cannot hold %llu",
                        file->path, name, (unsigned long long)m.comp_size,
                        (unsigned long long)m.size);
    *size = (int64_t)m.size;
    zip_file_t *from = zip_fopen_index(zip, (uint64_t)index, 0);
    if (!from)
        return bad_member(file->path, name, zip_get_error(zip));
    clt_status status = CLT_OK;
    if (!read_bytes(from, to, room < *size ? room : *size, room >= *size))
        status = bad_member(file->path, name, zip_file_get_error(from));
    zip_fclose(from);
    return status;
}

/* --- NPY -------------------------------------------------------------------------------------- */

/* Returns the text after a key of the header's dictionary. */
static const char *value_of(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    at = at ? strchr(at + strlen(key), ':') : NULL;
    return at ? at + 1 + strspn(at + 1, " ") : NULL;
}

static clt_status bad_header(const char *path, const char *name, const char *why)
{
    return clt_fail(CLT_FORMAT, "%s: array '%s': damaged NPY header: %s", path, name, why);
}

static clt_status read_shape(const char *path, clt_stored_array *a, const char *at)
{
    if (!at || *at++ != '(')
        return bad_header(path, a->name, "no shape");
    while (*(at += strspn(at, " ,")) != ')') {
        char *end;
        const long long size = strtoll(at, &end, 10);
        if (end == at)
            return bad_header(path, a->name, "no shape");
        if (a->rank == CLT_MAX_RANK)
            return clt_fail(CLT_FORMAT, "%s: array '%s': more than %d axes", path, a->name,
                            CLT_MAX_RANK);
        a->shape[a->rank++] = size;
        at = end;
    }
    return CLT_OK;
}

/* Reads an NPY header from the first bytes of a member. *data gets the offset of the elements,
 * `dtype` the name of the type. */
static clt_status read_head(const char *path, const unsigned char *head, int64_t got,
                            clt_stored_array *a, int64_t *data, char dtype[16])
{
    if (got < 12 || memcmp(head, "\x93NUMPY", 6) || head[6] < 1 || head[6] > 3)
        return bad_header(path, a->name, "its first bytes are not NPY's");
    const int wide = head[6] > 1;
    const int64_t begin = wide ? 12 : 10, length = number(head + 8, wide ? 4 : 2);
    char text[HEAD_ROOM + 1];
    if (length > got - begin)
        return bad_header(path, a->name, "cut short, or too long");
    memcpy(text, head + begin, (size_t)length);
    text[length] = '\0';
    *data = begin + length;
    const char *descr = value_of(text, "'descr'"), *order = value_of(text, "'fortran_order'");
    if (!descr || *descr != '\'' || !order)
        return bad_header(path, a->name, "no simple 'descr' and 'fortran_order'");
    const size_t n = strcspn(descr + 1, "'");
    memcpy(dtype, descr + 1, n < 15 ? n : 15);
    dtype[n < 15 ? n : 15] = '\0';
    if (!strncmp(order, "True", 4))
        return clt_fail(CLT_UNSUPPORTED,
                        "%s: array '%s': in Fortran's order; numpy.ascontiguousarray makes one in "
                        "C's",
                        path, a->name);
    /* Big-endian types ('>') are not read. numpy's bool is read as u1: its bytes are 0 and 1. */
    a->type = dtype[0] == '>' ? 'x' : dtype[1] == 'b' ? 'u' : dtype[1];
    a->bytes = atoi(dtype + 2);
    return read_shape(path, a, value_of(text, "'shape'"));
}

/* Reads all elements of an array. */
static clt_status read_array(const clt_array_file *file, const clt_stored_array *a, void **raw)
{
    zip_stat_t m;
    int64_t size;
    if (zip_stat_index(file->handle, (uint64_t)a->place, 0, &m))
        return bad_member(file->path, a->name, zip_get_error(file->handle));
    unsigned char *all = clt_alloc((size_t)m.size);
    if (!all)
        return clt_fail_prefix(CLT_OUT_OF_MEMORY, "%s: array '%s': ", file->path, a->name);
    const clt_status status = unpack(file, a->name, a->place, all, (int64_t)m.size, &size);
    if (status != CLT_OK) {
        clt_free(all);
        return status;
    }
    const int64_t bytes = clt_array_bytes(a);
    memmove(all, all + size - bytes, (size_t)bytes);
    *raw = all;
    return CLT_OK;
}

static clt_status add_member(clt_array_file *file, int64_t index)
{
    int64_t size = 0, data = 0;
    char dtype[16] = "";
    unsigned char head[HEAD_ROOM];
    clt_stored_array a = {.place = index};
    const char *name = zip_get_name(file->handle, (uint64_t)index, ZIP_FL_ENC_RAW);
    if (!name)
        return bad_member(file->path, "", zip_get_error(file->handle));
    const size_t length = strlen(name);
    if (length >= sizeof a.name)
        return clt_fail(CLT_UNSUPPORTED,
                        "%s: the name of an array has %zu bytes: at most %zu are read", file->path,
                        length, sizeof a.name - 1);
    memcpy(a.name, name, length);
    if (clt_ends_in(a.name, ".npy"))
        a.name[length - 4] = '\0';
    CLT_TRY(unpack(file, a.name, index, head, HEAD_ROOM, &size));
    CLT_TRY(read_head(file->path, head, size < HEAD_ROOM ? size : HEAD_ROOM, &a, &data, dtype));
    CLT_TRY(clt_arrays_add(file, &a, dtype));
    if (clt_array_bytes(&a) != size - data)
        return clt_fail(CLT_FORMAT, "%s: array '%s': %lld bytes, but its shape and type need %lld",
                        file->path, a.name, (long long)(size - data),
                        (long long)clt_array_bytes(&a));
    return CLT_OK;
}

/* Opens an archive. libzip owns `fd` after success. */
static clt_status open_archive(const char *path, zip_t **zip)
{
    int fd = -1, code = 0;
    int64_t bytes;
    CLT_TRY(clt_file_open(path, &fd, &bytes));
    *zip = zip_fdopen(fd, ZIP_CHECKCONS, &code);
    if (*zip)
        return CLT_OK;
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    close(fd);
    const clt_status status =
        clt_fail(status_of(&error), "%s: is not a zip archive, or is damaged: %s", path,
                 bytes ? zip_error_strerror(&error) : "it is empty");
    zip_error_fini(&error);
    return status;
}

static clt_status open_file(const clt_data_request *r, const char *path, bool divided,
                            clt_dataset **out)
{
    zip_t *zip;
    CLT_TRY(open_archive(path, &zip));
    clt_array_file file = {.path = path, .handle = zip, .read = read_array};
    clt_status status = CLT_OK;
    const int64_t count = zip_get_num_entries(zip, 0);
    for (int64_t i = 0; status == CLT_OK && i < count; i++)
        status = add_member(&file, i);
    CLT_NEXT(status, clt_arrays_open(&file, r, divided, out));
    clt_free(file.arrays);
    zip_discard(zip);
    return status;
}

clt_status clt_open_npz(const clt_data_request *r, clt_dataset **out)
{
    struct stat info;
    if (stat(r->path, &info) != 0 || !S_ISDIR(info.st_mode))
        return open_file(r, r->path, false, out);
    if (r->all)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "%s: the split 'all' needs one file, and this folder has train.npz and "
                        "test.npz: name one of them",
                        r->path);
    clt_str path = {0};
    clt_str_add(&path, "%s/%s.npz", r->path, r->test ? "test" : "train");
    const clt_status status =
        path.failed ? CLT_OUT_OF_MEMORY : open_file(r, clt_str_text(&path), true, out);
    clt_str_free(&path);
    return status;
}

#else

clt_status clt_open_npz(const clt_data_request *r, clt_dataset **out)
{
    (void)out;
    return clt_fail(CLT_UNSUPPORTED,
                    "%s: this build has no libzip; install it (Debian: libzip-dev) and build again",
                    r->path);
}

#endif
