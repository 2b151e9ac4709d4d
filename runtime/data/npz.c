/*
 * NPZ files: zip archives (PKWARE's APPNOTE 6.3) of arrays in numpy's NPY format, stored or
 * deflated.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/str.h"
#include "data/arrays.h"
#include "data/listing.h"

enum { END_BYTES = 22, ENTRY_BYTES = 46, LOCAL_BYTES = 30, LONGEST_COMMENT = 65535 };
enum { STORED = 0, DEFLATED = 8, HEAD_ROOM = 4096 };

/* Zip64: large numbers stand elsewhere, in 64 bits. For Python's zipfile those are from 2 GiB on.
 */
enum { LOCATOR_BYTES = 20, WIDE_END_BYTES = 56, WIDE_FIELD = 1, FIELD_BYTES = 4 };

/* Deflate cannot compress by more than 1032 (a 258-byte match in 2 bits). */
enum { DEFLATE_MOST = 1032 };

typedef struct zip {
    const unsigned char *bytes;
    int64_t size;
} zip;

/* A member of the archive, from its entry in the central directory. */
typedef struct member {
    int method;
    uint32_t checksum;
    int64_t packed, size, begin; /* bytes; where its data lie */
} member;

static int64_t number(const unsigned char *p, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;)
        value = value << 8 | p[i];
    return (int64_t)value;
}

static clt_status damaged(const char *path, const char *why)
{
    return clt_fail(CLT_FORMAT, "%s: damaged zip archive, or none: %s", path, why);
}

/* An entry's numbers that are all ones stand, in this order, in a field behind its name. */
static bool widen(const unsigned char *extra, int64_t bytes, int64_t *numbers[3])
{
    int64_t at = 0, size = 0;
    for (; at + FIELD_BYTES <= bytes; at += FIELD_BYTES + size) {
        size = number(extra + at + 2, 2);
        if (number(extra + at, 2) == WIDE_FIELD)
            break;
    }
    const int64_t first = at + FIELD_BYTES, end = first + size < bytes ? first + size : bytes;
    at = first;
    for (int i = 0; i < 3; i++) {
        if (*numbers[i] != UINT32_MAX)
            continue;
        if (at + 8 > end)
            return false;
        *numbers[i] = number(extra + at, 8);
        at += 8;
        if (*numbers[i] < 0)
            return false;
    }
    return true;
}

/* Reads the entry at `at` of the central directory; *next is where the following one is. */
static clt_status read_entry(const char *path, const zip *z, int64_t at, member *m, int64_t *next)
{
    if (at > z->size - ENTRY_BYTES || memcmp(z->bytes + at, "PK\1\2", 4))
        return damaged(path, "an entry of its directory is not where it should be");
    const unsigned char *p = z->bytes + at;
    int64_t local = number(p + 42, 4);
    m->method = (int)number(p + 10, 2);
    m->checksum = (uint32_t)number(p + 16, 4);
    m->packed = number(p + 20, 4);
    m->size = number(p + 24, 4);
    const int64_t extra = at + ENTRY_BYTES + number(p + 28, 2), bytes = number(p + 30, 2);
    *next = extra + bytes + number(p + 32, 2);
    if (*next > z->size)
        return damaged(path, "its directory is cut short");
    if (!widen(z->bytes + extra, bytes, (int64_t *[]){&m->size, &m->packed, &local}))
        return damaged(path, "sizes of a member are missing");
    if (local > z->size - LOCAL_BYTES || memcmp(z->bytes + local, "PK\3\4", 4))
        return damaged(path, "a member is not where it should be");
    m->begin =
        local + LOCAL_BYTES + number(z->bytes + local + 26, 2) + number(z->bytes + local + 28, 2);
    if (m->begin > z->size || m->packed > z->size - m->begin)
        return damaged(path, "a member is cut short");
    if (m->method == DEFLATED && m->size > DEFLATE_MOST * (m->packed + 1))
        return damaged(path, "a member that cannot have so many bytes");
    return CLT_OK;
}

