#include "base/user_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"

/* O_NONBLOCK keeps open from waiting for the other end of a named pipe. Tests set CLT_TESTING_PIPES
 * to make it wait: they need ranks that never finish opening their data. */
static int open_flags(void)
{
    const int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY;
#ifdef CLT_TESTING
    if (getenv("CLT_TESTING_PIPES"))
        return flags;
#endif
    return flags | O_NONBLOCK;
}

static clt_status cannot_open(const char *path, int error)
{
    return clt_fail(error == ENOENT || error == ENOTDIR ? CLT_NOT_FOUND : CLT_IO,
                    "%s: cannot be opened: %s", path, strerror(error));
}

static clt_status not_regular(const char *path, mode_t mode)
{
    const char *what = S_ISDIR(mode)    ? "a folder"
                       : S_ISFIFO(mode) ? "a pipe"
                       : S_ISSOCK(mode) ? "a socket"
                                        : "a device";
    return clt_fail(CLT_IO, "%s: is not a regular file but %s", path, what);
}

static clt_status open_any(const char *path, int *fd, struct stat *info)
{
    const int file = open(path, open_flags());
    if (file < 0)
        return cannot_open(path, errno);
    if (fstat(file, info) != 0) {
        const int error = errno;
        close(file);
        return cannot_open(path, error);
    }
    *fd = file;
    return CLT_OK;
}

clt_status clt_file_open(const char *path, int *fd, int64_t *bytes)
{
    struct stat info;
    int file = -1;
    CLT_TRY(open_any(path, &file, &info));
    if (!S_ISREG(info.st_mode)) {
        close(file);
        return not_regular(path, info.st_mode);
    }
    *fd = file;
    *bytes = info.st_size;
    return CLT_OK;
}

/* Whether the path names a descriptor of this process. */
static int is_own(const char *path)
{
    static const char *const places[] = {"/dev/fd/", "/proc/self/fd/"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const size_t length = strlen(places[i]);
        if (!strncmp(path, places[i], length) && path[length] &&
            !path[length + strspn(path + length, "0123456789")])
            return 1;
    }
    return !strcmp(path, "/dev/stdin");
}

clt_status clt_text_open(const char *path, int *fd)
{
    struct stat info;
    int file = -1;
    CLT_TRY(open_any(path, &file, &info));
    const int takes = S_ISREG(info.st_mode) || (is_own(path) && !S_ISDIR(info.st_mode));
    if (!takes) {
        close(file);
        return not_regular(path, info.st_mode);
    }
    /* Reading may wait for the writer of a pipe. The flag is cleared only here: this descriptor is
     * a new one for the same pipe. */
    const int flags = fcntl(file, F_GETFL);
    if (flags < 0 || fcntl(file, F_SETFL, flags & ~O_NONBLOCK) != 0) {
        const int error = errno;
        close(file);
        return cannot_open(path, error);
    }
    *fd = file;
    return CLT_OK;
}

clt_status clt_file_read_at(int fd, const char *path, int64_t offset, void *to, int64_t bytes)
{
    char *next = to;
    for (int64_t done = 0; done < bytes;) {
        const ssize_t got = pread(fd, next + done, (size_t)(bytes - done), offset + done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return clt_fail(CLT_IO, "%s: cannot be read: %s", path, strerror(errno));
        if (got == 0)
            return clt_fail(CLT_IO,
                            "%s: was shortened while it was read: %lld bytes at byte %lld are "
                            "missing",
                            path, (long long)(bytes - done), (long long)(offset + done));
        done += got;
    }
    return CLT_OK;
}

clt_status clt_file_read_all(const char *path, int64_t most, char **text, size_t *bytes)
{
    int fd = -1;
    int64_t size = 0;
    CLT_TRY(clt_file_open(path, &fd, &size));
    char *content = NULL;
    clt_status status = size <= most ? CLT_OK
                                     : clt_fail(CLT_FORMAT, "%s: has %lld bytes; %lld are the most",
                                                path, (long long)size, (long long)most);
    if (status == CLT_OK && !(content = clt_alloc((size_t)size + 1)))
        status = clt_fail_prefix(CLT_OUT_OF_MEMORY, "%s: ", path);
    CLT_NEXT(status, clt_file_read_at(fd, path, 0, content, size));
    close(fd);
    if (status != CLT_OK) {
        clt_free(content);
        return status;
    }
    content[size] = '\0';
    *text = content;
    *bytes = (size_t)size;
    return CLT_OK;
}
