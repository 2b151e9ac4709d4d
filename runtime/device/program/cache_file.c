#include "device/program/cache_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cltrain/unstable.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "base/vec.h"

/* Programs have some hundred KB: a larger file is not ours. */
#define MOST_BYTES ((off_t)256 << 20)

static bool make_path(char *out, const char *folder, const char *part, const char *name)
{
    int length = snprintf(out, PATH_MAX, "%s/%s/%s", folder, part, name);
    return length > 0 && length < PATH_MAX;
}

/* Reads all bytes, or fails. */
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
        if (put == 0)
            errno = ENOSPC;
        if (put <= 0)
            return false;
        done += (size_t)put;
    }
    return true;
}

/* Whether the file belongs to this user or root, and nobody else may write to it. The mode's group
 * bits also limit ACLs. */
static bool is_private(int file)
{
    struct stat info;
    return file >= 0 && fstat(file, &info) == 0 && (info.st_uid == geteuid() || info.st_uid == 0) &&
           !(info.st_mode & (S_IWGRP | S_IWOTH));
}

static clt_status distrust(const char *path)
{
    return clt_fail(CLT_IO,
                    "cache folder %s: compiled kernels in it are not used, since it belongs to "
                    "another user, or others may write to it: `chmod go-w` it, or name another "
                    "cache folder",
                    path);
}

/* Opens folder/part if both are private. *part_fd is -1 if they do not exist. Works on descriptors,
 * so that nobody can exchange a folder after its check. */
static clt_status open_private(const char *folder, const char *part, int *part_fd)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    const int outer = open(folder, flags);
    clt_status status = outer < 0 || is_private(outer) ? CLT_OK : distrust(folder);
    *part_fd = -1;
    if (outer >= 0 && status == CLT_OK)
        *part_fd = openat(outer, part, flags);
    if (outer >= 0)
        close(outer);
    if (*part_fd >= 0 && !is_private(*part_fd)) {
        char path[PATH_MAX];
        close(*part_fd);
        *part_fd = -1;
        status = distrust(make_path(path, folder, part, "") ? path : folder);
    }
    return status;
}

clt_status clt_cache_check(const char *folder, const char *part)
{
    int fd;
    const clt_status status = open_private(folder, part, &fd);
    if (fd >= 0)
        close(fd);
    return status;
}

/* Reads a file and closes the descriptor. */
static bool read_content(int file, char **data, size_t *bytes)
{
    struct stat info;
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

bool clt_cache_read_private(const char *folder, const char *part, const char *name, char **data,
                            size_t *bytes)
{
    int part_fd;
    if (open_private(folder, part, &part_fd) != CLT_OK || part_fd < 0)
        return false;
    const int file = openat(part_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    close(part_fd);
    if (is_private(file))
        return read_content(file, data, bytes);
    if (file >= 0)
        close(file);
    return false;
}

bool clt_cache_read(const char *folder, const char *part, const char *name, char **data,
                    size_t *bytes)
{
    char path[PATH_MAX];
    if (!make_path(path, folder, part, name))
        return false;
    /* O_NONBLOCK, because the name may be that of a pipe. */
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return file >= 0 && read_content(file, data, bytes);
}

/* Makes all missing folders, like mkdir -p. */
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
    /* No sync is needed: the hash reveals a file that a crash has damaged. */
    bool ok = write_all(file, head, head_bytes) && write_all(file, data, bytes);
    int error = errno;
    if (close(file) != 0 && ok) {
        ok = false;
        error = errno;
    }
    if (ok && rename(beside, path) == 0)
        return true;
    error = ok ? errno : error;
    unlink(beside);
    errno = error;
    return false;
}

int clt_cache_lock(const char *folder, const char *part)
{
    char path[PATH_MAX];
    if (!make_path(path, folder, part, "") || !make_folders(folder, part))
        return -1;
    /* Lock the folder itself, so that no lock file is left. The kernel releases the lock with the
     * process. */
    const int lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int code = -1;
    while (lock >= 0 && (code = flock(lock, LOCK_EX)) != 0 && errno == EINTR)
        ;
    if (lock >= 0 && code != 0) {
        close(lock);
        return -1;
    }
    return lock;
}

void clt_cache_unlock(int lock)
{
    if (lock >= 0)
        close(lock);
}

bool clt_cache_exists(const char *folder, const char *part, const char *name)
{
    char path[PATH_MAX];
    return make_path(path, folder, part, name) && access(path, F_OK) == 0;
}

void clt_cache_remove(const char *folder, const char *part, const char *name)
{
    char path[PATH_MAX];
    if (make_path(path, folder, part, name))
        unlink(path);
}

typedef struct cache_entry {
    char name[NAME_MAX + 1];
    int64_t bytes;
    struct timespec time;
} cache_entry;

static int older_first(const void *a, const void *b)
{
    const struct timespec *x = &((const cache_entry *)a)->time,
                          *y = &((const cache_entry *)b)->time;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

void clt_cache_trim(const char *folder, const char *part, int64_t most_bytes)
{
    char path[PATH_MAX];
    cache_entry *entries = NULL;
    int count = 0, room = 0;
    int64_t total = 0;
    DIR *dir = make_path(path, folder, part, "") ? opendir(path) : NULL;
    if (!dir)
        return;
    for (struct dirent *file; (file = readdir(dir));) {
        struct stat info;
        cache_entry entry = {.bytes = 0};
        if (fstatat(dirfd(dir), file->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(info.st_mode))
            continue;
        memcpy(entry.name, file->d_name, strlen(file->d_name) + 1);
        entry.bytes = info.st_size;
        entry.time = info.st_mtim;
        if (CLT_PUSH(entries, count, room, entry) != CLT_OK)
            break;
        total += entry.bytes;
    }
    if (total > most_bytes)
        qsort(entries, (size_t)count, sizeof *entries, older_first);
    for (int i = 0; i < count && total > most_bytes; i++) {
        if (unlinkat(dirfd(dir), entries[i].name, 0) == 0)
            total -= entries[i].bytes;
    }
    closedir(dir);
    clt_free(entries);
}
