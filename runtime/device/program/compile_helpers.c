#include "device/program/compile_helpers.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <cltrain/device.h>

#include "base/error.h"
#include "base/log.h"

enum { MOST_HELPERS = 16 };

typedef struct helper {
    pid_t pid;
    int socket; /* -1: it has ended */
    int serves; /* number of its request; -1: it is idle */
} helper;

static helper helpers[MOST_HELPERS];
static int n_helpers;
static pthread_mutex_t serving = PTHREAD_MUTEX_INITIALIZER;

bool clt_helper_read(int socket, void *data, size_t bytes)
{
    for (char *at = data; bytes;) {
        const ssize_t got = recv(socket, at, bytes, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        bytes -= (size_t)got;
    }
    return true;
}

bool clt_helper_write(int socket, const void *data, size_t bytes)
{
    for (const char *at = data; bytes;) {
        const ssize_t put = send(socket, at, bytes, MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        at += put;
        bytes -= (size_t)put;
    }
    return true;
}

int clt_helpers_count(void)
{
    int count = 0;
    for (int i = 0; i < n_helpers; i++)
        count += helpers[i].socket >= 0;
    return count;
}

static void end_helper(helper *h)
{
    if (h->socket >= 0)
        close(h->socket);
    h->socket = -1;
}

/* The sockets are closed first, so that all helpers end at once. */
static void end_all(void)
{
    for (int i = 0; i < n_helpers; i++)
        end_helper(&helpers[i]);
    for (int i = 0; i < n_helpers; i++)
        while (waitpid(helpers[i].pid, NULL, 0) < 0 && errno == EINTR)
            ;
    n_helpers = 0;
}

/* The parent decides when a helper ends, so signals to the whole process group do not. */
static void be_helper(int socket, pid_t parent)
{
    for (int i = 0; i < n_helpers; i++)
        end_helper(&helpers[i]);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if (getppid() == parent)
        clt_helper_run(socket);
    _exit(0);
}

static clt_status start_helper(void)
{
    int ends[2];
    const pid_t parent = getpid();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return clt_fail(CLT_IO, "processes that compile cannot be started: %s", strerror(errno));
    const pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        be_helper(ends[1], parent);
    }
    const int error = errno;
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return clt_fail(CLT_IO, "processes that compile cannot be started: %s", strerror(error));
    }
    helpers[n_helpers++] = (helper){pid, ends[0], -1};
    return CLT_OK;
}

clt_status clt_compile_processes(int count)
{
    if (count < 0 || count > MOST_HELPERS)
        return clt_fail(CLT_INVALID_ARGUMENT,
                        "%d processes that compile are not possible: give 0 to %d", count,
                        MOST_HELPERS);
    if (!count) {
        end_all();
        return CLT_OK;
    }
    if (n_helpers)
        return clt_fail(CLT_STATE, "there are processes that compile already: end them first");
    clt_status status = CLT_OK;
    for (int i = 0; status == CLT_OK && i < count; i++)
        status = start_helper();
    if (status != CLT_OK)
        end_all();
    return status;
}

static void give(helper *h, const char *const *requests, int number)
{
    const uint64_t bytes = strlen(requests[number]) + 1;
    if (clt_helper_write(h->socket, &bytes, sizeof bytes) &&
        clt_helper_write(h->socket, requests[number], bytes))
        h->serves = number;
    else
        end_helper(h);
}

/* Reads the answer of a helper. One that has ended, perhaps by a compiler's failure, answers no. */
static void take(helper *h, bool *done)
{
    char answer = CLT_HELPER_FAILED;
    if (!clt_helper_read(h->socket, &answer, 1)) {
        clt_log(CLT_LOG_INFO, "a process that compiles has ended; this process does its work");
        end_helper(h);
    }
    done[h->serves] = answer == CLT_HELPER_DONE;
    h->serves = -1;
}

/* Returns how many came, and the numbers of their requests. */
static int wait_for_answers(bool *done, int *numbers)
{
    struct pollfd waits[MOST_HELPERS];
    helper *of[MOST_HELPERS];
    int n = 0, taken = 0;
    for (int i = 0; i < n_helpers; i++)
        if (helpers[i].serves >= 0) {
            of[n] = &helpers[i];
            waits[n++] = (struct pollfd){helpers[i].socket, POLLIN, 0};
        }
    while (poll(waits, (nfds_t)n, -1) < 0 && errno == EINTR)
        ;
    for (int i = 0; i < n; i++)
        if (waits[i].revents) {
            numbers[taken++] = of[i]->serves;
            take(of[i], done);
        }
    return taken;
}

/* Gives each idle helper a request. Returns how many have one now. */
static int give_all(const char *const *requests, int count, int *next)
{
    int running = 0;
    for (int i = 0; i < n_helpers; i++) {
        helper *h = &helpers[i];
        if (*next < count && h->socket >= 0 && h->serves < 0) {
            give(h, requests, *next);
            *next += h->serves >= 0;
        }
        running += h->serves >= 0;
    }
    return running;
}

void clt_helpers_serve(const char *const *requests, int count, bool *done,
                       void (*report)(void *user, int number, int finished), void *user)
{
    int numbers[MOST_HELPERS], taken = 0, next = 0, finished = 0;
    pthread_mutex_lock(&serving);
    /* Ends when all is done, or when no helper is left. Helpers work while `report` runs. */
    for (;;) {
        const int running = give_all(requests, count, &next);
        for (int i = 0; i < taken; i++)
            report(user, numbers[i], ++finished);
        if (!running)
            break;
        taken = wait_for_answers(done, numbers);
    }
    pthread_mutex_unlock(&serving);
}
