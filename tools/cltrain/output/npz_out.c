#include "output/npz_out.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "text/message.h"

enum { MOST_HEADER = 512, ALIGN = 64, LOCAL_BYTES = 30, ENTRY_BYTES = 46, END_BYTES = 22 };

/* A member as the directory at the end has it. */
typedef struct member {
    uint32_t checksum, bytes, begin;
} member;

static void put(unsigned char *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (unsigned char)(value >> 8 * i);
}

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

/* Version 1.0: magic, length, a Python dictionary and spaces up to a multiple of 64 bytes. */
static size_t npy_header(const npz_array *a, unsigned char header[MOST_HEADER])
{
    char *text = (char *)header + 10;
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
    put(header + 8, n, 2);
    return 10 + n;
}

/* What local header and entry of the directory have in common, from "version needed" on. */
static void put_common(unsigned char *to, const member *m, const char *name)
{
    memset(to, 0, 26);
    put(to, 20, 2);
    put(to + 8, 0x21, 2); /* the first day of the format's calendar */
    put(to + 10, m->checksum, 4);
    put(to + 14, m->bytes, 4);
    put(to + 18, m->bytes, 4);
    put(to + 22, strlen(name) + 4, 2);
}

static int write_member(FILE *file, const npz_array *a, uint64_t begin, member *m)
{
    unsigned char header[MOST_HEADER], local[LOCAL_BYTES] = "PK\3\4";
    const size_t length = npy_header(a, header);
    const int64_t bytes = bytes_of(a);
    *m = (member){.bytes = (uint32_t)(length + (size_t)bytes), .begin = (uint32_t)begin};
    m->checksum = (uint32_t)crc32(crc32(0, header, (uInt)length), a->data, (uInt)bytes);
    put_common(local + 4, m, a->name);
    fwrite(local, 1, sizeof local, file);
    fprintf(file, "%s.npy", a->name);
    fwrite(header, 1, length, file);
    fwrite(a->data, 1, (size_t)bytes, file);
    return !ferror(file);
}

static int write_directory(FILE *file, const npz_array *arrays, const member *members, int count,
                           uint64_t begin)
{
    unsigned char end[END_BYTES] = "PK\5\6";
    uint64_t bytes = 0;
    for (int i = 0; i < count; i++) {
        unsigned char entry[ENTRY_BYTES] = "PK\1\2";
        put(entry + 4, 20, 2);
        put_common(entry + 6, &members[i], arrays[i].name);
        put(entry + 42, members[i].begin, 4);
        fwrite(entry, 1, sizeof entry, file);
        fprintf(file, "%s.npy", arrays[i].name);
        bytes += sizeof entry + strlen(arrays[i].name) + 4;
    }
    put(end + 8, (uint64_t)count, 2);
    put(end + 10, (uint64_t)count, 2);
    put(end + 12, bytes, 4);
    put(end + 16, begin, 4);
    fwrite(end, 1, sizeof end, file);
    return !ferror(file);
}

static int write_all(FILE *file, const npz_array *arrays, int count)
{
    member *members = calloc((size_t)count + 1, sizeof *members);
    uint64_t at = 0;
    int good = members != NULL;
    for (int i = 0; good && i < count; i++) {
        good = write_member(file, &arrays[i], at, &members[i]);
        at += LOCAL_BYTES + strlen(arrays[i].name) + 4 + members[i].bytes;
    }
    good = good && write_directory(file, arrays, members, count, at);
    free(members);
    return good;
}

int npz_write(const char *path, const npz_array *arrays, int count)
{
    int64_t total = 1 << 20;
    for (int i = 0; i < count; i++) {
        total += bytes_of(&arrays[i]);
        if (!type_of(arrays[i].dtype))
            return failure("%s: output %s is %s, which numpy does not have", path, arrays[i].name,
                           clt_dtype_name(arrays[i].dtype));
        if (total > UINT32_MAX)
            return failure("%s: output %s would make it larger than 4 GiB: give fewer samples",
                           path, arrays[i].name);
    }
    const size_t room = strlen(path) + 32;
    char *beside = malloc(room);
    if (!beside)
        return failure("memory does not suffice");
    snprintf(beside, room, "%s.tmp-%ld", path, (long)getpid());
    FILE *file = fopen(beside, "we");
    errno = file ? 0 : errno;
    int good = file && write_all(file, arrays, count);
    if (file && fclose(file))
        good = 0;
    if (good && rename(beside, path))
        good = 0;
    int code = 0;
    if (!good) {
        code = failure("%s: cannot be written: %s", path, strerror(errno ? errno : ENOMEM));
        unlink(beside);
    }
    free(beside);
    return code;
}
