/* `cltrain train`. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "options/commands.h"
#include "output/file_lock.h"
#include "output/first_step.h"
#include "job/async.h"
#include "job/choose_mesh.h"
#include "job/compile_processes.h"
#include "job/job.h"
#include "job/measure_later.h"
#include "job/policies.h"
#include "job/validation.h"
#include "text/message.h"
#include "output/metrics.h"
#include "job/change.h"
#include "commands/profiles.h"
#include "output/progress.h"
#include "job/device_split.h"
#include "job/first_parameters.h"
#include "job/global_batch.h"
#include "saved/label_names.h"
#include "saved/same_use.h"
#include "ranks/watch.h"

/* --- signals --------------------------------------------------------------------------------- */

static volatile sig_atomic_t stopped_by;

/* `timeout` sends its signal to the command, and at once again to the command's process group. A
 * signal that comes again in this time is not a second one, which would end the run unsaved. */
static const double SAME_SIGNAL_SECONDS = 0.5;

static void on_signal(int number)
{
    static struct timespec first;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const double waited =
        (double)(now.tv_sec - first.tv_sec) + 1e-9 * (double)(now.tv_nsec - first.tv_nsec);
    if (stopped_by != number) {
        stopped_by = number;
        first = now;
    } else if (waited > SAME_SIGNAL_SECONDS) {
        signal(number, SIG_DFL);
        raise(number); /* takes effect when this handler returns */
    }
}

/* Blocked signals, which are polled. Handlers would not be reliable: compilers in OpenCL drivers
 * (LLVM) and MPI's transports replace handlers. Schedulers send SIGUSR1 when the time of a job
 * ends. SIGHUP comes when the terminal is closed, unless nohup ignores it. cltrain-launch sends
 * SIGUSR2 before it starts the run again on another number of ranks. */
static sigset_t notices;

/* Whether the command was started with these signals ignored. Read before the initialisers of
 * libraries run, since UCX's initialiser takes SIGHUP. */
static int ignores_hangup, ignores_pipe;

