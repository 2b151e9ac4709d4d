#include "output/npz_out.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/message.h"

#ifdef CLT_HAVE_LIBZIP
#include <zip.h>

enum { MOST_HEADER = 512, ALIGN = 64, FIRST_DAY = 0x21 }; /* zip's first day */

static int64_t bytes_of(const npz_array *a)
{
    int64_t bytes = clt_dtype_size(a->dtype);
    for (int i = 0; i < a->rank; i++)
        bytes *= a->dims[i];
    return bytes;
}

static const char *type_of(clt_dtype dtype)
{
    return dtype == CLT_F32   ? "<f4"
           : dtype == CLT_F64 ? "<f8"
           : dtype == CLT_I32 ? "<i4"
           : dtype == CLT_U8  ? "|u1"
                              : NULL;
}

/* Writes an NPY header of version 1.0: magic, length, a Python dictionary, then spaces up to a
 * multiple of 64 bytes. Returns its bytes. */
static size_t npy_header(const npz_array *a, char header[MOST_HEADER])
{
    char *text = header + 10;
    size_t n = (size_t)sprintf(text, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                               type_of(a->dtype));
    for (int i = 0; i < a->rank; i++)
        n +=
            (size_t)sprintf(text + n, "%lld,%s", (long long)a->dims[i], i + 1 < a->rank ? " " : "");
    n += (size_t)sprintf(text + n, "), }");
    while ((10 + n + 1) % ALIGN)
        text[n++] = ' ';
    text[n++] = '\n';
    memcpy(header, "\x93NUMPY\1\0", 8);
    header[8] = (char)(n & 255);
    header[9] = (char)(n >> 8);
    return 10 + n;
}

/* Adds an array to the archive. The archive refers to `header` and to the array's data until it is
 * closed. */
static int add(zip_t *archive, const npz_array *a, char header[MOST_HEADER])
{
    char name[MOST_HEADER];
    const zip_buffer_fragment_t parts[] = {
        {(zip_uint8_t *)header, npy_header(a, header)},
        {(zip_uint8_t *)(uintptr_t)a->data, (zip_uint64_t)bytes_of(a)}};
    snprintf(name, sizeof name, "%s.npy", a->name);
    zip_source_t *source = zip_source_buffer_fragment(archive, parts, 2, 0);
    if (!source)
        return 0;
    const zip_int64_t index = zip_file_add(archive, name, source, ZIP_FL_ENC_UTF_8);
    if (index < 0) {
        zip_source_free(source);
        return 0;
    }
    return !zip_set_file_compression(archive, (zip_uint64_t)index, ZIP_CM_STORE, 0) &&
           !zip_file_set_dostime(archive, (zip_uint64_t)index, 0, FIRST_DAY, 0);
}

static int write_arrays(zip_t *archive, const npz_array *arrays, int count)
{
    char(*headers)[MOST_HEADER] = malloc(((size_t)count + 1) * sizeof *headers);
    int good = headers != NULL;
    for (int i = 0; good && i < count; i++)
        good = add(archive, &arrays[i], headers[i]);
    good = good && !zip_close(archive);
    free(headers);
    return good;
}

int npz_write(const char *path, const npz_array *arrays, int count)
{
    int code = 0;
    for (int i = 0; i < count; i++)
        if (!type_of(arrays[i].dtype))
            return failure("%s: output %s is %s, which numpy does not have", path, arrays[i].name,
                           clt_dtype_name(arrays[i].dtype));
    zip_t *archive = zip_open(path, ZIP_CREATE | ZIP_TRUNCATE, &code);
    if (!archive) {
        zip_error_t error;
        zip_error_init_with_code(&error, code);
        code = failure("%s: cannot be written: %s", path, zip_error_strerror(&error));
        zip_error_fini(&error);
        return code;
    }
    if (write_arrays(archive, arrays, count))
        return 0;
    code = failure("%s: cannot be written: %s", path, zip_strerror(archive));
    zip_discard(archive);
    return code;
}

#else

int npz_write(const char *path, const npz_array *arrays, int count)
{
    (void)arrays;
    (void)count;
    return failure("%s: this build has no libzip; install it (Debian: libzip-dev) and build again",
                   path);
}

#endif
