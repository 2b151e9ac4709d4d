/*
 * NPZ files: zip archives (PKWARE's APPNOTE 6.3) of arrays in numpy's NPY format, stored or
 * deflated.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/str.h"
#include "data/formats/arrays.h"
#include "data/formats/listing.h"

enum { END_BYTES = 22, ENTRY_BYTES = 46, LOCAL_BYTES = 30, LONGEST_COMMENT = 65535 };
enum { TAIL_BYTES = END_BYTES + LONGEST_COMMENT, LONGEST_NAME = 65535, PACKED_BYTES = 1 << 18 };
enum { STORED = 0, DEFLATED = 8, HEAD_ROOM = 4096 };

/* Zip64: large numbers stand elsewhere, in 64 bits. For Python's zipfile those are from 2 GiB on.
 */
enum { LOCATOR_BYTES = 20, WIDE_END_BYTES = 56, WIDE_FIELD = 1, FIELD_BYTES = 4 };

/* Deflate cannot compress by more than 1032 (a 258-byte match in 2 bits). */
enum { DEFLATE_MOST = 1032 };

typedef struct zip {
    int fd;
    const char *path;
    int64_t size;
    /* An entry of the directory with its name and extra fields, or the end of the file. */
    unsigned char entry[ENTRY_BYTES + 2 * LONGEST_NAME];
    unsigned char packed[PACKED_BYTES];
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

static clt_status read_at(const zip *z, int64_t offset, void *to, int64_t bytes)
{
    return clt_file_read_at(z->fd, z->path, offset, to, bytes);
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

/* Where the data of a member lie, behind its local header. */
static clt_status find_data(const zip *z, int64_t local, member *m)
{
    unsigned char head[LOCAL_BYTES];
    if (local < 0 || local > z->size - LOCAL_BYTES)
        return damaged(z->path, "a member is not where it should be");
    CLT_TRY(read_at(z, local, head, LOCAL_BYTES));
    if (memcmp(head, "PK\3\4", 4))
        return damaged(z->path, "a member is not where it should be");
    m->begin = local + LOCAL_BYTES + number(head + 26, 2) + number(head + 28, 2);
    if (m->begin > z->size || m->packed > z->size - m->begin)
        return damaged(z->path, "a member is cut short");
    if (m->method == DEFLATED && m->size > DEFLATE_MOST * (m->packed + 1))
        return damaged(z->path, "a member that cannot have so many bytes");
    return CLT_OK;
}

/* Reads the entry at `at` of the central directory; *next is where the following one is. */
static clt_status read_entry(zip *z, int64_t at, member *m, int64_t *next)
{
    unsigned char *p = z->entry;
    if (at > z->size - ENTRY_BYTES)
        return damaged(z->path, "an entry of its directory is not where it should be");
    CLT_TRY(read_at(z, at, p, ENTRY_BYTES));
    if (memcmp(p, "PK\1\2", 4))
        return damaged(z->path, "an entry of its directory is not where it should be");
    int64_t local = number(p + 42, 4);
    m->method = (int)number(p + 10, 2);
    m->checksum = (uint32_t)number(p + 16, 4);
    m->packed = number(p + 20, 4);
    m->size = number(p + 24, 4);
    const int64_t name = number(p + 28, 2), extra = number(p + 30, 2);
    *next = at + ENTRY_BYTES + name + extra + number(p + 32, 2);
    if (*next > z->size)
        return damaged(z->path, "its directory is cut short");
    CLT_TRY(read_at(z, at + ENTRY_BYTES, p + ENTRY_BYTES, name + extra));
    if (!widen(p + ENTRY_BYTES + name, extra, (int64_t *[]){&m->size, &m->packed, &local}))
        return damaged(z->path, "sizes of a member are missing");
    return find_data(z, local, m);
}

/* Part after part: zlib counts in 32 bits. *all: whether all `wanted` bytes came. */
static clt_status inflate_all(zip *z, z_stream *stream, const member *m, int64_t wanted, bool *all)
{
    static const int64_t most = 1 << 30;
    int64_t at = m->begin, packed = m->packed;
    int code = Z_OK;
    while (code == Z_OK && (wanted > 0 || stream->avail_out)) {
        if (!stream->avail_in) {
            const int64_t part = packed < PACKED_BYTES ? packed : PACKED_BYTES;
            CLT_TRY(read_at(z, at, z->packed, part));
            stream->next_in = z->packed;
            stream->avail_in = (uInt)part;
            at += part;
            packed -= part;
        }
        if (!stream->avail_out) {
            stream->avail_out = (uInt)(wanted < most ? wanted : most);
            wanted -= stream->avail_out;
        }
        code = inflate(stream, Z_NO_FLUSH);
    }
    *all = !stream->avail_out && !wanted;
    return CLT_OK;
}

static clt_status inflate_member(const clt_array_file *file, const char *name, const member *m,
                                 unsigned char *to, int64_t wanted)
{
    bool all = false;
    z_stream stream = {.next_out = to};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK)
        return clt_fail(CLT_OUT_OF_MEMORY, "%s: zlib cannot be started", file->path);
    const clt_status status = inflate_all(file->handle, &stream, m, wanted, &all);
    inflateEnd(&stream);
    if (status == CLT_OK && !all)
        return clt_fail(CLT_FORMAT, "%s: array '%s': corrupt deflated data", file->path, name);
    return status;
}

/* The first `room` bytes of a member's content, or all of it, whose checksum is then compared. */
static clt_status unpack(const clt_array_file *file, const char *name, const member *m,
                         unsigned char *to, int64_t room, int64_t *got)
{
    const int64_t wanted = room < m->size ? room : m->size;
    if (m->method == STORED) {
        if (m->packed != m->size)
            return damaged(file->path, "sizes of a stored member differ");
        CLT_TRY(read_at(file->handle, m->begin, to, wanted));
    } else if (m->method == DEFLATED) {
        CLT_TRY(inflate_member(file, name, m, to, wanted));
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
    CLT_TRY(read_entry(file->handle, a->place, &m, &next));
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
    zip *z = file->handle;
    member m;
    int64_t got, data = 0;
    char dtype[16] = "";
    unsigned char head[HEAD_ROOM];
    clt_array a = {.place = at};
    CLT_TRY(read_entry(z, at, &m, next));
    const size_t length = (size_t)number(z->entry + 28, 2);
    if (length >= sizeof a.name)
        return clt_fail(CLT_UNSUPPORTED, "%s: the name of an array has %zu bytes", file->path,
                        length);
    memcpy(a.name, z->entry + ENTRY_BYTES, length);
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

/* The directory of an archive of Zip64. `end` is the place of the usual end record. */
static clt_status find_wide_directory(const zip *z, int64_t end, int64_t *count, int64_t *at)
{
    unsigned char locator[LOCATOR_BYTES], record[WIDE_END_BYTES];
    if (end < LOCATOR_BYTES)
        return damaged(z->path, "no locator of its 64-bit end record");
    CLT_TRY(read_at(z, end - LOCATOR_BYTES, locator, LOCATOR_BYTES));
    if (memcmp(locator, "PK\6\7", 4))
        return damaged(z->path, "no locator of its 64-bit end record");
    const int64_t wide = number(locator + 8, 8);
    if (wide < 0 || wide > z->size - WIDE_END_BYTES)
        return damaged(z->path, "no 64-bit end record");
    CLT_TRY(read_at(z, wide, record, WIDE_END_BYTES));
    if (memcmp(record, "PK\6\6", 4))
        return damaged(z->path, "no 64-bit end record");
    *count = number(record + 32, 8);
    *at = number(record + 48, 8);
    return CLT_OK;
}

/* The end record has a comment of any length behind it. */
static clt_status find_directory(zip *z, int64_t *count, int64_t *at)
{
    const int64_t tail = z->size < TAIL_BYTES ? z->size : TAIL_BYTES;
    const unsigned char *p = z->entry;
    CLT_TRY(read_at(z, z->size - tail, z->entry, tail));
    int64_t end = tail - END_BYTES;
    while (end >= 0 && memcmp(p + end, "PK\5\6", 4))
        end--;
    if (end < 0)
        return damaged(z->path, "no end record");
    *count = number(p + end + 10, 2);
    *at = number(p + end + 16, 4);
    if (*count == UINT16_MAX || *at == UINT32_MAX)
        CLT_TRY(find_wide_directory(z, z->size - tail + end, count, at));
    return *at < 0 || *at > z->size ? damaged(z->path, "its directory is not where it should be")
                                    : CLT_OK;
}

static clt_status add_members(clt_array_file *file)
{
    int64_t count = 0, at = 0;
    CLT_TRY(find_directory(file->handle, &count, &at));
    for (int64_t i = 0; i < count; i++)
        CLT_TRY(add_member(file, at, &at));
    return CLT_OK;
}

static clt_status open_file(const clt_data_request *r, const char *path, bool divided,
                            clt_dataset **out)
{
    zip *z = CLT_NEW(zip);
    if (!z)
        return CLT_OUT_OF_MEMORY;
    z->path = path;
    z->fd = -1;
    clt_array_file file = {.path = path, .handle = z, .read = read_array};
    clt_status status = clt_file_open(path, &z->fd, &z->size);
    if (status == CLT_OK && !z->size)
        status = damaged(path, "it is empty");
    if (status == CLT_OK)
        status = add_members(&file);
    if (status == CLT_OK)
        status = clt_arrays_open(&file, r, divided, out);
    clt_free(file.arrays);
    if (z->fd >= 0)
        close(z->fd);
    clt_free(z);
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
