/*
 * Locks a folder of checkpoints, so that it has one writer. The lock is flock on a file in the
 * folder, which the kernel releases whenever the process ends. The file's text only tells who holds
 * the lock.
 */
#include <cltrain/checkpoint.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "checkpoint/folder.h"

/* On some file systems a file has other numbers by its name than by its descriptor: give up. */
enum { MOST_TRIES = 100 };

struct clt_folder_lock {
    int folder, file;
};

/* Writes "process 123 on node7 since 2026-01-31 12:00:00 UTC". */
static void write_holder(int file)
{
    char text[400], host[256] = "", when[32] = "";
    struct tm parts;
    const time_t now = time(NULL);
    gethostname(host, sizeof host - 1);
    if (gmtime_r(&now, &parts))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &parts);
    const int length = snprintf(text, sizeof text, "process %lld on %s since %s UTC\n",
                                (long long)getpid(), host, when);
    /* On a full disk the lock still works, but messages cannot name its holder. A write that is cut
     * short does not set errno. */
    errno = ENOSPC;
    if (ftruncate(file, 0) != 0 || pwrite(file, text, (size_t)length, 0) != length)
        clt_log(CLT_LOG_WARN, "cannot write to the lock file %s who holds it: %s", CLT_LOCK_FILE,
                strerror(errno));
}

static clt_status busy(int file, const char *dir)
{
    char text[400];
    const ssize_t length = pread(file, text, sizeof text - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    for (char *at = text; *at; at++) /* any process may have written the text */
        if (*at < ' ' || *at > '~')
            *at = '?';
    return clt_fail(CLT_BUSY,
                    "the checkpoint folder %s is in use: %s holds its lock file %s. Wait until it "
                    "ends, or name another folder",
                    dir, *text ? text : "a process that has not written its number yet",
                    CLT_LOCK_FILE);
}

/* Goes on without a lock: some network file systems have none, and training must stay possible
 * there. */
static clt_status without_locks(const char *dir, bool *locked)
{
    *locked = false;
    clt_log(CLT_LOG_WARN,
            "the file system of the checkpoint folder %s has no locks (%s): nothing keeps another "
            "run from saving there",
            dir, strerror(errno));
    return CLT_OK;
}

static bool is_named(int folder, int file)
{
    struct stat own, named;
    return fstat(file, &own) == 0 &&
           fstatat(folder, CLT_LOCK_FILE, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

/* Opens and locks the file. Returns OK with *file -1 if the former holder has just removed the
 * file: try again. */
static clt_status try_file(int folder, const char *dir, int *file)
{
    struct stat info;
    bool locked = true;
    const int fd =
        openat(folder, CLT_LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    *file = -1;
    if (fd < 0)
        return clt_fail(CLT_IO, "cannot open the lock file %s/%s: %s", dir, CLT_LOCK_FILE,
                        strerror(errno));
    clt_status status = CLT_OK;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        status = clt_fail(CLT_IO, "%s/%s is not a regular file: remove it", dir, CLT_LOCK_FILE);
    else if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        status = errno == EWOULDBLOCK ? busy(fd, dir) : without_locks(dir, &locked);
    if (status == CLT_OK && (!locked || is_named(folder, fd))) {
        *file = fd;
        return CLT_OK;
    }
    close(fd);
    return status;
}

clt_status clt_folder_lock_take(const char *dir, clt_folder_lock **out)
{
    CLT_TRY(clt_folder_make(dir));
    const int folder = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return clt_fail(CLT_IO, "cannot open the folder %s: %s", dir, strerror(errno));
    int file = -1;
    clt_status status = CLT_OK;
    for (int tries = 0; status == CLT_OK && file < 0; tries++)
        status = tries < MOST_TRIES
                     ? try_file(folder, dir, &file)
                     : clt_fail(CLT_IO,
                                "cannot lock the checkpoint folder %s: its lock file %s was "
                                "replaced %d times. Name another folder",
                                dir, CLT_LOCK_FILE, MOST_TRIES);
    clt_folder_lock *lock = status == CLT_OK ? CLT_NEW(clt_folder_lock) : NULL;
    if (!lock) {
        if (file >= 0)
            close(file);
        close(folder);
        return status == CLT_OK ? CLT_OUT_OF_MEMORY : status;
    }
    *lock = (clt_folder_lock){folder, file};
    write_holder(file);
    *out = lock;
    return CLT_OK;
}

void clt_folder_lock_release(clt_folder_lock *lock)
{
    if (!lock)
        return;
    /* Remove the file while it is locked. Another process that has opened it by now finds another
     * file under the name, or none, and tries again. */
    if (is_named(lock->folder, lock->file))
        unlinkat(lock->folder, CLT_LOCK_FILE, 0);
    close(lock->file);
    close(lock->folder);
    clt_free(lock);
}
