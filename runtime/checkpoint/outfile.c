#include "checkpoint/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/alloc.h"
#include "base/error.h"

/* Data are hashed and written in pieces of this size, so that write finds them in the cache. */
enum { PIECE_BYTES = 1 << 20 };

struct clt_outfile {
    int fd;
    char *name;
    int64_t written;
    XXH3_state_t *hash;
};

clt_status clt_outfile_create(int folder_fd, const char *name, clt_outfile **out)
{
    clt_outfile *file = CLT_NEW(clt_outfile);
    CLT_TRY_MEMORY(file);
    file->fd = -1;
    file->name = clt_strdup(name);
    file->hash = XXH3_createState();
    if (!file->name || !file->hash) {
        clt_outfile_abandon(file);
        return clt_fail(CLT_OUT_OF_MEMORY, "out of host memory while creating %s", name);
    }
    XXH3_64bits_reset(file->hash);
    file->fd = openat(folder_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file->fd < 0) {
        int error = errno;
        clt_outfile_abandon(file);
        return clt_fail(CLT_IO, "cannot create %s: %s", name, strerror(error));
    }
    *out = file;
    return CLT_OK;
}

static clt_status write_piece(clt_outfile *file, const unsigned char *data, size_t bytes)
{
    XXH3_64bits_update(file->hash, data, bytes);
    while (bytes) {
        ssize_t done = write(file->fd, data, bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return clt_fail(CLT_IO, "cannot write %s after %lld bytes: %s", file->name,
                            (long long)file->written, strerror(done < 0 ? errno : ENOSPC));
        data += done;
        bytes -= (size_t)done;
        file->written += done;
    }
    return CLT_OK;
}

clt_status clt_outfile_write(clt_outfile *file, const void *data, int64_t bytes)
{
    const unsigned char *at = data;
    while (bytes > 0) {
        int64_t piece = bytes < PIECE_BYTES ? bytes : PIECE_BYTES;
        CLT_TRY(write_piece(file, at, (size_t)piece));
        at += piece;
        bytes -= piece;
    }
    return CLT_OK;
}

clt_status clt_outfile_finish(clt_outfile *file, int64_t *bytes, uint64_t *hash)
{
    clt_status status = CLT_OK;
    if (fsync(file->fd) != 0)
        status = clt_fail(CLT_IO, "cannot bring %s to the disk: %s", file->name, strerror(errno));
    int fd = file->fd;
    file->fd = -1;
    /* Linux releases the descriptor even if close fails, so it must not be closed twice. */
    if (close(fd) != 0 && status == CLT_OK && errno != EINTR)
        status = clt_fail(CLT_IO, "cannot close %s: %s", file->name, strerror(errno));
    if (status == CLT_OK && bytes)
        *bytes = file->written;
    if (status == CLT_OK && hash)
        *hash = XXH3_64bits_digest(file->hash);
    clt_outfile_abandon(file);
    return status;
}

void clt_outfile_abandon(clt_outfile *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    if (file->hash)
        XXH3_freeState(file->hash);
    CLT_FREE(file->name, file);
}

clt_status clt_sync_fd(int folder_fd, const char *name)
{
    /* Some file systems cannot sync folders and report it. That is no error. */
    if (fsync(folder_fd) == 0 || errno == EINVAL || errno == ENOTSUP)
        return CLT_OK;
    return clt_fail(CLT_IO, "cannot bring the folder %s to the disk: %s", name, strerror(errno));
}

clt_status clt_sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return clt_fail(CLT_IO, "cannot open the folder %s: %s", path, strerror(errno));
    clt_status status = clt_sync_fd(fd, path);
    close(fd);
    return status;
}