static int is_ignored(int number)
{
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

static void read_ignored(void)
{
    ignores_hangup = is_ignored(SIGHUP);
    ignores_pipe = is_ignored(SIGPIPE);
}

__attribute__((section(".preinit_array"),
               used)) static void (*const before_libraries)(void) = read_ignored;

void hold_notice(void)
{
    sigemptyset(&notices);
    sigaddset(&notices, SIGUSR1);
    sigaddset(&notices, SIGHUP);
    sigaddset(&notices, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &notices, NULL);
    if (ignores_hangup)
        sigdelset(&notices, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
}

/* A second signal of the same kind has the default action. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGINT);
    sigaddset(&action.sa_mask, SIGTERM);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* Stands in for a signal number when the process manager has ended: nothing else would end this
 * rank. */
enum { NO_MANAGER = 1000 };

/* Returns the signal that ends the run, or 0. */
static int stop_signal(void)
{
    const struct timespec none = {0, 0};
    const int noticed = stopped_by ? 0 : sigtimedwait(&notices, NULL, &none);
    if (noticed > 0)
        stopped_by = noticed;
    else if (!stopped_by && manager_ended())
        stopped_by = NO_MANAGER;
    else if (!stopped_by && !ignores_pipe && ferror(stdout)) /* its reader has ended */
        stopped_by = SIGPIPE;
    return stopped_by;
}

/* Returns the exit code of a stopped run. Every signal but SIGINT and SIGUSR2 gives 128 + SIGTERM,
 * as a shell reports for a process that SIGTERM ended. */
static int stop_code(void)
{
    return stopped_by == SIGUSR2 ? EXIT_AGAIN : stopped_by == SIGINT ? 128 + SIGINT : 128 + SIGTERM;
}

static const char *signal_name(void)
{
    return stopped_by == SIGINT       ? "SIGINT"
           : stopped_by == SIGUSR1    ? "SIGUSR1"
           : stopped_by == SIGUSR2    ? "asked to save and end (SIGUSR2)"
           : stopped_by == SIGHUP     ? "SIGHUP"
           : stopped_by == SIGPIPE    ? "nobody reads standard output any more"
           : stopped_by == NO_MANAGER ? "the process manager that started this rank has ended"
                                      : "SIGTERM";
}

/* --- reports --------------------------------------------------------------------------------- */

typedef struct run {
    const settings *settings; /* `own` */
    settings own;             /* as given, with the mesh that --parallel auto chose */
    job job;
    clt_folder_lock *lock; /* lock of --checkpoint-dir */
    metrics *metrics;
    change change;
    progress progress;
    int metrics_failed;
    int measuring;
    int processes; /* that compile, until the first step */
    int stepped;
    int quiet; /* set on all ranks but the first, too */
    int64_t skipped;
    double loss_scale; /* with f16: of the last step */
} run;

/* Everything is compiled then. */
static void end_first_step(run *r)
{
    r->stepped = 1;
    clt_compile_processes(0);
    if (r->settings->first_step && !r->quiet) {
        progress_end(&r->progress);
        first_step_print(r->job.devices, r->job.n_devices, r->processes);
    }
}

static void on_step(void *user, const clt_progress *step)
{
    run *r = user;
    if (!r->stepped)
        end_first_step(r);
    r->skipped = step->skipped;
    r->loss_scale = step->loss_scale;
    if (r->change.due && change_report(&r->change, step, r->metrics, r->quiet) != 0)
        r->metrics_failed = 1;
    if (r->metrics && metrics_step(r->metrics, step) != 0)
        r->metrics_failed = 1;
    progress_step(&r->progress, step);
    if (step->split && step->step > r->progress.first + 1)
        progress_split(&r->progress, step);
}

static void on_epoch(void *user, const clt_progress *epoch)
{
    run *r = user;
    if (r->metrics && metrics_epoch(r->metrics, r->job.graph, epoch) != 0)
        r->metrics_failed = 1;
    progress_epoch(&r->progress, r->job.graph, epoch);
}

static void on_validation(void *user, const clt_progress *now)
{
    run *r = user;
    if (r->metrics && metrics_validation(r->metrics, r->job.graph, now) != 0)
        r->metrics_failed = 1;
    progress_validation(&r->progress, r->job.graph, now);
}

static void on_policy(void *user, int64_t step, const char *what)
{
    run *r = user;
    progress_note(&r->progress, step, what);
}

/* Flushes the metrics, so that a resumed run finds all records up to its checkpoint. */
static void on_checkpoint(void *user)
{
    run *r = user;
    if (r->metrics && metrics_flush(r->metrics) != 0)
        r->metrics_failed = 1;
}

/* Called while kernels of new shapes are measured. Returns whether to stop. */
static int on_tune(void *user)
{
    run *r = user;
    first_step_measures();
    if (!r->measuring && !r->quiet) {
        printf("measuring kernels for new shapes%s (--tune SECONDS says how long, off leaves it "
               "out)\n",
               r->job.measure_later > 0 ? ", for later runs" : "");
        fflush(stdout);
    }
    r->measuring = 1;
    return stop_signal() != 0;
}

static int should_stop(void *user)
{
    const run *r = user;
    return stop_signal() || r->metrics_failed;
}

/* --- options --------------------------------------------------------------------------------- */

static int read_fit(const run *r, clt_fit_options *fit)
{
    const settings *s = r->settings;
    job_fit(&r->job, s, fit);
    if (s->shuffle && strcmp(s->shuffle, "on") && strcmp(s->shuffle, "off"))
        return usage_error("--shuffle %s: must be on or off", s->shuffle);
    const int continued = s->windows && !strcmp(s->windows, "continued");
    if (continued && s->shuffle && !strcmp(s->shuffle, "on"))
        return usage_error("--windows continued and --shuffle on exclude each other");
    fit->shuffle = !continued && (!s->shuffle || !strcmp(s->shuffle, "on"));
    if (!s->checkpoint_dir && (s->checkpoint_every || job_resumes(s) || s->keep >= 0))
        return usage_error("--%s needs --checkpoint-dir", s->checkpoint_every ? "checkpoint-every"
                                                          : s->resume         ? "resume"
                                                          : s->resume_intact  ? "resume-intact"
                                                                              : "keep");
    fit->checkpoint_dir = s->checkpoint_dir;
    fit->resume = job_resumes(s);
    if (s->keep >= 0)
        fit->keep = s->keep;
    if (s->checkpoint_every && !strcmp(s->checkpoint_every, "epoch")) {
        fit->checkpoint_every = -1;
    } else if (s->checkpoint_every) {
        char *end;
        errno = 0;
        fit->checkpoint_every = strtoll(s->checkpoint_every, &end, 10);
        if (errno || *end || fit->checkpoint_every < 1)
            return usage_error("--checkpoint-every %s: must be a number of steps of at least 1, or "
                               "epoch",
                               s->checkpoint_every);
    }
    return 0;
}

/* --- checking output paths -------------------------------------------------------------------- */

static int cannot_write(const char *dir)
{
    return failure("cannot write to the checkpoint folder %s: %s", dir, strerror(errno));
}

/* Makes the folder and its parent folders. */
static int make_folders(const char *dir)
{
    char *path = strdup(dir);
    TRY_MEMORY(path);
    int made = 0;
    for (char *at = path + 1;; at++) {
        const char end = *at;
        if (end && end != '/')
            continue;
        *at = '\0';
        made = mkdir(path, 0777) == 0 || errno == EEXIST || errno == EISDIR;
        *at = end;
        if (!end)
            break;
    }
    free(path);
    return made ? 0 : cannot_write(dir);
}

static int holds_checkpoint(const char *dir)
{
    DIR *folder = opendir(dir);
    int found = 0;
    for (const struct dirent *entry; folder && (entry = readdir(folder));)
        found |= !strncmp(entry->d_name, "step-", 5);
    if (folder)
        closedir(folder);
    return found;
}

/* Returns the exit code of a signal that came before there is anything to save, or 0. */
static int asked_to_end(void)
{
    return stop_signal() ? stop_code() : 0;
}

/* Seconds that a resumed run waits for the previous run to end. */
static const double ENDING = 30;

/* Locks the checkpoint folder, before the newest checkpoint is searched: a run that still saves
 * would add another one. A missing folder is made later, when nothing else in the command is
 * wrong. */
static int lock_folder(run *r)
{
    const char *dir = r->settings->checkpoint_dir;
    patience p = {.seconds = job_resumes(r->settings) ? ENDING : 0, .asked = asked_to_end};
    struct stat info;
    if (!dir || r->lock || !ranks_prints(&r->job.ranks) || stat(dir, &info) != 0 ||
        !S_ISDIR(info.st_mode))
        return 0;
    return hold_folder(dir, &p, &r->lock);
}

/* Makes and locks the checkpoint folder. A new run must not mix its checkpoints with another
 * run's. */
static int check_folder(run *r)
{
    const char *dir = r->settings->checkpoint_dir;
    if (!dir)
        return 0;
    int code = make_folders(dir);
    NEXT(code, lock_folder(r));
    if (code)
        return code;
    if (!job_resumes(r->settings) && holds_checkpoint(dir))
        return usage_error("%s holds checkpoints already: --resume goes on from them, or name "
                           "another folder",
                           dir);
    char *probe = malloc(strlen(dir) + 16);
    TRY_MEMORY(probe);
    sprintf(probe, "%s/.write-XXXXXX", dir);
    const int fd = mkstemp(probe);
    const int error = errno;
    if (fd >= 0) {
        close(fd);
        unlink(probe);
    }
    free(probe);
    errno = error;
    return fd < 0 ? cannot_write(dir) : 0;
}

/* Whether the loss has a scale that all steps share. Asynchronous workers have one each, which they
 * do not report. */
static int has_one_scale(const run *r)
{
    return r->job.options.precision == CLT_F16 && r->settings->async < 0;
}

static int open_metrics(run *r)
{
    const settings *s = r->settings;
    patience p = {.seconds = job_resumes(s) ? ENDING : 0, .asked = asked_to_end};
    if (!s->metrics && !s->tensorboard)
        return 0;
    return metrics_open(s->metrics, s->tensorboard, job_resumes(s), has_one_scale(r), &p,
                        &r->metrics);
}

static int end_early(int code)
{
    if (code || !stop_signal())
        return code;
    if (stopped_by != SIGUSR2)
        say("%s before the first step", signal_name());
    return stop_code();
}

static int should_end(void *user)
{
    (void)user;
    return stop_signal() != 0;
}

static int set_up(run *r, clt_fit_options *fit)
{
    const settings *s = r->settings;
    ranks_interrupt(asked_to_end);
    int code = job_ranks(&r->job, s);
    r->quiet = s->quiet || !ranks_prints(&r->job.ranks);
    if (!r->quiet)
        clt_compile_set(first_step_compile, NULL);
    NEXT(code, job_read(&r->job, s));
    NEXT(code, job_replay(&r->job, s));
    if (!code && async_role_of(s) == WORKER)
        clt_async_worker_options(&r->job.options);
    NEXT(code, check_split(s));
    NEXT(code, check_validation(s));
    NEXT(code, check_policies(s));
    NEXT(code, read_fit(r, fit));
    NEXT(code, lock_folder(r));
    ranks_stage("the checkpoint folder to be free");
    code = ranks_agree(&r->job.ranks, end_early(code));
    ranks_stage("the data and the model to be read");
    NEXT(code, job_resume(&r->job, s));
    if (s->resume_intact)
        fit->resume_from = r->job.resumed;
    r->job.splits = s->async < 0;
    r->job.silent = r->quiet;
    r->job.options.tune_stop = on_tune;
    r->job.options.tune_user = r;
    /* The threads that decode data would disturb the measurement of devices, so devices come
     * first. */
    first_step_stage("options");
    NEXT(code, job_devices(&r->job, s));
    first_step_stage("devices");
    if (s->global_batch) { /* collective */
        code = ranks_agree(&r->job.ranks, code);
        NEXT(code, job_global_batch(&r->job, &r->own));
    }
    if (s->val) { /* collective */
        code = ranks_agree(&r->job.ranks, code);
        NEXT(code, job_validation_seed(&r->job, s));
    }
    NEXT(code, job_data(&r->job, s, DATA_TRAIN | DATA_TEST));
    NEXT(code, use_same_run(&r->job, s));
    r->job.stop = should_end;
    first_step_stage("data");
    code = ranks_agree(&r->job.ranks, code); /* the next call is collective */
    NEXT(code, job_choose_mesh(&r->job, &r->own));
    NEXT(code, job_model(&r->job, s));
    NEXT(code, load_first(&r->job, s, r->quiet));
    NEXT(code, fit_validation(&r->job, s, fit));
    NEXT(code, job_policies(&r->job, s, fit));
    if (!code && ranks_prints(&r->job.ranks))
        code = check_folder(r);
    if (!code && ranks_prints(&r->job.ranks))
        code = open_metrics(r);
    fit->lock = r->lock;
    fit->batch = r->job.options.batch;
    fit->schedule_batch = r->job.scaled.batch;
    first_step_stage("model");
    code = job_trainer(&r->job, s, end_early(code));
    first_step_stage("trainer");
    if (code) /* a signal may have ended a wait */
        return stop_signal() ? stop_code() : code;
    code = ranks_agree(&r->job.ranks, end_early(0));
    ranks_interrupt(NULL);
    return code;
}

/* --- the run --------------------------------------------------------------------------------- */

static void print_start(const run *r)
{
    const job *j = &r->job;
    printf("%s: ", r->settings->model);
    show_parameters(j);
    printf(", %lld samples", (long long)clt_dataset_count(j->train));
    if (job_classes(j->train))
        printf(" of %lld classes", (long long)job_classes(j->train));
    if (j->validation)
        printf(", %lld for validation", (long long)clt_dataset_count(j->validation));
    printf(", %lld steps of %lld on", (long long)j->steps, (long long)replicas_batch(j));
    for (int i = 0; i < j->n_devices; i++)
        printf("%s %s", i ? "," : "", clt_device_label(j->devices[i]));
    if (j->ranks.world.ranks > 1)
        printf(", the devices of rank 0 of %d", j->ranks.world.ranks);
    printf("\n");
    if (j->replicas.total)
        replicas_print(j);
    print_measuring(j, r->settings);
    for (int i = 0; i < j->n_devices; i++) {
        int programs, kernels;
        clt_device_kernel_count(j->devices[i], &programs, &kernels);
        printf("%s: %d kernels of %d programs\n", clt_device_label(j->devices[i]), kernels,
               programs);
    }
    fflush(stdout);
}

/* Reports why the run stopped. Without a signal on this rank the cause is the metrics file, which
 * metrics_close reports, or another rank. */
static int stopped(const run *r)
{
    const char *dir = r->settings->checkpoint_dir;
    const int code = ranks_agree(&r->job.ranks, stopped_by          ? stop_code()
                                                : r->metrics_failed ? EXIT_FAILED
                                                                    : 0);
    /* cltrain-launch asked, and says itself what follows */
    if (!stopped_by || (stopped_by == SIGUSR2 && r->settings->heartbeat))
        return code;
    say("%s: %s%s%s%s", signal_name(), clt_error_message(), dir ? "; saved in " : "; nothing saved",
        dir ? dir : ": there is no --checkpoint-dir", dir ? ", --resume goes on" : "");
    return code;
}

static void print_end(const run *r)
{
    const char *dir = r->settings->checkpoint_dir;
    if (r->progress.first < 0)
        printf("nothing to do: the run has %lld steps already, of %lld\n",
               (long long)clt_trainer_steps(r->job.trainer), (long long)r->job.steps);
    else
        printf("done: %lld steps%s%s\n", (long long)clt_trainer_steps(r->job.trainer),
               dir ? "; saved in " : "", dir ? dir : "");
    if (r->progress.first >= 0 && r->job.replicas.total)
        replicas_print_end(&r->job);
    if (r->progress.first >= 0 && has_one_scale(r))
        printf(
            "f16: %lld steps skipped, whose gradients were not finite; loss scale %g at the end\n",
            (long long)r->skipped, r->loss_scale);
    fflush(stdout); /* closing may take a moment, since compiled kernels are stored */
}

static int train(run *r, clt_fit_options *fit)
{
    fit->splits = r->job.changes.count ? r->job.changes.list + 1 : NULL;
    fit->n_splits = r->job.changes.count ? r->job.changes.count - 1 : 0;
    fit->on_step = on_step;
    fit->on_epoch = on_epoch;
    fit->on_validation = on_validation;
    fit->on_policy = on_policy;
    fit->on_checkpoint = on_checkpoint;
    fit->should_stop = should_stop;
    fit->user = r;
    progress_init(&r->progress, r->quiet);
    change_begin(&r->change, &r->job, r->settings);
    if (!r->quiet)
        print_start(r);
    profile_set profiles = {0};
    clt_status status = CLT_OK;
    measure_later_begin(&r->job);
    const int described = use_record(&r->job, r->settings);
    if (described)
        return described;
    if (r->settings->profile)
        status = profiles_start(&r->job, &profiles);
    if (r->settings->async >= 0)
        NEXT(status, async_run(&r->job, r->settings, fit));
    else if (r->job.replicas.total)
        NEXT(status, clt_local_fit(r->job.replicas.local, r->job.train, r->job.test, fit));
    else
        NEXT(status, clt_fit(r->job.trainer, r->job.train, r->job.test, fit));
    progress_end(&r->progress);
    const int profiled = profiles_save(&r->job, &profiles, r->settings->profile);
    if (profiled)
        return profiled;
    if (status == CLT_STOPPED)
        return stopped(r);
    if (status == CLT_NONFINITE)
        return failure("%s; %s", clt_error_message(),
                       r->job.options.precision == CLT_F16
                           ? "--precision bf16 or a lower --lr may help"
                       : r->settings->no_guard
                           ? "if data and first weights are right, a lower --lr may help"
                           : "if data and first weights are right, a lower --lr or --clip-norm may "
                             "help (--no-guard goes on anyway)");
    if (status != CLT_OK)
        return library_failure(status);
    if (!r->quiet)
        print_end(r);
    measure_later_end(&r->job, r->settings);
    return EXIT_DONE;
}

int run_train(const settings *s)
{
    run r = {.own = *s}; /* texts belong to `s` */
    r.settings = &r.own;
    clt_fit_options fit;
    first_step_begin();
    catch_signals();
    const async_role role = async_role_of(s);
    int code = async_check(s);
    if (code)
        return code;
    if (role == FOLLOWER || role == WORKER)
        async_quieten(&r.own);
    if (role == FOLLOWER)
        return async_follow(&r.own, stop_signal);
    code = start_compile_processes(s, &r.processes);
    NEXT(code, set_up(&r, &fit));
    NEXT(code, train(&r, &fit));
    clt_folder_lock_release(r.lock);
    const int written = metrics_close(r.metrics);
    return job_close(&r.job, code ? code : written);
}
