#include "output/file_lock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "text/message.h"

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int patience_left(patience *p, const char *why)
{
    const struct timespec pause = {0, 100000000};
    const double now = seconds_of(CLOCK_MONOTONIC);
    if (p->began <= 0)
        p->began = now;
    if (now - p->began >= p->seconds || (p->asked && p->asked()))
        return 0;
    if (p->noted == 0)
        say("%s. Trying again for %g s, in case that process is just ending", why, p->seconds);
    p->noted = 1;
    nanosleep(&pause, NULL);
    return 1;
}

int hold_folder(const char *dir, patience *p, clt_folder_lock **lock)
{
    clt_status status;
    do
        status = clt_folder_lock_take(dir, lock);
    while (status == CLT_BUSY && patience_left(p, clt_error_message()));
    if (status == CLT_IO)
        return failure("cannot write to the checkpoint folder %s: %s", dir, clt_error_message());
    return library_failure(status);
}

/* Writes when a process of this host began, "" if /proc does not tell. */
static void find_begin(int pid, char text[48])
{
    char path[48], line[1024];
    unsigned long long ticks;
    struct tm parts;
    *text = '\0';
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    const char *at = file && fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    /* The start time is field 22 of the line. Field 3 is the first after the name in brackets. */
    if (at && sscanf(at + 1,
                     " %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                     "%*s %llu",
                     &ticks) == 1) {
        const double age =
            seconds_of(CLOCK_BOOTTIME) - (double)ticks / (double)sysconf(_SC_CLK_TCK);
        const time_t began = time(NULL) - (time_t)age;
        if (gmtime_r(&began, &parts))
            strftime(text, 48, ", begun %Y-%m-%d %H:%M:%S UTC,", &parts);
    }
    if (file)
        fclose(file);
}

/* Finds the process that has locked the file. The kernel lists only the locks of this host. */
static void find_holder(int fd, char text[160])
{
    char line[256], begin[48];
    struct stat info;
    snprintf(text, 160, "a process of another host or container");
    FILE *file = fstat(fd, &info) == 0 ? fopen("/proc/locks", "r") : NULL;
    while (file && fgets(line, sizeof line, file)) {
        int pid;
        unsigned major_, minor_;
        unsigned long long inode;
        if (sscanf(line, "%*s FLOCK %*s WRITE %d %x:%x:%llu", &pid, &major_, &minor_, &inode) !=
                4 ||
            inode != info.st_ino || major_ != major(info.st_dev) || minor_ != minor(info.st_dev))
            continue;
        find_begin(pid, begin);
        snprintf(text, 160, "process %d of this host%s", pid, begin);
    }
    if (file)
        fclose(file);
}

int hold_file(int fd, const char *what, const char *path, patience *p)
{
    struct stat info;
    char holder[160], why[5000];
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        return 0;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) {
            say("warning: the file system of the %s %s has no locks (%s): nothing keeps another "
                "run from writing there",
                what, path, strerror(errno));
            return 0;
        }
        find_holder(fd, holder);
        snprintf(why, sizeof why, "the %s %s is in use: %s has locked it", what, path, holder);
        if (!patience_left(p, why))
            return failure("%s. Wait until it ends, or name another file", why);
    }
    return 0;
}
