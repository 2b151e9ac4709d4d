#include "device/cache_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"

/* Programs have some hundred KB; more than this is not a file of ours. */
#define MOST_BYTES ((off_t)256 << 20)

static bool make_path(char *out, const char *folder, const char *part, const char *name)
{
    int length = snprintf(out, PATH_MAX, "%s/%s/%s", folder, part, name);
    return length > 0 && length < PATH_MAX;
}

/* All of it or nothing. */
static bool read_all(int file, char *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = read(file, data + done, bytes - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        done += (size_t)got;
    }
    return true;
}

static bool write_all(int file, const char *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t put = write(file, data + done, bytes - done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        done += (size_t)put;
    }
    return true;
}

bool clt_cache_read(const char *folder, const char *part, const char *name, char **data,
                    size_t *bytes)
{
    char path[PATH_MAX];
    struct stat info;
    if (!make_path(path, folder, part, name))
        return false;
    /* Not blocking: the name may be a pipe's. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return false;
    char *content = NULL;
    bool ok = fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 &&
              info.st_size <= MOST_BYTES;
    if (ok)
        content = clt_alloc((size_t)info.st_size + 1);
    ok = ok && content && read_all(file, content, (size_t)info.st_size);
    close(file);
    if (!ok) {
        clt_free(content);
        return false;
    }
    content[info.st_size] = '\0';
    *data = content;
    *bytes = (size_t)info.st_size;
    return true;
}

/* mkdir -p; what exists already is fine. */
static bool make_folders(const char *folder, const char *part)
{
    char path[PATH_MAX];
    if (!make_path(path, folder, part, ""))
        return false;
    for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST && access(path, X_OK) != 0)
            return false;
        *slash = '/';
    }
    return true;
}

bool clt_cache_write(const char *folder, const char *part, const char *name, const void *head,
                     size_t head_bytes, const void *data, size_t bytes)
{
    char path[PATH_MAX], beside[PATH_MAX];
    if (!make_path(path, folder, part, name) || !make_path(beside, folder, part, ".new-XXXXXX") ||
        !make_folders(folder, part))
        return false;
    int file = mkostemp(beside, O_CLOEXEC);
    if (file < 0) {
        clt_log(CLT_LOG_DEBUG, "cache folder %s/%s: %s", folder, part, strerror(errno));
        return false;
    }
    /* Not synced: a file that a crash damages is found out by its hash. */
    bool ok = write_all(file, head, head_bytes) && write_all(file, data, bytes);
    ok = close(file) == 0 && ok;
    if (!ok || rename(beside, path) != 0) {
        unlink(beside);
        return false;
    }
    return true;
}