/* Part after part: zlib counts in 32 bits. Returns whether all `wanted` bytes came. */
static bool inflate_all(z_stream *stream, int64_t packed, int64_t wanted)
{
    static const int64_t part = 1 << 30;
    int code = Z_OK;
    while (code == Z_OK && (wanted > 0 || stream->avail_out)) {
        if (!stream->avail_in) {
            stream->avail_in = (uInt)(packed < part ? packed : part);
            packed -= stream->avail_in;
        }
        if (!stream->avail_out) {
            stream->avail_out = (uInt)(wanted < part ? wanted : part);
            wanted -= stream->avail_out;
        }
        code = inflate(stream, Z_NO_FLUSH);
    }
    return !stream->avail_out && !wanted;
}

/* The first `room` bytes of a member's content, or all of it, whose checksum is then compared. */
static clt_status unpack(const clt_array_file *file, const char *name, const member *m,
                         unsigned char *to, int64_t room, int64_t *got)
{
    const zip *z = file->handle;
    const int64_t wanted = room < m->size ? room : m->size;
    if (m->method == STORED) {
        if (m->packed != m->size)
            return damaged(file->path, "sizes of a stored member differ");
        memcpy(to, z->bytes + m->begin, (size_t)wanted);
    } else if (m->method == DEFLATED) {
        z_stream stream = {.next_in = (Bytef *)z->bytes + m->begin, .next_out = to};
        if (inflateInit2(&stream, -MAX_WBITS) != Z_OK)
            return clt_fail(CLT_OUT_OF_MEMORY, "%s: zlib cannot be started", file->path);
        const bool all = inflate_all(&stream, m->packed, wanted);
        inflateEnd(&stream);
        if (!all)
            return clt_fail(CLT_FORMAT, "%s: array '%s': corrupt deflated data", file->path, name);
    } else {
        return clt_fail(
            CLT_UNSUPPORTED,
            "%s: array '%s': compressed by zip's method %d, neither stored nor deflated",
            file->path, name, m->method);
    }
    if (wanted == m->size && crc32_z(0, to, (size_t)wanted) != m->checksum)
        return clt_fail(CLT_FORMAT, "%s: array '%s': its checksum is wrong", file->path, name);
    *got = wanted;
    return CLT_OK;
}

/* --- NPY -------------------------------------------------------------------------------------- */

/* What stands behind a key of the header's dictionary. */
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

static clt_status read_shape(const char *path, clt_array *a, const char *at)
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

/* From the first bytes of a member. `dtype` gets the name of the type. */
static clt_status read_head(const char *path, const unsigned char *head, int64_t got, clt_array *a,
                            int64_t *data, char dtype[16])
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
    /* Numbers of one byte have no order; bool is one of 0 and 1. */
    a->type = dtype[0] == '>' ? 'x' : dtype[1] == 'b' ? 'u' : dtype[1];
    a->bytes = atoi(dtype + 2);
    return read_shape(path, a, value_of(text, "'shape'"));
}

/* All elements, after the header. */
static clt_status read_array(const clt_array_file *file, const clt_array *a, void **raw)
{
    member m;
    int64_t next, got;
    CLT_TRY(read_entry(file->path, file->handle, a->place, &m, &next));
    unsigned char *all = clt_alloc((size_t)m.size);
    if (!all)
        return clt_fail_prefix(CLT_OUT_OF_MEMORY, "%s: array '%s': ", file->path, a->name);
    const clt_status status = unpack(file, a->name, &m, all, m.size, &got);
    if (status != CLT_OK) {
        clt_free(all);
        return status;
    }
    const int64_t bytes = clt_array_bytes(a);
    memmove(all, all + m.size - bytes, (size_t)bytes);
    *raw = all;
    return CLT_OK;
}

