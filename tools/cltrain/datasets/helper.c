#include "datasets/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "text/message.h"

extern char **environ;

/* Limit of the helper's processor time: a base in seconds, plus a second for so many bytes of the
 * file. */
enum { LEAST_SECONDS = 60, BYTES_A_SECOND = 5000000 };

static const char kind[] = "hdf5:";

static rlim_t seconds_for(const char *path)
{
    struct stat info;
    const off_t bytes = stat(path, &info) == 0 ? info.st_size : 0;
    rlim_t seconds = LEAST_SECONDS + (rlim_t)bytes / BYTES_A_SECOND;
#ifdef CLT_TESTING
    if (getenv("CLT_TESTING_TRIAL_SECONDS"))
        seconds = (rlim_t)atoi(getenv("CLT_TESTING_TRIAL_SECONDS"));
#endif
    return seconds;
}

/* Lets tests simulate a file on which libhdf5 crashes or never ends. */
static void misbehave(void)
{
#ifdef CLT_TESTING
    const char *how = getenv("CLT_TESTING_TRIAL");
    if (how && !strcmp(how, "crash"))
        raise(SIGSEGV);
    for (volatile int on = how && !strcmp(how, "endless"); on;)
        ;
#endif
}

int try_data(int argc, char **argv)
{
    if (argc != 5 || strncmp(argv[2], kind, strlen(kind)) != 0)
        return usage_error(TRY_DATA " is a part of other commands");
    const rlim_t seconds = seconds_for(argv[2] + strlen(kind));
    setrlimit(RLIMIT_CPU, &(struct rlimit){seconds, seconds + 1});
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    clt_dataset_options options;
    clt_dataset *data = NULL;
    clt_dataset_options_init(&options);
    options.split = argv[3];
    options.classes = atoll(argv[4]);
    misbehave();
    const clt_status status = clt_dataset_open(argv[2], &options, &data);
    clt_dataset_free(data);
    if (status != CLT_OK)
        fputs(clt_error_message(), stdout);
    return (int)status;
}

/* How the helper ended. */
typedef struct verdict {
    int signal; /* the signal that ended the helper, 0 for none */
    clt_status status;
    char message[4096];
} verdict;

/* Starts this program again with `output` as its standard output. Resets the signal mask and
 * handlers, since the command may block some signals. Returns an error number. */
static int start(char *const argv[], int output, pid_t *child)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    const int error = posix_spawn(child, "/proc/self/exe", &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

static void read_message(int fd, char *text, size_t room)
{
    size_t length = 0;
    for (ssize_t got; length + 1 < room;) {
        got = read(fd, text + length, room - 1 - length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        length += (size_t)got;
    }
    text[length] = '\0';
}

/* Runs the helper and waits for it. Returns an error number if no helper could run. */
static int run_helper(const char *spec, const clt_dataset_options *options, verdict *v)
{
    char classes[32], *words[2] = {strdup(spec), strdup(options->split)};
    int ends[2], state = 0, error = words[0] && words[1] ? 0 : ENOMEM;
    pid_t child = 0;
    snprintf(classes, sizeof classes, "%lld", (long long)options->classes);
    if (!error && pipe2(ends, O_CLOEXEC) != 0)
        error = errno;
    if (!error) {
        char *const argv[] = {"cltrain", TRY_DATA, words[0], words[1], classes, NULL};
        error = start(argv, ends[1], &child);
        close(ends[1]);
        if (!error)
            read_message(ends[0], v->message, sizeof v->message);
        close(ends[0]);
    }
    while (!error && waitpid(child, &state, 0) < 0)
        error = errno == EINTR ? 0 : errno;
    free(words[0]);
    free(words[1]);
    v->signal = !error && WIFSIGNALED(state) ? WTERMSIG(state) : 0;
    v->status = !error && WIFEXITED(state) ? (clt_status)WEXITSTATUS(state) : CLT_OK;
    return error;
}

static int is_crash(int number)
{
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGSYS};
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        if (number == crashes[i])
            return 1;
    return 0;
}

/* Sets the error that the helper reported, or the error for how the helper ended. */
static clt_status tell(const char *path, const verdict *v)
{
    char text[1200];
    if (v->status != CLT_OK)
        return clt_error_set(v->status, v->message);
    if (is_crash(v->signal))
        snprintf(
            text, sizeof text,
            "%.800s: is damaged: libhdf5 crashes when it reads the file (%s); h5dump or another "
            "copy may say more",
            path, strsignal(v->signal));
    else if (v->signal == SIGXCPU)
        snprintf(text, sizeof text,
                 "%.800s: is damaged: libhdf5 does not end reading it within %llu s of processor "
                 "time",
                 path, (unsigned long long)seconds_for(path));
    else
        snprintf(text, sizeof text, "%.800s: the process that tried the file was ended: %s", path,
                 strsignal(v->signal));
    return clt_error_set(is_crash(v->signal) || v->signal == SIGXCPU ? CLT_FORMAT : CLT_ABORTED,
                         text);
}

clt_status open_dataset(const char *spec, const clt_dataset_options *options, clt_dataset **out)
{
    verdict v = {0};
    if (!spec || strncmp(spec, kind, strlen(kind)) != 0)
        return clt_dataset_open(spec, options, out);
    const int error = run_helper(spec, options, &v);
    if (error)
        say("warning: %s is read without trying it in another process first: %s", spec,
            strerror(error));
    return v.signal || v.status != CLT_OK ? tell(spec + strlen(kind), &v)
                                          : clt_dataset_open(spec, options, out);
}
