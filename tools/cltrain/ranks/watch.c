#include "ranks/watch.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "text/message.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t over = PTHREAD_COND_INITIALIZER;
static pthread_t watcher;
static int watching;
static const char *call;
static double most_stopped, most_late;

static size_t read_all(const char *path, char *text, size_t room)
{
    FILE *file = fopen(path, "r");
    const size_t length = file ? fread(text, 1, room - 1, file) : 0;
    text[length] = '\0';
    if (file)
        fclose(file);
    return length;
}

/* Returns the rank that the process manager gave a process, or -1 if it is not known. */
static int rank_of(int pid)
{
    static const char *const names[] = {
        "PMI_RANK=", "OMPI_COMM_WORLD_RANK=", "PMIX_RANK=", "PALS_RANKID="};
    static char text[1 << 17];
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    const size_t length = read_all(path, text, sizeof text);
    for (const char *at = text; at < text + length; at += strlen(at) + 1)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (!strncmp(at, names[i], strlen(names[i])))
                return atoi(at + strlen(names[i]));
    return -1;
}

/* Lists the stopped ranks of this node. These are children of the same process. */
static void find_stopped(char *out, size_t room)
{
    DIR *folder = opendir("/proc");
    size_t used = 0;
    *out = '\0';
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[48], text[1024], state = 0;
        const int pid = atoi(entry->d_name);
        int parent = 0;
        if (pid < 1)
            continue;
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        read_all(path, text, sizeof text);
        const char *at = strrchr(text, ')');
        if (!at || sscanf(at + 1, " %c %d", &state, &parent) != 2 || parent != getppid() ||
            (state != 'T' && state != 't') || used >= room)
            continue;
        used += (size_t)snprintf(out + used, room - used, "%srank %d (process %d) is stopped",
                                 used ? ", " : "", rank_of(pid), pid);
    }
    if (folder)
        closedir(folder);
}

/* Prints a message and ends the process. The process manager then ends the other ranks. */
static void end_process(double seconds, const char *who)
{
    say("%s has not returned for %g s: %s", call, seconds,
        *who ? who : "another rank was not started, is stopped on another node, or hangs");
    _exit(EXIT_FAILED);
}

/* Returns when unwatch is called, or ends the process. */
static void *run(void *arg)
{
    enum { LOOKS = 10 }; /* checks per second */
    char who[600] = "";
    (void)arg;
    pthread_mutex_lock(&lock);
    for (int looks = 0, stopped = 0; watching; looks++) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 1000000000 / LOOKS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (pthread_cond_timedwait(&over, &lock, &until) != ETIMEDOUT)
            continue;
        if (most_stopped > 0)
            find_stopped(who, sizeof who);
        stopped = *who ? stopped + 1 : 0;
        if (*who && stopped > most_stopped * LOOKS)
            end_process(most_stopped, who);
        if (most_late > 0 && looks > most_late * LOOKS)
            end_process(most_late, who);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

void watch(const char *what, double stopped, double late)
{
    call = what;
    most_stopped = stopped;
    most_late = late;
    watching = 1;
    if (pthread_create(&watcher, NULL, run, NULL) != 0)
        watching = 0;
}

void unwatch(void)
{
    if (!watching)
        return;
    pthread_mutex_lock(&lock);
    watching = 0;
    pthread_cond_signal(&over);
    pthread_mutex_unlock(&lock);
    pthread_join(watcher, NULL);
}

/* --- the process manager --------------------------------------------------------------------- */

static atomic_int no_manager;
static int manager;         /* descriptor that becomes readable when the manager ends */
static double manager_late; /* seconds that a rank may take to save */

static int parent_of(int pid)
{
    char path[48], text[1024];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    read_all(path, text, sizeof text);
    const char *at = strrchr(text, ')');
    return at && sscanf(at + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

/* Returns the nearest ancestor without a rank of its own. A script between the manager and the
 * command has the rank's environment. Returns 0 if there is only the system's first process. */
static int find_manager(void)
{
    int pid = getppid();
    while (pid > 1 && rank_of(pid) >= 0)
        pid = parent_of(pid);
    return pid > 1 ? pid : 0;
}

static void *wait_for_manager(void *arg)
{
    struct pollfd ended = {.fd = manager, .events = POLLIN};
    (void)arg;
    while (poll(&ended, 1, -1) < 0 && errno == EINTR)
        ;
    atomic_store(&no_manager, 1);
    for (double left = manager_late; left > 0; left -= 0.1)
        nanosleep(&(struct timespec){0, 100000000}, NULL);
    if (manager_late > 0)
        say("the process manager that started this rank has ended, and the rank could not save and "
            "end within %g s",
            manager_late);
    else
        say("the process manager that started this rank has ended");
    _exit(EXIT_FAILED);
}

void watch_manager(double seconds)
{
    pthread_t thread;
    const int pid = find_manager();
    manager_late = seconds;
    /* Linux before 5.3 has no pidfd_open, so the manager is not watched. */
    manager = pid ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    if (manager < 0)
        return;
    if (pthread_create(&thread, NULL, wait_for_manager, NULL) == 0)
        pthread_detach(thread);
    else
        close(manager);
}

int manager_ended(void)
{
    return atomic_load(&no_manager);
}
