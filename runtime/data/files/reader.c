#include "data/files/reader.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/user_file.h"

/* Output of one call of inflate. Small enough to stop soon. Large enough to make inflate's copy of
 * the last 32 KiB at the end of each call negligible. */
enum { INPUT_BYTES = 256 * 1024, OUTPUT_BYTES = 4 * 1024 * 1024 };

/* Deflate's best compression ratio is 1032: a match of 258 bytes in 2 bits. */
enum { DEFLATE_MOST = 1032 };

struct clt_reader {
    char *path;
    int fd;
    bool gzip;
    bool member_ended; /* gzip: the current member has ended and its checksum was right */
    int64_t file_bytes, done;
    z_stream stream;
    unsigned char input[INPUT_BYTES];
};

static clt_status corrupt(const clt_reader *r, const char *why)
{
    return clt_fail(CLT_FORMAT, "%s: corrupt gzip data after %lld decompressed bytes: %s", r->path,
                    (long long)r->done, why ? why : "not gzip");
}

static clt_status read_some(clt_reader *r, void *to, size_t bytes, size_t *got)
{
    ssize_t n;
    do {
        n = read(r->fd, to, bytes);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return clt_fail(CLT_IO, "%s: cannot be read: %s", r->path, strerror(errno));
    *got = (size_t)n;
    return CLT_OK;
}

/* Makes input available. *end: there is none left. */
static clt_status refill(clt_reader *r, bool *end)
{
    size_t got = r->stream.avail_in;
    if (got == 0) {
        CLT_TRY(read_some(r, r->input, INPUT_BYTES, &got));
        r->stream.next_in = r->input;
        r->stream.avail_in = (uInt)got;
    }
    *end = got == 0;
    return CLT_OK;
}

static clt_status open_file(clt_reader *r)
{
    CLT_TRY(clt_file_open(r->path, &r->fd, &r->file_bytes));
    size_t length = strlen(r->path);
    r->gzip = length > 3 && !strcmp(r->path + length - 3, ".gz");
    if (!r->gzip)
        return CLT_OK;
    bool end;
    CLT_TRY(refill(r, &end));
    if (r->stream.avail_in < 2 || r->input[0] != 0x1f || r->input[1] != 0x8b)
        return clt_fail(CLT_FORMAT,
                        "%s: not a gzip file: %d bytes were read that start with %02x %02x instead "
                        "of 1f 8b",
                        r->path, (int)r->stream.avail_in, r->input[0], r->input[1]);
    if (inflateInit2(&r->stream, 16 + MAX_WBITS) != Z_OK) {
        r->gzip = false; /* nothing to end */
        return clt_fail(CLT_OUT_OF_MEMORY, "%s: zlib cannot be started: %s", r->path,
                        r->stream.msg ? r->stream.msg : "out of memory");
    }
    return CLT_OK;
}

clt_status clt_reader_open(const char *path, clt_reader **out)
{
    clt_reader *r = CLT_NEW(clt_reader);
    CLT_TRY_MEMORY(r);
    r->fd = -1;
    r->path = clt_strdup(path);
    clt_status status = r->path ? open_file(r) : CLT_OUT_OF_MEMORY;
    if (status != CLT_OK) {
        clt_reader_close(r);
        return status;
    }
    *out = r;
    return CLT_OK;
}

/* Decompresses `bytes`, or fewer at the end of the data. */
static clt_status inflate_some(clt_reader *r, unsigned char *to, size_t bytes, size_t *got)
{
    r->stream.next_out = to;
    r->stream.avail_out = (uInt)bytes;
    while (r->stream.avail_out > 0) {
        bool end;
        CLT_TRY(refill(r, &end));
        if (r->member_ended) {
            if (end)
                break;
            if (*r->stream.next_in != 0x1f)
                return clt_fail(CLT_FORMAT, "%s: trailing bytes after the gzip data", r->path);
            inflateReset(&r->stream);
            r->member_ended = false;
        }
        if (end)
            return clt_fail(CLT_FORMAT,
                            "%s: truncated: the gzip data end after %lld decompressed bytes",
                            r->path, (long long)(r->done + (r->stream.next_out - to)));
        int code = inflate(&r->stream, Z_NO_FLUSH);
        if (code == Z_STREAM_END)
            r->member_ended = true;
        else if (code != Z_OK && code != Z_BUF_ERROR)
            return corrupt(r, r->stream.msg);
    }
    *got = bytes - r->stream.avail_out;
    return CLT_OK;
}

clt_status clt_reader_read(clt_reader *reader, void *to, int64_t bytes, const char *what,
                           const _Atomic bool *stop)
{
    unsigned char *next = to;
    for (int64_t left = bytes; left > 0;) {
        if (stop && atomic_load_explicit(stop, memory_order_relaxed))
            return clt_fail(CLT_ABORTED, "%s: reading was stopped", reader->path);
        size_t piece = left < OUTPUT_BYTES ? (size_t)left : (size_t)OUTPUT_BYTES, got;
        CLT_TRY(reader->gzip ? inflate_some(reader, next, piece, &got)
                             : read_some(reader, next, piece, &got));
        reader->done += (int64_t)got;
        if (got == 0)
            return clt_fail(CLT_FORMAT, "%s: truncated: %s needs %lld more bytes after byte %lld",
                            reader->path, what, (long long)left, (long long)reader->done);
        next += got;
        left -= (int64_t)got;
    }
    return CLT_OK;
}

clt_status clt_reader_some(clt_reader *reader, void *to, int64_t bytes, int64_t *got)
{
    size_t some = 0;
    *got = 0;
    CLT_TRY(reader->gzip ? inflate_some(reader, to, (size_t)bytes, &some)
                         : read_some(reader, to, (size_t)bytes, &some));
    reader->done += (int64_t)some;
    *got = (int64_t)some;
    return CLT_OK;
}

clt_status clt_reader_end(clt_reader *reader)
{
    unsigned char more;
    size_t got;
    clt_status status =
        reader->gzip ? inflate_some(reader, &more, 1, &got) : read_some(reader, &more, 1, &got);
    if (status != CLT_OK)
        return status;
    if (got)
        return clt_fail(CLT_FORMAT, "%s: trailing bytes after the %lld that its header announces",
                        reader->path, (long long)reader->done);
    return CLT_OK;
}

int64_t clt_reader_most_bytes(const clt_reader *reader)
{
    if (!reader->gzip)
        return reader->file_bytes;
    return reader->file_bytes < INT64_MAX / DEFLATE_MOST ? reader->file_bytes * DEFLATE_MOST
                                                         : INT64_MAX;
}

const char *clt_reader_path(const clt_reader *reader)
{
    return reader->path;
}

void clt_reader_close(clt_reader *reader)
{
    if (!reader)
        return;
    if (reader->gzip)
        inflateEnd(&reader->stream);
    if (reader->fd >= 0)
        close(reader->fd);
    CLT_FREE(reader->path, reader);
}