static clt_status add_member(clt_array_file *file, int64_t at, int64_t *next)
{
    const zip *z = file->handle;
    member m;
    int64_t got, data = 0;
    char dtype[16] = "";
    unsigned char head[HEAD_ROOM];
    clt_array a = {.place = at};
    CLT_TRY(read_entry(file->path, z, at, &m, next));
    const size_t length = (size_t)number(z->bytes + at + 28, 2);
    if (length >= sizeof a.name)
        return clt_fail(CLT_UNSUPPORTED, "%s: the name of an array has %zu bytes", file->path,
                        length);
    memcpy(a.name, z->bytes + at + ENTRY_BYTES, length);
    if (clt_ends_in(a.name, ".npy"))
        a.name[length - 4] = '\0';
    CLT_TRY(unpack(file, a.name, &m, head, HEAD_ROOM, &got));
    CLT_TRY(read_head(file->path, head, got, &a, &data, dtype));
    CLT_TRY(clt_arrays_add(file, &a, dtype));
    if (clt_array_bytes(&a) != m.size - data)
        return clt_fail(CLT_FORMAT, "%s: array '%s': %lld bytes, but its shape and type need %lld",
                        file->path, a.name, (long long)(m.size - data),
                        (long long)clt_array_bytes(&a));
    return CLT_OK;
}

/* The end record has a comment of any length behind it. */
static clt_status add_members(clt_array_file *file)
{
    const zip *z = file->handle;
    int64_t end = z->size - END_BYTES;
    while (end >= 0 && end >= z->size - END_BYTES - LONGEST_COMMENT &&
           memcmp(z->bytes + end, "PK\5\6", 4))
        end--;
    if (end < 0 || memcmp(z->bytes + end, "PK\5\6", 4))
        return damaged(file->path, "no end record");
    int64_t count = number(z->bytes + end + 10, 2), at = number(z->bytes + end + 16, 4);
    if (count == UINT16_MAX || at == UINT32_MAX) {
        const unsigned char *locator = z->bytes + end - LOCATOR_BYTES;
        if (end < LOCATOR_BYTES || memcmp(locator, "PK\6\7", 4))
            return damaged(file->path, "no locator of its 64-bit end record");
        const int64_t wide = number(locator + 8, 8);
        if (wide < 0 || wide > z->size - WIDE_END_BYTES || memcmp(z->bytes + wide, "PK\6\6", 4))
            return damaged(file->path, "no 64-bit end record");
        count = number(z->bytes + wide + 32, 8);
        at = number(z->bytes + wide + 48, 8);
    }
    if (at < 0 || at > z->size)
        return damaged(file->path, "its directory is not where it should be");
    for (int64_t i = 0; i < count; i++)
        CLT_TRY(add_member(file, at, &at));
    return CLT_OK;
}

static clt_status open_file(const clt_data_request *r, const char *path, bool divided,
                            clt_dataset **out)
{
    struct stat info;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &info) != 0) {
        const int error = errno;
        if (fd >= 0)
            close(fd);
        return clt_fail(error == ENOENT || error == ENOTDIR ? CLT_NOT_FOUND : CLT_IO,
                        "%s: cannot be opened: %s", path, strerror(error));
    }
    if (!S_ISREG(info.st_mode)) { /* a pipe was opened without waiting for its other end */
        close(fd);
        return clt_fail(CLT_IO, "%s: is not a regular file", path);
    }
    void *map =
        info.st_size ? mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    close(fd);
    if (map == MAP_FAILED)
        return info.st_size ? clt_fail(CLT_IO, "%s: cannot be mapped: %s", path, strerror(errno))
                            : damaged(path, "it is empty");
    zip z = {map, info.st_size};
    clt_array_file file = {.path = path, .handle = &z, .read = read_array};
    clt_status status = add_members(&file);
    if (status == CLT_OK)
        status = clt_arrays_open(&file, r, divided, out);
    clt_free(file.arrays);
    munmap(map, (size_t)info.st_size);
    return status;
}

clt_status clt_open_npz(const clt_data_request *r, clt_dataset **out)
{
    struct stat info;
    if (stat(r->path, &info) != 0 || !S_ISDIR(info.st_mode))
        return open_file(r, r->path, false, out);
    if (r->all)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "%s: is a folder of train.npz and test.npz: those of one are not all",
                        r->path);
    clt_str path = {0};
    clt_str_add(&path, "%s/%s.npz", r->path, r->test ? "test" : "train");
    const clt_status status =
        path.failed ? CLT_OUT_OF_MEMORY : open_file(r, clt_str_text(&path), true, out);
    clt_str_free(&path);
    return status;
}
