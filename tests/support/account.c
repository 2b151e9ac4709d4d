/*
 * account FILE NAME PROGRAM ARGUMENT...: runs the program, and exits with its status. Appends a
 * line to FILE: the name, the wall-clock seconds, and the core-seconds of the program and of the
 * processes that it waited for. Every test runs under this program, and tools/test adds up the
 * lines.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int count, char **words)
{
    const double begin = now();
    int status = 0;
    struct rusage used;
    if (count < 4) {
        fprintf(stderr, "account: wants FILE NAME PROGRAM ARGUMENT...\n");
        return 2;
    }
    const pid_t child = fork();
    if (child == 0) {
        execvp(words[3], words + 3);
        fprintf(stderr, "account: %s: %s\n", words[3], strerror(errno));
        _exit(127);
    }
    if (child < 0)
        return 2;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    getrusage(RUSAGE_CHILDREN, &used);
    /* The file is opened for appending and written at once, so lines of tests that end together do
     * not mix. */
    FILE *file = fopen(words[1], "a");
    if (file) {
        fprintf(file, "%s\t%.3f\t%.3f\n", words[2], now() - begin,
                seconds(used.ru_utime) + seconds(used.ru_stime));
        fclose(file);
    }
    if (WIFSIGNALED(status)) {
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}
